"""Reads the fenced blocks of pages (consoles with commands and answers, files, programs), and compares answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FENCED: Final = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NORMAL: Final = (
    (r"(event|blake3|sha256):[0-9a-f]{12,64}…?", r"\1:…"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "TIME"),
    (r"\b20\d\d-\d\d-\d\d\b", "DAY"),
    (r"\b20\d\d-?\d\d-?\d\d-\d{6}\b", "TIME"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\bwith tree head [0-9a-f]+", "with tree head …"),
    (r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,128}\b", "…"),
    (r"\b\d{16}\b", "…"),  # the beginning of a key that happens to have no letter (one key in two thousand)
    (r" #\d+", " #N"),
    (r"\b\d+ tokens\b", "N tokens"),
    (r"\b\d+ s\b", "N s"),
    (r"\b(just now|\d+ min ago)\b", "AGO"),
    (r"\b1\d{12}\b", "MS"),
    (r"[ \t]+$", ""),
)
_NUMBERS: Final = ((r"\bentry \d+(, \d+)*", "entry N"), (r"\bas of \d+ entries", "as of N entries"))


class Block(NamedTuple):
    """A fenced block of a page: its language, its name if it is a file, and its lines."""

    language: str
    name: str
    content: str


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order; a block in a list loses the list's indentation.

    The name of a file is in the line of the fence, that of a program can be in its first line.
    """
    for indent, language, info, content in FENCED.findall(text):
        named = re.search(r'title="([^"]+)"', info) or re.match(r"# (\w+\.py)$", content.lstrip(" "), re.MULTILINE)
        lines = (line.removeprefix(indent) for line in content.split("\n"))
        yield Block(language, named[1] if named else "", "\n".join(lines))


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, with its expected output; a here-document belongs to its command."""
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if here := re.search(r"<<'(\w+)'", command):
            content, _, expected = expected.partition(f"\n{here[1]}\n")
            command += f"\n{content}\n{here[1]}"
        yield command, expected.rstrip("\n")


def normalized(text: str, folder: Path, *, is_shared: bool = False) -> str:
    """Return a text without the parts that differ from run to run: hashes, times, and the folder.

    ``is_shared``: other commands may append to the ledger, too, so numbers of entries differ.
    """
    text = text.replace(str(folder), "FOLDER")
    for pattern, replacement in (*NORMAL, *(_NUMBERS if is_shared else ())):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text.rstrip("\n")


def is_as_expected(expected: str, printed: str) -> bool:
    """Return whether an answer equals the one on its page; ``...`` matches any lines."""
    pieces = [re.escape(piece) for piece in re.split(r"^\.\.\.$", expected, flags=re.MULTILINE)]
    return re.fullmatch("(?s:.*)".join(pieces), printed) is not None
