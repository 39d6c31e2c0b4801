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
from ledger.lifecycle.handoff import HandoffState, transition
from projections.handoffs.log_text import log_text
from projections.handoffs.tables import CRITERIA, DEPENDENCIES, HANDOFFS, LOG, TASKS
from projections.projection import Projection, by_name_of_stream

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows


class Remark(msgspec.Struct, frozen=True, array_like=True):
    """What was said about a criterion: the evidence that it is met, or why it was waived."""

    evidence: str = ""
    waived_because: str = ""


class HandoffRecord(msgspec.Struct, frozen=True, array_like=True):
    """One handoff: its life by the gate's machine, its content, and the indexes of its turning points."""

    id: str
    life: HandoffState | None = None
    content: kinds.HandoffCreated | None = None
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


def fold(state: HandoffRecord, event: Event) -> HandoffRecord:
    """Return the record after one more event of its handoff.

    Raises:
        Refused: the event does not follow, by the gate's own machine.
    """
    life = transition(state.life, event)
    is_claimable = life.status in ("pending", "approved")  # released, or its lease ran out
    state = msgspec.structs.replace(
        state,
        life=life,
        claimed_index=None if is_claimable else state.claimed_index,
        updated_index=event.index,
        updated_ms=event.accepted_ms,
    )
    match event.data:
        case kinds.HandoffCreated() as data:
            return msgspec.structs.replace(
                state,
                content=data,
                created=data.created or day_of(event.accepted_ms),
                remarks=(Remark(),) * len(data.criteria),
                created_index=event.index,
            )
        case kinds.HandoffApproved():
            return msgspec.structs.replace(state, approved_index=event.index)
        case kinds.HandoffClaimed():
            return msgspec.structs.replace(state, claimed_index=event.index)
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
        case kinds.HandoffVerified():
            return msgspec.structs.replace(state, verified_index=event.index)
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


def _remarked(state: HandoffRecord, position: int, remark: Remark) -> HandoffRecord:
    remarks = (*state.remarks[:position], remark, *state.remarks[position + 1 :])
    return msgspec.structs.replace(state, remarks=remarks)


def _row(state: HandoffRecord, life: HandoffState, content: kinds.HandoffCreated) -> Row:
    return (
        state.id,
        life.status,
        content.title,
        life.sender,
        life.receiver,
        content.reviewer,
        life.version,
        state.created,
        content.proposal,
        life.unlock_at,
        content.task,
        content.context,
        content.answers,
        content.reasoning_ref,
        content.skeleton,
        sum(life.tasks),
        len(life.tasks),
        sum(mark != "open" for mark in life.criteria),
        len(life.criteria),
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


HANDOFF_VIEW: Final = Projection(
    name="handoffs",
    version=1,
    handles=frozenset(name for name, kind in KINDS.items() if kind.stream == "handoff"),
    tables=(HANDOFFS, TASKS, CRITERIA, DEPENDENCIES, LOG),
    state=HandoffRecord,
    initial=HandoffRecord,
    keys=by_name_of_stream,
    fold=fold,
    rows=rows,
    added=added,
)
