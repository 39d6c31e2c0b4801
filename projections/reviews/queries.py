"""Questions about reviews: what waits for a human, and one review with its answer."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from projections.query import Answer, Arguments, Limit, Listing, Moment, Where, by_beginning, page_of

LISTING: Final = Listing("SELECT * FROM reviews", "reviews", "requested_index", newest_first=False)


class ReviewList(Arguments, frozen=True):
    """Filters of a list; ``after`` is the ``next`` of the page before (what has waited longest first)."""

    status: Literal["open", "answered"] | None = None
    author: str | None = None
    reasoning_ref: str | None = None
    after: int | None = None
    limit: Limit = 50


class ReviewId(Arguments, frozen=True):
    """A review by its id or an unambiguous beginning of it."""

    id: str


def list_reviews(moment: Moment, asked: ReviewList) -> Answer:
    """Return ``{"reviews", "total", "next"}``, oldest first: what has waited longest comes first."""
    where = Where()
    for column in ("status", "author", "reasoning_ref"):
        where.equal(column, getattr(asked, column))
    page, total, following = page_of(moment, LISTING, where, asked.after, asked.limit)
    return {"reviews": [_review(row) for row in page], "total": total, "next": following}


def show_review(moment: Moment, asked: ReviewId) -> Answer:
    """Return a review; ``verdict`` and what stands with it are None until a human answered."""
    whole = by_beginning(moment, "reviews", asked.id.removeprefix("review/"), asked.id, "review")
    (row,) = moment.rows("SELECT * FROM reviews WHERE id = ?", (whole,))
    return _review(row)


def _review(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: msgspec.json.decode(row[name]) for name in ("reasons", "validations")}
