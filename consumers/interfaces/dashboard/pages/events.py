"""`/events`, the log as it grows; `/e/ID`, one entry with its proofs; `/search`, full-text search."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.facets import read
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.proof import inclusion, written_max_bytes
from deedbook.consumers.sdk.events import whole_event
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.format.forms import is_own
from deedbook.ledger.home.trust import fingerprint
from deedbook.projections.kinds.words import fields_of, text_of

rows_max: Final = 50
neighbours_max: Final = 50
objects_depth_max: Final = 2
# The type of the things that a field of the core's events names.
_NAMED: Final = {
    **dict.fromkeys(("agent", "to", "reviewer"), "agent"),
    **dict.fromkeys(("depends_on", "answers"), "handoff"),
    **dict.fromkeys(("session", "session_id", "resumes"), "session"),
    **dict.fromkeys(("reasoning_ref", "reasoning_refs"), "reasoning"),
}


def events(context: PageContext) -> Page:
    """Return ``{"items", "total", "next", "before", "facets"}``, newest first; the next page is before ``next``."""
    facets = read(context, "/events", "stream")
    before, stream = context.number("before"), facets.others["stream"] or None
    answer = context.ask("catalog.find", newest=True, after=before, limit=rows_max, stream=stream, **facets.arguments)
    counts = context.ask("catalog.facets", stream=stream, **facets.arguments)
    return Page("events.html", "Events", answer | {"before": before, "facets": facets.form(counts)})


def event(context: PageContext) -> Page:
    """Return ``{"event", "row", "fields", "signed", "proof", "causes", "effects", …}`` of one entry.

    ``fields`` are those of its data that have a value, each with its ``label``, its ``texts`` and the ``kind`` of thing
    that these name (empty: none). ``is_written_here``: the page itself has the data as JSON, too.

    ``signed`` says whether its signature is valid and the rules admit it, verified from signed entries (``problem``:
    why not). ``proof`` is the inclusion under a signed checkpoint, verified here (``problem``: why there is none).
    """
    index = context.ask("resolve", id=context.params["ref"])["event_index"]
    row = context.ask("catalog.show", id=str(index))
    entry = whole_event(index, context.client.entry(index), context.view)
    walk = context.ask("catalog.why", id=row["id"], depth=1, limit=neighbours_max)
    steps = [step["event_index"] for step in (*walk["causes"], *walk["effects"])]
    words = _in_words(context, steps)
    linked = {name: [step | words[step["event_index"]] for step in walk[name]] for name in ("causes", "effects")}
    signed = _signed(context, index, entry["stream"], entry["key"])
    data = {
        "row": row,
        "fields": _fields(context, entry),
        "signed": signed,
        "proof": inclusion(context, index),
        **walk,
        **linked,
        "event": entry,
        "is_written_here": entry["bytes"] <= written_max_bytes,
    }
    return Page("event.html", f"#{index} {row['author']} {row['did']}", data)


def _in_words(context: PageContext, indexes: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return the neighbours of an entry as ``catalog.find`` lists them, by index."""
    items = context.ask("catalog.find", entries=sorted(set(indexes)), limit=2 * neighbours_max)["items"]
    return {item["event_index"]: item for item in items}


def _fields(context: PageContext, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of an event's data, for a declared kind by the titles of its schema."""
    schema: dict[str, Any] = {}
    if is_own(entry["kind"]) and not entry.get("erased"):
        # If the rules refuse the event, no view knows its kind.
        with contextlib.suppress(Refused):
            schema = context.ask("kinds.show", id=entry["kind"])["schema"]
    data, properties = _with_values(entry["data"]), schema.get("properties", {})
    data = _explained(data) if entry["kind"] == "ledger.created" else data
    data = data if schema else _compact(data)
    named = _NAMED if entry["kind"] in CORE_KINDS else {}
    return [
        {"label": label, "texts": texts, "kind": named.get(name, "")}
        for name, value in (data.items() if isinstance(data, dict) else ())
        for label, texts in fields_of({name: value}, {"properties": properties})
    ]


def _explained(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of entry 0 with its root key named as such, the fingerprint of that key, and a trial in words."""
    origin, root = data["origin"], data["root"]
    first = {"origin": origin, "root key": root, "its fingerprint": fingerprint(bytes.fromhex(root))}
    others = {name: value for name, value in data.items() if name not in ("origin", "root", "trial")}
    trial = "yes: made for a first try, and marked so for ever" if data.get("trial") else "no"
    return first | others | {"trial": trial}


def _with_values(data: Any) -> Any:
    """Return plain data without the fields that have no value."""
    if isinstance(data, list):
        return [_with_values(item) for item in data]
    if not isinstance(data, dict):
        return data
    values = {name: _with_values(value) for name, value in data.items()}
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def _compact(value: Any, depth: int = 0) -> Any:
    """Return plain data in which an inner object is one text, unless it has lists or objects and is not far inside.

    Deeper objects are no sentence: if they are in a list or far inside, a text leads to the content as JSON.
    """
    if (isinstance(value, list) or depth > objects_depth_max) and _objects_within(value) > objects_depth_max:
        return f"{counted(len(value), 'item' if isinstance(value, list) else 'field')}: see the content as JSON"
    if not isinstance(value, dict):
        return value
    is_flat = not any(isinstance(inner, dict | list) for inner in value.values())
    if depth and (is_flat or depth > objects_depth_max):
        return text_of(value)
    return {name: _compact(inner, depth + 1) for name, inner in value.items()}


def _objects_within(value: Any) -> int:
    """Return how many objects are within each other in plain data, lists not counted."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict) + max(map(_objects_within, inner), default=0)


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
