"""Runs the cases of ``proto/cases`` on the state machines alone, with agents, keys and streams in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import GIVEN_MS, Actors, key_named
from msgspec.structs import replace
from rule_cases import SESSION, Story, cast, lines_of, state_at

from deedbook.ledger.admission.authority import OF_KIND
from deedbook.ledger.admission.rules import MACHINES
from deedbook.ledger.admission.state import Layer, MemoryState
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.codec import converted
from deedbook.ledger.lifecycle.authority import NODE, ROOT, AgentRecord, KeyRecord, check_key
from deedbook.ledger.log.keys import agent_key, key_key, stream_key
from deedbook.ledger.log.records import StreamRecord

if TYPE_CHECKING:
    from rule_cases import Written


class _Memory(Layer):
    """A layer that stores the stream of each event by its id; the ids here are numbers."""

    def __init__(self, below: MemoryState) -> None:
        super().__init__(below)
        self.streams: dict[str, str] = {}

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        return int(event_id.partition(":")[2], 16) - 1 if self.streams.get(event_id) == stream else None


class MachineRunner:
    """The state machines, and the ledger in memory that they read. ``events`` are the accepted events."""

    def __init__(self) -> None:
        self.actors = Actors(agents=cast()["agents"])
        self.layer = _Memory(MemoryState())
        self.layer.ledger = self.actors.id
        self.now_ms = GIVEN_MS
        self.events: list[Event] = []
        for name, roles in {**cast()["agents"], ROOT: ["admin"], NODE: []}.items():
            key, session = self.actors.keys[name].public.hex(), key_named(SESSION + name).public.hex()
            self.layer.put(agent_key(name), AgentRecord(name, key, tuple(roles)))
            self.layer.put(key_key(key), KeyRecord(name, key, "identity", since_index=0))
            self.layer.put(key_key(session), KeyRecord(name, session, "session", since_index=0, delegated_by=key))

    def event(self, written: Written) -> Event:
        """Return an event of a case as the next entry of the log."""
        key = key_named(SESSION + written.author) if written.is_by_session else self.actors.keys[written.author]
        return Event(
            index=self.layer.size,
            id=f"event:{1 + self.layer.size:064x}",
            accepted_ms=self.now_ms,
            key=key.public.hex(),
            ledger=self.actors.id,
            kind=written.kind,
            stream=written.stream,
            author=written.author,
            at="2026-02-12T10:00:00Z",
            causes=[],
            data=converted(written.data, KINDS[written.kind].data, "$.data"),
        )

    def emit(self, written: Written) -> str:
        """Decide an event, and append it if it is accepted."""
        event, layer = self.event(written), self.layer
        record = layer.key(event.key)
        delegator = None if record is None else layer.key(record.delegated_by)
        check_key(
            record,
            delegator,
            author=event.author,
            kind=event.kind,
            stream=event.stream,
            data=event.data,
            now_ms=event.accepted_ms,
        )
        before = layer.stream(event.stream) or StreamRecord(0, -1)
        if event.kind in OF_KIND:
            after = OF_KIND[event.kind](event, layer, None)
            layer.forget_authority()
        else:
            after = MACHINES[event.stream.partition("/")[0]].decide(before.state, event, layer)
        layer.put(stream_key(event.stream), replace(before, version=before.version + 1, state=after))
        layer.streams[event.id] = event.stream
        layer.size += 1
        self.now_ms += 1
        self.events.append(event)
        return event.id

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_ms += int(seconds * 1000)

    def size(self) -> int:
        """Return the number of entries."""
        return self.layer.size

    def state(self, stream: str) -> str:
        """Return the name of a stream's state, as the rules see it now."""
        record, family = self.layer.stream(stream), stream.partition("/")[0]
        return state_at(family, None if record is None else record.state, self.now_ms)


def tell(family: str, *lines: str) -> Any:
    """Play lines and stories of a family; return the state of the last line's stream."""
    runner = MachineRunner()
    story = Story(runner, "")
    for line in lines_of(family, *lines):
        story.tell(line)
    record = runner.layer.stream(story.stream_of(line))
    return None if record is None else record.state


def refuse(family: str, *lines: str) -> Refused:
    """Play lines and stories of a family; return the refusal of the last line."""
    runner = MachineRunner()
    story = Story(runner, "")
    *given, when = lines_of(family, *lines)
    for line in given:
        story.tell(line)
    with pytest.raises(Refused) as refused:
        story.tell(when)
    return refused.value
