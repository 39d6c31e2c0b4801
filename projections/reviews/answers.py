"""The types of answers about reviews."""

from __future__ import annotations

from typing import Literal, TypeAlias

from deedbook.ledger.events.review import Verdict
from deedbook.projections.answers.answer import Checked, Index, Marked, Ms, Untrusted

ReviewStatus: TypeAlias = Literal["open", "answered"]


class ReviewLine(Marked, frozen=True, kw_only=True):
    """A request to a human in a list; ``rule`` caused it.

    ``verdict`` to ``answered_ms`` are the answer: null or empty until a human answers. ``validations`` are the ids of
    the events with the reports that it was based on. ``superseded_by`` is its author's newest request on the same
    subject and task, the only one whose answer they read.
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
    superseded_by: str | None


class ShownReview(Checked, frozen=True, kw_only=True):
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
