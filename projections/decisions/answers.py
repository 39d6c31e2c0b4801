"""The types of answers about decisions."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from deedbook.projections.answers.answer import Head, Index, Marked, Ms, Untrusted

DecisionStatus: TypeAlias = Literal["standing", "withdrawn", "superseded"]


class Decision(Marked, frozen=True, kw_only=True):
    """A decision, its reason and its paths; a ``contract`` is one on which other parts of the project rely.

    ``reason`` to ``ended_ms`` say how it ended: null or empty while it is in force. ``superseded_by`` is the decision
    that replaces it, and ``supersedes`` are those that it replaces.
    """

    id: str
    status: DecisionStatus
    author: str
    text: Untrusted
    why: Untrusted
    paths: list[Untrusted]
    contract: bool
    made_index: Index
    made_ms: Ms
    supersedes: list[str]
    superseded_by: str | None
    reason: Untrusted
    ended_by: str | None
    ended_index: Index | None
    ended_ms: Ms | None


class ShownDecision(Decision, frozen=True, kw_only=True):
    """A decision. ``as_of`` is the head of the log that it was read from."""

    as_of: Head | UnsetType = UNSET
