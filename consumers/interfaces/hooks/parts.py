"""Our part of a file that is somebody else's: whether it is there, how it comes in, and how it goes.

A part is pure: text in, text out. *Edited* is one that a person changed, which setup and removal refuse to touch unless
forced; *outdated* is one that setup wrote. Settings have no room for a digest: the record of what was written tells,
and without it whatever differs in more than its command counts as edited.

A fenced block in a file of text carries the digest of what was written in its first mark, so an edit inside it shows
without any record. Line ends are those of the file. The block stands at the end, after an empty line; a new version
takes the place of the old one. Where the file's last line had no end there is no empty line: so removal knows, without
any record, whether the line end before the block is the file's. In a TOML file the block is a table of its own, and the
file is parsed before and after: if the table would not mean what it says there, nothing is written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

from deedbook.consumers.interfaces.hooks import json_text
from deedbook.ledger.errors import Refused

Place = tuple[str | int, ...]
_digest_digits: Final = 12
_LINE: Final = r"(?:^|(?<=\A\ufeff))"
"""Where a line begins, the first one after a byte order mark."""


class State(StrEnum):
    """What became of our part of a file."""

    INSTALLED = "installed"
    MISSING = "missing"
    OUTDATED = "outdated"
    EDITED = "edited"


class Setting(NamedTuple):
    """One value in a settings file: an item of the array at ``path``, or the member there."""

    path: tuple[str, ...]
    value: dict[str, Any]
    is_item: bool
    marks: tuple[str, ...] = ()
    """Of which the command of ours holds one, and nobody else's does."""


