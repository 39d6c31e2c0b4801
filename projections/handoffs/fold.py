"""The fold of handoffs: the gate's own state machine, and around it what people want to read.

Where a handoff stands is decided by ``ledger.lifecycle.handoff.transition`` alone, the function that the gate calls:
so a view can never show a state that the gate would not accept (DESIGN §10).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events import KINDS
from ledger.events import handoff as kinds
from ledger.events.imported import RecordImported, read_mapped
from ledger.lifecycle.handoff import HandoffState, transition
from projections.handoffs.log_text import log_text
from projections.handoffs.tables import CRITERIA, DEPENDENCIES, HANDOFFS, LOG, TASKS
from projections.projection import Projection
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows


class Remark(msgspec.Struct, frozen=True, array_like=True):
    """What was said about a criterion: the evidence that it is met, or why it was waived."""

    evidence: str = ""
    waived_because: str = ""


class HandoffRecord(msgspec.Struct, frozen=True, array_like=True):
    """One handoff: its life by the gate's machine, its content, and the indexes of its turning points.

    ``content_index`` is the event that set the content; ``imported`` the record of it, if it is an imported file, and
    ``claimed_done`` the day on which that file says it was done.
    """

    id: str
    life: HandoffState | None = None
    content: kinds.HandoffContent | None = None
    content_index: int = -1
    imported: RecordImported | None = None
    claimed_done: str | None = None
    superseded_by: str | None = None
    created: str = ""
    remarks: tuple[Remark, ...] = ()
    summary: str = ""
    artifacts: tuple[str, ...] = ()
    result_ref: str | None = None
    created_index: int = -1
    approved_index: int | None = None
    claimed_index: int | None = None
    completed_index: int | None = None
    verified_index: int | None = None
    updated_index: int = -1
    updated_ms: int = 0


_TURNS: Final = {
    kinds.HandoffApproved: "approved_index",
    kinds.HandoffClaimed: "claimed_index",
    kinds.HandoffVerified: "verified_index",
}


def fold(state: HandoffRecord, event: Event) -> HandoffRecord:
    """Return the record after one more event of its handoff.

    Raises:
        Refused: the event does not follow, by the gate's own machine.
    """
    life = transition(state.life, event)
    is_claimable = life.status in ("pending", "approved")  # amended, released, or its lease ran out
    state = msgspec.structs.replace(
        state,
        life=life,
        claimed_index=None if is_claimable else state.claimed_index,
        updated_index=event.index,
        updated_ms=event.accepted_ms,
    )
    match event.data:
        case kinds.HandoffCreated() | kinds.HandoffAmended() as data:
            return _with_content(state, event, kinds.content_of(data))
        case RecordImported() as data:
            return _imported(state, event, data)
        case kinds.HandoffApproved() | kinds.HandoffClaimed() | kinds.HandoffVerified() as data:
            return msgspec.structs.replace(state, **{_TURNS[type(data)]: event.index})
        case kinds.HandoffCriterionChecked() as data:
            return _remarked(state, data.position, Remark(evidence=data.evidence))
        case kinds.HandoffCriterionWaived() as data:
            return _remarked(state, data.position, Remark(waived_because=data.reason))
        case kinds.HandoffCompleted() as data:
            return msgspec.structs.replace(
                state,
                completed_index=event.index,
                summary=data.summary,
                artifacts=tuple(data.artifacts),
                result_ref=data.reasoning_ref,
            )
        case kinds.HandoffChangesRequested():
            return msgspec.structs.replace(state, completed_index=None)
        case kinds.HandoffSuperseded() as data:
            return msgspec.structs.replace(state, superseded_by=data.by)
        case _:
            return state  # the other kinds change the life alone


def rows(state: HandoffRecord) -> Rows:
    """Return the handoff's rows."""
    life, content = state.life, state.content
    if life is None or content is None:
        return {}
    return {
        "handoffs": [_row(state, life, content)],
        "handoff_tasks": [
            (state.id, position, text, int(done))
            for position, (text, done) in enumerate(zip(content.tasks, life.tasks, strict=True))
        ],
        "handoff_criteria": [
            (state.id, position, text, mark, remark.evidence, remark.waived_because)
            for position, (text, mark, remark) in enumerate(
                zip(content.criteria, life.criteria, state.remarks, strict=True)
            )
        ],
        "handoff_dependencies": [(state.id, position, wanted) for position, wanted in enumerate(life.depends_on)],
    }


