"""A fenced block in a file of text: what stands between two marks is ours, everything else is not touched.

The first mark carries the digest of what was written, so an edit inside the block shows without any record. Line ends
are those of the file. The block stands at the end, after an empty line; a new version takes the place of the old one.
Where the file's last line had no end there is no empty line: so removal knows, without any record, whether the line
end before the block is the file's.
In a TOML file the block is a table of its own, and the file is parsed before and after: if the table would not mean
what it says there, nothing is written.
"""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from consumers.doors.hooks.parts import State
from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_digest_digits: Final = 12
_LINE: Final = r"(?:^|(?<=\A\ufeff))"
"""Where a line begins, the first one after a byte order mark."""


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

    @property
    def new_file(self) -> str:
        """Nothing."""
        return ""

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
        body = _plain(blocks[0]["body"])
        if _digest(body) != blocks[0]["digest"]:
            return State.EDITED
        return State.INSTALLED if body == self.body else State.OUTDATED

    def insert(self, text: str) -> str:
        """Return the text with the block at its end.

        Raises:
            Refused: ``INVALID_FORMAT`` for TOML in which the block would not mean what it says.
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
        """Return the text without the block and the line end that came with it.

        Raises:
            Refused: ``INVALID_FORMAT`` where a mark has lost the other one.
        """
        blocks = self._blocks(text)
        if self._marks(text) != 2 * len(blocks):
            raise Refused("INVALID_FORMAT", "baton:begin and baton:end do not stand in pairs: mend them by hand first")
        for block in reversed(blocks):
            before, after = text[: block.start()], re.sub(r"\A\r?\n", "", text[block.end() :])
            # Before text that a person added behind the block, the line end of the line above it stays.
            added = re.search(r"(?<=\n)\r?\n\Z" if after else r"\r?\n\Z", before)
            text = before[: added.start() if added else None] + after
        return text

    def _rendered(self, newline: str) -> str:
        opening, closing = self.fence
        first = f"{opening}baton:begin {_digest(self.body)} {self.note}{closing}"
        return f"{first}\n{self.body}{opening}baton:end{closing}".replace("\n", newline)

    def _marks(self, text: str) -> int:
        return len(re.findall(rf"{_LINE}{re.escape(self.fence.opening)}baton:(?:begin|end)\b", text, re.MULTILINE))

    def _blocks(self, text: str) -> list[re.Match[str]]:
        opening, closing = map(re.escape, self.fence)
        begin = rf"{_LINE}{opening}baton:begin(?: (?P<digest>[0-9a-f]*))?[^\n]*\n"
        end = rf"^{opening}baton:end{closing}[ \t]*(?=\r?$)"
        body = rf"(?P<body>(?:(?!{opening}baton:(?:begin|end)\b)[^\n]*\n)*?)"
        return list(re.finditer(begin + body + end, text, re.MULTILINE))

    def _checked(self, before: str, after: str) -> str:
        if self.fence is TOML:
            old, new = _toml(before), _toml(after)
            if new != _merged(old, _toml(self.body)):
                raise _no_table()
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


def _no_table() -> Refused:
    return Refused("INVALID_FORMAT", "a table at the end of this TOML file would not mean what it says")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:_digest_digits]
