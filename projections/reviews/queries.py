"""Queries about reviews: the open ones, and one review with its answer."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from deedbook.projections.answers.answer import Page
from deedbook.projections.answers.query import (
    ById,
    ListArguments,
    Listing,
    QueryContext,
    Since,
    Until,
    Where,
    list_of,
    with_json,
)
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.reviews.answers import ReviewLine, ReviewStatus, ShownReview
from deedbook.projections.reviews.fold import ReviewRow
from deedbook.projections.stores.dialect import stated

_LISTS: Final = ("reasons", "validations")  # columns of JSON
_ABOUT_THE_SAME: Final = stated(
    sqlite="n.reasoning_ref IS r.reasoning_ref",
    postgres="(n.reasoning_ref = r.reasoning_ref OR (n.reasoning_ref IS NULL AND r.reasoning_ref IS NULL))",
)
SUPERSEDED_BY: Final = (
    f"(SELECT n.id FROM reviews n WHERE n.author = r.author AND {_ABOUT_THE_SAME} AND n.task = r.task"  # noqa: S608 - fixed texts
    " AND n.snapshot_id = r.snapshot_id AND n.requested_index > r.requested_index"
    " AND (n.reasoning_ref IS NOT NULL OR n.snapshot_id != '') ORDER BY n.requested_index DESC LIMIT 1)"
)
"""The newest request by the same author on the same subject and task as ``r``; the author reads only its answer."""
LISTING: Final = Listing(
    f"SELECT * FROM (SELECT r.*, {SUPERSEDED_BY} AS superseded_by FROM reviews r)",  # noqa: S608 - fixed texts
    "reviews",
    "requested_index",
    newest_first=False,
)


class ReviewList(ListArguments, frozen=True):
    """The filters of a list, longest waiting first or ``newest`` first.

    ``since`` and ``until`` limit the time of the request.
    """

    status: ReviewStatus | None = None
    author: str | None = None
    reasoning_ref: str | None = None
    since: Since | None = None
    until: Until | None = None
    newest: bool = False


def list_reviews(context: QueryContext, args: ReviewList) -> Page[ReviewLine]:
    """Return reviews, the longest waiting or the newest first."""
    where = Where(args, "status", "author", "reasoning_ref")
    where.within("requested_ms", args.since, args.until)
    return list_of(
        context,
        replace(LISTING, newest_first=args.newest),
        where,
        args,
        lambda row: ReviewLine(**with_json(row, *_LISTS)),
    )


def show_review(source: RowSource, args: ById) -> ShownReview:
    """Return a review, with its answer if there is one."""
    name = source.id_of("review", args.id)
    row = msgspec.structs.asdict(source.states("reviews", ReviewRow, [name])[name])
    return ShownReview(**with_json(row, *_LISTS))
