"""Values of another tool's JSON, taken only as what they are: what is dirty is left out and listed, never coerced.

``Reading`` is one JSON object on its way into an event. Each value that a field of ours can hold is taken out of it; a
value of the wrong type or out of range goes to ``dirty`` with its place, its JSON (shortened) and why. Whatever was not
taken in the end, and is not empty, is ``said`` by the tool's own names, those of nested objects joined by dots.
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
    """A JSON object from which values are taken; ``path`` is its place in the note, ``dirty`` what could not be."""

    def __init__(self, fields: dict[str, Any], path: str = "", dirty: list[DirtyValue] | None = None) -> None:
        """Read ``fields``; what is found dirty is added to ``dirty``."""
        self.fields = dict(fields)
        self.path = path
        self.dirty = [] if dirty is None else dirty
        self._nested: list[Reading] = []

    def complain(self, name: str, value: Any, why: str) -> None:
        """List a value as dirty."""
        if len(self.dirty) == dirty_max:
            self.dirty.append(_dirty("$", "…", "there are more dirty values than can be listed: the original has them"))
        elif len(self.dirty) < dirty_max:
            self.dirty.append(_dirty(self.place(name), value, why))

    def place(self, name: str) -> str:
        """Return where a value stands in the note."""
        return f"{self.path}.{name}" if self.path and not name.startswith("[") else f"{self.path}{name}"

    def take(self, name: str) -> Any:
        """Return a value as it is, and leave it out of what is said; None where there is none."""
        return self.fields.pop(name, None)

    def below(self, name: str) -> Reading:
        """Return a nested object to read from; an empty one where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.complain(name, value, "this is no object")
        return self.nested(name, value if isinstance(value, dict) else {})

    def nested(self, name: str, fields: dict[str, Any]) -> Reading:
        """Return an object that stands within this one, to read from; what is not taken of it is said here."""
        self._nested.append(Reading(fields, self.place(name), self.dirty))
        return self._nested[-1]

    def text(self, *names: str, chars_max: int = text_max_chars) -> str:
        """Return the first of some texts that is there, else an empty one; a longer one is shortened at a word."""
        for name in names:
            value = self.take(name)
            if isinstance(value, str):
                if value.strip():
                    return self.fitted(name, value, chars_max)
            elif value is not None:
                self.complain(name, value, f"this is {type_of(value)}, and no text")
        return ""

    def fitted(self, name: str, value: str, chars_max: int) -> str:
        """Return a text that an event can hold."""
        text = value
        if _LONE.search(text):
            self.complain(name, text, "half a character (a lone surrogate) has no UTF-8 form: replaced by U+FFFD")
            text = _LONE.sub("\ufffd", text)
        if chars_max <= line_max_chars and (line := replace_line_breaks(text)) != text:
            self.complain(name, text, "line breaks and control characters stand as spaces: the original has them")
            text = line
        if len(text) <= chars_max:
            return text
        self.complain(name, text, f"shortened from {len(text)} characters: the original has the whole")
        return shorten(text, chars_max)

    def texts(self, name: str, chars_max: int = text_max_chars) -> list[str]:
        """Return the texts of a list; what is no text in it is dirty, and so is one text without a list around it."""
        value = self.take(name)
        if value is None:
            return []
        if isinstance(value, str):
            self.complain(name, value, "this is one text, and no list: taken as a list of one")
            value = [value]
        if not isinstance(value, list):
            self.complain(name, value, f"this is {type_of(value)}, and no list")
            return []
        if len(value) > items_max:
            self.complain(name, len(value), f"only the first {items_max} are taken: the original has all")
        items = Reading({}, self.place(name), self.dirty)
        texts_: list[str] = []
        for number, item in enumerate(value[:items_max]):
            if item is None:
                items.complain(f"[{number}]", item, "this is null, and no text")
            items.fields[f"[{number}]"] = item
            texts_.append(items.text(f"[{number}]", chars_max=chars_max))
        return [text for text in texts_ if text]

    def number(self, name: str, low: float = 0.0, high: float = 1.0) -> float | None:
        """Return a number between two bounds; an object with a ``score`` gives that, and is listed as dirty."""
        return self.checked(name, self.take(name), low, high) if name in self.fields else None

    def checked(self, name: str, value: Any, low: float = 0.0, high: float = 1.0) -> float | None:
        """Return ``value`` if it is a number between two bounds; else list it as dirty."""
        if isinstance(value, dict) and _is_number(value.get("score")):
            self.complain(name, value, "the value is nested: its score is taken")
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
            why = "this is no whole number"
        if why:
            self.complain(name, value, why)
        return None if why else int(value)

    def said(self) -> dict[str, str]:
        """Return what was not taken here and in nested objects, as texts by name."""
        texts: dict[str, str] = {}
        left = [(name, value) for name, value in self.fields.items() if value not in _NOTHING]
        for name, value in left[:said_max]:
            texts[unused(_label(self.place(name)), texts)] = shown(value, said_max_chars)
        if len(left) > said_max:
            names = ", ".join(name for name, _ in left[said_max:])
            texts[_label(self.place("…"))] = shown(f"{len(left) - said_max} more: {names}", said_max_chars)
        for name, text in (said for one in self._nested for said in one.said().items()):
            texts[unused(name, texts)] = text
        return texts


