"""The state that rules decide on, in layers: a decision writes into its own layer until it is final.

A ``Layer`` answers from its own records, then from the layer below. At the bottom is a ``Base``: the log's state
within a write transaction, or an auditor's replay in memory. To refuse a submission, its layer is dropped, and nothing
is ever undone.
"""

from __future__ import annotations

from typing import Any, TypeVar

from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, KeyRecord
from deedbook.ledger.log import keys
from deedbook.ledger.log.records import StreamRecord

R = TypeVar("R")


class Base:
    """The bottom of all layers. This one is empty; subclasses read a log.

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
        """Return the record under a state key as it is stored, perhaps not verified against the entries.

        Before a decision uses the record, call ``record``, which verifies it.
        """
        return self.record(key)

    def index_of(self, _stream: str, _event_id: str) -> int | None:
        """Return the index of an event of a stream, or None. New events are in the layers above."""
        return None

    def key_at(self, index: int) -> bytes:
        """Return the key that signed the entry at ``index``. A replay never calls it, because it refuses duplicates."""
        raise KeyError(index)


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
        # An identity key and its agent: valid for all events of that agent until authority changes.
        self.signer: tuple[bytes, str] | None = None

    def record(self, key: keys.Key[R]) -> R | None:
        """Return the record under a state key, or None."""
        record: R | None = self.records.get(key)
        if record is None and (record := self._below_records.get(key)) is None:
            # The layers below do not change while this one is in use.
            record = self._below_records[key] = self.below.record(key)
        return record

    def glance(self, key: keys.Key[R]) -> R | None:
        """Return the record as ``Base.glance`` does: perhaps not verified, so no basis for a decision."""
        return self.records.get(key) or self._below_records.get(key) or self.below.glance(key)

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
        """Move the changes into the layer below, and continue with what was read and decided as a cache."""
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
        self._clear()

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

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent."""
        return self.record(keys.agent_key(name))

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex)."""
        return self.record(keys.key_key(public_key))

    def checkpoint_keys(self) -> CheckpointKeys:
        """Return the current and former keys of checkpoints."""
        return self.record(keys.CHECKPOINT_KEYS_KEY) or CheckpointKeys()
