"""The types of answers about questions that are about no handoff."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from deedbook.projections.answers.answer import Head, Index, Marked, Ms, Untrusted

QuestionStatus: TypeAlias = Literal["open", "answered", "settled"]


class AskedQuestion(Marked, frozen=True, kw_only=True, rename={"receiver": "to"}):
    """A question of an agent to another; ``place`` is a file, perhaps with a line.

    ``answer`` is the last one, and null or empty before the first, as ``settled_*`` are before it is settled.
    """

    id: str
    status: QuestionStatus
    author: str
    receiver: str
    question: Untrusted
    place: Untrusted | None
    asked_index: Index
    asked_ms: Ms
    answer: Untrusted
    answered_index: Index | None
    answered_ms: Ms | None
    comment: Untrusted
    settled_by: str | None
    settled_index: Index | None
    settled_ms: Ms | None


class ShownQuestion(AskedQuestion, frozen=True, kw_only=True, rename={"receiver": "to"}):
    """A question. ``as_of`` is the head of the log that it was read from."""

    as_of: Head | UnsetType = UNSET
