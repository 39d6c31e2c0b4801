"""JSON edited as text: comments, trailing commas, order and spacing stay unchanged.

A scanner finds the position of each value. An edit inserts or cuts a piece of the text and changes nothing else. A new
value becomes the first member, so neither a comment after the last member nor a trailing comma matters. The scanner
takes JSON with ``//`` and ``/* */`` comments and trailing commas, as settings files may have them (Gemini CLI strips
comments before it reads), and skips a byte order mark. Values are compared, never written back.
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
"""White space and comments before the next value."""


@dataclass
class Node:
    """A value and its position; ``commas`` are the positions of the commas after its members, in order."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)

    def member(self, key: str | int) -> Node | None:
        """Return the value of a member by its key or number; of members with the same key the last one counts."""
        nodes = [member.node for member in self.members if member.key == key]
        return nodes[-1] if nodes else None


@dataclass
class Member:
    """A member of an object or array: its key (or number), its start, and its value."""

    key: str | int
    start: int
    node: Node


def scan(text: str, opened: Collection[str] | None = None) -> Node:
    """Return the value of a text; only the members of the root that are ``opened`` have their own members scanned.

    Settings may hold megabytes of history, which the parser of the standard library reads many times faster.
    Raises Refused: ``INVALID_FORMAT``, naming the line, or ``NESTING_TOO_DEEP``.
    """
    scanner = _Scanner(text, opened)
    node = scanner.value(scanner.skip(0), 0)
    if scanner.skip(node.end) != len(text):
        raise scanner.wrong(scanner.skip(node.end))
    return node


def insert(text: str, path: tuple[str, ...], value: Any, *, is_item: bool) -> str:
    """Return the text with ``value`` at a path: as an item of the array there, or as that member.

    Missing objects and arrays on the path are added.
    """
    node = scan(text, path[:1])
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise _in_the_way(path[:depth])
        child = node.member(key)
        if child is None:
            new: Any = [value] if is_item else value
            for name in reversed(path[depth + 1 :]):
                new = {name: new}
            return _insert_first(text, node, key, new)
        node = child
    if not is_item or not isinstance(node.value, list):
        raise _in_the_way(path)
    return _insert_first(text, node, None, value)


def cut(text: str, path: tuple[str | int, ...], keep: frozenset[tuple[str | int, ...]]) -> str:
    """Return the text without the member at a path and without the containers that it leaves empty, except ``keep``."""
    nodes = [scan(text, [str(key) for key in path[:1]])]
    for key in path:
        child = nodes[-1].member(key)
        if child is None:
            return text
        nodes.append(child)
    depth = len(path) - 1
    while depth > 0 and len(nodes[depth].members) == 1 and path[:depth] not in keep:
        depth -= 1
    return _cut_member(text, nodes[depth], nodes[depth + 1])


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
    number = next(number for number, member in enumerate(container.members) if member.node is node)
    comma = container.commas[number - 1] if number else container.start
    start = _cut_start(text, comma + 1, container.members[number].start)
    if number < len(container.commas):
        following = container.commas[number]
        return text[:start] + _unless_blank(text[node.end : following]) + text[following + 1 :]
    if number:
        return text[:comma] + text[comma + 1 : start] + text[node.end :]
    return text[:start] + _unless_blank(text[node.end : container.end - 1]) + text[container.end - 1 :]


def _cut_start(text: str, low: int, position: int) -> int:
    """Return where the space before a position begins.

    The end of a line comment stays, so that the comment still ends there.
    """
    before = _BLANK_BEFORE.search(text, low, position)
    start = position if before is None else before.start()
    ended = _ENDED.match(text, low, start)
    return start if ended is not None and ended.end() == start else text.index("\n", start) + 1


def _unless_blank(text: str) -> str:
    return text if text.strip() else ""


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _in_the_way(path: tuple[str, ...]) -> Refused:
    name = ".".join(path) or "the document"
    return Refused("INVALID_FIELD", f"{name} has a form that the harness does not accept", path=name)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STANDARD: Final = json.JSONDecoder(parse_constant=_no_constant)


class _Scanner:
    def __init__(self, text: str, opened: Collection[str] | None) -> None:
        self.text = text
        self.opened = opened

    def skip(self, position: int) -> int:
        """Return the position of the next value, comma or bracket."""
        match = _SPACE.match(self.text, position)
        return position if match is None else match.end()

    def wrong(self, position: int) -> Refused:
        """Return the refusal that names the line."""
        line = self.text.count("\n", 0, position) + 1
        return Refused("INVALID_FORMAT", f"line {line} is not JSON. Repair the file first.", line=line)

    def value(self, position: int, depth: int) -> Node:
        """Return the value at a position."""
        if depth > depth_max:
            raise Refused("NESTING_TOO_DEEP", f"the JSON is nested deeper than {depth_max}")
        match self.text[position : position + 1]:
            case "{":
                return self._object(position, depth)
            case "[":
                return self._array(position, depth)
            case _:  # any other character
                return self._scalar(position)

    def _object(self, position: int, depth: int) -> Node:
        node = Node(position, position, {})
        at = self.skip(position + 1)
        while self.text[at : at + 1] != "}":
            key = self._scalar(at)
            if not isinstance(key.value, str):
                raise self.wrong(at)
            colon = self.skip(key.end)
            if self.text[colon : colon + 1] != ":":
                raise self.wrong(colon)
            start = self.skip(colon + 1)
            is_closed = depth == 0 and self.opened is not None and key.value not in self.opened
            child = (self._closed(start) if is_closed else None) or self.value(start, depth + 1)
            node.value[key.value] = child.value
            node.members.append(Member(key.value, at, child))
            at = self._after(node, child, "}")
        node.end = at + 1
        return node

    def _closed(self, position: int) -> Node | None:
        """Return the value at a position without its members; None if it is not standard JSON."""
        try:
            value, end = _STANDARD.raw_decode(self.text, position)
        except (ValueError, RecursionError):
            return None  # it has comments, or an error that the scan reports with its line
        return Node(position, end, value)

    def _array(self, position: int, depth: int) -> Node:
        node = Node(position, position, [])
        at = self.skip(position + 1)
        while self.text[at : at + 1] != "]":
            child = self.value(at, depth + 1)
            node.value.append(child.value)
            node.members.append(Member(len(node.members), at, child))
            at = self._after(node, child, "]")
        node.end = at + 1
        return node

    def _after(self, node: Node, child: Node, closing: str) -> int:
        at = self.skip(child.end)
        if self.text[at : at + 1] == ",":
            node.commas.append(at)
            return self.skip(at + 1)
        if self.text[at : at + 1] != closing:
            raise self.wrong(at)
        return at

    def _scalar(self, position: int) -> Node:
        match = _STRING.match(self.text, position) or _ATOM.match(self.text, position)
        if match is None:
            raise self.wrong(position)
        try:
            return Node(position, match.end(), json.loads(match[0]))
        except ValueError as error:
            raise self.wrong(position) from error