def unused(name: str, taken: Mapping[str, str]) -> str:
    """Return a name under which nothing is said yet: names that are joined by dots, or cut, may come to the same."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: label_max_chars - 8]} ({number})"
    return free


def read_json(content: bytes) -> tuple[dict[str, Any], list[DirtyValue]]:
    """Return the object of a note, and what was odd in its JSON."""
    dirty: list[DirtyValue] = []
    value = _parsed(_decoded(content, dirty), dirty)
    times = 0
    while isinstance(value, str) and times < unwrapped_max:
        try:
            value = _parsed(value, dirty)
        except Refused as refusal:
            raise Refused("INVALID_FORMAT", "it is one text, and no JSON object") from refusal
        times += 1
    if times:
        often = "once" if times == 1 else f"{times} times"
        dirty.append(_dirty("$", "…", f"the note is JSON text within a JSON text: unwrapped {often}"))
    if not isinstance(value, dict):
        raise Refused("INVALID_FORMAT", f"it is {type_of(value)}, and no JSON object")
    return value, dirty[: dirty_max // 2]


def _decoded(content: bytes, dirty: list[DirtyValue]) -> str:
    if content.startswith(_UTF_16):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise Refused("INVALID_FORMAT", f"it is not UTF-16, as it begins (at byte {error.start})") from error
        dirty.append(_dirty("$", "…", "the note is UTF-16, and should be UTF-8: read as what it is"))
        return text
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", f"it is not UTF-8 (at byte {error.start})") from error


def shown(value: Any, chars_max: int = shown_max_chars) -> str:
    """Return a value on one line: a text as it is, everything else as JSON, shortened; never empty."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = sanitize_line(text[: 2 * chars_max]) or '""'
    if len(line) <= chars_max:
        return line
    cut = shorten(line, chars_max)
    return cut if len(cut) > 1 else f"{line[: chars_max - 1]}…"


def type_of(value: Any) -> str:
    """Return what a JSON value is, in words."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names[type(value)]


def _parsed(text: str, dirty: list[DirtyValue]) -> Any:
    def pairs(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in fields:
            if name in made:
                dirty.append(_dirty(name, made[name], "the name stands twice in one object: the last one counts"))
            made[name] = value
        return made

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
        return "this is a number written as text" if _NUMBER.fullmatch(value) else "this is a text, and no number"
    if not _is_number(value):
        return f"this is {type_of(value)}, and no number"
    if isinstance(value, float) and not math.isfinite(value):
        return "this is no finite number"
    return "" if low <= value <= high else f"out of range: it must lie between {low:g} and {high:g}"
