"""Events as every door shows them in JSON, with the marks that views put on them."""

from __future__ import annotations

from typing import Any

import msgspec

from deedbook.ledger.client.client import Ask, Client
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry


def describe(event: Event) -> dict[str, Any]:
    """Return an event as plain values."""
    described: dict[str, Any] = msgspec.to_builtins(event, str_keys=True)
    return described


def whole_event(client: Client, index: int, ask: Ask) -> dict[str, Any]:
    """Return an event with its signature and its places in its stream and batch. Raises Refused: ``NOT_FOUND``."""
    raw = client.entry(index)
    entry, event = decode_entry(raw), read_event(index, raw)
    versions = {name: getattr(entry, name) for name in ("stream_version", "authority_version")}
    batch = {"index": entry.batch_index, "size": entry.batch_size}
    shown = describe(event) | Suspects(ask).mark(event) | versions
    return shown | {"sig": entry.sig.hex(), "batch": batch, "bytes": len(raw)}


class Suspects:
    """The compromised keys and since when, for readers of live entries."""

    def __init__(self, ask: Ask, *, is_filtered: bool = False) -> None:
        """Read them now, and again when one is declared; where that may not be seen, with each event."""
        self._ask = ask
        self._is_filtered = is_filtered
        self._read()

    def _read(self) -> None:
        self._keys: dict[str, list[dict[str, int]]] = {}
        for one in self._ask("agents.suspects", {})["keys"]:
            self._keys.setdefault(one["key"], []).append(one)

    def mark(self, event: Event) -> dict[str, int]:
        """Return the mark of an event, ``{"suspect": N}``, or nothing."""
        if event.kind == "key.compromised" or self._is_filtered:
            self._read()
        found = [one["suspect"] for one in self._keys.get(event.key, ()) if event.index >= one["since"]]
        return {"suspect": found[0]} if found else {}
