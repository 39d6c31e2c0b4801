"""The state that rules decide on, in layers: a decision writes into its own layer until it is final.

A ``Layer`` answers from its own records, then from the layer below. At the bottom is a ``Base``: the log's state within
a transaction (``gate.Transaction``), or state in memory (``MemoryState``). A refused submission's layer is dropped, so
nothing must be undone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord
from deedbook.ledger.lifecycle.gate_state import GateState
from deedbook.ledger.log import keys
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.log.records import StreamRecord

R = TypeVar("R")
records_decoded_max: Final = 50_000


class Base:
    """The bottom of all layers.

    ``ledger`` and ``now_ms``, the last entry's time, are None before entry 0.
    """

    def __init__(self) -> None:
        self.size = 0
        self.ledger: str | None = None
        self.now_ms: int | None = None
        self.authority_version = 0

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key (see ``log.tables``), or None."""
        raise NotImplementedError

    def glance(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key as it is stored, perhaps not verified against the entries.

        Before a decision uses the record, call ``record``, which verifies it.
        """
        return self.record(key)

    def records_of(self, _letter: bytes) -> dict[bytes, Any]:
        """Return the records under the state keys that begin with a letter. Only a replay asks for them."""
        raise NotImplementedError

    def index_of(self, _stream: str, _event_id: str) -> int | None:
        """Return the index of an event of a stream, or None. New events are in the layers above."""
        return None

    def key_at(self, index: int) -> bytes:
        """Return the key that signed the entry at ``index``. A replay never needs it, because it refuses repeats."""
        raise KeyError(index)


class MemoryState(Base):
    """The state of a replay, in memory. ``other`` answers for the state keys that have no record here.

    The state stays small over millions of events. A record is stored as the log's own bytes and decoded only in a cache
    of bounded size, an id takes 32 bytes, and its stream 8. (As objects and text they took some 600 bytes an event.)
    ``indexes`` are the indexes of events by id; ``streams`` are the digests of the events' streams by index, 0 for an
    entry that could not be read.
    """

    def __init__(self, other: Callable[[keys.Key[Any]], Any] = lambda _key: None) -> None:
        super().__init__()
        self.packed: dict[bytes, bytes] = {}
        self.indexes: dict[bytes, int] = {}
        self.streams: array[int] = array("Q")
        self._other = other
        self._decoded: dict[bytes, Any] = {}

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None."""
        record = self._decoded.get(key)
        if record is None:
            data = self.packed.get(key)
            if data is None:
                return self._other(key)
            record = self._decoded[key] = decode_record(key, data)
        return record

    def records_of(self, letter: bytes) -> dict[bytes, Any]:
        """Return the records under the state keys that begin with a letter."""
        return {key: decode_record(key, data) for key, data in self.packed.items() if key.startswith(letter)}

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        index = self.indexes.get(bytes.fromhex(event_id.partition(":")[2]))
        return index if index is not None and self.streams[index] == _short_digest(stream) else None

    def take(self, layer: Layer) -> None:
        """Take over the records of ``layer``; ids are recorded one by one with ``remember``."""
        for key, record in layer.records.items():
            self.packed[key] = encode_packed(record)
        if len(self._decoded) > records_decoded_max:
            self._decoded = {}
        self._decoded |= layer.records
        self.size = layer.size
        self.ledger = layer.ledger
        self.authority_version = layer.authority_version

    def remember(self, commitment: bytes, stream: str, index: int) -> None:
        """Record the event at ``index`` by its commitment, and its stream; the first index of an event counts."""
        self.indexes.setdefault(commitment, index)
        if index > len(self.streams):
            self.streams.extend([0] * (index - len(self.streams)))
        self.streams.append(_short_digest(stream))

    def knows(self, ref: str) -> bool:
        """Return whether ``ref`` is the id of an event seen so far."""
        return bytes.fromhex(ref.partition(":")[2]) in self.indexes


@lru_cache(keys.streams_cached_max)
def _short_digest(stream: str) -> int:
    return int.from_bytes(keys.stream_digest(stream)[:8], "big")


class Layer:
    """The state after the decisions in this layer."""

    def __init__(self, below: Layer | Base) -> None:
        self.below = below
        self.records: dict[bytes, Any] = {}
        self._below_records: dict[bytes, Any] = {}
        self.indexes: dict[str, tuple[str, int]] = {}  # by event id, with the stream
        self.signers: dict[int, bytes] = {}
        self.size: int = below.size
        self.ledger: str | None = below.ledger
        self.now_ms: int | None = below.now_ms
        self.authority_version: int = below.authority_version
        # Results of checks, valid until authority changes: that an identity key belongs to its agent, and that agents
        # have a required role.
        self.signer: tuple[bytes, str] | None = None
        self.role_holders: set[tuple[str, frozenset[str]]] = set()

    def record(self, key: keys.Key[R]) -> R | None:
        """Return the record under a state key, or None."""
        record: R | None = self.records.get(key)
        if record is None and (record := self._below_records.get(key)) is None:
            # The layers below do not change while this layer is in use.
            record = self._below_records[key] = self.below.record(key)
        return record

    def glance(self, key: keys.Key[R]) -> R | None:
        """Return the record as ``Base.glance`` does. It may be unverified, so no decision may use it."""
        return self.records.get(key) or self._below_records.get(key) or self.below.glance(key)

    def records_of(self, letter: bytes) -> dict[bytes, Any]:
        """Return the records of this layer, without those below, under the state keys that begin with a letter."""
        return {key: record for key, record in self.records.items() if key.startswith(letter)}

    def put(self, key: keys.Key[R], record: R) -> None:
        """Set the record under a state key."""
        self.records[key] = record

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        own = self.indexes.get(event_id)
        if own is None:
            return self.below.index_of(stream, event_id)
        return own[1] if own[0] == stream else None

    def key_at(self, index: int) -> bytes:
        """Return the key that signed an entry, in the log or in this layer."""
        key = self.signers.get(index)
        return self.below.key_at(index) if key is None else key

    def merge_down(self) -> None:
        """Move the changes into the layer below. The records that were read or decided stay here as a cache."""
        below = self.below
        assert isinstance(below, Layer)  # noqa: S101 - the base is written by the gate, never merged into
        below.records |= self.records
        below.indexes |= self.indexes
        below.signers |= self.signers
        below.size = self.size
        below.ledger = self.ledger
        below.now_ms = self.now_ms
        below.authority_version = self.authority_version
        self._below_records |= self.records
        self._clear()

    def forget(self) -> None:
        """Drop the changes since the last ``merge_down``."""
        self.size, self.ledger, self.now_ms = self.below.size, self.below.ledger, self.below.now_ms
        self.authority_version = self.below.authority_version
        self.forget_authority()
        self._clear()

    def forget_authority(self) -> None:
        """Check keys and roles anew, because authority changed."""
        self.signer = None
        self.role_holders.clear()

    def _clear(self) -> None:
        for changes in (self.records, self.indexes, self.signers):
            changes.clear()

    def stream(self, name: str) -> StreamRecord | None:
        """Return the record of a stream."""
        return self.record(keys.stream_key(name))

    def unverified_stream(self, name: str) -> StreamRecord | None:
        """Return the record of a stream as it is stored, perhaps not verified against the entries.

        Before a decision uses the record, call ``stream``, which verifies it.
        """
        return self.glance(keys.stream_key(name))

    def dependents(self, handoff: str) -> int:
        """Return how many handoffs depend on a handoff now, as it is stored, not verified against the entries."""
        return self.record(keys.dependents_key(handoff)) or 0

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""
        return self.record(keys.agent_key(name))

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""
        return self.record(keys.key_key(public_key))

    def invitation(self, name: str) -> InvitationRecord | None:
        """Return the record of the last invitation of a name."""
        return self.record(keys.invitation_key(name))

    def checkpoint_keys(self) -> CheckpointKeys:
        """Return the current and former keys of checkpoints."""
        return self.record(keys.CHECKPOINT_KEYS_KEY) or CheckpointKeys()

    def gate_state(self) -> GateState:
        """Return whether the gate is open: a key without a passphrase can approve (``lifecycle.gate_state``)."""
        return self.record(keys.GATE_STATE_KEY) or GateState()
