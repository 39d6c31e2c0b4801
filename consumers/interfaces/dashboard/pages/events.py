"""`/events`, the log as it grows; `/e/ID`, one entry with its proofs; `/search`, full-text search."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.facets import read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.proof import inclusion
from deedbook.consumers.sdk.events import whole_event
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.format.forms import is_own
from deedbook.projections.kinds.words import labelled

rows_max: Final = 50
neighbours_max: Final = 50


def events(context: PageContext) -> Page:
    """Return ``{"items", "total", "next", "before", "facets"}``, newest first; the next page is before ``next``."""
    facets = read(context, "/events", "stream")
    before, stream = context.number("before"), facets.others["stream"] or None
    answer = context.ask("catalog.find", newest=True, after=before, limit=rows_max, stream=stream, **facets.arguments)
    counts = context.ask("catalog.facets", stream=stream, **facets.arguments)
    return Page("events.html", "Events", answer | {"before": before, "facets": facets.form(counts)})


def event(context: PageContext) -> Page:
    """Return ``{"event", "row", "signed", "proof", "causes", "effects", …}`` of one entry.

    ``signed`` says whether its signature is valid and the rules admit it, verified from signed entries (``problem``:
    why not). ``proof`` is the inclusion under a signed checkpoint, verified here (``problem``: why there is none).
    """
    index = context.ask("resolve", id=context.params["ref"])["event_index"]
    row = context.ask("catalog.show", id=str(index))
    entry = whole_event(index, context.client.entry(index), context.view)
    walk = context.ask("catalog.why", id=row["id"], depth=1, limit=neighbours_max)
    signed = _signed(context, index, entry["stream"], entry["key"])
    fields = _fields(context, entry)
    data = {"row": row, "signed": signed, "proof": inclusion(context, index), **walk, "event": entry, "fields": fields}
    return Page("event.html", f"#{index} {row['author']} {row['did']}", data)


def _fields(context: PageContext, entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the labels and values of an event of a declared kind, by its schema; none for other events."""
    if not is_own(entry["kind"]) or entry.get("erased"):
        return []
    try:
        schema = context.ask("kinds.show", id=entry["kind"])["schema"]
    except Refused:  # the rules refuse the event, and so no view knows its kind
        return []
    return list(labelled(entry["data"], schema))


def _signed(context: PageContext, index: int, stream: str, key: str) -> dict[str, Any]:
    """Return whether an entry counts in its stream, and which key signed it, verified from signed entries."""
    try:
        checked = context.client.streams.read(stream)
    except DeedbookError as error:
        return {"counts": False, "problem": error.message, "key_type": None, "delegated_by": None, "ended_index": None}
    ignored = next((entry.message for entry in checked.ignored if entry.index == index), None)
    record = context.client.streams.authority.key(key, checked.head.size)
    return {
        "counts": any(at == index for at, _ in checked.entries),
        "problem": ignored,
        "key_type": None if record is None else "identity" if record.is_identity else "session",
        "delegated_by": (record and record.delegated_by) or None,
        "ended_index": record and record.ended_index,
    }


def search(context: PageContext) -> Page:
    """Return the hits for ``text``, grouped by the thing that they belong to, with ``facets``; none without a text.

    A group has the ``stream`` of its thing, the ``title`` and the ``hits``, best first.
    """
    facets = read(context, "/search", "text")
    text = facets.others["text"]
    answer: dict[str, Any] = {"items": [], "total": 0, "next": None, "holds": "all"}
    counts = None
    if text:
        after = context.number("after")
        answer = context.ask("search.find", text=text, limit=rows_max, after=after, **facets.arguments)
        if answer["holds"] == "all":
            counts = context.ask("search.facets", text=text, **facets.arguments)
    groups: dict[str, dict[str, Any]] = {}
    for hit in answer.pop("items"):
        group = groups.setdefault(hit["stream"], {"stream": hit["stream"], "title": hit["title"], "hits": []})
        group["hits"].append(hit)
    data = answer | {"groups": list(groups.values()), "facets": facets.form(counts)}
    return Page("search.html", f"Search {text}".strip(), data)
