"""The types of answers about texts: events found by their words, similar sessions, and pairs of reports."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.session import Basis
from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Page, Untrusted
from deedbook.projections.records.marks import Imported
from deedbook.projections.sessions.answers import AppliedCorrection, Unit

Nearness: TypeAlias = Literal["near", "related", "far"]
NearScore = Annotated[float, msgspec.Meta(description="How much of the question the text has, from 0 to 1.")]


class SearchHit(Marked, frozen=True, kw_only=True):
    """An event that was found by its text; ``excerpt`` has at most 200 characters around the first match.

    ``matches`` are where the excerpt has what was searched: from which character (code point) to which. ``title`` is
    that of the thing that the event belongs to. ``type``, ``agent`` and ``happened_ms`` are what an imported record
    claims (0: no time), else the kind, the author and ``accepted_ms``.

    ``score`` and ``near`` are null if the event contains all words. ``correction`` is null if the statement is still in
    force. ``is_refuted``: it is a conclusion that rests on a refuted assumption.
    """

    event_index: Index
    event_id: str
    kind: str
    stream: str
    author: str
    accepted_ms: Ms
    type: str
    agent: Untrusted
    happened_ms: Ms
    title: Untrusted | None
    excerpt: Untrusted
    matches: list[list[int]]
    score: NearScore | None = None
    near: Nearness | None = None
    correction: AppliedCorrection | None = None
    is_refuted: bool = False


class SearchPage(Page[SearchHit], frozen=True, kw_only=True):
    """A page of hits, best first: in the order of ``score`` if the hits have one.

    ``holds`` is ``all`` if each hit contains all words, else ``some``: then the hits are the nearest events, and far
    ones only if none is nearer.
    """

    holds: Literal["all", "some"]


class ComparedSession(Marked, frozen=True, kw_only=True):
    """A session with the texts of its report, if it has one, without retracted findings.

    ``outcome`` is empty if it repeats the task.
    """

    session_id: str
    report_id: str | None
    event_index: Index | None
    ai_id: Untrusted
    author: str
    happened_ms: Ms
    task: Untrusted
    outcome: Untrusted
    key_findings: list[Untrusted]
    imported: Imported | None


class SimilarSession(ComparedSession, frozen=True, kw_only=True):
    """A session near to a task; ``excerpt`` has at most 200 characters around the first match in its nearest text."""

    excerpt: Untrusted
    score: NearScore
    near: Nearness


class SimilarSessions(Answer, frozen=True, kw_only=True):
    """The sessions nearest to a task, with or without a report, of ``total``, in the order of ``score``.

    There always is a nearest, maybe far.

    ``embedder`` names the model that compared meanings.
    """

    items: list[SimilarSession]
    total: int
    embedder: str


class RelatedDeadEnd(Marked, frozen=True, kw_only=True):
    """A dead end that is related to a task; ``score`` is its own or, if higher, that of its session's task."""

    session_id: str
    author: str
    ai_id: Untrusted
    event_index: Index
    approach: Untrusted
    why_failed: Untrusted
    basis: Basis | None
    impact: Unit | None
    at: str
    happened_ms: Ms
    imported: Imported | None
    score: NearScore
    near: Nearness


class RelatedReasoning(Marked, frozen=True, kw_only=True):
    """A reasoning near to a task."""

    id: str
    task: Untrusted
    conclusion: Untrusted
    author: str
    ai_id: Untrusted
    status: Literal["open", "concluded"]
    ref: str
    updated_ms: Ms
    score: NearScore
    near: Nearness


class RelatedWork(Answer, frozen=True, kw_only=True):
    """Dead ends, reasonings and sessions that are not far from a task; ``total`` counts all three.

    Each of the lists is in the order of ``score``.
    """

    dead_ends: list[RelatedDeadEnd]
    reasonings: list[RelatedReasoning]
    sessions: list[SimilarSession]
    total: int
    embedder: str


class Overlap(Answer, frozen=True, kw_only=True):
    """Two sessions whose reports are about the same work, the newer first, and the words that both ``shared``."""

    score: NearScore
    sessions: list[ComparedSession]
    shared: list[Untrusted]


class Overlaps(Answer, frozen=True, kw_only=True):
    """Pairs of reports about the same work, nearest first: those with a score of ``threshold`` or more.

    The newest reports are compared; ``not_compared`` counts the others.
    """

    items: list[Overlap]
    total: int
    threshold: NearScore
    not_compared: int
