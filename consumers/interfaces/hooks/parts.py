"""Our part of a file that belongs to somebody else: its state, its insertion and its removal.

A part is pure: text in, text out. A part that a person changed is *edited*: setup and removal refuse to touch it unless
forced. A part that an earlier setup wrote and that differs from the present version is *outdated*. Settings have no
room for a digest, so the record decides which of the two it is. Without a record, a difference in more than the command
counts as an edit.

A fenced block in a text file has the digest of its text in its first mark, so an edit shows without a record. The block
uses the line ends of the file. It is at the end, after an empty line; a new version replaces the old one in its place.
If the last line of the file had no line end, there is no empty line: so removal knows without a record whether the line
end before the block belongs to the file. In a TOML file the block is a table of its own. The file is parsed before and
after: if the table would have another meaning there, nothing is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

from deedbook.consumers.interfaces.hooks import json_text
from deedbook.ledger.errors import Refused

KeyPath = tuple[str | int, ...]
_digest_digits: Final = 12
_LINE: Final = r"(?:^|(?<=\A\ufeff))"
"""The beginning of a line; the first line may follow a byte order mark."""


class State(StrEnum):
    """The state of our part of a file."""

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
    """Our command contains one of these; other commands contain none."""


class Settings(NamedTuple):
    """Our settings in a JSON file; ``new_file`` is the content of a new file before they are inserted."""

    settings: tuple[Setting, ...]
    new_file: str = "{}\n"

    @property
    def written(self) -> dict[str, Any]:
        """The values by their path; the record stores them, so that a later change shows."""
        return {".".join(setting.path): setting.value for setting in self.settings}

    @property
    def expected(self) -> str:
        """The settings as text, for a comparison with ``present``."""
        return json.dumps({name: [value] for name, value in self.written.items()}, indent=2, ensure_ascii=False)

    def present(self, text: str) -> str:
        """Return our settings in a text."""
        values = {".".join(setting.path): [value for _, value in paths] for setting, paths in self._matches(text)}
        return json.dumps(values, indent=2, ensure_ascii=False)

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return the state of the settings; ``written`` is the value of ``written`` in the record, if there is one."""
        matches = self._matches(text)
        values = {".".join(setting.path): [value for _, value in paths] for setting, paths in matches if paths}
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
        """Return the text with the settings, each as the first member or item."""
        for setting in reversed(self.settings):
            text = json_text.insert(text, setting.path, setting.value, is_item=setting.is_item)
        return text

    def update(self, text: str) -> str:
        """Return the text with our settings in their new version."""
        return self.insert(self.remove(text, text))

    def remove(self, text: str, before: str) -> str:
        """Return the text without the settings and the containers made for them; containers in ``before`` stay."""
        keep = _containers(json_text.scan(before, {setting.path[0] for setting in self.settings}), self.settings)
        while paths := [path for _, values in self._matches(text) for path, _ in values]:
            text = json_text.cut(text, paths[0], keep)
        return text

    def _matches(self, text: str) -> list[tuple[Setting, list[tuple[KeyPath, Any]]]]:
        root = json_text.scan(text, {setting.path[0] for setting in self.settings})
        return [(setting, _values_at(root, setting)) for setting in self.settings]


def _values_at(root: json_text.Node, setting: Setting) -> list[tuple[KeyPath, Any]]:
    """Return the path and value of each place in the file where one of our settings is."""
    node: json_text.Node | None = root
    for key in setting.path:
        node = node and node.member(key)
    if node is None:
        return []
    if not setting.is_item:
        return [(setting.path, node.value)]  # the name is ours, so we replace any value there
    if not isinstance(node.value, list):
        return []
    items = ((member.key, member.node.value) for member in node.members)
    return [((*setting.path, key), value) for key, value in items if _is_marked(value, setting.marks)]


def _is_marked(value: Any, marks: tuple[str, ...]) -> bool:
    handlers = value.get("hooks") if isinstance(value, dict) else None
    if not isinstance(handlers, list):
        return False
    commands = [f"{handler.get('command')} " for handler in handlers if isinstance(handler, dict)]
    return any(mark in command for command in commands for mark in marks)


def _containers(root: json_text.Node, settings: tuple[Setting, ...]) -> frozenset[KeyPath]:
    """Return the paths of the objects and arrays that lead to the settings."""
    containers: set[KeyPath] = set()
    for setting in settings:
        node: json_text.Node | None = root
        for depth, key in enumerate(setting.path if setting.is_item else setting.path[:-1]):
            node = node and node.member(key)
            if node is None:
                break
            containers.add(setting.path[: depth + 1])
    return frozenset(containers)


def _bare(value: Any) -> Any:
    """Return a value without its commands, which change when Deedbook moves or another agent acts."""
    if isinstance(value, dict):
        return {key: _bare(member) for key, member in value.items() if key not in {"command", "args"}}
    return [_bare(item) for item in value] if isinstance(value, list) else value


class Fence(NamedTuple):
    """The beginning and the end of a comment in a format."""

    opening: str
    closing: str


MARKDOWN: Final = Fence("<!-- ", " -->")
TOML: Final = Fence("# ", "")


class Block(NamedTuple):
    """Our block: its text, and the note in its first mark that says how to remove it."""

    fence: Fence
    body: str
    note: str
    new_file: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """Nothing: the block holds its own digest."""
        return {}

    @property
    def expected(self) -> str:
        """The block's text, for a comparison with ``present``."""
        return self.body

    def present(self, text: str) -> str:
        """Return the text of the block; the whole text if its marks do not form one pair."""
        blocks = self._blocks(text)
        return blocks[0]["body"] if len(blocks) == 1 else text

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return the state of the block."""
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

        Raises Refused: ``INVALID_FORMAT`` for TOML in which the block would have another meaning.
        """
        newline = _newline(text)
        between = newline if text.strip("\ufeff") else ""
        return self._checked(text, f"{text}{between}{self._rendered(newline)}{newline}")

    def update(self, text: str) -> str:
        """Return the text with the new block in the place of the earlier one."""
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
                "INVALID_FORMAT", "deedbook:begin and deedbook:end do not form pairs. Repair the marks by hand first."
            )
        for block in reversed(blocks):
            before, after = text[: block.start()], re.sub(r"\A\r?\n", "", text[block.end() :])
            # If a person added text after the block, the line end before the block stays.
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
                raise Refused("INVALID_FORMAT", "a table at the end of this TOML file would have another meaning there")
        return after


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n").removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise Refused("INVALID_FORMAT", f"the file is not valid TOML: {error}") from error


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        earlier = merged.get(key)
        merged[key] = _merged(earlier, value) if isinstance(earlier, dict) and isinstance(value, dict) else value
    return merged


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:_digest_digits]


class Whole(NamedTuple):
    """A file that belongs to Deedbook alone."""

    text: str
    new_file: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """The digest of the text; the record stores it, so that a later change shows."""
        return {"digest": _digest(self.text)}

    @property
    def expected(self) -> str:
        """The file, for a comparison with ``present``."""
        return self.text

    def present(self, text: str) -> str:
        """Return the file."""
        return text

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return the state of the file: our present version, an earlier version of ours, or somebody else's text."""
        if text == self.text:
            return State.INSTALLED
        return State.OUTDATED if written == {"digest": _digest(text)} else State.EDITED

    def insert(self, text: str) -> str:
        """Return the file."""
        return self.text

    def update(self, text: str) -> str:
        """Return the present version of the file."""
        return self.text

    def remove(self, text: str, before: str) -> str:
        """Return nothing: the file is deleted."""
        return ""


Part = Settings | Block | Whole
"""Our part of one file."""
