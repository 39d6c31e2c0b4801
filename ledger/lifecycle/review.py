"""The life of a review: requested once, answered once. That only a human answers is ``admission.rules``."""

from __future__ import annotations

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import review as kinds
from deedbook.ledger.events.body import Event


class ReviewState(msgspec.Struct, frozen=True, array_like=True, tag="review"):
    """Who asked, and whether a human has answered."""

    requester: str
    is_answered: bool = False


def transition(state: ReviewState | None, event: Event) -> ReviewState:
    """Return the state after ``event``. Raises Refused: ``TRANSITION_NOT_ALLOWED``."""
    if isinstance(event.data, kinds.ReviewRequested):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"review {event.name} was requested already: choose another id")
        return ReviewState(event.author)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"review {event.name} was never requested: see `deed review list`")
    if state.is_answered:
        raise Refused("TRANSITION_NOT_ALLOWED", f"review {event.name} was answered already: see `deed review show`")
    return ReviewState(state.requester, is_answered=True)
