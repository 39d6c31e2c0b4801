"""The life of a handoff: its state, how it begins, and who may do what in which state.

This machine knows one handoff: its parties are names in its own first event. Whether a name has a role, and
whether the handoffs it depends on have unlocked it, is decided by ``admission.rules`` over several streams.
``is_unlocked`` and ``is_lapsed`` (``handoff_status``) are the only places where those two questions are answered.
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
    """Where one handoff stands.

    ``criteria`` are ``open``, ``claimed`` (ticked in an imported file, and still open here), ``asked`` (open too, and
    its reviewer is asked to waive it), ``checked`` or ``waived``, in the order of the event. ``importer`` acts for a
    sender who may not be registered here; ``claimed_status`` is what an imported file says of itself, until somebody
    confirms or amends it. ``is_announced``: the router has told. ``approval_key`` signed the approval, which is the
    entry ``approval_index``. ``completion`` is the event that handed it in last.
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
        """Who may act as its sender."""
        return tuple(name for name in (self.sender, self.importer) if name)


def compute_version(sender: str, data: kinds.HandoffContent) -> str:
    """Return the ref of what a reviewer approves: everything but status, check marks and log."""
    content = msgspec.to_builtins(kinds.content_of(data)) | {"from": sender}
    return "sha256:" + hashlib.sha256(encode_sorted(content)).hexdigest()


def _opened(data: kinds.HandoffContent, event: Event, *, sender: str, importer: str = "") -> HandoffState:
    # Without a reviewer the sender verifies; that only a human may do so is a rule about roles. Nobody ever reviews
    # work that he does himself, so who hands work to himself names somebody else.
    reviewer = data.reviewer or event.author
    if reviewer == data.to or data.reviewer == event.author:
        message = f"{reviewer} is sender or receiver of {event.name} and cannot review"
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
    """Take a file's word for its content, and for nothing else: whatever it claims, it is pending.

    It may be imported again, as its file goes on changing, until somebody here confirmed or amended it.
    """
    mapped = read_mapped(data)
    if mapped is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"the record stands for no handoff: it belongs on record/{event.name}")
    require_imported(event, None if state is None else (state.importer or state.sender, bool(state.importer)))
    if state is not None and state.claimed_status is None:
        message = f"the import of {event.name} was confirmed or amended: its sender changes it by `deed handoff amend`"
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
        raise Refused("NOTHING_CHANGED", f"{event.name} was imported as it is: import it again once it has changed")
    return replace(claimed, completion=event.id)


def _replaced(marks: tuple[Any, ...], position: int, mark: object, what: str) -> tuple[Any, ...]:
    if position >= len(marks):
        raise Refused(
            "INVALID_FIELD", f"there is no {what} {position + 1}: there are {len(marks)}", path="$.data.position"
        )
    return (*marks[:position], mark, *marks[position + 1 :])


def transition(state: HandoffState | None, event: Event) -> HandoffState:
    """Return the state after ``event``.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, ``NOT_AUTHORIZED``, ``SELF_APPROVAL``, ``NOT_APPROVED``,
    ``VERSION_MISMATCH``, ``ALREADY_CLAIMED`` or ``CRITERIA_OPEN``.
    """
    if isinstance(event.data, kinds.HandoffCreated):
        if state is not None:
            message = f"handoff {event.name} exists already: choose another id, or change it by `deed handoff amend`"
            raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)
        return _opened(event.data, event, sender=event.author)
    if isinstance(event.data, RecordImported):
        return _imported(state, event, event.data)
    if state is None:
        message = f"there is no handoff {event.name}: `deed handoff list` shows those that there are"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status=None)
    step = _STEPS.get(type(event.data))
    if step is None:
        raise Refused("UNKNOWN_KIND", f"{event.kind} is no step in a handoff's life", kind=event.kind)
    if is_lapsed(state.status, state.lease, event.accepted_ms):
        # A claim whose lease ran out is no claim: the work is free again, and its last holder must claim it anew.
        state = replace(state, status="approved", lease=None)
    return step(state, event, event.data)


def _amend(state: HandoffState, event: Event, data: kinds.HandoffAmended) -> HandoffState:
    if data.hands_over:
        return _hand_over(state, event, data)
    _require_party(event, *state.senders)
    _require(state, event, "pending", "approved")
    return _opened(data, event, sender=state.sender, importer=state.importer)


def _hand_over(state: HandoffState, event: Event, data: kinds.HandoffAmended) -> HandoffState:
    """Let the reviewer put another one in his place, who approves it anew; everything else stays the sender's."""
    _require_reviewer(state, event)
    _require(state, event, "pending", "approved")
    if data.reviewer in (None, *state.senders, state.receiver, state.reviewer):
        message = f"hand {event.name} over to a reviewer who is no party to it: name another"
        raise Refused("SELF_APPROVAL", message, reviewer=data.reviewer)
    same = replace(data, reviewer=state.reviewer)
    # Views show the day on which it was made where the content names none.
    if state.version not in {compute_version(state.sender, one) for one in (same, replace(same, created=None))}:
        message = f"who hands {event.name} over changes its reviewer alone: its content is its sender's to amend"
        raise Refused("VERSION_MISMATCH", message, version=state.version)
    return _unworked(data, state.sender, reviewer=data.reviewer or "", importer=state.importer)


def _approve(state: HandoffState, event: Event, data: kinds.HandoffApproved) -> HandoffState:
    _require_reviewer(state, event)
    # Again: only where the approval there does not count, which is a rule about keys (``admission.rules``).
    _require(state, event, "pending", "approved")
    if data.version != state.version:
        message = f"handoff {event.name} is now version {state.version}: read it again before approving"
        raise Refused("VERSION_MISMATCH", message, version=state.version, approved=data.version)
    return replace(_approved(state, event), claimed_status=None, completion="")


