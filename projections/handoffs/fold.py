"""The fold of handoffs: the gate's own state machine, plus the content and history that people read.

Only ``ledger.lifecycle.handoff.MACHINE`` decides the state of a handoff, and the gate calls the same machine. So a view
never shows a state that the gate would not accept. A log line has the form of handoff files, ``- DATE [author] text``;
the words after its verb are the author's own, so no comment, reason or summary is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

import msgspec

from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.imported import RecordImported, read_mapped
from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.authority import AgentRecords
from deedbook.ledger.lifecycle.handoff import MACHINE, MET
from deedbook.ledger.lifecycle.handoff_status import Status, is_unlocked, never_unlocks
from deedbook.projections.agents.fold import AgentStates
from deedbook.projections.handoffs.facts import claim_of_history
from deedbook.projections.handoffs.record import (
    CriterionRemark,
    HandoffRecord,
    LatestEvent,
    QuestionText,
    content_of,
    records_of,
    state_of,
)
from deedbook.projections.handoffs.waits import WAITING, wait_rows
from deedbook.projections.records.marks import happened_ms
from deedbook.projections.views.projection import (
    Join,
    Logged,
    Lookup,
    Projection,
    Row,
    Rows,
    States,
    Table,
    json_text,
    kinds_of,
    names_of,
    row_of,
)
from deedbook.projections.views.registry import VIEW_VERSIONS


class HandoffRow(Row, frozen=True):
    """A handoff; ``artifacts``, ``notes``, ``reasoning_refs`` and ``result_refs`` (those of its completion) are JSON.

    ``result`` is the digest that a reviewer verifies; it is empty while nobody has completed it.
    The claims of an imported file are in ``claimed_author`` to ``original``. ``approved_index`` is a reviewer's
    approval; ``approval_index`` is the event that made it approved, of whatever kind, which ``approver`` signed with
    ``approval_key``. ``is_history``: it was imported, claims to be over, and nobody here has confirmed it.
    ``happened_ms`` is when it was created and ``changed_ms`` when it changed last; what an imported file says counts at
    the time that the file claims.
    """

    id: str
    status: Status
    title: str
    sender: str
    receiver: str
    reviewer: str | None
    version: str
    created: str
    proposal: str | None
    unlock_at: str
    task: str
    context: str
    notes: str
    answers: str | None
    reasoning_refs: str
    template: str | None
    template_index: int
    tasks_done: int
    tasks_total: int
    criteria_done: int
    criteria_total: int
    importer: str | None
    claimed_author: str | None
    claimed_at: str | None
    claimed_status: str | None
    claimed_done: str | None
    is_history: bool
    source: str | None
    format: str | None
    original: str | None
    is_announced: bool
    superseded_by: str | None
    reason: str
    lease_from_ms: int | None
    lease_until_ms: int | None
    summary: str
    artifacts: str
    result_refs: str
    result: str
    created_index: int
    approved_index: int | None
    approval_key: str
    approval_index: int | None
    approver: str
    claimed_index: int | None
    completed_index: int | None
    verified_index: int | None
    happened_ms: int
    updated_index: int
    updated_ms: int
    changed_ms: int


class DependencyRow(Row, frozen=True):
    """A dependency of a handoff."""

    handoff_id: str
    position: int
    depends_on: str


class LogRow(Row, frozen=True):
    """An event of a handoff as a log line; a tick has the ``position`` of the ticked item."""

    event_index: int
    handoff_id: str
    day: str
    at: str
    accepted_ms: int
    author: str
    kind: str
    text: str
    position: int | None


class HandoffVersionRow(Row, frozen=True):
    """The whole content that an event set, as JSON, so that versions are compared without the log."""

    event_index: int
    handoff_id: str
    version: str
    content: str


HANDOFFS: Final = Table(
    "handoffs",
    HandoffRow,
    primary_key=("id",),
    owner="id",
    indexes=(
        *(("status", "created_index"), ("receiver", "status")),
        *(("sender",), ("reviewer",), ("created_index",), ("answers",)),
        *(("happened_ms", "created_index"), ("changed_ms", "created_index")),
    ),
    long=("sender",),
)
DEPENDENCIES: Final = Table(
    "handoff_dependencies",
    DependencyRow,
    primary_key=("handoff_id", "position"),
    owner="handoff_id",
    indexes=(("depends_on",),),
)
LOG: Final = Table("handoff_log", LogRow, primary_key=("event_index",), indexes=(("handoff_id", "event_index"),))
VERSIONS: Final = Table(
    "handoff_versions", HandoffVersionRow, primary_key=("event_index",), indexes=(("handoff_id", "event_index"),)
)


_ref_digits_shown: Final = 12
_OF_RECORD: Final = ("claimed_author", "claimed_at", "source", "format", "original")
_TURNS: Final = {
    kinds.HandoffApproved: "approved_index",
    kinds.HandoffClaimed: "claimed_index",
    kinds.HandoffVerified: "verified_index",
}


def fold(state: HandoffRecord, event: Event) -> HandoffRecord:
    """Return the record after one more event. Raises Refused: the gate's machine does not allow the event here."""
    lifecycle = MACHINE.decide(state.lifecycle, event)
    is_claimable = lifecycle.status in ("pending", "approved")  # amended, released, or its lease expired
    state = msgspec.structs.replace(
        state,
        lifecycle=lifecycle,
        claimed_index=None if is_claimable else state.claimed_index,
        updated_index=event.index,
        updated_ms=event.accepted_ms,
        changed_ms=happened_ms(event),
        latest=state.latest | {event.kind: LatestEvent(event.index, event.author, event.accepted_ms)},
    )
    match event.data:
        case kinds.HandoffCreated() | kinds.HandoffAmended() as data:
            return _with_content(state, event, kinds.content_of(data))
        case RecordImported() as data:
            return _imported(state, event, data)
        case kinds.HandoffApproved() | kinds.HandoffClaimed() | kinds.HandoffVerified() as data:
            return msgspec.structs.replace(state, **{_TURNS[type(data)]: event.index})
        case kinds.HandoffTaskChecked() | kinds.HandoffCriterionChecked() as data:
            return _checked(state, data)
        case kinds.HandoffWaiverAsked() | kinds.HandoffCriterionWaived() as data:
            return _remarked(state, data.position, CriterionRemark(waiver_reason=data.reason))
        case kinds.HandoffQuestionAsked() | kinds.HandoffQuestionAnswered() | kinds.HandoffQuestionSettled():
            return msgspec.structs.replace(state, questions=_questions(state.questions, event))
        case kinds.HandoffCompleted() as data:
            return msgspec.structs.replace(
                state,
                completed_index=event.index,
                changes="",
                summary=data.summary,
                artifacts=tuple(data.artifacts),
                result_refs=tuple(data.reasoning_refs),
            )
        case kinds.HandoffChangesRequested() as data:
            return msgspec.structs.replace(state, completed_index=None, changes="; ".join(data.reasons))
        case kinds.HandoffSuperseded() as data:
            return msgspec.structs.replace(state, superseded_by=data.by)
        case _:  # the other kinds of a handoff change its state only
            return state


