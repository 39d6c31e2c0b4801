"""A log whose every event follows from its index, so that any process can say what index i must be."""

from __future__ import annotations

from ledger.bus.publisher import OutboundMessage
from ledger.bus.subjects import event_subject

L = "0123456789abcdef0123456789abcdef"


def message(index: int) -> OutboundMessage:
    """Return the event of an index; every tenth begins a signed batch of four."""
    digit = index % 10
    return OutboundMessage(
        index,
        event_subject(L, "session.started" if index % 3 else "finding.logged", f"session/{index % 7}"),
        f'{{"n":{index}}}'.encode() + b" " * (index % 400),
        {"Baton-Index": str(index), "Baton-Id": f"blake3:{index:064x}"},
        index.to_bytes(32),
        3 - digit if digit < 4 else 0,
    )


class NumberedLog:
    """A double of the log: it holds ``size`` events."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def read(self, after_index: int, limit: int) -> list[OutboundMessage]:
        """Return what follows an index."""
        return [message(i) for i in range(after_index + 1, min(after_index + 1 + limit, self.size))]

    def grow(self, events: int, size_max: int) -> None:
        """Commit more events, and the rest of a signed batch they begin."""
        self.size = min(self.size + events, size_max)
        while self.size < size_max and message(self.size - 1).unit_left:
            self.size += 1