def added(state: HandoffRecord | None, logged: Logged) -> Rows:
    """Return the event's log line."""
    event = logged.event
    if state is None or state.content is None:
        return {}
    text = log_text(event, state.content)
    day = day_of(event.accepted_ms)
    return {"handoff_log": [(event.index, event.name, day, event.at, event.author, event.kind, text)]}


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
        remarks=(Remark(),) * len(content.criteria),
        created_index=event.index if is_new else state.created_index,
        approved_index=None,
    )


def _imported(state: HandoffRecord, event: Event, data: RecordImported) -> HandoffRecord:
    mapped = read_mapped(data)
    assert mapped is not None  # noqa: S101 - the machine refused any other
    content, claims = mapped
    assert isinstance(content, kinds.HandoffContent)  # noqa: S101 - the kind's stream fixes what it maps to
    assert isinstance(claims, kinds.HandoffClaims)  # noqa: S101 - as above
    state = _with_content(state, event, content)
    # What the original says stands in its blob; here are the claims about it.
    record = msgspec.structs.replace(data, mapped={}, claims={})
    return msgspec.structs.replace(state, imported=record, claimed_done=claims.done)


def _remarked(state: HandoffRecord, position: int, remark: Remark) -> HandoffRecord:
    remarks = (*state.remarks[:position], remark, *state.remarks[position + 1 :])
    return msgspec.structs.replace(state, remarks=remarks)


def _row(state: HandoffRecord, life: HandoffState, content: kinds.HandoffContent) -> Row:
    imported = state.imported
    return (
        state.id,
        life.status,
        content.title,
        life.sender,
        life.receiver,
        # Without a named reviewer the sender reviews, or the importer who set the content for him.
        content.reviewer or (life.reviewer if life.reviewer != life.sender else None),
        life.version,
        state.created,
        content.proposal,
        life.unlock_at,
        content.task,
        content.context,
        content.answers,
        content.reasoning_ref,
        content.skeleton,
        state.content_index,
        sum(life.tasks),
        len(life.tasks),
        sum(mark in ("checked", "waived") for mark in life.criteria),
        len(life.criteria),
        life.importer or None,
        imported.claimed_author if imported else None,
        imported.claimed_at if imported else None,
        life.claimed_status,
        state.claimed_done,
        imported.source if imported else None,
        imported.format if imported else None,
        imported.original if imported else None,
        int(life.is_announced),
        state.superseded_by,
        life.reason,
        life.lease_until_ms,
        state.summary,
        encode_sorted(state.artifacts).decode(),
        state.result_ref,
        state.created_index,
        state.approved_index,
        state.claimed_index,
        state.completed_index,
        state.verified_index,
        state.updated_index,
        state.updated_ms,
    )


def keys(event: Event) -> tuple[str, ...]:
    """Return the id of the event's handoff; none for a record that stands for something else."""
    return (event.name,) if event.stream.startswith("handoff/") else ()


HANDLED: Final = frozenset(name for name, kind in KINDS.items() if kind.stream == "handoff") | {"record.imported"}

HANDOFF_VIEW: Final = Projection(
    name="handoffs",
    version=VIEW_VERSIONS["handoffs"],
    handles=HANDLED,
    tables=(HANDOFFS, TASKS, CRITERIA, DEPENDENCIES, LOG),
    state=HandoffRecord,
    initial=HandoffRecord,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
