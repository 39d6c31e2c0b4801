"""The state machine of a review: requested once, answered once (by a human only: ``admission.rules``)."""

from __future__ import annotations

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import review as kinds
from deedbook.ledger.events.body import Event


class ReviewState(msgspec.Struct, frozen=True, array_like=True, tag="review"):
    """The agent that requested the review, and whether a human has answered it."""

    requester: str
    is_answered: bool = False


def transition(state: ReviewState | None, event: Event) -> ReviewState:
    """Return the state after ``event``. Raises Refused: ``TRANSITION_NOT_ALLOWED``."""
    if isinstance(event.data, kinds.ReviewRequested):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"review {event.name} already exists: choose another id")
        return ReviewState(event.author)
    if state is None:
        raise Refused("TRANSITION_NOT_ALLOWED", f"there is no review {event.name}: see `deed review list`")
    if state.is_answered:
        raise Refused("TRANSITION_NOT_ALLOWED", f"review {event.name} is already answered: see `deed review show`")
    return ReviewState(state.requester, is_answered=True)