def _reject(state: HandoffState, event: Event, data: kinds.HandoffRejected) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "pending")
    return replace(state, status="rejected", reason=data.reason, claimed_status=None)


def _claim(state: HandoffState, event: Event, data: kinds.HandoffClaimed) -> HandoffState:
    _require_party(event, state.receiver)
    if state.status in ("pending", "rejected"):
        raise Refused("NOT_APPROVED", f"handoff {event.name} is {state.status}", status=state.status)
    if state.status in ("in_progress", "blocked"):
        raise Refused("ALREADY_CLAIMED", f"handoff {event.name} is {state.status} already", status=state.status)
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
        message = f"criterion {data.position + 1} of {event.name} was waived by its reviewer, not ticked"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)
    if data.checked and data.evidence and state.criteria[data.position : data.position + 1] == ("checked",):
        return state  # later evidence of the same: the log keeps both
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
    return Refused("NOTHING_CHANGED", f"{what} of {event.name} is {mark} already: leave it out", mark=mark)


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
        named = ", ".join(map(str, unmet))
        message = f"{event.name} has open acceptance criteria ({named}): check them, or have them waived, first"
        raise Refused("CRITERIA_OPEN", message, criterion_numbers=unmet)
    return replace(state, status="completed", lease=None, completion=event.id)


def _request_changes(state: HandoffState, event: Event, data: kinds.HandoffChangesRequested) -> HandoffState:
    _require_reviewer(state, event)
    _require(state, event, "completed")
    _require_seen(state, event, data.completion)
    return replace(state, status="in_progress", reason="; ".join(data.reasons))


def _verify(state: HandoffState, event: Event, data: kinds.HandoffVerified) -> HandoffState:
    _require_reviewer(state, event)
    if state.claimed_status is None:  # else the reviewer confirms that what was imported is done
        _require(state, event, "completed")
    _require_seen(state, event, data.completion, data.version)
    return replace(state, status="verified", claimed_status=None)


def _require_seen(state: HandoffState, event: Event, completion: str, version: str | None = None) -> None:
    """Refuse to judge a result that was handed in anew since the reviewer read it."""
    if completion == state.completion and version in (None, state.version):
        return
    message = f"{event.name} was handed in anew since: read it again (`deed handoff show {quote(event.name)}`)"
    raise Refused("VERSION_MISMATCH", message, version=state.version, completion=state.completion)


def _cancel(state: HandoffState, event: Event, data: kinds.HandoffCancelled) -> HandoffState:
    _require_party(event, *state.senders, state.reviewer)
    return _ended(state, event, "cancelled", data.reason)


def _supersede(state: HandoffState, event: Event, data: kinds.HandoffSuperseded) -> HandoffState:
    _require_party(event, *state.senders)
    if data.by == event.name:
        raise Refused("INVALID_FIELD", f"{event.name} cannot take its own place", path="$.data.by")
    return _ended(state, event, "superseded", data.reason or f"by {data.by}")


def _ready(state: HandoffState, event: Event, data: kinds.HandoffReady) -> HandoffState:
    _require(state, event, "approved")
    if state.is_announced:
        raise Refused("TRANSITION_NOT_ALLOWED", f"{event.name} was announced as ready already", status=state.status)
    if (data.to, data.version) != (state.receiver, state.version):
        raise Refused("VERSION_MISMATCH", f"{event.name} is now version {state.version}", version=state.version)
    return replace(state, is_announced=True)


def _ended(state: HandoffState, event: Event, status: Status, reason: str) -> HandoffState:
    if state.status in FINAL:
        _not_allowed(state, event)
    return replace(state, status=status, lease=None, reason=reason, claimed_status=None, is_announced=False)


# Each function takes the data type it stands beside; the table erases that to Any.
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


def _require(state: HandoffState, event: Event, *allowed: Status) -> None:
    if state.status not in allowed:
        _not_allowed(state, event)


def _not_allowed(state: HandoffState, event: Event) -> NoReturn:
    why = f"`deed handoff why {quote(event.name)}`"
    message = f"{event.kind} cannot follow: handoff {event.name} is {state.status} ({why})"
    raise Refused("TRANSITION_NOT_ALLOWED", message, status=state.status)


def _require_working(state: HandoffState, event: Event) -> None:
    _require_party(event, state.receiver)
    _require(state, event, "in_progress")


def _require_party(event: Event, *allowed: str) -> None:
    if event.author not in allowed:
        names = ", ".join(dict.fromkeys(name for name in allowed if name)) or "nobody registered here"
        message = f"{event.kind} of {event.name} is for {names}, and not for {event.author}: leave it to them"
        raise Refused("NOT_AUTHORIZED", message, allowed=list(allowed))


def _require_reviewer(state: HandoffState, event: Event) -> None:
    if event.author == state.reviewer and event.author != state.receiver:
        return
    judge = f"leave it to {state.reviewer}, its reviewer"
    if state.reviewer in ("", state.receiver):
        judge = f"{state.senders[-1]} names a reviewer (`deed handoff amend {quote(event.name)} --reviewer OTHER`)"
    if event.author in (*state.senders, state.receiver):
        message = f"{event.author} is party to {event.name}: {judge}"
        raise Refused("SELF_APPROVAL", message, reviewer=state.reviewer)
    message = f"{event.author} does not review {event.name}: {judge}"
    raise Refused("NOT_AUTHORIZED", message, reviewer=state.reviewer)
