"""Questions about reviews: what waits for a human, and one review with its answer."""

from __future__ import annotations

from typing import Any, Final, Literal

from projections.query import Answer, ById, Listing, Moment, Page, Where, list_of, row_of_id, with_json

LISTING: Final = Listing("SELECT * FROM reviews", "reviews", "requested_index", newest_first=False)


class ReviewList(Page, frozen=True):
    """Filters of a list; what has waited longest comes first."""

    status: Literal["open", "answered"] | None = None
    author: str | None = None
    reasoning_ref: str | None = None


def list_reviews(moment: Moment, asked: ReviewList) -> Answer:
    """Return ``{"reviews", "total", "next"}``, oldest first: what has waited longest comes first."""
    where = Where(asked, "status", "author", "reasoning_ref")
    return list_of(moment, LISTING, where, asked, of="reviews", read=_review)


def show_review(moment: Moment, asked: ById) -> Answer:
    """Return a review; ``verdict`` and what stands with it are None until a human answered."""
    return _review(row_of_id(moment, "reviews", asked.id, "review"))


def _review(row: dict[str, Any]) -> dict[str, Any]:
    return with_json(row, "reasons", "validations")
