"""The state machine of a handoff: its state, and the conditions of ``proto/rules/handoff.json``.

That file says which party may do what in which state. This module decides when each of its conditions holds, and what
the state stores. ``ledger_conditions`` read agents, keys and other handoffs, the other conditions only this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from shlex import quote
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.authority import Agents, compromised_at, has_role, voided, why_unregistered
from deedbook.ledger.lifecycle.clock import Span
from deedbook.ledger.lifecycle.handoff_status import (
    CriterionMark,
    QuestionMark,
    Status,
    is_lapsed,
    is_unlocked,
)
from deedbook.ledger.lifecycle.machine import (
    REVIEWING,
    LedgerState,
    Question,
    StateMachine,
    Unmet,
    asks_another,
    import_is_own,
    receiver_is_registered,
    replacement_exists,
    replacement_is_another,
    void_text,
)
from deedbook.ledger.lifecycle.rules import Row, rules_of

MET: Final = frozenset({"checked", "waived"})
"""The marks of a criterion that is no longer open."""
# The search for a cycle visits at most this many handoffs. A handoff with more is refused, never half-checked.
dependencies_walked_max: Final = 100_000
questions_max: Final = 1_000
questions_of_author_max: Final = 100
"""The limit of open questions of one agent about a handoff, so that other agents can ask, too."""


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """An approval, verification, waiver or hand-over: its entry, its author and the key (hex) that signed it."""

    index: int
    by: str
    key: str


class Completion(msgspec.Struct, frozen=True, array_like=True):
    """The event that submitted a result (a completion or an import): its id, its entry, its author and key (hex)."""

    id: str
    index: int
    by: str
    key: str


class AskedQuestion(msgspec.Struct, frozen=True, array_like=True):
    """The parties of a question about a handoff: who asks, and who is asked."""

    by: str
    to: str


class HandoffState(msgspec.Struct, frozen=True, array_like=True, tag="handoff"):
    """The state of one handoff.

    ``tasks`` are ``open`` or ``done``. ``criteria`` are ``open``, ``claimed`` (ticked in an imported file, and still
    open here), ``reopened`` (checked before changes were requested, and open again), ``asked`` (its reviewer is asked
    to waive it, and it is still open), ``checked`` or ``waived``. Both are in the order of the content. ``importer``
    acts for a sender that may not be registered here. ``claimed_status`` is the status in an imported file, until
    somebody confirms or amends it. ``is_announced``: the router has announced it. ``waivers`` are the decisions that
    waived the criteria, in their order. ``handovers`` are the decisions by which reviewers passed the review on, in
    order. ``questions`` are ``open``, ``answered`` or ``settled``, in the order in which they were asked; ``asked`` has
    their parties.
    """

    sender: str
    receiver: str
    reviewer: str
    status: Status
    version: str
    depends_on: tuple[str, ...]
    unlock_at: UnlockAt
    tasks: tuple[str, ...]
    criteria: tuple[CriterionMark, ...]
    lease: Span | None = None
    reason: str = ""
    importer: str = ""
    claimed_status: str | None = None
    is_announced: bool = False
    approval: Decision | None = None
    completion: Completion | None = None
    verification: Decision | None = None
    waivers: tuple[Decision | None, ...] = ()
    handovers: tuple[Decision, ...] = ()
    questions: tuple[QuestionMark, ...] = ()
    asked: tuple[AskedQuestion, ...] = ()

    @property
    def questions_to_receiver(self) -> list[int]:
        """The numbers, from 1, of the questions to its receiver that are not settled."""
        pairs = zip(self.questions, self.asked, strict=True)
        return [at for at, (mark, asked) in enumerate(pairs, 1) if mark != "settled" and asked.to == self.receiver]

    @property
    def approval_key(self) -> str:
        """The key (hex) that signed the approval."""
        return "" if self.approval is None else self.approval.key

    @property
    def approval_index(self) -> int | None:
        """The entry of the approval."""
        return None if self.approval is None else self.approval.index

    @property
    def approver(self) -> str:
        """The agent that made it approved; empty if nobody did."""
        return "" if self.approval is None else self.approval.by

    @property
    def deciders(self) -> set[str]:
        """The agents whose decisions it rests on."""
        decisions = (self.approval, self.verification, *self.waivers, *self.handovers)
        return {made.by for made in decisions if made is not None}

    @property
    def result(self) -> str:
        """The ref of the result that a reviewer judges; empty if no event submitted one."""
        return "" if self.completion is None else compute_result(self.version, self.completion.id)

    @property
    def senders(self) -> tuple[str, ...]:
        """The agents that may act as its sender."""
        return tuple(name for name in (self.sender, self.importer) if name)


def compute_version(sender: str, data: kinds.HandoffContent) -> str:
    """Return the ref of the content that a reviewer approves: everything but status, check marks and log."""
    content = msgspec.to_builtins(kinds.content_of(data)) | {"from": sender}
    if not content.get("notes"):
        content.pop("notes", None)
    return "sha256:" + hashlib.sha256(encode_sorted(content)).hexdigest()


def compute_result(version: str, completion: str) -> str:
    """Return the ref of a result: a hash of the content version and of the id of the event that submitted it."""
    return "sha256:" + hashlib.sha256(encode_sorted({"completion": completion, "version": version})).hexdigest()


def state_name(state: HandoffState, event: Event) -> str:
    """Return the state that the rules see at the time of an event."""
    if state.claimed_status is not None:
        return "imported"
    return "lapsed" if is_lapsed(state.status, state.lease, event.accepted_ms) else state.status


def _party(state: HandoffState, party: str, ledger: LedgerState | None) -> tuple[str, ...]:
    match party:
        case "sender":
            return state.senders
        case "receiver":
            return (state.receiver,)
        case _:  # the reviewer: nobody reviews their own work
            handed_over = (made.by for made in state.handovers)
            names = (state.reviewer, *handed_over) if ledger is None else (reviewer_of(state, ledger),)
            return tuple(name for name in names if name != state.receiver)


def _read_data(event: Event) -> Any:
    mapped = read_mapped(event.data) if isinstance(event.data, RecordImported) else None
    return event.data if mapped is None else mapped[0]


def _apply(question: Question[HandoffState], row: Row) -> HandoffState:
    """Return the state after an accepted event, as ``proto/rules/README.md`` describes each record."""
    event, data = question.event, question.data
    before = question.state
    if before is not None and state_name(before, event) == "lapsed":
        # A claim with an expired lease does not count: the work is free again, and its receiver must claim it again.
        before = replace(before, status="approved", lease=None)
    after = _opened(question) if "content" in row.records else before
    assert after is not None  # noqa: S101 - every row from ``none`` records the content
    status: Any = rules_of("handoff").status_after(row) or after.status
    if before is not None and status != before.status and "content" not in row.records:
        after = replace(after, lease=None, reason=_reason(event), claimed_status=None, is_announced=False)
    changes: dict[str, Any] = {"status": status} | _recorded(after, event, data, row)
    if row.mark is not None:
        marks: tuple[str, ...] = getattr(after, row.mark.list)
        changes[row.mark.list] = (*marks[: data.position], row.mark.to, *marks[data.position + 1 :])
    return replace(after, **changes)


def _recorded(after: HandoffState, event: Event, data: Any, row: Row) -> dict[str, Any]:
    """Return the changes of the state for the ``records`` of a row, except ``content``."""
    decision = Decision(event.index, event.author, event.key)
    changes: dict[str, Any] = {}
    if "claims" in row.records:
        changes |= _claimed(after, event)
    if "approval" in row.records:
        changes |= {"approval": decision, "completion": None, "claimed_status": None}
    if "verification" in row.records:
        changes["verification"] = decision
    if "waiver" in row.records:
        changes["waivers"] = (*after.waivers[: data.position], decision, *after.waivers[data.position + 1 :])
    if "lease" in row.records and data.lease_seconds is not None:
        changes["lease"] = Span(event.accepted_ms, event.accepted_ms + 1000 * data.lease_seconds)
    if "completion" in row.records:
        changes["completion"] = _completion(event)
    if "reopening" in row.records:
        changes["criteria"] = tuple("reopened" if mark == "checked" else mark for mark in after.criteria)
    if "question" in row.records:
        changes["questions"] = (*after.questions, "open")
        changes["asked"] = (*after.asked, AskedQuestion(event.author, data.to))
    if "announcement" in row.records:
        changes["is_announced"] = True
    return changes


def _opened(question: Question[HandoffState]) -> HandoffState:
    event, data, before = question.event, question.data, question.state
    if isinstance(event.data, RecordImported):
        sender, importer = event.data.claimed_author or "", event.author
    elif before is None:
        sender, importer = event.author, ""
    else:
        sender, importer = before.sender, before.importer
    # Without a named reviewer the author reviews (only a human may), or the sender of an imported file.
    default_reviewer = sender if isinstance(event.data, RecordImported) else event.author
    reviewer = data.reviewer or default_reviewer
    return HandoffState(
        sender=sender,
        receiver=data.to or "",
        reviewer=reviewer,
        status="pending",
        version=event.erased.version if event.erased and event.erased.version else compute_version(sender, data),
        depends_on=tuple(data.depends_on),
        unlock_at=data.unlock_at,
        tasks=("open",) * len(data.tasks),
        criteria=tuple("open" for _ in data.criteria),
        importer=importer,
        waivers=(None,) * len(data.criteria),
        handovers=() if before is None else _handovers(before, event, reviewer),
        questions=() if before is None else before.questions,
        asked=() if before is None else before.asked,
    )


def _handovers(before: HandoffState, event: Event, reviewer: str) -> tuple[Decision, ...]:
    """Return the hand-overs that gave the review to ``reviewer``, after an event that sets the content."""
    if not (isinstance(event.data, kinds.HandoffAmended) and event.data.hands_over):
        return before.handovers if reviewer == before.reviewer else ()
    handovers = (*_until(before.handovers, event.author), Decision(event.index, event.author, event.key))
    return _until(handovers, reviewer)


def _until(handovers: tuple[Decision, ...], name: str) -> tuple[Decision, ...]:
    """Return the hand-overs before the first one that an agent signed. The later ones are undone."""
    end = next((at for at, made in enumerate(handovers) if made.by == name), len(handovers))
    return handovers[:end]


def _claims(event: Event) -> kinds.HandoffClaims:
    mapped = read_mapped(event.data)
    assert mapped is not None and isinstance(mapped[1], kinds.HandoffClaims)  # noqa: S101, PT018 - it is on a handoff's stream
    return mapped[1]


def _claimed(state: HandoffState, event: Event) -> dict[str, Any]:
    claims = _claims(event)
    done, claimed = set(claims.tasks), set(claims.criteria)
    return {
        "tasks": tuple("done" if position in done else "open" for position in range(len(state.tasks))),
        "criteria": tuple("claimed" if position in claimed else "open" for position in range(len(state.criteria))),
        "claimed_status": claims.status or "",
        "completion": _completion(event),
    }


def _completion(event: Event) -> Completion:
    return Completion(event.id, event.index, event.author, event.key)


def _reason(event: Event) -> str:
    """Return the reason that an event gives for its change of the status, or an empty text."""
    match event.data:
        case kinds.HandoffChangesRequested() as data:
            return "; ".join(data.reasons)
        case kinds.HandoffSuperseded() as data:
            return data.reason or f"by {data.by}"
        case data:
            return getattr(data, "reason", "")


def _hint(state: HandoffState, event: Event, ledger: LedgerState | None) -> str:
    row = rules_of("handoff").row(event.kind, event.data)
    if row is None or row.by != ("reviewer",):
        return ""
    if state.reviewer in ("", state.receiver):
        return (
            f": {state.senders[-1]} must name a reviewer with `deed handoff amend {quote(event.name)} --reviewer OTHER`"
        )
    void = None if ledger is None else void_handover(state, ledger)
    if void is None:
        return f": its reviewer is {state.reviewer}"
    handover, report = void
    return f": its reviewer is {handover.by}, because the hand-over to {state.reviewer} (entry {handover.index}) rests \
on a key that entry {report} reports as compromised"


# Conditions of this handoff alone.


def _reviewer_is_independent(question: Question[HandoffState]) -> Unmet | None:
    event, data = question.event, question.data
    reviewer = data.reviewer or event.author
    if reviewer != data.to and data.reviewer != event.author:
        return None
    message = f"{reviewer} is the sender or receiver of {event.name} and cannot review it: name another reviewer"
    return Unmet(message, {"name": reviewer})


def _reviewer_is_another(question: Question[HandoffState]) -> Unmet | None:
    state, name = question.state, question.data.reviewer
    if state is not None and name not in (None, *state.senders, state.receiver, state.reviewer):
        return None
    message = f"the new reviewer of {question.event.name} must not be its sender, receiver or present reviewer: name \
another"
    return Unmet(message, {"reviewer": name})


def _only_reviewer_changes(question: Question[HandoffState]) -> Unmet | None:
    state, data = question.state, question.data
    assert state is not None  # noqa: S101 - the row is from states of a handoff that exists
    # The gate compared the version when it admitted the event; a redaction erases the content and keeps the version.
    if question.event.erased is not None:
        return None
    same = replace(data, reviewer=state.reviewer)
    # If the content has no day of creation, views show the day of its event.
    if state.version in {compute_version(state.sender, content) for content in (same, replace(same, created=None))}:
        return None
    message = (
        f"a reviewer who hands over {question.event.name} may change only its reviewer: leave the content as it is"
    )
    return Unmet(message, {"version": state.version})


def _import_changes_something(question: Question[HandoffState]) -> Unmet | None:
    event, state = question.event, question.state
    if state is None:
        return None
    row = rules_of("handoff").row(event.kind, event.data)
    assert row is not None  # noqa: S101 - this condition is one of its needs
    if replace(_apply(question, row), completion=state.completion) != state:
        return None
    return Unmet(f"{event.name} has not changed since its last import: leave it out")


def _claims_name_items(question: Question[HandoffState]) -> Unmet | None:
    claims, data = _claims(question.event), question.data
    for item, positions, items in (("task", claims.tasks, data.tasks), ("criterion", claims.criteria, data.criteria)):
        for position in positions:
            if position >= len(items):
                message = f"there is no {item} {position + 1}: the last is {len(items)}"
                return Unmet(message, {"path": "$.data.claims"})
    return None


def _version_is_current(question: Question[HandoffState]) -> Unmet | None:
    state, version, name = question.state, question.data.version, question.event.name
    assert state is not None  # noqa: S101 - the rows are from states of a handoff that exists
    if version == state.version:
        return None
    message = f"handoff {name} is now at version {state.version}: read it again (`deed handoff show {quote(name)}`)"
    return Unmet(message, {"version": state.version, "named": version})


def _result_is_current(question: Question[HandoffState]) -> Unmet | None:
    state, result, name = question.state, question.data.result, question.event.name
    assert state is not None  # noqa: S101 - as above
    if result == state.result:
        return None
    message = (
        f"handoff {name} now has another result, {state.result}: read it again (`deed handoff show {quote(name)}`)"
    )
    return Unmet(message, {"result": state.result, "named": result})


def _criteria_are_met(question: Question[HandoffState]) -> Unmet | None:
    state = question.state
    assert state is not None  # noqa: S101 - as above
    unmet = [number for number, mark in enumerate(state.criteria, 1) if mark not in MET]
    if not unmet:
        return None
    numbers = ", ".join(map(str, unmet))
    message = f"{question.event.name} has open acceptance criteria ({numbers}): check them or have them waived first"
    return Unmet(message, {"criterion_numbers": unmet})


def _questions_are_settled(question: Question[HandoffState]) -> Unmet | None:
    state, name = question.state, question.event.name
    assert state is not None  # noqa: S101 - as above
    if not (numbers := state.questions_to_receiver):
        return None
    listed, first = ", ".join(map(str, numbers)), numbers[0]
    state_now = state.questions[first - 1]
    ref = quote(f"{name}:{first}")
    way = f"answer it with `deed answer {ref} TEXT`" if state_now == "open" else ""
    way = way or f"{state.asked[first - 1].by} settles it with `deed settle {ref}`"
    message = f"{name} has open questions to {state.receiver} ({listed}), and its reviewer may settle them: {way}"
    return Unmet(message, {"question_numbers": numbers})


def _questions_are_bounded(question: Question[HandoffState]) -> Unmet | None:
    state, author, name = question.state, question.event.author, question.event.name
    if state is None:
        return None
    if len(state.questions) >= questions_max:
        return Unmet(f"{name} has {questions_max} questions, and takes no more", {"limit": questions_max})
    pairs = zip(state.questions, state.asked, strict=True)
    if sum(mark != "settled" and asked.by == author for mark, asked in pairs) < questions_of_author_max:
        return None
    message = f"{questions_of_author_max} questions of {author} about {name} are not settled: settle some of them first"
    return Unmet(message, {"limit": questions_of_author_max})


def _question_is_to_author(question: Question[HandoffState]) -> Unmet | None:
    state, event, position = question.state, question.event, question.data.position
    assert state is not None  # noqa: S101 - as above
    to = state.asked[position].to
    if to == event.author:
        return None
    message = f"question {position + 1} of {event.name} is to {to}, and only {to} may answer it, not {event.author}"
    return Unmet(message, {"name": event.author, "allowed": [to]})


def _question_is_of_author(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    state, event, position = question.state, question.event, question.data.position
    assert state is not None  # noqa: S101 - as above
    allowed = list(dict.fromkeys((state.asked[position].by, *_party(state, "reviewer", ledger))))
    if event.author in allowed:
        return None
    names = " or ".join(filter(None, allowed))
    message = f"only {names} may settle question {position + 1} of {event.name}, not {event.author}"
    return Unmet(message, {"name": event.author, "allowed": allowed})


def _is_not_announced(question: Question[HandoffState]) -> Unmet | None:
    state, name = question.state, question.event.name
    is_announced = state is not None and state.is_announced
    return Unmet(f"{name} is already announced as ready", {"status": "approved"}) if is_announced else None


def _receiver_is_named(question: Question[HandoffState]) -> Unmet | None:
    state = question.state
    assert state is not None  # noqa: S101 - as above
    if question.data.to == state.receiver:
        return None
    message = f"{question.event.name} is now for {state.receiver or 'nobody'}, not for {question.data.to}"
    return Unmet(message, {"version": state.version})


# Conditions of the ledger: agents, keys and other handoffs.


def _author_is_human(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    author = question.event.author
    if has_role(ledger, author, {"human"}):
        return None
    message = (
        f"{author} is not a human and must name a reviewer (`--reviewer NAME`: a human, or an agent with the role)"
    )
    return Unmet(message, {"author": author})


def _reviewer_is_registered(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    why = why_unregistered(ledger, question.data.reviewer, role="reviewer")
    return None if why is None else Unmet(*why)


def _reviewer_may_review(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    name = question.data.reviewer
    if has_role(ledger, name, REVIEWING):
        return None
    if (void := voided(ledger, name, REVIEWING)) is not None:
        return Unmet(f"{name} may not review: {void_text(name, void)}", {"name": name, "compromised": void.report})
    message = f"{name} does not have the role reviewer or human: name an agent that has it"
    return Unmet(f"{message} (`deed agent add NAME --role human` registers a person)", {"name": name})


def _reviewer_is_kept(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """The sender cannot remove the reviewer: only the reviewer passes the review on, while they are a reviewer here."""
    event, state = question.event, question.state
    assert state is not None  # noqa: S101 - as above
    present = reviewer_of(state, ledger)
    if present in (*state.senders, question.data.reviewer or event.author, event.author):
        return None
    if not has_role(ledger, present, REVIEWING):
        return None
    command = f"`deed handoff amend {quote(event.name)} --reviewer OTHER --as {present}`"
    message = f"only {present} may replace the reviewer of {event.name}: ask {present} to run {command}, or cancel it"
    return Unmet(message, {"reviewer": present})


def _approval_is_missing(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """A second approval is possible only if the first does not count."""
    state = question.state
    if state is None or state.status == "pending" or report_on_decision(state, state.approval, ledger) is not None:
        return None
    message = f"handoff {question.event.name} is already approved: its receiver can claim it"
    return Unmet(message, {"status": "approved"})


def _approval_counts(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    state, name = question.state, question.event.name
    reported_by = None if state is None else report_on_decision(state, state.approval, ledger)
    if state is None or reported_by is None:
        return None
    message = f"the approval of {name} (entry {state.approval_index}) does not count: it rests on a key that entry \
{reported_by} reports as compromised: {reviewer_of(state, ledger)} must approve again \
(`deed handoff approve {quote(name)}`)"
    return Unmet(message, {"status": state.status, "compromised": reported_by})


def is_own_import(state: HandoffState, name: str, agents: Agents) -> bool:
    """Return whether this agent may not confirm an imported handoff: they sent or imported it, and are no human."""
    return bool(state.importer) and name in state.senders and not has_role(agents, name, {"human"})


def report_on_decision(state: HandoffState, decision: Decision | None, agents: Agents) -> int | None:
    """Return the entry because of which an approval, verification or waiver does not count, or None if it counts.

    Its signature must not be compromised. The role that its author needed must count at that time, and every hand-over
    by which its author became the reviewer must count, too.
    """
    if decision is None:
        return None
    if decision == state.approval and decision.by in state.senders:
        return _report_on(decision, {"human"}, agents)
    void = void_handover(state, agents)
    if void is not None and decision.by != void[0].by:
        return void[1]
    return _report_on(decision, REVIEWING, agents)


def void_handover(state: HandoffState, agents: Agents) -> tuple[Decision, int] | None:
    """Return the first hand-over of the review that does not count, and the entry that shows this."""
    for handover in state.handovers:
        if (report := _report_on(handover, REVIEWING, agents)) is not None:
            return handover, report
    return None


def reviewer_of(state: HandoffState, agents: Agents) -> str:
    """Return the reviewer. A hand-over that does not count leaves the review with the agent that it names as author."""
    void = void_handover(state, agents)
    return state.reviewer if void is None else void[0].by


def report_on_completion(state: HandoffState, agents: Agents) -> int | None:
    """Return the entry because of which a completion does not count, or None if it counts."""
    return None if state.completion is None else _report_on(state.completion, rules_of("handoff").roles, agents)


def _report_on(signed: Decision | Completion, roles: Collection[str], agents: Agents) -> int | None:
    void = voided(agents, signed.by, roles, signed.index)  # reads the author before their key
    report = compromised_at(agents.key, signed.key, signed.index)
    return report if report is not None or void is None else void.report


def reports_on_waivers(state: HandoffState, agents: Agents) -> dict[int, int]:
    """Return the positions of the criteria whose waiver does not count, each with the entry that shows this."""
    waived = (at for at, mark in enumerate(state.criteria) if mark == "waived")
    reports = ((at, report_on_decision(state, state.waivers[at], agents)) for at in waived)
    return {at: report for at, report in reports if report is not None}


def counted_status(state: HandoffState, agents: Agents) -> Status:
    """Return the status of a dependency, considering only a completion and decisions that count."""
    status = state.status
    if status == "verified" and report_on_decision(state, state.verification, agents) is not None:
        status = "pending" if state.approval is None else "completed"  # an import can be verified in its present status
    if status != "completed":
        return status
    reports = (report_on_decision(state, state.approval, agents), report_on_completion(state, agents))
    is_counted = reports == (None, None) and not reports_on_waivers(state, agents)
    return "completed" if is_counted else "in_progress"


def _confirms_no_own_import(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """The importer of a handoff acts for its sender: only a human may confirm their own import (or their own work)."""
    event, state = question.event, question.state
    if state is None or not is_own_import(state, event.author, ledger):
        return None
    amend = f"`deed handoff amend {quote(event.name)} --reviewer OTHER --as {state.importer}`"
    message = f"{event.author} sent or imported {event.name}: another reviewer or a human must confirm it ({amend})"
    return Unmet(message, {"name": event.author, "reviewer": state.reviewer})


def _handoff(ledger: LedgerState, name: str) -> HandoffState | None:
    """Return the state of a handoff; None if there is none, or if no entry of its stream counts."""
    record = ledger.stream(f"handoff/{name}")
    return None if record is None else record.state


def _dependencies_exist(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    state, name = question.state, question.event.name
    assert state is not None  # noqa: S101 - as above
    missing = next((on for on in state.depends_on if _handoff(ledger, on) is None), None)
    if missing is None:
        return None
    message = f"{name} depends on {missing}, which does not exist: create it, or amend {name}"
    return Unmet(message, {"on": missing})


def _dependencies_are_done(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    state, name = question.state, question.event.name
    assert state is not None  # noqa: S101 - as above
    for on in state.depends_on:
        dependency = _handoff(ledger, on)
        status = None if dependency is None else counted_status(dependency, ledger)
        if dependency is not None and not is_unlocked(status, state.unlock_at):
            details: dict[str, Any] = {"on": on, "status": dependency.status}
            why = "" if status == dependency.status else _why_not_counted(on, dependency, ledger, details)
            message = f"{name} waits for {on}, which is {dependency.status}{why}: it must be {state.unlock_at} first"
            return Unmet(message, details)
    return None


def _why_not_counted(name: str, state: HandoffState, ledger: LedgerState, details: dict[str, Any]) -> str:
    verified = report_on_decision(state, state.verification, ledger)
    waived = next(iter(reports_on_waivers(state, ledger).values()), None)
    reports = (
        ("its verification", verified),
        ("its approval", report_on_decision(state, state.approval, ledger)),
        ("its completion", report_on_completion(state, ledger)),
        ("a waiver of its criteria", waived),
    )
    what, report = next((what, report) for what, report in reports if report is not None)
    details["compromised"] = report
    again = " again" if verified is not None else ""
    remedy = f"{reviewer_of(state, ledger)} verifies it{again} (`deed handoff verify {quote(name)}`)"
    return f", but {what} rests on a key that entry {report} reports as compromised, until {remedy}"


def _waivers_count(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    state = question.state
    assert state is not None  # noqa: S101 - as above
    reports = reports_on_waivers(state, ledger)
    if not reports:
        return None
    numbers = [at + 1 for at in reports]
    message = (
        f"the waiver of criteria ({', '.join(map(str, numbers))}) of {question.event.name} does not count, because it \
rests on a compromised key: check them, or let {reviewer_of(state, ledger)} waive them again"
    )
    return Unmet(message, {"criterion_numbers": numbers, "compromised": next(iter(reports.values()))})


def _waiver_is_missing(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """A second waiver is possible only if the first does not count."""
    state, position = question.state, question.data.position
    assert state is not None  # noqa: S101 - as above
    if state.criteria[position] != "waived" or position in reports_on_waivers(state, ledger):
        return None
    message = f"criterion {position + 1} of {question.event.name} is waived already: leave it out"
    return Unmet(message, {"mark": "waived"})


def _verification_is_missing(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """A second verification is possible only if the first does not count."""
    state = question.state
    assert state is not None  # noqa: S101 - as above
    if state.status != "verified" or report_on_decision(state, state.verification, ledger) is not None:
        return None
    return Unmet(f"handoff {question.event.name} is already verified: nothing comes next", {"status": "verified"})


def _dependencies_form_no_cycle(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    """Search the unverified streams for a cycle, then verify the streams that the decision depends on.

    For a refusal these are the streams of the cycle, because other streams cannot undo a cycle. A new cycle needs a
    handoff that already depends on this one, and a dependency that this event adds. So nothing is verified if the
    stored number of dependents is 0, or if no dependency is new. Otherwise all visited streams are verified. An
    attacker must therefore edit both records: if only the number is wrong, the search still finds the cycle; if only a
    stream is wrong, the number still demands the verification.
    """
    name, state = question.event.name, question.state
    came_from = _walk(question, ledger)
    if name in came_from:
        cycle = _path_back(came_from, name)
        for member in cycle[1:-1]:
            _handoff(ledger, member)
        leave_out = f"leave out the dependency of {name} on {cycle[1]}"
        message = f"these handoffs would wait for each other: {' → '.join(cycle)}; {leave_out}"
        return Unmet(message, {"cycle": cycle})
    is_new = state is None or not {*question.data.depends_on} <= {*state.depends_on}
    if came_from and ((is_new and ledger.dependents(name)) or len(came_from) > dependencies_walked_max):
        for dependency in came_from:
            _handoff(ledger, dependency)
    return None


def _dependencies_are_bounded(question: Question[HandoffState], ledger: LedgerState) -> Unmet | None:
    if len(_walk(question, ledger)) <= dependencies_walked_max:
        return None
    return Unmet(f"{question.event.name} depends on more than {dependencies_walked_max} handoffs")


def _walk(question: Question[HandoffState], ledger: LedgerState) -> dict[str, str]:
    """Return the handoffs that dependencies lead to, each with the one that named it, until a cycle is closed."""
    name = question.event.name
    came_from: dict[str, str] = question.shared.setdefault("walk", {})
    walked = [] if came_from else [name]
    names = tuple(question.data.depends_on)
    for reached in walked:  # the list grows meanwhile
        if came_from:
            record = ledger.unverified_stream(f"handoff/{reached}")
            names = () if record is None or record.state is None else record.state.depends_on
        for wanted in names:
            if wanted not in came_from:
                came_from[wanted] = reached
                walked.append(wanted)
        if name in came_from or len(came_from) > dependencies_walked_max:
            break
    return came_from


def _path_back(came_from: dict[str, str], name: str) -> list[str]:
    path = [name]
    while (parent := came_from[path[-1]]) != name:
        path.append(parent)
    path.append(name)
    return path[::-1]


_CONDITIONS: Final[dict[str, Callable[[Question[HandoffState]], Unmet | None]]] = {
    "reviewer_is_independent": _reviewer_is_independent,
    "reviewer_is_another": _reviewer_is_another,
    "only_reviewer_changes": _only_reviewer_changes,
    "import_is_own": import_is_own,
    "import_changes_something": _import_changes_something,
    "claims_name_items": _claims_name_items,
    "version_is_current": _version_is_current,
    "result_is_current": _result_is_current,
    "criteria_are_met": _criteria_are_met,
    "questions_are_settled": _questions_are_settled,
    "questions_are_bounded": _questions_are_bounded,
    "asks_another": asks_another,
    "question_is_to_author": _question_is_to_author,
    "replacement_is_another": replacement_is_another,
    "is_not_announced": _is_not_announced,
    "receiver_is_named": _receiver_is_named,
}
_LEDGER_CONDITIONS: Final[dict[str, Callable[[Question[HandoffState], LedgerState], Unmet | None]]] = {
    "author_is_human": _author_is_human,
    "receiver_is_registered": receiver_is_registered,
    "reviewer_is_registered": _reviewer_is_registered,
    "reviewer_may_review": _reviewer_may_review,
    "reviewer_is_kept": _reviewer_is_kept,
    "approval_is_missing": _approval_is_missing,
    "approval_counts": _approval_counts,
    "waivers_count": _waivers_count,
    "waiver_is_missing": _waiver_is_missing,
    "verification_is_missing": _verification_is_missing,
    "confirms_no_own_import": _confirms_no_own_import,
    "dependencies_exist": _dependencies_exist,
    "dependencies_are_done": _dependencies_are_done,
    "dependencies_form_no_cycle": _dependencies_form_no_cycle,
    "dependencies_are_bounded": _dependencies_are_bounded,
    "replacement_exists": replacement_exists,
    "question_is_of_author": _question_is_of_author,
}

MACHINE: Final = StateMachine(
    family="handoff",
    state_name=state_name,
    party=_party,
    apply=_apply,
    conditions=_CONDITIONS,
    ledger_conditions=_LEDGER_CONDITIONS,
    marks=getattr,
    read_data=_read_data,
    hint=_hint,
)
