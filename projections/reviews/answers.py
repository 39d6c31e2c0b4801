"""The types of answers about reviews."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from deedbook.ledger.events.review import Verdict
from deedbook.projections.answers.answer import Head, Index, Marked, Ms, Untrusted

ReviewStatus: TypeAlias = Literal["open", "answered"]


class Review(Marked, frozen=True, kw_only=True):
    """A request to a human, and the answer; ``rule`` caused it.

    ``verdict`` to ``answered_ms`` are the answer: null or empty until a human answers. ``validations`` are the ids of
    the events with the reports that it was based on.
    """

    id: str
    status: ReviewStatus
    author: str
    question: Untrusted
    rule: Untrusted
    reasons: list[Untrusted]
    task: Untrusted
    reasoning_ref: str | None
    snapshot_id: str
    validations: list[str]
    requested_index: Index
    requested_ms: Ms
    verdict: Verdict | None
    comment: Untrusted
    answered_by: str | None
    answered_index: Index | None
    answered_ms: Ms | None


class ReviewLine(Review, frozen=True, kw_only=True):
    """A review in a list.

    ``superseded_by`` is its author's newest request on the same subject and task, the only one whose answer they read.
    """

    superseded_by: str | None


class ShownReview(Review, frozen=True, kw_only=True):
    """A review. ``as_of`` is the head of the log that it was read from."""

    as_of: Head | UnsetType = UNSET