class Settings(NamedTuple):
    """Settings of ours in a JSON file; ``new_file`` is what one that is made for them holds before them."""

    settings: tuple[Setting, ...]
    new_file: str = "{}\n"

    @property
    def written(self) -> dict[str, Any]:
        """The values by their path: what the record keeps, to tell later whether somebody changed them."""
        return {".".join(one.path): one.value for one in self.settings}

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return what became of the settings; ``written`` is what the record kept, if there is one."""
        found = self._found(text)
        values = {".".join(one.path): [value for _, value in places] for one, places in found if places}
        if not values:
            return State.MISSING
        if values == {name: [value] for name, value in self.written.items()}:
            return State.INSTALLED
        if written is not None:
            is_ours = values == {name: [value] for name, value in written.items()}
        else:
            is_ours = _bare(values) == _bare({name: [value] for name, value in self.written.items()})
        return State.OUTDATED if is_ours else State.EDITED

    def insert(self, text: str) -> str:
        """Return the text with the settings, each before what is there."""
        for one in reversed(self.settings):
            text = json_text.insert(text, one.path, one.value, is_item=one.is_item)
        return text

    def update(self, text: str) -> str:
        """Return the text with the present settings."""
        return self.insert(self.remove(text, text))

    def remove(self, text: str, before: str) -> str:
        """Return the text without the settings and what only they made necessary; what is in ``before`` stays."""
        keep = _containers(json_text.scan(before, {one.path[0] for one in self.settings}), self.settings)
        while places := [place for _, found in self._found(text) for place, _ in found]:
            text = json_text.cut(text, places[0], keep)
        return text

    def _found(self, text: str) -> list[tuple[Setting, list[tuple[Place, Any]]]]:
        root = json_text.scan(text, {one.path[0] for one in self.settings})
        return [(one, _places(root, one)) for one in self.settings]


def _places(root: json_text.Node, setting: Setting) -> list[tuple[Place, Any]]:
    """Return where values of ours stand for one setting."""
    node: json_text.Node | None = root
    for key in setting.path:
        node = node and node.member(key)
    if node is None:
        return []
    if not setting.is_item:
        return [(setting.path, node.value)]  # its name is ours, so whatever stands there is in our place
    if not isinstance(node.value, list):
        return []
    items = ((one.key, one.node.value) for one in node.members)
    return [((*setting.path, key), value) for key, value in items if _is_marked(value, setting.marks)]


def _is_marked(value: Any, marks: tuple[str, ...]) -> bool:
    handlers = value.get("hooks") if isinstance(value, dict) else None
    if not isinstance(handlers, list):
        return False
    commands = [f"{one.get('command')} " for one in handlers if isinstance(one, dict)]
    return any(mark in command for command in commands for mark in marks)


def _containers(root: json_text.Node, settings: tuple[Setting, ...]) -> frozenset[Place]:
    """Return the paths of the objects and arrays that stand on the way to the settings."""
    kept: set[Place] = set()
    for one in settings:
        node: json_text.Node | None = root
        for depth, key in enumerate(one.path if one.is_item else one.path[:-1]):
            node = node and node.member(key)
            if node is None:
                break
            kept.add(one.path[: depth + 1])
    return frozenset(kept)


def _bare(value: Any) -> Any:
    """Return a value without its commands, which change when Deedbook moves or another agent is named."""
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if key not in {"command", "args"}}
    return [_bare(one) for one in value] if isinstance(value, list) else value


class Fence(NamedTuple):
    """How a format writes a comment."""

    opening: str
    closing: str


MARKDOWN: Final = Fence("<!-- ", " -->")
TOML: Final = Fence("# ", "")


class Block(NamedTuple):
    """A block of ours: its text, and the words in its first mark that say how it goes away again."""

    fence: Fence
    body: str
    note: str
    new_file: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """Nothing: the block tells by itself."""
        return {}

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return what became of the block."""
        marks, blocks = self._marks(text), self._blocks(text)
        if not marks:
            return State.MISSING
        if marks != 2 or len(blocks) != 1:
            return State.EDITED
        body = blocks[0]["body"].replace("\r\n", "\n")
        if _digest(body) != blocks[0]["digest"]:
            return State.EDITED
        return State.INSTALLED if body == self.body else State.OUTDATED

    def insert(self, text: str) -> str:
        """Return the text with the block at its end.

        Raises Refused: ``INVALID_FORMAT`` for TOML in which the block would not mean what it says.
        """
        newline = _newline(text)
        between = newline if text.strip("\ufeff") else ""
        return self._checked(text, f"{text}{between}{self._rendered(newline)}{newline}")

    def update(self, text: str) -> str:
        """Return the text with the block in the place of the earlier one."""
        (block, *others) = self._blocks(text)
        if others:
            return self.insert(self.remove(text, ""))
        changed = text[: block.start()] + self._rendered(_newline(text)) + text[block.end() :]
        return self._checked(self.remove(text, ""), changed)

    def remove(self, text: str, before: str) -> str:
        """Return the text without the block and the line end that came with it."""
        blocks = self._blocks(text)
        if self._marks(text) != 2 * len(blocks):
            raise Refused(
                "INVALID_FORMAT", "deedbook:begin and deedbook:end do not stand in pairs: mend them by hand first"
            )
        for block in reversed(blocks):
            before, after = text[: block.start()], re.sub(r"\A\r?\n", "", text[block.end() :])
            # Before text that a person added behind the block, the line end of the line above it stays.
            added = re.search(r"(?<=\n)\r?\n\Z" if after else r"\r?\n\Z", before)
            text = before[: added.start() if added else None] + after
        return text

    def _rendered(self, newline: str) -> str:
        opening, closing = self.fence
        first = f"{opening}deedbook:begin {_digest(self.body)} {self.note}{closing}"
        return f"{first}\n{self.body}{opening}deedbook:end{closing}".replace("\n", newline)

    def _marks(self, text: str) -> int:
        return len(re.findall(rf"{_LINE}{re.escape(self.fence.opening)}deedbook:(?:begin|end)\b", text, re.MULTILINE))

    def _blocks(self, text: str) -> list[re.Match[str]]:
        opening, closing = map(re.escape, self.fence)
        begin = rf"{_LINE}{opening}deedbook:begin(?: (?P<digest>[0-9a-f]*))?[^\n]*\n"
        end = rf"^{opening}deedbook:end{closing}[ \t]*(?=\r?$)"
        body = rf"(?P<body>(?:(?!{opening}deedbook:(?:begin|end)\b)[^\n]*\n)*?)"
        return list(re.finditer(begin + body + end, text, re.MULTILINE))

    def _checked(self, before: str, after: str) -> str:
        if self.fence is TOML:
            old, new = _toml(before), _toml(after)
            if new != _merged(old, _toml(self.body)):
                raise Refused("INVALID_FORMAT", "a table at the end of this TOML file would not mean what it says")
        return after


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n").removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise Refused("INVALID_FORMAT", f"the file is not TOML in which a table can be added: {error}") from error


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        found = merged.get(key)
        merged[key] = _merged(found, value) if isinstance(found, dict) and isinstance(value, dict) else value
    return merged


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:_digest_digits]


class Whole(NamedTuple):
    """A file that is ours alone."""

    text: str
    new_file: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """The digest of the text: what the record keeps, to tell later whether somebody changed it."""
        return {"digest": _digest(self.text)}

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return what became of the file: it is ours as it is now, as it was written, or somebody's."""
        if text == self.text:
            return State.INSTALLED
        return State.OUTDATED if written == {"digest": _digest(text)} else State.EDITED

    def insert(self, text: str) -> str:
        """Return the file."""
        return self.text

    def update(self, text: str) -> str:
        """Return the file as it is now."""
        return self.text

    def remove(self, text: str, before: str) -> str:
        """Return nothing: the file goes."""
        return ""


Part = Settings | Block | Whole
"""Our part of one file."""
