"""The data of an event of a declared kind in words: the titles of its schema, or the names of its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.ledger.seal.reference import read_reference
from deedbook.projections.briefs.text import one_line
from deedbook.projections.reports.compressed import shorten

line_max_chars: Final = 300
value_max_chars: Final = 120
_NO_SCHEMA: Final[Mapping[str, Any]] = {}


def fields_of(data: Mapping[str, Any], schema: Mapping[str, Any] = _NO_SCHEMA) -> Iterator[tuple[str, list[str]]]:
    """Yield the label and the texts of each field, in the author's order; the fields of inner objects follow alone.

    A list has a text for each of its items, any other value has one.
    """
    known = schema.get("properties", {})
    for name, value in data.items():
        part = known.get(name, _NO_SCHEMA)
        label = one_line(part.get("title", "")) or name.replace("_", " ")
        if isinstance(value, dict):
            yield from ((f"{label}, {inner}", texts) for inner, texts in fields_of(value, part))
        else:
            items = part.get("items", _NO_SCHEMA)
            yield label, [text_of(item, items) for item in (value if isinstance(value, list) else [value])]


def labelled(data: Mapping[str, Any], schema: Mapping[str, Any] = _NO_SCHEMA) -> Iterator[tuple[str, str]]:
    """Yield the label and the value of each field, as ``fields_of`` does; a list as one text."""
    return ((label, "; ".join(texts)) for label, texts in fields_of(data, schema))


def text_of(value: Any, items: Mapping[str, Any] = _NO_SCHEMA) -> str:
    """Return a value in words; ``items`` is the schema of the items of a list."""
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case list():
            return "; ".join(text_of(item, items) for item in value)
        case dict():
            return ", ".join(f"{label}: {text}" for label, text in labelled(value, items))
        case _:  # numbers, and null in a log whose events no gate admitted
            return str(value)


def line_of(data: Mapping[str, Any], schema: Mapping[str, Any] = _NO_SCHEMA) -> str:
    """Return the fields on one line, such as "Service: api, Version: 7", as far as there is room.

    A sealed reference stays whole, so that a reader with the key can open it.
    """
    parts: list[str] = []
    room = line_max_chars
    for label, value in labelled(data, schema):
        text = one_line(value)
        shown = text if read_reference(text) is not None else shorten(text, value_max_chars)
        part = f"{label}: {shown}"
        room -= len(part)
        if room < 0 and parts:
            return ", ".join([*parts, "…"])
        parts.append(part)
    return ", ".join(parts)
