"""The fold of reviews: a row for each request, open until a human answers."""

from __future__ import annotations

from typing import Final

import msgspec

from deedbook.ledger.events import review as kinds
from deedbook.ledger.events.body import Event
from deedbook.ledger.lifecycle.machine import OwnedState
from deedbook.ledger.lifecycle.review import MACHINE
from deedbook.projections.views.projection import Projection, Row, Table, json_text, kinds_of, names_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class ReviewRow(Row, frozen=True):
    """A review after its events; ``reasons`` and ``validations`` are JSON."""

    id: str
    status: str = ""
    author: str = ""
    question: str = ""
    rule: str = ""
    reasons: str = "[]"
    task: str = ""
    reasoning_ref: str | None = None
    snapshot_id: str = ""
    validations: str = "[]"
    requested_index: int = -1
    requested_ms: int = 0
    verdict: str | None = None
    comment: str = ""
    answered_by: str | None = None
    answered_index: int | None = None
    answered_ms: int | None = None


REVIEWS: Final = Table(
    "reviews",
    ReviewRow,
    primary_key=("id",),
    owner="id",
    indexes=(("status", "requested_index"), ("reasoning_ref",), ("requested_index",), ("requested_ms",)),
)


def fold(state: ReviewRow, event: Event) -> ReviewRow:
    """Return the review after one more of its events."""
    lifecycle = MACHINE.decide(OwnedState(state.author, state.status) if state.status else None, event)
    match event.data:
        case kinds.ReviewRequested() as data:
            return msgspec.structs.replace(
                state,
                status="open",
                author=lifecycle.owner,
                question=data.question,
                rule=data.rule,
                reasons=json_text(data.reasons),
                task=data.task,
                reasoning_ref=data.reasoning_ref,
                snapshot_id=data.snapshot_id,
                validations=json_text(data.validations),
                requested_index=event.index,
                requested_ms=event.accepted_ms,
            )
        case kinds.ReviewAnswered() as data:
            return msgspec.structs.replace(
                state,
                status="answered",
                verdict=data.verdict,
                comment=data.comment,
                answered_by=event.author,
                answered_index=event.index,
                answered_ms=event.accepted_ms,
            )
        case _:  # no other kind is handled
            return state


VIEW: Final = Projection(
    name="reviews",
    version=VIEW_VERSIONS["reviews"],
    handles=kinds_of("review"),
    tables=(REVIEWS,),
    state=ReviewRow,
    keys=names_of("review"),
    fold=fold,
    rows=lambda review: (review,) if review.status else (),
)
