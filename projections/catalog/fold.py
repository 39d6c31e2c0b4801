"""The catalog's fold: one row an event, one row a reference, and how far each stream has come.

A reference is one of ``causes``, or the ``reasoning_ref`` of a brief or handoff (``via`` says which). What it leads to
is looked up at read time: an event, the body of one, a version of a reasoning graph, a blob, or nothing known here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.events.body import Event
from ledger.events.handoff import HandoffCompleted, HandoffContent
from ledger.events.reasoning import ReasoningBriefed, ReasoningValidated
from projections.projection import Logged, Projection, Row, Rows, Table
from projections.views import VIEW_VERSIONS


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
    """A reference that an event makes; ``via`` is ``causes`` or ``reasoning_ref``."""

    event_index: int
    position: int
    ref: str
    via: str


class StreamRow(Row, frozen=True):
    """How far a stream has come."""

    stream: str
    sort: str
    name: str
    version: int
    first_index: int
    last_index: int


EVENTS: Final = Table(
    "events",
    EventRow,
    primary_key=("event_index",),
    indexes=(("id",), ("body_ref",), ("kind",), ("stream", "stream_version"), ("author",), ("corr",)),
)
EVENT_REFS: Final = Table("event_refs", RefRow, primary_key=("event_index", "position"), indexes=(("ref",),))
STREAMS: Final = Table("streams", StreamRow, primary_key=("stream",), owner="stream", indexes=(("name",),))


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream has come: its version is the number of its events."""

    stream: str
    version: int = 0
    first_index: int = -1
    last_index: int = -1


def keys(event: Event) -> tuple[str, ...]:
    """Return the stream: the one state an event changes."""
    return (event.stream,)


def fold(state: StreamState, event: Event) -> StreamState:
    """Count one more event of the stream."""
    first = event.index if state.version == 0 else state.first_index
    return StreamState(state.stream, state.version + 1, first, event.index)


def rows(state: StreamState) -> Rows:
    """Return the stream's row."""
    sort, _, name = state.stream.partition("/")
    return (StreamRow(state.stream, sort, name, state.version, state.first_index, state.last_index),)


def added(state: StreamState | None, logged: Logged) -> Rows:
    """Return the event's row and those of the references it makes."""
    event = logged.event
    row = EventRow(
        event_index=event.index,
        id=event.id,
        body_ref=logged.body_ref,
        kind=event.kind,
        stream=event.stream,
        stream_version=0 if state is None else state.version,
        author=event.author,
        key=event.key,
        at=event.at,
        accepted_ms=event.accepted_ms,
        corr=event.corr,
        size=logged.size,
    )
    refs = [(ref, "causes") for ref in event.causes]
    if (reasoning_ref := _reasoning_ref(event)) is not None:
        refs.append((reasoning_ref, "reasoning_ref"))
    return (row, *(RefRow(event.index, position, ref, via) for position, (ref, via) in enumerate(refs)))


def _reasoning_ref(event: Event) -> str | None:
    """Return the version of a graph that the event's data rests on, if it names one."""
    match event.data:
        case ReasoningBriefed() as data:
            return data.brief.reasoning_ref
        case HandoffContent() | HandoffCompleted() | ReasoningValidated() as data:
            return data.reasoning_ref
        case _:  # the other kinds of events name none
            return None


VIEW: Final = Projection(
    name="catalog",
    version=VIEW_VERSIONS["catalog"],
    handles=None,
    tables=(EVENTS, EVENT_REFS, STREAMS),
    state=StreamState,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
