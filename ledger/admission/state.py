"""The state that rules decide on, in layers: a decision writes into its own layer until it stands.

A ``Layer`` answers from what was decided in it, then from the layer below. At the bottom lies a ``Base``: the log's
state within a write transaction, or the memory in which an auditor replays. So a refused submission is
forgotten by dropping its layer, and nothing is ever undone.
"""

from __future__ import annotations

from typing import Any, TypeVar

from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, KeyRecord
from deedbook.ledger.log import keys
from deedbook.ledger.log.records import StreamRecord

R = TypeVar("R")


class Base:
    """What lies under all layers. This one knows nothing of a log: who inherits says what is there.

    ``ledger`` and ``now_ms``, the last entry's time, are None before entry 0.
    """

    def __init__(self) -> None:
        self.size = 0
        self.ledger: str | None = None
        self.now_ms: int | None = None
        self.authority_version = 0

    def record(self, _key: keys.Key[Any]) -> Any:
        """Return the record under a state key (see ``log.tables``), or None."""
        return None

    def glance(self, key: keys.Key[Any]) -> Any:
        """Return what ``record`` does, perhaps before it was held against its entries: what counts asks for both."""
        return self.record(key)

    def index_of(self, _stream: str, _event_id: str) -> int | None:
        """Return the index of an event of a stream, or None: what was decided anew, the layer above knows."""
        return None

    def key_at(self, index: int) -> bytes:
        """Return the key that signed the entry at ``index``; of a replay, which refuses duplicates, nobody asks it."""
        raise KeyError(index)


class Layer:
    """State as it would be after what was decided so far in this layer."""

    def __init__(self, below: Layer | Base) -> None:
        self.below = below
        self.records: dict[bytes, Any] = {}
        self._below_records: dict[bytes, Any] = {}
        self.indexes: dict[str, int] = {}
        self.signers: dict[int, bytes] = {}
        self.size: int = below.size
        self.ledger: str | None = below.ledger
        self.now_ms: int | None = below.now_ms
        self.authority_version: int = below.authority_version
        # An identity key, and the agent whose it is: good for whatever that agent states until authority changes.
        self.signer: tuple[bytes, str] | None = None

    def record(self, key: keys.Key[R]) -> R | None:
        """Return the record under a state key, or None."""
        record: R | None = self.records.get(key)
        if record is None and (record := self._below_records.get(key)) is None:
            # What lies below stands still as long as this layer is decided on.
            record = self._below_records[key] = self.below.record(key)
        return record

    def glance(self, key: keys.Key[R]) -> R | None:
        """Return the record under a state key, or None; what rests on it asks for ``record``, too."""
        return self.records.get(key) or self._below_records.get(key) or self.below.glance(key)

    def put(self, key: keys.Key[R], record: R) -> None:
        """Decide the record under a state key."""
        self.records[key] = record

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None."""
        index = self.indexes.get(event_id)  # an id covers its stream
        return self.below.index_of(stream, event_id) if index is None else index

    def key_at(self, index: int) -> bytes:
        """Return the key that signed an entry, stored or decided here."""
        key = self.signers.get(index)
        return self.below.key_at(index) if key is None else key

    def merge_down(self) -> None:
        """Let the layer below have what was decided here, and go on from there, knowing what was read and decided."""
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
        """Go on as if nothing had been decided here since the last ``merge_down``."""
        self.size, self.ledger, self.now_ms = self.below.size, self.below.ledger, self.below.now_ms
        self.authority_version = self.below.authority_version
        self._clear()

    def _clear(self) -> None:
        for decided in (self.records, self.indexes, self.signers):
            decided.clear()

    def stream(self, name: str) -> StreamRecord | None:
        """Return the record of a stream."""
        return self.record(keys.stream_key(name))

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""
        return self.record(keys.agent_key(name))

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""
        return self.record(keys.key_key(public_key))

    def checkpoint_keys(self) -> CheckpointKeys:
        """Return the keys that sign checkpoints, and those that did."""
        return self.record(keys.CHECKPOINT_KEYS_KEY) or CheckpointKeys()
