"""The state an auditor replays into: a base for layers that stays small over millions of events.

Records as objects and ids as text would take some 600 bytes an event. Here a record is kept as the bytes that the log
itself stores, decoded ones only in a cache of bounded size, and an id as its 32 bytes. What grows is one small item for
each event id, stream, key and idempotency key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.codec import encode_packed
from ledger.log import tables as layout

if TYPE_CHECKING:
    from ledger.admission.state import Layer

records_decoded_max: Final = 50_000


class PackedState:
    """A ``Base`` without a log."""

    def __init__(self) -> None:
        """Start empty."""
        self.size = 0
        self.ledger: str | None = None
        self.authority_index = 0
        self.packed: dict[bytes, bytes] = {}
        self.indexes: dict[bytes, int] = {}
        self._decoded: dict[bytes, Any] = {}

    def record(self, key: bytes) -> Any:
        """Return the record under a state key, or None."""
        found = self._decoded.get(key)
        if found is None and (data := self.packed.get(key)) is not None:
            found = self._decoded[key] = layout.decode_record(key, data)
        return found

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event, or None."""
        return self.indexes.get(bytes.fromhex(event_id[7:]))

    def key_at(self, index: int) -> bytes:
        """Never asked: a replay refuses every duplicate before it would matter."""
        raise KeyError(index)

    def take(self, layer: Layer) -> None:
        """Take over the records decided in ``layer``; ids are recorded one by one with ``remember``."""
        for key, record in layer.records.items():
            self.packed[key] = encode_packed(record)
        if len(self._decoded) > records_decoded_max:
            self._decoded = {}
        self._decoded |= layer.records
        self.size = layer.size
        self.ledger = layer.ledger
        if layer.authority_index is not None:
            self.authority_index = layer.authority_index

    def remember(self, event_id: str, index: int) -> None:
        """Record the id of the event at ``index``; the first one stands."""
        self.indexes.setdefault(bytes.fromhex(event_id[7:]), index)

    def knows(self, ref: str) -> bool:
        """Return whether ``ref`` is the id of an event seen so far."""
        return bytes.fromhex(ref[7:]) in self.indexes
