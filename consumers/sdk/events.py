"""Events as every interface shows them in JSON, with the marks of compromised signatures and of erased bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.declared import plain_data
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry


def describe(event: Event) -> dict[str, Any]:
    """Return an event as plain values."""
    described: dict[str, Any] = msgspec.to_builtins(replace(event, data=plain_data(event.data)), str_keys=True)
    for name, value in (("allow_secret", event.allow_secret), ("erased", event.erased)):
        if not value:  # most events lack this field
            del described[name]
    return described


def whole_event(index: int, raw: bytes, ask: Ask) -> dict[str, Any]:
    """Return the event of the entry ``raw`` with its signature and its positions in stream and batch."""
    entry, event = decode_entry(raw), read_event(index, raw)
    versions = {name: getattr(entry, name) for name in ("stream_version", "authority_version")}
    batch = {"index": entry.batch_index, "size": entry.batch_size}
    answer = describe(event) | EventMarks(ask).mark(event) | versions
    return answer | {"sig": entry.sig.hex(), "batch": batch, "bytes": len(raw)}


class EventMarks:
    """Marks compromised signatures and erased bodies for readers that follow the log."""

    def __init__(self, ask: Ask, *, is_filtered: bool = False) -> None:
        """Query the keys now and at each ``key.compromised``; if a filter may hide those events, at each event."""
        self._ask = ask
        self._is_filtered = is_filtered
        self._read()

    def _read(self) -> None:
        self._keys: dict[str, list[dict[str, int]]] = {}
        for key in self._ask("agents.compromised", {})["items"]:
            self._keys.setdefault(key["key"], []).append(key)

    def mark(self, event: Event) -> dict[str, Any]:
        """Return the marks ``compromised`` and ``redacted`` of an event, as views have them; empty for most events."""
        if event.kind == "key.compromised" or self._is_filtered:
            self._read()
        since = [key["compromised"] for key in self._keys.get(event.key, ()) if event.index >= key["since"]]
        marks: dict[str, Any] = {"compromised": since[0]} if since else {}
        if event.erased is not None:
            row = self._ask("catalog.show", {"id": str(event.index)})
            marks |= {name: row[name] for name in ("redacted",) if name in row}
        return marks
