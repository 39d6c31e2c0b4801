"""`/events`, the log as it grows; `/e/ID`, one entry with all that proves it; `/search`, what was written."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.consumers.sdk import receipts
from deedbook.consumers.sdk.events import whole_event
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events import KINDS

rows_max: Final = 50
neighbours_max: Final = 50


def events(seen: Seen) -> Page:
    """Return ``{"events", "total", "next", "asked", "kinds"}``, newest first; older ones are those before ``next``."""
    asked = {name: seen.query.get(name) or None for name in ("actor", "kind", "stream")}
    check_kinds((asked["kind"],) if asked["kind"] else ())
    answer = seen.ask(
        "catalog.find",
        newest=True,
        after=seen.number("before"),
        limit=rows_max,
        author=asked["actor"],
        kind=asked["kind"],
        stream=asked["stream"],
    )
    data = answer | {"asked": asked | {"before": seen.number("before")}, "kinds": sorted(KINDS)}
    return Page("events.html", "Events", data)


def event(seen: Seen) -> Page:
    """Return ``{"event", "row", "signed", "proof", "causes", "effects", …}`` of one entry.

    ``signed`` tells whether its signature fits and the rules admit it, read the checked way (``problem``: why not);
    ``proof`` is the inclusion in the log under a signed checkpoint, checked here (``problem``: why there is none).
    """
    index = seen.ask("resolve", ref=seen.params["ref"])["event_index"]
    row = seen.ask("catalog.show", ref=str(index))
    entry = whole_event(seen.client, index, seen.view)
    walk = seen.ask("catalog.why", ref=row["id"], depth=1, limit=neighbours_max)
    signed = _signed(seen, index, entry["stream"], entry["key"])
    data = {"row": row, "signed": signed, "proof": _proof(seen, index), **walk, "event": entry}
    return Page("event.html", f"#{index} {row['kind']}", data)


def _signed(seen: Seen, index: int, stream: str, key: str) -> dict[str, Any]:
    """Return whether an entry counts in its stream, and whose key signed it, from signed entries."""
    try:
        checked = seen.client.streams.read(stream)
    except DeedbookError as error:
        return {"counts": False, "problem": error.message, "key_sort": None, "delegated_by": None, "ended_index": None}
    ignored = next((one.message for one in checked.ignored if one.index == index), None)
    record = seen.client.streams.authority.key(key, checked.head.size)
    return {
        "counts": any(at == index for at, _ in checked.entries),
        "problem": ignored,
        "key_sort": None if record is None else "identity" if record.is_identity else "session",
        "delegated_by": (record and record.delegated_by) or None,
        "ended_index": record and record.ended_index,
    }


def _proof(seen: Seen, index: int) -> dict[str, Any]:
    """Return the checked inclusion of an entry: under which checkpoint, of what size and root, over how many hashes."""
    try:
        receipt = receipts.take(seen.client, index, wait_max_s=0)
        checked = receipts.check(receipt, receipts.Anchors(), known=seen.client.trust_store.checkpoint_keys)
    except DeedbookError as error:
        return {"is_proven": False, "problem": f"{error.code}: {error.message}"}
    point = checked.checkpoint
    return {
        "is_proven": True,
        "problem": None,
        "origin": point.origin,
        "size": point.size,
        "root": point.root.hex(),
        "hashes": len(receipt.path),
        "trust": checked.trust,
        "is_signed": checked.is_signed,
    }


def search(seen: Seen) -> Page:
    """Return what `search.find` answers for ``q``, with the question; nothing where nothing is asked."""
    text = seen.query.get("q", "").strip()
    answer: dict[str, Any] = {"hits": [], "total": 0, "next": None, "holds": "all"}
    if text:
        answer = seen.ask("search.find", text=text, limit=rows_max, after=seen.number("after"))
    return Page("search.html", f"Search {text}".strip(), answer | {"q": text})
