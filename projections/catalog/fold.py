"""The catalog's fold: one row an event, one row a reference, and how far each stream has come.

``event_refs`` holds every reference an event makes to something before it: its ``causes``, and the ``reasoning_ref``
that briefs and handoffs carry in their data (``via`` says which). What a reference leads to is looked up at read time,
because it may be an event, the body of one, a version of a reasoning graph, a blob, or nothing known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.events.handoff import HandoffCompleted, HandoffContent
from ledger.events.reasoning import ReasoningBriefed
from ledger.events.validation import ReasoningValidated
from projections.projection import Projection, Table
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows

EVENTS: Final = Table(
    "events",
    {
        "event_index": "INTEGER NOT NULL",
        "id": "TEXT NOT NULL",
        "body_ref": "TEXT NOT NULL",
        "kind": "TEXT NOT NULL",
        "stream": "TEXT NOT NULL",
        "stream_version": "INTEGER NOT NULL",
        "author": "TEXT NOT NULL",
        "key": "TEXT NOT NULL",
        "at": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "corr": "TEXT",
        "size": "INTEGER NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("id",), ("body_ref",), ("kind",), ("stream", "stream_version"), ("author",), ("corr",)),
)
EVENT_REFS: Final = Table(
    "event_refs",
    {
        "event_index": "INTEGER NOT NULL",
        "position": "INTEGER NOT NULL",
        "ref": "TEXT NOT NULL",
        "via": "TEXT NOT NULL",
    },
    primary_key=("event_index", "position"),
    indexes=(("ref",),),
)
STREAMS: Final = Table(
    "streams",
    {
        "stream": "TEXT NOT NULL",
        "sort": "TEXT NOT NULL",
        "name": "TEXT NOT NULL",
        "version": "INTEGER NOT NULL",
        "first_index": "INTEGER NOT NULL",
        "last_index": "INTEGER NOT NULL",
    },
    primary_key=("stream",),
    owner="stream",
    indexes=(("name",),),
)


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
    return {"streams": [(state.stream, sort, name, state.version, state.first_index, state.last_index)]}


def added(state: StreamState | None, logged: Logged) -> Rows:
    """Return the event's row and those of the references it makes."""
    event = logged.event
    row: Row = (
        event.index,
        event.id,
        logged.body_ref,
        event.kind,
        event.stream,
        0 if state is None else state.version,
        event.author,
        event.key,
        event.at,
        event.accepted_ms,
        event.corr,
        logged.size,
    )
    refs = [(ref, "causes") for ref in event.causes]
    reasoning_ref = _reasoning_ref(event)
    if reasoning_ref is not None:
        refs.append((reasoning_ref, "reasoning_ref"))
    if not refs:
        return {"events": [row]}
    return {
        "events": [row],
        "event_refs": [(event.index, position, ref, via) for position, (ref, via) in enumerate(refs)],
    }


def _reasoning_ref(event: Event) -> str | None:
    """Return the version of a graph that the event's data rests on, if it names one."""
    match event.data:
        case ReasoningBriefed() as data:
            return data.brief.reasoning_ref
        case HandoffContent() | HandoffCompleted() | ReasoningValidated() as data:
            return data.reasoning_ref
        case _:
            return None


CATALOG: Final = Projection(
    name="catalog",
    version=VIEW_VERSIONS["catalog"],
    handles=None,
    tables=(EVENTS, EVENT_REFS, STREAMS),
    state=StreamState,
    initial=StreamState,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
