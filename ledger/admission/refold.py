"""Records folded again from their own entries before a rule acts on them: derived tables are not believed.

Whoever may write to the folder may edit a record behind the gate's back: a handoff approved without an event, a key
that was never revoked, a role that nobody granted. Each record is therefore held against its entries when a gate reads
it from disk for the first time, and again when it is another one than this process knows:

- a handoff or review, by its machine over the events of its stream;
- an agent and its keys, by the rules of authority over the streams ``agent/NAME`` and ``ledger``. What other authors
  were allowed to do then was decided when they did it, and is what ``baton verify`` replays;
- an idempotency key, by the entry that it names.

Left out for their length: the events of sessions, reasonings and searches, in which nobody approves anything, and how
often a session key was used. An edit that fits in several tables passes here; ``baton fsck`` finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from blake3 import blake3

from ledger.admission.authority import OF_KIND
from ledger.admission.state import Layer, NoLog
from ledger.envelope import Entry, decode_entry, event_id, pae
from ledger.errors import Corrupted, Refused
from ledger.events.body import Body, Event, decode_body, make_event
from ledger.lifecycle import handoff, review
from ledger.lifecycle.authority import AgentRecord, KeyRecord
from ledger.log.read import Snapshot
from ledger.log.tables import StreamRecord, agent_key, idempotency_key

proven_max: Final = 50_000
_MACHINES: Final[dict[str, Callable[[Any, Event], Any]]] = {"handoff": handoff.transition, "review": review.transition}


class Refold:
    """What one process has held against the entries; used by one thread at a time."""

    def __init__(self) -> None:
        self._proven: dict[bytes, Any] = {}

    def learn(self, records: dict[bytes, Any]) -> None:
        """Take over records that this process itself decided from proven ones."""
        if len(self._proven) > proven_max:
            self._proven = {}
        self._proven |= records

    def check(self, snapshot: Snapshot, key: bytes, record: Any) -> None:
        """Hold a record that was read from disk, or found missing, against the entries that give it.

        Raises:
            Corrupted: they give another one.
        """
        if record is not None and self._proven.get(key) == record:
            return
        match key[:1]:
            case b"s":
                self._check_stream(snapshot, key, record)
            case b"a" | b"k" if record is not None:
                self._check_agent(snapshot, key, record)
            case b"i" if record is not None:
                _check_idempotency(snapshot, key, record.index, record.digest)
            case _:  # an open set: what is not derived from one stream, and what is missing and grants nothing
                return
        if record is not None:
            self.learn({key: record})

    def _check_stream(self, snapshot: Snapshot, key: bytes, record: StreamRecord | None) -> None:
        stream = key[1:].decode()
        if record is None:
            if any(True for _ in snapshot.stream_indexes(stream)):
                raise _unlike(stream)
            return
        machine = _MACHINES.get(stream.partition("/")[0])
        if machine is None:
            return
        life = None
        for event in _events(snapshot, stream):
            with contextlib.suppress(Refused):  # it stands in the log all the same, and changes nothing
                life = machine(life, event)
        indexes = snapshot.stream_indexes(stream)
        if not indexes or StreamRecord(len(indexes), indexes[-1][0], life) != record:
            raise _unlike(stream)

    def _check_agent(self, snapshot: Snapshot, key: bytes, record: AgentRecord | KeyRecord) -> None:
        name = record.name if isinstance(record, AgentRecord) else record.agent
        if _unused(folded_agent(snapshot, name).get(key)) != _unused(record):
            raise _unlike(f"agent {name}" if isinstance(record, AgentRecord) else f"a key of {name}")


def folded_agent(snapshot: Snapshot, name: str) -> dict[bytes, Any]:
    """Return the records that the events of one agent, and those of the ledger, give."""
    layer = Layer(_Others(name))
    events = sorted((*_events(snapshot, "ledger"), *_events(snapshot, f"agent/{name}")), key=lambda event: event.index)
    for event in events:
        attempt = Layer(layer)
        attempt.size = event.index
        try:
            OF_KIND[event.kind](event, attempt, None)
        except Refused:
            continue
        attempt.merge_down()
    return layer.records


class _Others(NoLog):
    """A ``Base`` in which whoever the fold is not about was allowed to do what he did."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._own = agent_key(name)

    def record(self, key: bytes) -> Any:
        if key[:1] != b"a" or key == self._own:
            return None
        return AgentRecord(key[1:].decode(), "", frozenset({"admin"}))


def _events(snapshot: Snapshot, stream: str) -> Iterator[Event]:
    """Yield the events of a stream that are not quarantined, in order."""
    for version, (index, digest) in enumerate(snapshot.stream_indexes(stream), 1):
        event, body, entry = _read(snapshot, index)
        if body.stream != stream or event.id != f"blake3:{digest.hex()}" or entry.stream_version != version:
            raise _unlike(stream)
        if not snapshot.is_quarantined(index):
            yield event


def _read(snapshot: Snapshot, index: int) -> tuple[Event, Body, Entry]:
    try:
        entry = decode_entry(snapshot.entry(index))
        body, content = decode_body(entry.body)
    except Refused as error:
        raise Corrupted("CORRUPTED", f"entry {index} cannot be read: {error.message}", index=index) from error
    identity = event_id(pae(entry.body))
    event = make_event(body, content, index=index, event_id=identity, key=entry.key, accepted_ms=entry.accepted_ms)
    return event, body, entry


def _check_idempotency(snapshot: Snapshot, key: bytes, index: int, digest: bytes) -> None:
    if index < snapshot.size:
        event, body, _ = _read(snapshot, index)
        same = blake3(f"{event.kind}\0{event.stream}\0".encode() + bytes(body.data)).digest(length=16) == digest
        if body.idem is not None and same and idempotency_key(body.author, body.idem) == key:
            return
    raise _unlike("an idempotency key")


def _unused(record: Any) -> Any:
    return msgspec.structs.replace(record, used=0) if isinstance(record, KeyRecord) else record


def _unlike(what: str) -> Corrupted:
    message = f"the stored record of {what} is not what its entries give: it was edited; run `baton fsck --repair`"
    return Corrupted("CORRUPTED", message, record=what)


def check_head(snapshot: Snapshot) -> None:
    """Hold the time and the count that the head gives for the last entry against that entry.

    Raises:
        Corrupted: the head says others.
    """
    head = snapshot.head
    if head is None:
        return
    last = decode_entry(snapshot.entry(head.size - 1))
    if (last.accepted_ms, last.authority_version) != (head.accepted_ms, head.authority_version):
        raise _unlike("the ledger's head")
