"""Reads values of another tool's JSON without coercion: a dirty value is left out and listed.

``Reading`` is one JSON object on its way into an event. Each value that one of our fields can hold is taken out of it.
A value of the wrong type or out of range goes to ``dirty`` with its path, its JSON (shortened) and the reason. Values
that were not taken, and are not empty, become ``said`` under the tool's own names; nested names are joined by dots.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deedbook.consumers.sdk.text import replace_line_breaks, sanitize_line
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.imported import DirtyValue
from deedbook.ledger.format.codec import check_depth
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.reports.compressed import shorten

label_max_chars: Final = 200
line_max_chars: Final = 2_000
text_max_chars: Final = 40_000
said_max_chars: Final = 400
said_max: Final = 64
shown_max_chars: Final = 120
dirty_max: Final = 100
items_max: Final = 1_000
depth_max: Final = 128
unwrapped_max: Final = 4

_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LONE: Final = re.compile(r"[\ud800-\udfff]")
_NUMBER: Final = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*%?\s*")


class Reading:
    """A JSON object from which values are taken; ``path`` is its path in the note, ``dirty`` the unusable values."""

    def __init__(self, fields: dict[str, Any], path: str = "", dirty: list[DirtyValue] | None = None) -> None:
        """Read ``fields``; add dirty values to ``dirty``."""
        self.fields = dict(fields)
        self.path = path
        self.dirty = [] if dirty is None else dirty
        self._nested: list[Reading] = []

    def complain(self, name: str, value: Any, why: str) -> None:
        """List a value as dirty."""
        if len(self.dirty) == dirty_max:
            self.dirty.append(_dirty("$", "…", "more dirty values than can be listed: the original has them"))
        elif len(self.dirty) < dirty_max:
            self.dirty.append(_dirty(self.place(name), value, why))

    def place(self, name: str) -> str:
        """Return the path of a value in the note."""
        return f"{self.path}.{name}" if self.path and not name.startswith("[") else f"{self.path}{name}"

    def take(self, name: str) -> Any:
        """Take a value as it is, so that ``said`` leaves it out; None if there is none."""
        return self.fields.pop(name, None)

    def below(self, name: str) -> Reading:
        """Return a nested object to read from; an empty one if there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.complain(name, value, "expected an object")
        return self.nested(name, value if isinstance(value, dict) else {})

    def nested(self, name: str, fields: dict[str, Any]) -> Reading:
        """Return an object inside this one to read from; its values that are not taken are part of ``said`` here."""
        self._nested.append(Reading(fields, self.place(name), self.dirty))
        return self._nested[-1]

    def text(self, *names: str, chars_max: int = text_max_chars) -> str:
        """Return the first text that exists, else an empty text; a long text is shortened at a word."""
        for name in names:
            value = self.take(name)
            if isinstance(value, str):
                if value.strip():
                    return self.fitted(name, value, chars_max)
            elif value is not None:
                self.complain(name, value, f"expected a text, not {type_of(value)}")
        return ""

    def fitted(self, name: str, value: str, chars_max: int) -> str:
        """Return a text that an event can hold."""
        text = value
        if _LONE.search(text):
            self.complain(name, text, "a lone surrogate has no UTF-8 form: replaced by U+FFFD")
            text = _LONE.sub("\ufffd", text)
        if chars_max <= line_max_chars and (line := replace_line_breaks(text)) != text:
            self.complain(name, text, "line breaks and control characters became spaces: the original has them")
            text = line
        if len(text) <= chars_max:
            return text
        self.complain(name, text, f"shortened from {len(text)} characters: the original is complete")
        return shorten(text, chars_max)

    def texts(self, name: str, chars_max: int = text_max_chars) -> list[str]:
        """Return the texts of a list; items that are no texts are dirty, and so is a single text without a list."""
        value = self.take(name)
        if value is None:
            return []
        if isinstance(value, str):
            self.complain(name, value, "a text, not a list: read as a list with one item")
            value = [value]
        if not isinstance(value, list):
            self.complain(name, value, f"expected a list, not {type_of(value)}")
            return []
        if len(value) > items_max:
            self.complain(name, len(value), f"only the first {items_max} were imported: the original is complete")
        items = Reading({}, self.place(name), self.dirty)
        texts_: list[str] = []
        for number, item in enumerate(value[:items_max]):
            if item is None:
                items.complain(f"[{number}]", item, "expected a text, not null")
            items.fields[f"[{number}]"] = item
            texts_.append(items.text(f"[{number}]", chars_max=chars_max))
        return [text for text in texts_ if text]

    def number(self, name: str, low: float = 0.0, high: float = 1.0) -> float | None:
        """Return a number between two bounds; an object with a ``score`` gives that, and is listed as dirty."""
        return self.checked(name, self.take(name), low, high) if name in self.fields else None

    def checked(self, name: str, value: Any, low: float = 0.0, high: float = 1.0) -> float | None:
        """Return ``value`` if it is a number between two bounds; else list it as dirty."""
        if isinstance(value, dict) and _is_number(value.get("score")):
            self.complain(name, value, "the value is nested: its score was used")
            return self.checked(f"{name}.score", value["score"], low, high)
        why = _why_no_number(value, low, high)
        if why:
            self.complain(name, value, why)
            return None
        return float(value)

    def count(self, name: str) -> int | None:
        """Return a whole number of at least 0."""
        if name not in self.fields:
            return None
        value = self.take(name)
        why = _why_no_number(value, 0, json_integer_max)
        if not why and not isinstance(value, int):
            why = "expected a whole number"
        if why:
            self.complain(name, value, why)
        return None if why else int(value)

    def said(self) -> dict[str, str]:
        """Return the values that were not taken, here and in nested objects, as texts by name."""
        texts: dict[str, str] = {}
        left = [(name, value) for name, value in self.fields.items() if value not in _NOTHING]
        for name, value in left[:said_max]:
            texts[unused(_label(self.place(name)), texts)] = shown(value, said_max_chars)
        if len(left) > said_max:
            names = ", ".join(name for name, _ in left[said_max:])
            texts[_label(self.place("…"))] = shown(f"{len(left) - said_max} more: {names}", said_max_chars)
        for name, text in (item for nested in self._nested for item in nested.said().items()):
            texts[unused(name, texts)] = text
        return texts


