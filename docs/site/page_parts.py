"""Parts of Markdown pages: tables, and texts that must not be read as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, nothing for one without rows."""
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    if lines:
        yield from ("", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, "")


def plain(text: str) -> str:
    """Return a text of a docstring or schema as one line in which only its code is Markdown."""
    parts = " ".join(text.replace("``", "`").split()).split("`")
    for at in range(0, len(parts), 2):  # outside of code
        parts[at] = re.sub(r"[\\*_\[\]]", r"\\\g<0>", parts[at]).replace("<", "&lt;").replace(">", "&gt;")
    return "`".join(parts)


def code(text: str) -> str:
    """Return a text as a code span."""
    return f"`{text}`" if text else ""


def type_of(schema: Any, *, link: str = "") -> str:
    """Return the type that a JSON schema describes, in a few words; ``link`` is before the name of another type."""
    if not isinstance(schema, dict):
        return ""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({link}#{name.lower()})" if link else f"`{name}`"
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            types = dict.fromkeys(type_of(part, link=link) for part in schema[several])
            return " or ".join(filter(None, types))
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items'), link=link) or 'values'}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_of(schema['additionalProperties'], link=link)}"
    named = schema.get("type", "")
    return " or ".join(named) if isinstance(named, list) else str(named)


def fields(schema: dict[str, Any], *, link: str = "") -> Iterator[str]:
    """Yield a table of the fields of an object."""
    needed = set(schema.get("required", ()))
    yield from table(
        ("field", "needed", "type", "meaning"),
        (
            (code(name), "yes" if name in needed else "", type_of(part, link=link), plain(part.get("description", "")))
            for name, part in schema.get("properties", {}).items()
        ),
    )
