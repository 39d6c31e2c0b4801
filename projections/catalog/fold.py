"""The catalog's fold: one row an event, one row a reference, and how far each stream has come.

A reference is what an event rests on, and ``via`` says how: one of its ``causes``; ``stream``, the step before it in
the life of its handoff, reasoning or review; a ``reasoning_ref``, ``validation``, ``blob`` or imported ``original``;
what it ``corrects``; the handoff that it ``depends_on``, ``answers`` or is ``superseded_by``; the ``snapshot`` that a
review is about. What it leads to is looked up at read time: an event, the body of one, a version of a reasoning graph,
a stream as it was then, a blob, or nothing known here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.events.blob import blobs_of
from ledger.events.body import Event
from ledger.events.handoff import (
    HandoffAmended,
    HandoffClaimed,
    HandoffCompleted,
    HandoffContent,
    HandoffCreated,
    HandoffSuperseded,
)
from ledger.events.imported import RecordImported
from ledger.events.reasoning import ReasoningBriefed, ReasoningValidated
from ledger.events.review import ReviewRequested
from ledger.events.session import Correction, DeadEndRetracted, FindingRetracted, ReportGenerated, UnknownResolved
from ledger.events.snapshot import SnapshotTaken
from ledger.events.tot import SearchComplete
from projections.projection import Logged, Projection, Row, Rows, Table
from projections.views import VIEW_VERSIONS

STEPS: Final = (
    *("handoff.created", "handoff.amended", "handoff.approved", "handoff.rejected", "handoff.claimed"),
    *("handoff.released", "handoff.completed", "handoff.changes_requested", "handoff.verified"),
    *("handoff.cancelled", "handoff.superseded", "reasoning.started", "reasoning.extended", "reasoning.concluded"),
    *("review.requested", "review.answered"),
)
"""The kinds by which a handoff, a reasoning or a review goes on: each rests on the one before it in its stream."""
_WITH_STEPS: Final = ("handoff/", "reasoning/", "review/")


# Asked of every event: the types whose data name something. A subclass is a kind of its own.
_NAMING: Final = frozenset(
    (
        *(HandoffCreated, HandoffAmended, HandoffCompleted, HandoffSuperseded, ReasoningBriefed, ReasoningValidated),
        *(SnapshotTaken, ReviewRequested, RecordImported, ReportGenerated, SearchComplete),
        *(FindingRetracted, DeadEndRetracted, UnknownResolved),
    )
)


class EventRow(Row, frozen=True):
    """An event; ``size`` is that of its entry in bytes."""

    event_index: int
    id: str
    body_ref: str
    kind: str
    stream: str
    stream_version: int
    author: str
    key: str
    at: str
    accepted_ms: int
    corr: str | None
    size: int


class RefRow(Row, frozen=True):
    """A reference that an event makes, and how (``via``)."""

    event_index: int
    position: int
    ref: str
    via: str


class StreamRow(Row, frozen=True):
    """How far a stream has come."""

    stream: str
    name: str
    version: int
    last_index: int


EVENTS: Final = Table(
    "events",
    EventRow,
    primary_key=("event_index",),
    indexes=(("id",), ("body_ref",), ("kind",), ("stream", "stream_version"), ("author",), ("corr",)),
    long=("corr",),
)
EVENT_REFS: Final = Table(
    "event_refs", RefRow, primary_key=("event_index", "position"), indexes=(("ref",),), long=("ref",)
)
STREAMS: Final = Table("streams", StreamRow, primary_key=("stream",), owner="stream", indexes=(("name",),))


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream has come: its version is the number of its events.

    ``step`` is the id of the last event of ``STEPS``, ``before`` of the one before the last event; ``depends_on`` are
    the streams of the handoffs that this one depends on.
    """

    stream: str
    version: int = 0
    last_index: int = -1
    step: str = ""
    before: str = ""
    depends_on: tuple[str, ...] = ()


def keys(event: Event) -> tuple[str, ...]:
    """Return the stream: the one state an event changes."""
    return (event.stream,)


def fold(state: StreamState, event: Event) -> StreamState:
    """Count one more event of the stream."""
    if not event.stream.startswith(_WITH_STEPS):
        return StreamState(state.stream, state.version + 1, event.index)
    step = event.id if event.kind in STEPS else state.step
    depends_on = state.depends_on
    if isinstance(event.data, HandoffContent):
        depends_on = tuple(f"handoff/{one}" for one in event.data.depends_on)
    return StreamState(state.stream, state.version + 1, event.index, step, state.step, depends_on)


def rows(state: StreamState) -> Rows:
    """Return the stream's row."""
    return (StreamRow(state.stream, state.stream.partition("/")[2], state.version, state.last_index),)


def added(state: StreamState | None, logged: Logged) -> Rows:
    """Return the event's row and those of the references it makes."""
    event = logged.event
    row = EventRow(
        event_index=event.index, id=event.id, body_ref=logged.body_ref, kind=event.kind, stream=event.stream,
        stream_version=0 if state is None else state.version, author=event.author, key=event.key, at=event.at,
        accepted_ms=event.accepted_ms, corr=event.corr, size=logged.size,
    )  # fmt: skip
    refs = [(ref, "causes") for ref in event.causes]
    if type(event.data) in _NAMING:
        refs += _refs_in(event)
    if state is not None and state.depends_on and isinstance(event.data, HandoffContent | HandoffClaimed):
        refs += [(stream, "depends_on") for stream in state.depends_on]  # a claim: what they have come to by then
    if state is not None and state.before:
        refs.append((state.before, "stream"))
    if len(refs) > 1:
        first = dict(reversed(refs))
        refs = [(ref, via) for ref, via in refs if first[ref] == via]
    return (row, *(RefRow(event.index, position, ref, via) for position, (ref, via) in enumerate(refs)))


def _refs_in(event: Event) -> list[tuple[str, str]]:
    """Return what the event's data names, apart from what its stream says."""
    refs: list[tuple[str | None, str]] = []
    match event.data:
        case ReasoningBriefed() as data:
            refs = [(data.brief.reasoning_ref, "reasoning_ref")]
        case HandoffContent() as data:
            refs = [*((ref, "reasoning_ref") for ref in data.reasoning_refs)]
            refs += [(f"handoff/{data.answers}", "answers")] if data.answers else []
        case HandoffCompleted() as data:
            refs = [(ref, "reasoning_ref") for ref in data.reasoning_refs]
        case ReasoningValidated() | SnapshotTaken() as data:
            refs = [(data.reasoning_ref, "reasoning_ref")]
        case HandoffSuperseded() as data:
            refs = [(f"handoff/{data.by}", "superseded_by")]
        case ReviewRequested() as data:
            refs = [(data.reasoning_ref, "reasoning_ref"), *((ref, "validation") for ref in data.validations)]
            refs += [(f"snapshot/{data.snapshot_id}", "snapshot")] if data.snapshot_id else []
        case RecordImported() as data:
            refs = [(data.original, "original")]
        case Correction() as data:
            refs = [(data.target, "corrects")]
        case _:  # the other kinds of events name nothing but blobs
            pass
    refs += [(ref, "blob") for ref in blobs_of(event.data)]
    return [(ref, via) for ref, via in refs if ref is not None]


VIEW: Final = Projection(
    name="catalog", version=VIEW_VERSIONS["catalog"], handles=None, tables=(EVENTS, EVENT_REFS, STREAMS),
    state=StreamState, keys=keys, fold=fold, rows=rows, added=added,
)  # fmt: skip
