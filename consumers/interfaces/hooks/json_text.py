"""JSON as people keep it, edited as text: comments, trailing commas, order and spacing stay as they are.

A scanner finds where each value stands; an edit inserts or cuts a piece of the text and touches nothing else. What is
inserted becomes the first member, so that neither a comment after the last one nor a trailing comma is in the way.
Takes JSON with ``//`` and ``/* */`` comments and trailing commas, as settings files may have them (Gemini CLI strips
comments before it reads); a byte order mark is passed over. Values are compared, never written back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from deedbook.ledger.errors import Refused

depth_max: Final = 64

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_ATOM: Final = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_BLANK_BEFORE: Final = re.compile(r"[ \t\r\n]*\Z")
_ENDED: Final = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*\n|/\*.*?\*/)*", re.DOTALL)
"""Space and comments, of which none would go on in what follows."""


@dataclass
class Node:
    """A value and where it stands; ``commas`` are the places of the commas after its members, in order."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)

    def member(self, key: str | int) -> Node | None:
        """Return the value of a member by its key or number; of two with the same key the last one, which counts."""
        found = [one.node for one in self.members if one.key == key]
        return found[-1] if found else None


@dataclass
class Member:
    """A member of an object or array: its key (or number), where it starts, and its value."""

    key: str | int
    start: int
    node: Node


def scan(text: str, opened: Collection[str] | None = None) -> Node:
    """Return the value that a text holds; of an object's members only those that are ``opened`` know their own members.

    Settings may hold megabytes of somebody's history, which the parser of the standard library reads many times faster.
    Raises Refused: ``INVALID_FORMAT``, naming the line, or ``NESTING_TOO_DEEP``.
    """
    scanner = _Scanner(text, opened)
    node = scanner.value(scanner.skip(0), 0)
    if scanner.skip(node.end) != len(text):
        raise scanner.wrong(scanner.skip(node.end))
    return node


def insert(text: str, path: tuple[str, ...], value: Any, *, is_item: bool) -> str:
    """Return the text with ``value`` at a path: as an item of the array there, or as that member.

    Objects and arrays on the way are made where they are missing.
    """
    node = scan(text, path[:1])
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise _in_the_way(path[:depth])
        found = node.member(key)
        if found is None:
            new: Any = [value] if is_item else value
            for name in reversed(path[depth + 1 :]):
                new = {name: new}
            return _insert_first(text, node, key, new)
        node = found
    if not is_item or not isinstance(node.value, list):
        raise _in_the_way(path)
    return _insert_first(text, node, None, value)


def cut(text: str, path: tuple[str | int, ...], keep: frozenset[tuple[str | int, ...]]) -> str:
    """Return the text without the member at a path, and without what is empty then, except what is in ``keep``."""
    nodes = [scan(text, [str(key) for key in path[:1]])]
    for key in path:
        found = nodes[-1].member(key)
        if found is None:
            return text
        nodes.append(found)
    place = len(path) - 1
    while place > 0 and len(nodes[place].members) == 1 and path[:place] not in keep:
        place -= 1
    return _cut_member(text, nodes[place], nodes[place + 1])


def _insert_first(text: str, container: Node, key: str | None, value: Any) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    opening = container.start + 1
    if container.members and "\n" not in text[opening : container.members[0].start]:
        space = text[opening : container.members[0].start]
        item = ("" if space.strip() else space) + _dumped(key, value, None, "", newline)
        return f"{text[:opening]}{item},{text[opening:]}"
    own = _indent_of(text, container.start)
    inner = _indent_of(text, container.members[0].start) if container.members else own + "  "
    unit = inner.removeprefix(own) if inner.startswith(own) and inner != own else "  "
    item = f"{newline}{inner}{_dumped(key, value, unit, inner, newline)}"
    if container.members:
        return f"{text[:opening]}{item},{text[opening:]}"
    closing = "" if "\n" in text[opening : container.end - 1] else f"{newline}{own}"
    return f"{text[:opening]}{item}{closing}{text[opening:]}"