def unused(name: str, taken: Mapping[str, str]) -> str:
    """Return a name that is not used yet, because joined or shortened names may be equal."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: label_max_chars - 8]} ({number})"
    return free


def read_json(content: bytes) -> tuple[dict[str, Any], list[DirtyValue]]:
    """Return the object of a note, and the dirty values of its JSON."""
    dirty: list[DirtyValue] = []
    value = _parsed(_decoded(content, dirty), dirty)
    times = 0
    while isinstance(value, str) and times < unwrapped_max:
        try:
            value = _parsed(value, dirty)
        except Refused as refusal:
            raise Refused("INVALID_FORMAT", "it is a text, not a JSON object") from refusal
        times += 1
    if times:
        often = "once" if times == 1 else f"{times} times"
        dirty.append(_dirty("$", "…", f"the note is JSON inside a JSON text: unwrapped {often}"))
    if not isinstance(value, dict):
        raise Refused("INVALID_FORMAT", f"it is {type_of(value)}, not a JSON object")
    return value, dirty[: dirty_max // 2]


def _decoded(content: bytes, dirty: list[DirtyValue]) -> str:
    if content.startswith(_UTF_16):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise Refused("INVALID_FORMAT", f"it begins like UTF-16, and is not (at byte {error.start})") from error
        dirty.append(_dirty("$", "…", "the note is UTF-16 instead of UTF-8: read as UTF-16"))
        return text
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", f"it is not UTF-8 (at byte {error.start})") from error


def shown(value: Any, chars_max: int = shown_max_chars) -> str:
    """Return a value on one line, shortened: a text as it is, everything else as JSON; never empty."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = sanitize_line(text[: 2 * chars_max]) or '""'
    if len(line) <= chars_max:
        return line
    cut = shorten(line, chars_max)
    return cut if len(cut) > 1 else f"{line[: chars_max - 1]}…"


def type_of(value: Any) -> str:
    """Return the type of a JSON value in words."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names[type(value)]


def _parsed(text: str, dirty: list[DirtyValue]) -> Any:
    def pairs(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        object_: dict[str, Any] = {}
        for name, value in fields:
            if name in object_:
                dirty.append(_dirty(name, object_[name], "the name occurs twice in one object: the last value counts"))
            object_[name] = value
        return object_

    check_depth(text.encode("utf-8", "surrogatepass"), depth_max)
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise Refused("INVALID_FORMAT", f"it is not JSON: {error}") from error


def _dirty(path: str, value: Any, why: str) -> DirtyValue:
    return DirtyValue(path=_label(path), value=shown(value), why=why)


def _label(name: str) -> str:
    line = sanitize_line(name)
    return line if 0 < len(line) <= label_max_chars else f"{line[: label_max_chars - 1]}…" if line else '""'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why_no_number(value: Any, low: float, high: float) -> str:
    if isinstance(value, str):
        return "a number written as text" if _NUMBER.fullmatch(value) else "expected a number, not a text"
    if not _is_number(value):
        return f"expected a number, not {type_of(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "expected a finite number"
    return "" if low <= value <= high else f"out of range: it must be between {low:g} and {high:g}"
