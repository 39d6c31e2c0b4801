"""The fold of reviews: one row a request, open until a human answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events import review as kinds
from ledger.lifecycle.review import ReviewState, transition
from projections.projection import Projection, Table, by_name_of_stream
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Rows

REVIEWS: Final = Table(
    "reviews",
    {
        "id": "TEXT NOT NULL",
        "status": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "question": "TEXT NOT NULL",
        "rule": "TEXT NOT NULL",
        "reasons": "TEXT NOT NULL",
        "task": "TEXT NOT NULL",
        "reasoning_ref": "TEXT",
        "snapshot_id": "TEXT NOT NULL",
        "validations": "TEXT NOT NULL",
        "requested_index": "INTEGER NOT NULL",
        "requested_ms": "INTEGER NOT NULL",
        "verdict": "TEXT",
        "comment": "TEXT NOT NULL",
        "answered_by": "TEXT",
        "answered_index": "INTEGER",
        "answered_ms": "INTEGER",
    },
    primary_key=("id",),
    owner="id",
    indexes=(("status", "requested_index"), ("reasoning_ref",), ("requested_index",)),
)


class ReviewRecord(msgspec.Struct, frozen=True, array_like=True):
    """One review as its events left it."""

    id: str
    life: ReviewState | None = None
    requested: kinds.ReviewRequested | None = None
    requested_index: int = -1
    requested_ms: int = 0
    verdict: str | None = None
    comment: str = ""
    answered_by: str | None = None
    answered_index: int | None = None
    answered_ms: int | None = None


def fold(state: ReviewRecord, event: Event) -> ReviewRecord:
    """Return the review after one more of its events."""
    state = msgspec.structs.replace(state, life=transition(state.life, event))
    match event.data:
        case kinds.ReviewRequested() as data:
            return msgspec.structs.replace(
                state, requested=data, requested_index=event.index, requested_ms=event.accepted_ms
            )
        case kinds.ReviewAnswered() as data:
            return msgspec.structs.replace(
                state,
                verdict=data.verdict,
                comment=data.comment,
                answered_by=event.author,
                answered_index=event.index,
                answered_ms=event.accepted_ms,
            )
        case _:
            return state


def rows(state: ReviewRecord) -> Rows:
    """Return the review's row."""
    if state.life is None or state.requested is None:
        return {}
    asked = state.requested
    row = (
        state.id,
        "answered" if state.life.is_answered else "open",
        state.life.requester,
        asked.question,
        asked.rule,
        encode_sorted(asked.reasons).decode(),
        asked.task,
        asked.reasoning_ref,
        asked.snapshot_id,
        encode_sorted(asked.validations).decode(),
        state.requested_index,
        state.requested_ms,
        state.verdict,
        state.comment,
        state.answered_by,
        state.answered_index,
        state.answered_ms,
    )
    return {"reviews": [row]}


REVIEW_VIEW: Final = Projection(
    name="reviews",
    version=VIEW_VERSIONS["reviews"],
    handles=frozenset({"review.requested", "review.answered"}),
    tables=(REVIEWS,),
    state=ReviewRecord,
    initial=ReviewRecord,
    keys=by_name_of_stream,
    fold=fold,
    rows=rows,
)
