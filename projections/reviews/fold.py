"""The fold of reviews: one row a request, open until a human answered."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.events import review as kinds
from ledger.events.body import Event
from ledger.lifecycle.review import ReviewState, transition
from projections.projection import Projection, Row, Rows, Table, by_name_of_stream, json_text, row_of
from projections.views import VIEW_VERSIONS


class ReviewRow(Row, frozen=True):
    """A review; ``reasons`` and ``validations`` are JSON."""

    id: str
    status: str
    author: str
    question: str
    rule: str
    reasons: str
    task: str
    reasoning_ref: str | None
    snapshot_id: str
    validations: str
    requested_index: int
    requested_ms: int
    verdict: str | None
    comment: str
    answered_by: str | None
    answered_index: int | None
    answered_ms: int | None


REVIEWS: Final = Table(
    "reviews",
    ReviewRow,
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
        case _:  # no other kind is handled
            return state


def rows(state: ReviewRecord) -> Rows:
    """Return the review's row."""
    if state.life is None or state.requested is None:
        return ()
    row = row_of(
        ReviewRow,
        state,
        state.requested,
        status="answered" if state.life.is_answered else "open",
        author=state.life.requester,
        reasons=json_text(state.requested.reasons),
        validations=json_text(state.requested.validations),
    )
    return (row,)


VIEW: Final = Projection(
    name="reviews",
    version=VIEW_VERSIONS["reviews"],
    handles=frozenset({"review.requested", "review.answered"}),
    tables=(REVIEWS,),
    state=ReviewRecord,
    keys=by_name_of_stream,
    fold=fold,
    rows=rows,
)