def rows(state: HandoffRecord) -> Rows:
    """Return the handoff's rows."""
    if state.lifecycle is None:
        return ()
    dependencies = enumerate(state.lifecycle.depends_on)
    return row_of_handoff(state), *(DependencyRow(state.id, position, on) for position, on in dependencies)


def row_of_handoff(record: HandoffRecord) -> HandoffRow:
    """Return the row of a handoff that exists."""
    lifecycle, content = state_of(record), content_of(record)
    imported = {name: getattr(record.imported, name, None) for name in _OF_RECORD}
    return row_of(
        HandoffRow,
        record,
        lifecycle,
        content,
        reviewer=record.reviewer,
        created=record.created,
        reason=record.reason,
        unlock_at=lifecycle.unlock_at,
        template_index=record.content_index,
        tasks_done=lifecycle.tasks.count("done"),
        tasks_total=len(lifecycle.tasks),
        criteria_done=sum(mark in MET for mark in lifecycle.criteria),
        criteria_total=len(lifecycle.criteria),
        importer=lifecycle.importer or None,
        is_history=claim_of_history(record) is not None,
        lease_from_ms=lifecycle.lease and lifecycle.lease.from_ms,
        lease_until_ms=lifecycle.lease and lifecycle.lease.until_ms,
        artifacts=json_text(record.artifacts),
        notes=json_text(msgspec.structs.asdict(content.notes)),
        reasoning_refs=json_text(content.reasoning_refs),
        result_refs=json_text(record.result_refs),
        **imported,
    )


def added(state: HandoffRecord | None, logged: Logged) -> Rows:
    """Return the event's log line, and the content version that it set."""
    event = logged.event
    if state is None or state.content is None or state.lifecycle is None:
        return ()
    text = log_text(event, state.content)
    day, data = day_of(event.accepted_ms), event.data
    position = data.position if "position" in data.__struct_fields__ else None
    line = LogRow(event.index, event.name, day, event.at, event.accepted_ms, event.author, event.kind, text, position)
    if state.content_index != event.index:
        return (line,)
    content = msgspec.structs.asdict(state.content) | {"notes": msgspec.structs.asdict(state.content.notes)}
    return line, HandoffVersionRow(event.index, event.name, state.lifecycle.version, json_text(content))


