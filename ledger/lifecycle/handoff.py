"""The state machine of a handoff: its states, and which party may do what in which state.

It sees one handoff only; the parties are names in its first event. ``admission.rules`` checks across streams whether
an agent has a role and whether the dependencies have unlocked the handoff. Only ``is_unlocked`` and ``is_lapsed``
(``handoff_status``) answer those two questions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from shlex import quote
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.lifecycle import require_imported
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.handoff_status import FINAL, Status, is_lapsed


class HandoffState(msgspec.Struct, frozen=True, array_like=True, tag="handoff"):
    """The state of one handoff.

    ``criteria`` are ``open``, ``claimed`` (ticked in an imported file, and still open here), ``asked`` (still open, and
    its reviewer is asked to waive it), ``checked`` or ``waived``, in the order of the event. ``importer`` acts for a
    sender that may not be registered here. ``claimed_status`` is the status in an imported file, until somebody
    confirms or amends it. ``is_announced``: the router has announced it. ``approval_key`` signed the approval, which is
    the entry ``approval_index``. ``completion`` is the event that completed it last.
    """

    sender: str
    receiver: str
    reviewer: str
    status: Status
    version: str
    depends_on: tuple[str, ...]
    unlock_at: kinds.UnlockAt
    tasks: tuple[bool, ...]
    criteria: tuple[str, ...]
    lease: Span | None = None
    reason: str = ""
    importer: str = ""
    claimed_status: str | None = None
    is_announced: bool = False
    approval_key: str = ""
    approval_index: int | None = None
    completion: str = ""

    @property
    def senders(self) -> tuple[str, ...]:
        """The agents that may act as its sender."""
        return tuple(name for name in (self.sender, self.importer) if name)


def compute_version(sender: str, data: kinds.HandoffContent) -> str:
    """Return the ref of the content that a reviewer approves: everything but status, check marks and log."""
    content = msgspec.to_builtins(kinds.content_of(data)) | {"from": sender}
    return "sha256:" + hashlib.sha256(encode_sorted(content)).hexdigest()


def _opened(data: kinds.HandoffContent, event: Event, *, sender: str, importer: str = "") -> HandoffState:
    # Without a reviewer the sender verifies (only a human may, by a rule about roles). Nobody reviews their own work,
    # so an agent that hands work to itself must name another reviewer.
    reviewer = data.reviewer or event.author
    if reviewer == data.to or data.reviewer == event.author:
        message = f"{reviewer} is the sender or receiver of {event.name} and cannot review it: name another reviewer"
        raise Refused("SELF_APPROVAL", message, name=reviewer)
    opened = _unworked(data, sender, reviewer=reviewer, importer=importer)
    return opened if data.reviewer else _approved(opened, event)


def _approved(state: HandoffState, event: Event) -> HandoffState:
    return replace(state, status="approved", approval_key=event.key, approval_index=event.index)


def _unworked(data: kinds.HandoffContent, sender: str, *, reviewer: str, importer: str) -> HandoffState:
    return HandoffState(
        sender=sender,
        receiver=data.to or "",
        reviewer=reviewer,
        status="pending",
        version=compute_version(sender, data),
        depends_on=tuple(data.depends_on),
        unlock_at=data.unlock_at,
        tasks=(False,) * len(data.tasks),
        criteria=("open",) * len(data.criteria),
        importer=importer,
    )


def _imported(state: HandoffState | None, event: Event, data: RecordImported) -> HandoffState:
    """Import the content of a file and nothing else: whatever status the file claims, the handoff is pending.

    It may be imported again when its file changes, until somebody confirms or amends it here.
    """
    mapped = read_mapped(data)
    if mapped is None:
        message = f"the record is not mapped to a handoff: put it on the stream record/{event.name}"
        raise Refused("TRANSITION_NOT_ALLOWED", message)
    require_imported(event, None if state is None else (state.importer or state.sender, bool(state.importer)))
    if state is not None and state.claimed_status is None:
        message = f"the import of {event.name} was already confirmed or amended: change it with `deed handoff amend`"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)
    content, claims = mapped
    assert isinstance(content, kinds.HandoffContent)  # noqa: S101 - the kind's stream fixes what it maps to
    assert isinstance(claims, kinds.HandoffClaims)  # noqa: S101 - as above
    sender = data.claimed_author or ""
    after = _unworked(content, sender, reviewer=content.reviewer or sender, importer=event.author)
    tasks, criteria = after.tasks, after.criteria
    for position in claims.tasks:
        tasks = _replaced(tasks, position, True, "task")  # noqa: FBT003 - a mark
    for position in claims.criteria:
        criteria = _replaced(criteria, position, "claimed", "criterion")
    claimed = replace(after, tasks=tasks, criteria=criteria, claimed_status=claims.status or "")
    if state is not None and replace(claimed, completion=state.completion) == state:
        raise Refused("NOTHING_CHANGED", f"{event.name} has not changed since its last import: leave it out")
    return replace(claimed, completion=event.id)


def _replaced(marks: tuple[Any, ...], position: int, mark: object, what: str) -> tuple[Any, ...]:
    if position >= len(marks):
        raise Refused(
            "INVALID_FIELD", f"there is no {what} {position + 1}: the last is {len(marks)}", path="$.data.position"
        )
    return (*marks[:position], mark, *marks[position + 1 :])


def transition(state: HandoffState | None, event: Event) -> HandoffState:
    """Return the state after ``event``.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, ``NOT_AUTHORIZED``, ``SELF_APPROVAL``, ``NOT_APPROVED``,
    ``VERSION_MISMATCH``, ``ALREADY_CLAIMED`` or ``CRITERIA_OPEN``.
    """
    if isinstance(event.data, kinds.HandoffCreated):
        if state is not None:
            message = f"handoff {event.name} already exists: choose another id, or change it with `deed handoff amend`"
            raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)
        return _opened(event.data, event, sender=event.author)
    if isinstance(event.data, RecordImported):
        return _imported(state, event, event.data)
    if state is None:
        message = f"there is no handoff {event.name}: `deed handoff list` shows all handoffs"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status=None)
    step = _STEPS.get(type(event.data))
    if step is None:
        raise Refused("UNKNOWN_KIND", f"{event.kind} is not an event of a handoff", kind=event.kind)
    if is_lapsed(state.status, state.lease, event.accepted_ms):
        # A claim with an expired lease does not count: the work is free again, and its receiver must claim it again.
        state = replace(state, status="approved", lease=None)
    return step(state, event, event.data)


def _amend(state: HandoffState, event: Event, data: kinds.HandoffAmended) -> HandoffState:
    if data.hands_over:
        return _hand_over(state, event, data)
    _require_party(event, *state.senders)
    _require(state, event, "pending", "approved")
    return _opened(data, event, sender=state.sender, importer=state.importer)


def _hand_over(state: HandoffState, event: Event, data: kinds.HandoffAmended) -> HandoffState:
    """Let the reviewer name another reviewer, who must approve again. Only the sender may change anything else."""
    _require_reviewer(state, event)
    _require(state, event, "pending", "approved")
    if data.reviewer in (None, *state.senders, state.receiver, state.reviewer):
        message = f"the new reviewer of {event.name} must not be its sender, receiver or present reviewer: name another"
        raise Refused("SELF_APPROVAL", message, reviewer=data.reviewer)
    same = replace(data, reviewer=state.reviewer)
    # If the content has no day of creation, views show the day of its event.
    versions = {compute_version(state.sender, content) for content in (same, replace(same, created=None))}
    if state.version not in versions:
        message = f"a reviewer who hands over {event.name} may change only its reviewer: leave the content as it is"
        raise Refused("VERSION_MISMATCH", message, version=state.version)
    return _unworked(data, state.sender, reviewer=data.reviewer or "", importer=state.importer)


def _approve(state: HandoffState, event: Event, data: kinds.HandoffApproved) -> HandoffState:
    _require_reviewer(state, event)
    # A second approval is possible only if the first does not count: that is a rule about keys (``admission.rules``).
    _require(state, event, "pending", "approved")
    if data.version != state.version:
        message = f"handoff {event.name} is now at version {state.version}: read it again before you approve it"
        raise Refused("VERSION_MISMATCH", message, version=state.version, approved=data.version)
    return replace(_approved(state, event), claimed_status=None, completion="")


def _reject(state: HandoffState, event: Event, data: kinds.HandoffRejected) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "pending")
    return replace(state, status="rejected", reason=data.reason, claimed_status=None)


def _claim(state: HandoffState, event: Event, data: kinds.HandoffClaimed) -> HandoffState:
    _require_party(event, state.receiver)
    if state.status in ("pending", "rejected"):
        needed = f": {state.reviewer} must approve it first" if state.status == "pending" else " and cannot be claimed"
        raise Refused("NOT_APPROVED", f"handoff {event.name} is {state.status}{needed}", status=state.status)
    if state.status in ("in_progress", "blocked"):
        message = f"handoff {event.name} is already claimed: it is {state.status}"
        raise Refused("ALREADY_CLAIMED", message, status=state.status)
    _require(state, event, "approved")
    now_ms = event.accepted_ms
    lease = None if data.lease_seconds is None else Span(now_ms, now_ms + 1000 * data.lease_seconds)
    return replace(state, status="in_progress", lease=lease, reason="", is_announced=False)


def _check_task(state: HandoffState, event: Event, data: kinds.HandoffTaskChecked) -> HandoffState:
    _require_working(state, event)
    tasks = _replaced(state.tasks, data.position, data.checked, "task")
    if tasks == state.tasks:
        raise _unchanged(event, f"task {data.position + 1}", "done" if data.checked else "open")
    return replace(state, tasks=tasks)


def _check_criterion(state: HandoffState, event: Event, data: kinds.HandoffCriterionChecked) -> HandoffState:
    _require_working(state, event)
    if not data.checked and state.criteria[data.position : data.position + 1] == ("waived",):
        message = f"criterion {data.position + 1} of {event.name} was waived by its reviewer and has no tick to remove"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)
    if data.checked and data.evidence and state.criteria[data.position : data.position + 1] == ("checked",):
        return state  # more evidence for a checked criterion: the log keeps both
    return _marked(state, event, data.position, "checked" if data.checked else "open")


def _ask_waiver(state: HandoffState, event: Event, data: kinds.HandoffWaiverAsked) -> HandoffState:
    _require_working(state, event)
    return _marked(state, event, data.position, "asked")


def _waive_criterion(state: HandoffState, event: Event, data: kinds.HandoffCriterionWaived) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "in_progress", "completed")
    if not data.granted and state.criteria[data.position : data.position + 1] not in ((), ("asked",)):
        raise _unchanged(event, f"criterion {data.position + 1}", "not asked to be waived")
    return _marked(state, event, data.position, "waived" if data.granted else "open")


def _marked(state: HandoffState, event: Event, position: int, mark: str) -> HandoffState:
    criteria = _replaced(state.criteria, position, mark, "criterion")
    if criteria == state.criteria or (mark == "asked" and state.criteria[position] in ("checked", "waived")):
        raise _unchanged(event, f"criterion {position + 1}", state.criteria[position])
    return replace(state, criteria=criteria)


def _unchanged(event: Event, what: str, mark: str) -> Refused:
    return Refused("NOTHING_CHANGED", f"{what} of {event.name} is already {mark}: leave it out", mark=mark)


def _stop(state: HandoffState, event: Event, data: kinds.HandoffReleased | kinds.HandoffBlocked) -> HandoffState:
    _require_working(state, event)
    status: Status = "blocked" if isinstance(data, kinds.HandoffBlocked) else "approved"
    return replace(state, status=status, lease=None, reason=data.reason)


def _log(state: HandoffState, event: Event, _data: kinds.HandoffLogged) -> HandoffState:
    _require_party(event, *state.senders, state.receiver, state.reviewer)
    return state


def _unblock(state: HandoffState, event: Event, _data: kinds.HandoffUnblocked) -> HandoffState:
    _require_party(event, state.receiver, state.reviewer)
    _require(state, event, "blocked")
    return replace(state, status="in_progress", reason="")


def _complete(state: HandoffState, event: Event, _data: kinds.HandoffCompleted) -> HandoffState:
    _require_working(state, event)
    unmet = [number for number, mark in enumerate(state.criteria, 1) if mark not in ("checked", "waived")]
    if unmet:
        numbers = ", ".join(map(str, unmet))
        message = f"{event.name} has open acceptance criteria ({numbers}): check them or have them waived first"
        raise Refused("CRITERIA_OPEN", message, criterion_numbers=unmet)
    return replace(state, status="completed", lease=None, completion=event.id)


def _request_changes(state: HandoffState, event: Event, data: kinds.HandoffChangesRequested) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "completed")
    _require_latest_completion(state, event, data.completion)
    return replace(state, status="in_progress", reason="; ".join(data.reasons))


def _verify(state: HandoffState, event: Event, data: kinds.HandoffVerified) -> HandoffState:
    _require_reviewer(state, event)
    if state.claimed_status is None:  # else the reviewer confirms that imported work is done
        _require(state, event, "completed")
    _require_latest_completion(state, event, data.completion, data.version)
    return replace(state, status="verified", claimed_status=None)


def _require_latest_completion(state: HandoffState, event: Event, completion: str, version: str | None = None) -> None:
    """Refuse a decision on a result that was completed again since the reviewer read it."""
    if completion == state.completion and version in (None, state.version):
        return
    message = f"{event.name} was completed again since you read it: see `deed handoff show {quote(event.name)}`"
    raise Refused("VERSION_MISMATCH", message, version=state.version, completion=state.completion)


def _cancel(state: HandoffState, event: Event, data: kinds.HandoffCancelled) -> HandoffState:
    _require_party(event, *state.senders, state.reviewer)
    return _ended(state, event, "cancelled", data.reason)


def _supersede(state: HandoffState, event: Event, data: kinds.HandoffSuperseded) -> HandoffState:
    _require_party(event, *state.senders)
    if data.by == event.name:
        raise Refused("INVALID_FIELD", f"{event.name} cannot supersede itself: name another handoff", path="$.data.by")
    return _ended(state, event, "superseded", data.reason or f"by {data.by}")


def _ready(state: HandoffState, event: Event, data: kinds.HandoffReady) -> HandoffState:
    _require(state, event, "approved")
    if state.is_announced:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.name} is already announced as ready", status=state.status)
    if (data.to, data.version) != (state.receiver, state.version):
        message = f"{event.name} is now at version {state.version}, for {state.receiver or 'nobody'}"
        raise Refused("VERSION_MISMATCH", message, version=state.version)
    return replace(state, is_announced=True)


def _ended(state: HandoffState, event: Event, status: Status, reason: str) -> HandoffState:
    if state.status in FINAL:
        _not_allowed(state, event)
    return replace(state, status=status, lease=None, reason=reason, claimed_status=None, is_announced=False)


# Each function takes the data type in its row; the table erases that to Any.
_STEPS: Final[dict[type[Any], Callable[[HandoffState, Event, Any], HandoffState]]] = {
    kinds.HandoffAmended: _amend,
    kinds.HandoffApproved: _approve,
    kinds.HandoffRejected: _reject,
    kinds.HandoffClaimed: _claim,
    kinds.HandoffTaskChecked: _check_task,
    kinds.HandoffCriterionChecked: _check_criterion,
    kinds.HandoffWaiverAsked: _ask_waiver,
    kinds.HandoffCriterionWaived: _waive_criterion,
    kinds.HandoffReleased: _stop,
    kinds.HandoffLogged: _log,
    kinds.HandoffBlocked: _stop,
    kinds.HandoffUnblocked: _unblock,
    kinds.HandoffCompleted: _complete,
    kinds.HandoffChangesRequested: _request_changes,
    kinds.HandoffVerified: _verify,
    kinds.HandoffCancelled: _cancel,
    kinds.HandoffSuperseded: _supersede,
    kinds.HandoffReady: _ready,
}


_NEXT_STEPS: Final[dict[Status, str]] = {
    "pending": "its reviewer can approve or reject it",
    "approved": "its receiver can claim it",
    "in_progress": "its receiver can complete it",
    "blocked": "its receiver or reviewer can unblock it",
    "completed": "its reviewer can verify it or request changes",
}


def _require(state: HandoffState, event: Event, *allowed: Status) -> None:
    if state.status not in allowed:
        _not_allowed(state, event)


def _not_allowed(state: HandoffState, event: Event) -> NoReturn:
    next_step = _NEXT_STEPS.get(state.status)
    hint = f"{next_step} (see `deed handoff why {quote(event.name)}`)" if next_step else "it is closed"
    message = f"handoff {event.name} is {state.status}, so {event.kind} is not possible: {hint}"
    raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)


def _require_working(state: HandoffState, event: Event) -> None:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")


def _require_party(event: Event, *allowed: str) -> None:
    if event.author not in allowed:
        names = " or ".join(dict.fromkeys(name for name in allowed if name)) or "an agent that is not registered here"
        message = f"only {names} may sign {event.kind} of {event.name}, not {event.author}"
        raise Refused("NOT_AUTHORIZED", message, allowed=list(allowed))


def _require_reviewer(state: HandoffState, event: Event) -> None:
    if event.author == state.reviewer and event.author != state.receiver:
        return
    hint = f"its reviewer is {state.reviewer}"
    if state.reviewer in ("", state.receiver):
        command = f"`deed handoff amend {quote(event.name)} --reviewer OTHER`"
        hint = f"{state.senders[-1]} must name a reviewer with {command}"
    if event.author in (*state.senders, state.receiver):
        message = f"{event.author} is the sender or receiver of {event.name} and cannot review it: {hint}"
        raise Refused("SELF_APPROVAL", message, reviewer=state.reviewer)
    message = f"{event.author} is not the reviewer of {event.name}: {hint}"
    raise Refused("NOT_AUTHORIZED", message, reviewer=state.reviewer)
