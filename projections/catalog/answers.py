"""The types of answers about events, streams and the knowledge graph."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.projections.answers.answer import Answer, Index, Marked, Ms, Page, Untrusted

ReferenceType: TypeAlias = Literal["event", "reasoning", "step", "stream"]
KnowledgeType: TypeAlias = Literal[
    "agent", "session", "finding", "unknown", "dead_end", "report", "reasoning", "handoff", "evidence"
]
Via = Annotated[str, msgspec.Meta(description="How an event makes a reference: `causes`, `stream`, or a field.")]


class EventLine(Marked, frozen=True, kw_only=True):
    """An event. ``at`` is the time that its author claims, ``size`` the size of its entry in bytes.

    ``text`` is the beginning of its text on one line, empty for an event without text. ``type``, ``agent`` and
    ``happened_ms`` are what an imported record claims (0: no time), else the kind, the author and ``accepted_ms``.
    """

    event_index: Index
    id: str
    body_ref: str
    kind: str
    stream: str
    stream_version: int
    author: str
    key: str
    at: str
    accepted_ms: Ms
    corr: Untrusted | None
    text: Untrusted
    size: int
    type: str
    agent: Untrusted
    happened_ms: Ms


class EventInWords(EventLine, frozen=True, kw_only=True):
    """``did`` says in words what its agent did, and ``title`` is the title or task of the thing that it belongs to."""

    did: Untrusted
    title: Untrusted | None


class ListedEvent(EventInWords, frozen=True, kw_only=True):
    """An event in a list; ``skipped`` is the code with which views refused it."""

    skipped: str | None


class FacetValue(Answer, frozen=True, kw_only=True):
    """A value that events have, and their number."""

    value: Untrusted
    number: int


class Facets(Answer, frozen=True, kw_only=True):
    """The values that the events of a list have, the most frequent first, each with the number of events.

    The numbers of a facet count what a list would have if only that filter were changed. ``is_complete`` is false if
    only the newest 10,000 events were counted.
    """

    agents: list[FacetValue]
    types: list[FacetValue]
    tags: list[FacetValue]
    is_complete: bool


class Reference(Answer, frozen=True, kw_only=True):
    """A reference that an event makes."""

    ref: Untrusted
    via: Via


class ShownEvent(EventInWords, frozen=True, kw_only=True):
    """An event with its references."""

    refs: list[Reference]


class FollowedReference(Marked, frozen=True, kw_only=True):
    """A reference, and the event of this ledger that it leads to, if any."""

    ref: Untrusted
    via: Via
    event_index: Index | None


class LinkedEvent(EventLine, frozen=True, kw_only=True):
    """An event with its references, and where they lead."""

    refs: list[FollowedReference]


class WalkedEvent(LinkedEvent, frozen=True, kw_only=True):
    """An event that a walk found after ``depth`` steps, as a neighbour ``of`` an event, by a reference.

    ``of`` is null for events that name a reference that is no event here.
    """

    depth: int
    of: Index | None
    ref: Untrusted
    via: Via


class UnresolvedReference(Answer, frozen=True, kw_only=True):
    """A reference ``of`` an event that leads to no event here."""

    depth: int
    of: Index | None
    ref: Untrusted
    via: Via


class Walk(Answer, frozen=True, kw_only=True):
    """An event, everything that it follows from (``causes``), and everything that follows from it (``effects``).

    ``event`` is null if ``ref`` is no event of this ledger, but events name it. ``is_complete`` is false if the walk
    ended at the requested depth, at 2,000 events or at 128,000 references.
    """

    ref: Untrusted
    event: LinkedEvent | None
    causes: list[WalkedEvent]
    causes_total: int
    effects: list[WalkedEvent]
    effects_total: int
    unresolved: list[UnresolvedReference]
    is_complete: bool
    next: int | None


class SkippedEntry(Answer, frozen=True, kw_only=True):
    """An inadmissible entry that views skipped. ``code`` and ``message`` say why."""

    index: Index
    code: str
    message: Untrusted
    views: list[str]


class ResolvedReference(Marked, frozen=True, kw_only=True):
    """The meaning of a reference.

    An event has ``id``, ``body_ref``, ``kind``, ``author`` and ``stream_version``, a reasoning ``reasoning_id`` and
    ``version``, a step also ``step``, and a stream ``stream_version``. ``event_index`` of a stream is that of its last
    event.
    """

    type: ReferenceType
    ref: str
    stream: str
    event_index: Index
    stream_version: int | None = None
    id: str | None = None
    body_ref: str | None = None
    kind: str | None = None
    author: str | None = None
    reasoning_id: str | None = None
    version: int | None = None
    step: int | None = None


class TimelineEvent(Marked, frozen=True, kw_only=True):
    """An event on the timeline, with the fields of ``ListedEvent``. ``passed_to`` is the agent that has to act next."""

    event_index: Index
    accepted_ms: Ms
    happened_ms: Ms
    kind: str
    type: str
    stream: str
    author: str
    agent: Untrusted
    key: str
    did: Untrusted
    title: Untrusted | None
    passed_to: str | None


class Lane(Answer, frozen=True, kw_only=True):
    """The number of events of an agent in a part of the past, also by type."""

    agent: Untrusted
    events: int
    kinds: dict[str, int]


class SessionSpan(Answer, frozen=True, kw_only=True):
    """A session and its beginning and end; ``to_ms`` null: it is open. ``agent`` may be the claim of an import."""

    id: str
    agent: Untrusted
    task: Untrusted
    status: Literal["open", "ended", "imported"]
    from_ms: Ms
    to_ms: Ms | None


class Lanes(Page[TimelineEvent], frozen=True, kw_only=True):
    """A page of operations, newest first.

    ``lanes`` are of the part of the past from ``first_ms`` to ``last_ms``, the busiest agent first. ``sessions``
    overlap that part.
    """

    first_ms: Ms
    last_ms: Ms
    lanes: list[Lane]
    sessions: list[SessionSpan]


class KnowledgeNode(Marked, frozen=True, kw_only=True):
    """A thing, named ``TYPE/ID``, and its distance in ``hops`` from the start of the walk.

    ``is_stale``: it was retracted, abandoned, resolved or doubted. ``is_claimed``: an imported record claims its
    ``agent`` and time.
    """

    id: Untrusted
    type: KnowledgeType
    label: Untrusted
    state: str
    agent: Untrusted | None
    event_index: Index | None
    happened_ms: Ms | None
    is_claimed: bool
    is_stale: bool
    hops: int


class KnowledgeEdge(Answer, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """``to`` resulted from ``from``; ``via`` names the relation. ``is_stale``: ``from`` has changed since."""

    start: Untrusted
    end: Untrusted
    via: str
    is_stale: bool


class Knowledge(Answer, frozen=True, kw_only=True):
    """A part of the knowledge graph, the nearest things first; ``id`` is the start, if one was named."""

    id: Untrusted | None
    nodes: list[KnowledgeNode]
    edges: list[KnowledgeEdge]
    is_complete: bool