def day_of(accepted_ms: int) -> str:
    """Return the day (UTC) of the ledger's clock as YYYY-MM-DD."""
    return datetime.fromtimestamp(accepted_ms // 1000, UTC).date().isoformat()


def _with_content(state: HandoffRecord, event: Event, content: kinds.HandoffContent) -> HandoffRecord:
    is_new = state.content is None
    return msgspec.structs.replace(
        state,
        content=content,
        content_index=event.index,
        created=content.created or (day_of(event.accepted_ms) if is_new else state.created),
        remarks=(CriterionRemark(),) * len(content.criteria),
        task_evidence=("",) * len(content.tasks),
        created_index=event.index if is_new else state.created_index,
        happened_ms=happened_ms(event) if is_new else state.happened_ms,
        approved_index=None,
        changes="",
    )


def _imported(state: HandoffRecord, event: Event, data: RecordImported) -> HandoffRecord:
    mapped = read_mapped(data)
    assert mapped is not None  # noqa: S101 - the machine refused any other
    content, claims = mapped
    assert isinstance(content, kinds.HandoffContent)  # noqa: S101 - the kind's stream fixes what it maps to
    assert isinstance(claims, kinds.HandoffClaims)  # noqa: S101 - as above
    state = _with_content(state, event, content)
    # The original is in its blob; this record keeps only the claims.
    record = msgspec.structs.replace(data, mapped={}, claims={})
    return msgspec.structs.replace(state, imported=record, claimed_done=claims.done)


def _checked(state: HandoffRecord, data: kinds.HandoffTaskChecked | kinds.HandoffCriterionChecked) -> HandoffRecord:
    if isinstance(data, kinds.HandoffCriterionChecked):
        return _remarked(state, data.position, CriterionRemark(evidence=data.evidence))
    texts, at = state.task_evidence, data.position
    return msgspec.structs.replace(state, task_evidence=(*texts[:at], data.evidence, *texts[at + 1 :]))


def _remarked(state: HandoffRecord, position: int, remark: CriterionRemark) -> HandoffRecord:
    remarks = (*state.remarks[:position], remark, *state.remarks[position + 1 :])
    return msgspec.structs.replace(state, remarks=remarks)


def _questions(questions: tuple[QuestionText, ...], event: Event) -> tuple[QuestionText, ...]:
    """Return the questions after an event about one of them."""
    data = event.data
    if isinstance(data, kinds.HandoffQuestionAsked):
        return (*questions, QuestionText(data.question, data.place, event.index))
    changes: dict[str, Any] = (
        {"answer": data.answer, "answered_index": event.index}
        if isinstance(data, kinds.HandoffQuestionAnswered)
        else {"comment": data.comment}
    )
    position = data.position
    changed = msgspec.structs.replace(questions[position], **changes)
    return (*questions[:position], changed, *questions[position + 1 :])


def log_text(event: Event, content: kinds.HandoffContent) -> str:
    """Return the text of a log line: the kind's own text, or its name with its reason, comment or summary."""
    text = _TEXTS.get(type(event.data))
    if text is not None:
        return text(event.data, content)
    known = event.data.__struct_fields__
    texts = (getattr(event.data, field) for field in kinds.REMARKS if field in known)
    return _with(event.kind.partition(".")[2].replace("_", " "), next(filter(None, texts), ""))


def _with(verb: str, text: str) -> str:
    return f"{verb}: {text}" if text else verb


def _ticked(text: str, evidence: str) -> str:
    return f"{text} ({evidence})" if evidence else text


def _short(ref: str) -> str:
    """Return the beginning of a version or result, as `approve --version` and `verify --result` accept it."""
    return ref[: ref.index(":") + 1 + _ref_digits_shown]


# Kinds that a handoff's file does not log: ticks are in its lists, and nothing depends on `ready`.
NOT_IN_FILES: Final = frozenset({"handoff.task_checked", "handoff.criterion_checked", "handoff.ready"})

# Each function takes the data type of its key; the table's type erases that to Any.
_TEXTS: Final[dict[type[Any], Callable[[Any, kinds.HandoffContent], str]]] = {
    RecordImported: lambda data, _: _with(
        f"imported from {data.source}, which says {data.claims.get('status') or 'nothing'}", data.reason
    ),
    kinds.HandoffCreated: lambda data, _: f"created the handoff to {data.to}",
    kinds.HandoffApproved: lambda data, _: _ticked(_with("approved", data.comment), f"version {_short(data.version)}"),
    kinds.HandoffVerified: lambda data, _: _ticked(_with("verified", data.comment), f"result {_short(data.result)}"),
    kinds.HandoffClaimed: lambda data, _: (
        "claimed" if data.lease_seconds is None else f"claimed for {data.lease_seconds} s"
    ),
    kinds.HandoffTaskChecked: lambda data, content: _ticked(
        f"task {'done' if data.checked else 'undone'}: {content.tasks[data.position]}", data.evidence
    ),
    kinds.HandoffCriterionChecked: lambda data, content: _ticked(
        f"criterion {'met' if data.checked else 'open again'}: {content.criteria[data.position]}", data.evidence
    ),
    kinds.HandoffWaiverAsked: lambda data, content: (
        f"asked to waive: {content.criteria[data.position]} ({data.reason})"
    ),
    kinds.HandoffCriterionWaived: lambda data, content: (
        f"criterion {'' if data.granted else 'not '}waived: {content.criteria[data.position]} ({data.reason})"
    ),
    kinds.HandoffQuestionAsked: lambda data, _: (
        f"asks {data.to}{f' about {data.place}' if data.place else ''}: {data.question}"
    ),
    kinds.HandoffQuestionAnswered: lambda data, _: f"answers question {data.position + 1}: {data.answer}",
    kinds.HandoffQuestionSettled: lambda data, _: _with(f"question {data.position + 1} settled", data.comment),
    kinds.HandoffLogged: lambda data, _: str(data.text),
    kinds.HandoffCompleted: lambda data, _: _ticked(
        _with("completed", data.summary), f"Reasoning: {refs}" if (refs := ", ".join(data.reasoning_refs)) else ""
    ),
    kinds.HandoffChangesRequested: lambda data, _: _with("changes requested", "; ".join(data.reasons)),
    kinds.HandoffSuperseded: lambda data, _: _with(f"superseded by {data.by}", data.reason),
    kinds.HandoffReady: lambda data, _: f"ready for {data.to}",
}


def _join_rows(records: Mapping[str, HandoffRecord], states: States) -> list[Row]:
    """Return the rows with the handoffs that handoffs wait for."""
    existing = {name: record for name, record in records.items() if record.lifecycle is not None}
    depended = {on for record in existing.values() for on in state_of(record).depends_on}
    known = records_of(states, depended)
    people = {name for record in existing.values() for name in record.people}
    agents = AgentStates(lambda names: states.states("agents", AgentRecords, names), sorted(people))
    return [row for record in existing.values() for row in wait_rows(record, known, agents)]


def _shared(record: HandoffRecord) -> object:
    """Return the part of a record that can change the waits of the handoffs that depend on it."""
    status = None if record.lifecycle is None else record.lifecycle.status
    unlocks = tuple(is_unlocked(status, at) for at in get_args(UnlockAt))
    waivers = () if record.lifecycle is None else record.lifecycle.waivers
    claim = None if record.lifecycle is None else claim_of_history(record)
    return unlocks, never_unlocks(status), claim, record.completed_index, record.verified_index, waivers


def _related(lookup: Lookup, changed: Collection[str], agents: Collection[str]) -> set[str]:
    """Return the handoffs that depend on changed ones, and those whose agents were added or removed, or lost a key.

    A report of a stolen key may invalidate decisions behind any open or verified handoff, so it concerns all of them.
    """
    records = lookup.states("agents", AgentRecords, sorted(agents)).values() if agents else ()
    if any(key.compromised_since is not None for agent in records for key in agent.keys.values()):
        return {*lookup.owners(HANDOFFS, "status", [each for each in get_args(Status) if not never_unlocks(each)])}
    dependents = lookup.owners(DEPENDENCIES, "depends_on", changed) if changed else ()
    of_agents = (lookup.owners(HANDOFFS, column, agents) for column in ("receiver", "reviewer", "approver") if agents)
    return {*dependents, *(name for names in of_agents for name in names)}


HANDLED: Final = kinds_of("handoff") | {"record.imported"}
keys: Final = names_of("handoff")

VIEW: Final = Projection(
    name="handoffs",
    version=VIEW_VERSIONS["handoffs"],
    handles=HANDLED,
    tables=(HANDOFFS, DEPENDENCIES, LOG, VERSIONS, WAITING),
    state=HandoffRecord,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
    join=Join(
        table=WAITING,
        rows=_join_rows,
        shared=_shared,
        related=_related,
        heeds=frozenset({"agent.registered", "agent.removed", "role.granted", "role.revoked", "key.compromised"}),
    ),
)