def _dumped(key: str | None, value: Any, unit: str | None, indent: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    dumped = f"{newline}{indent}".join(lines)
    return dumped if key is None else f"{json.dumps(key, ensure_ascii=False)}: {dumped}"


def _cut_member(text: str, container: Node, node: Node) -> str:
    number = next(place for place, one in enumerate(container.members) if one.node is node)
    comma = container.commas[number - 1] if number else container.start
    start = _cut_start(text, comma + 1, container.members[number].start)
    if number < len(container.commas):
        following = container.commas[number]
        return text[:start] + _unless_blank(text[node.end : following]) + text[following + 1 :]
    if number:
        return text[:comma] + text[comma + 1 : start] + text[node.end :]
    return text[:start] + _unless_blank(text[node.end : container.end - 1]) + text[container.end - 1 :]


def _cut_start(text: str, low: int, place: int) -> int:
    """Return where the space before a place begins; the end of a line comment stays, or what follows would join it."""
    before = _BLANK_BEFORE.search(text, low, place)
    start = place if before is None else before.start()
    ended = _ENDED.match(text, low, start)
    return start if ended is not None and ended.end() == start else text.index("\n", start) + 1


def _unless_blank(text: str) -> str:
    return text if text.strip() else ""


def _indent_of(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _in_the_way(path: tuple[str, ...]) -> Refused:
    name = ".".join(path) or "the document"
    return Refused("INVALID_FIELD", f"{name} is there, and is not of the form that the harness takes", path=name)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_STANDARD: Final = json.JSONDecoder(parse_constant=_no_constant)


class _Scanner:
    def __init__(self, text: str, opened: Collection[str] | None) -> None:
        self.text = text
        self.opened = opened

    def skip(self, place: int) -> int:
        """Return where the next value, comma or bracket stands."""
        found = _SPACE.match(self.text, place)
        return place if found is None else found.end()

    def wrong(self, place: int) -> Refused:
        """Return the refusal that names the line."""
        line = self.text.count("\n", 0, place) + 1
        return Refused("INVALID_FORMAT", f"line {line} is not JSON", line=line)

    def value(self, place: int, depth: int) -> Node:
        """Return the value at a place."""
        if depth > depth_max:
            raise Refused("NESTING_TOO_DEEP", f"the JSON is nested deeper than {depth_max}")
        match self.text[place : place + 1]:
            case "{":
                return self._object(place, depth)
            case "[":
                return self._array(place, depth)
            case _:  # any other sign
                return self._scalar(place)

    def _object(self, place: int, depth: int) -> Node:
        node = Node(place, place, {})
        at = self.skip(place + 1)
        while self.text[at : at + 1] != "}":
            key = self._scalar(at)
            if not isinstance(key.value, str):
                raise self.wrong(at)
            colon = self.skip(key.end)
            if self.text[colon : colon + 1] != ":":
                raise self.wrong(colon)
            start = self.skip(colon + 1)
            is_closed = depth == 0 and self.opened is not None and key.value not in self.opened
            found = (self._closed(start) if is_closed else None) or self.value(start, depth + 1)
            node.value[key.value] = found.value
            node.members.append(Member(key.value, at, found))
            at = self._after(node, found, "}")
        node.end = at + 1
        return node

    def _closed(self, place: int) -> Node | None:
        """Return the value at a place without its members; None where it is no JSON as the standard has it."""
        try:
            value, end = _STANDARD.raw_decode(self.text, place)
        except (ValueError, RecursionError):
            return None  # comments, perhaps, or an error, which the walk names with its line
        return Node(place, end, value)

    def _array(self, place: int, depth: int) -> Node:
        node = Node(place, place, [])
        at = self.skip(place + 1)
        while self.text[at : at + 1] != "]":
            found = self.value(at, depth + 1)
            node.value.append(found.value)
            node.members.append(Member(len(node.members), at, found))
            at = self._after(node, found, "]")
        node.end = at + 1
        return node

    def _after(self, node: Node, found: Node, closing: str) -> int:
        at = self.skip(found.end)
        if self.text[at : at + 1] == ",":
            node.commas.append(at)
            return self.skip(at + 1)
        if self.text[at : at + 1] != closing:
            raise self.wrong(at)
        return at

    def _scalar(self, place: int) -> Node:
        found = _STRING.match(self.text, place) or _ATOM.match(self.text, place)
        if found is None:
            raise self.wrong(place)
        try:
            return Node(place, found.end(), json.loads(found[0]))
        except ValueError as error:
            raise self.wrong(place) from error
