"""The catalog's fold: a row for each event, a row for each reference, and the length of each stream.

An event rests on its references, and ``via`` says how: ``causes``; ``stream``, the step before it in its handoff,
decision, question, reasoning or review; or a field of its data (``_NAMED``, and ``blob``). A query resolves the target
of a reference: an event, its body, a version of a reasoning graph, a stream as of that entry, a blob, or nothing known
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from deedbook.ledger.events import decision, handoff, imported, reasoning, review, session, snapshot
from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.handoff import HandoffClaimed, HandoffContent
from deedbook.projections.records.marks import claimed_author, claimed_kind, happened_ms
from deedbook.projections.search.texts import first_words
from deedbook.projections.views.projection import Logged, Projection, Row, Rows, Table
from deedbook.projections.views.registry import VIEW_VERSIONS

STEPS: Final = (
    *("handoff.created", "handoff.amended", "handoff.approved", "handoff.rejected", "handoff.claimed"),
    *("handoff.released", "handoff.completed", "handoff.changes_requested", "handoff.verified"),
    *("handoff.cancelled", "handoff.superseded", "reasoning.started", "reasoning.extended", "reasoning.concluded"),
    *("reasoning.assumption_settled", "reasoning.step_retracted", "review.requested", "review.answered"),
    *("decision.made", "decision.withdrawn", "question.asked", "question.answered", "question.settled"),
)
"""The kinds that change a stream of ``_WITH_STEPS``. Each of these events rests on the one before it there."""
_WITH_STEPS: Final = ("decision/", "handoff/", "question/", "reasoning/", "review/")


class EventRow(Row, frozen=True):
    """An event; ``text`` is the beginning of its text, ``size`` the size of its entry in bytes.

    For an imported record, ``type``, ``agent`` and ``happened_ms`` are its claims: its mapped kind, its author and its
    time. For other events they are the kind, the author and the time of acceptance.
    """

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
    text: str
    size: int
    type: str
    agent: str
    happened_ms: int


class TopicRow(Row, frozen=True):
    """The topic of an event that names one: a finding, an unknown, a dead end or the use of a tool."""

    event_index: int
    topic: str


class RefRow(Row, frozen=True):
    """A reference of an event, and how it is made (``via``)."""

    event_index: int
    position: int
    ref: str
    via: str


class StreamRow(Row, frozen=True):
    """The length and the last event of a stream."""

    stream: str
    name: str
    version: int
    last_index: int


EVENTS: Final = Table(
    "events",
    EventRow,
    primary_key=("event_index",),
    indexes=(
        *(("id",), ("body_ref",), ("kind",), ("stream", "stream_version"), ("author",), ("corr",)),
        *(("type",), ("agent",), ("happened_ms",)),
    ),
    long=("corr", "agent"),
)
EVENT_TOPICS: Final = Table(
    "event_topics", TopicRow, primary_key=("event_index",), indexes=(("topic",),), long=("topic",)
)
EVENT_REFS: Final = Table(
    "event_refs", RefRow, primary_key=("event_index", "position"), indexes=(("ref",),), long=("ref",)
)
STREAMS: Final = Table("streams", StreamRow, primary_key=("stream",), owner="stream", indexes=(("name",),))


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """The length of a stream: its version is the number of its events.

    ``step`` is the id of the last event of ``STEPS``, ``before`` that of the step before the last event; ``depends_on``
    are the streams of the handoffs that this one depends on.
    """

    stream: str
    version: int = 0
    last_index: int = -1
    step: str = ""
    before: str = ""
    depends_on: tuple[str, ...] = ()


def keys(event: Event) -> tuple[str, ...]:
    """Return the stream: an event changes only the state of its stream."""
    return (event.stream,)


def fold(state: StreamState, event: Event) -> StreamState:
    """Count one more event of the stream."""
    if not event.stream.startswith(_WITH_STEPS):
        return StreamState(state.stream, state.version + 1, event.index)
    step = event.id if event.kind in STEPS else state.step
    depends_on = state.depends_on
    if isinstance(event.data, HandoffContent):
        depends_on = tuple(f"handoff/{handoff_id}" for handoff_id in event.data.depends_on)
    return StreamState(state.stream, state.version + 1, event.index, step, state.step, depends_on)


def rows(state: StreamState) -> Rows:
    """Return the stream's row."""
    return (StreamRow(state.stream, state.stream.partition("/")[2], state.version, state.last_index),)


def _of_content(data: HandoffContent) -> Iterable[tuple[str, str]]:
    yield from ((ref, "reasoning_ref") for ref in data.reasoning_refs)
    if data.answers:
        yield f"handoff/{data.answers}", "answers"


def _of_request(data: review.ReviewRequested) -> Iterable[tuple[str | None, str]]:
    yield data.reasoning_ref, "reasoning_ref"
    yield from ((ref, "validation") for ref in data.validations)
    if data.snapshot_id:
        yield f"snapshot/{data.snapshot_id}", "snapshot"


# The references in an event's data other than blobs, by the type of the data.
_NAMED: Final[dict[type[Any], Callable[[Any], Iterable[tuple[str | None, str]]]]] = {
    **dict.fromkeys((handoff.HandoffCreated, handoff.HandoffAmended), _of_content),
    handoff.HandoffCompleted: lambda data: ((ref, "reasoning_ref") for ref in data.reasoning_refs),
    decision.DecisionWithdrawn: lambda data: [(f"decision/{data.by}" if data.by else None, "superseded_by")],
    handoff.HandoffSuperseded: lambda data: [(f"handoff/{data.by}", "superseded_by")],
    reasoning.ReasoningBriefed: lambda data: [(data.brief.reasoning_ref, "reasoning_ref")],
    reasoning.ReasoningValidated: lambda data: [(data.reasoning_ref, "reasoning_ref")],
    snapshot.SnapshotTaken: lambda data: [(data.reasoning_ref, "reasoning_ref")],
    review.ReviewRequested: _of_request,
    imported.RecordImported: lambda data: [(data.original, "original")],
    **dict.fromkeys(session.Correction.__subclasses__(), lambda data: [(data.target, "corrects")]),
}


def added(state: StreamState | None, logged: Logged) -> Rows:
    """Return the event's row and those of its references."""
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
        text=first_words(event.data),
        size=logged.size,
        type=claimed_kind(event),
        agent=claimed_author(event),
        happened_ms=happened_ms(event),
    )
    data = read_as(event).data
    topic = data.topic if "topic" in data.__struct_fields__ else ""
    refs = [(ref, "causes") for ref in event.causes]
    if (named := _NAMED.get(type(event.data))) is not None:
        refs += [(ref, via) for ref, via in named(event.data) if ref is not None]
    refs += [(ref, "blob") for ref in logged.blobs]
    if state is not None and state.depends_on and isinstance(event.data, HandoffContent | HandoffClaimed):
        refs += [(stream, "depends_on") for stream in state.depends_on]  # for a claim: their state at that time
    if state is not None and state.before:
        refs.append((state.before, "stream"))
    if len(refs) > 1:
        first = dict(reversed(refs))
        refs = [(ref, via) for ref, via in refs if first[ref] == via]
    topics = (TopicRow(event.index, topic),) if topic else ()
    return (row, *topics, *[RefRow(event.index, position, ref, via) for position, (ref, via) in enumerate(refs)])


VIEW: Final = Projection(
    name="catalog",
    version=VIEW_VERSIONS["catalog"],
    handles=None,
    tables=(EVENTS, EVENT_TOPICS, EVENT_REFS, STREAMS),
    state=StreamState,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
