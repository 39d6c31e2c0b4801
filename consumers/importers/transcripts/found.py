"""What a reader of transcripts finds: responses that may hold thinking, and what could not be read.

A *response* is one answer of a model, however many lines of a file it takes. Its *original* is its own lines or its own
part of a document, byte for byte. Refused: the whole file as the original. Transcripts grow, so a file would be another
original after every word, and a response that was copied into another file would be kept twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Prompt(NamedTuple):
    """What the model was asked (its beginning), and the bytes that say so where they are few enough to be held."""

    text: str
    original: bytes


class Place(NamedTuple):
    """Where something stands: the file as the ledger calls it, the line, and the position within it (from 1)."""

    file: str
    line: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        """Return the place as records name it."""
        line = "" if self.line is None else f":{self.line}"
        return f"{self.file}{line}" + ("" if self.position is None else f"#{self.position}")


class Answered(NamedTuple):
    """A response that may hold thinking: decoded JSON or text, and what its surroundings say of it.

    ``session`` and ``message`` are the ids it bears (empty: none), ``at`` its time as it is written there, ``lines``
    how many lines it takes, ``odd`` the numbers in it that could only be read as texts.
    """

    place: Place
    original: bytes
    response: Any
    is_session: bool = False
    session: str = ""
    message: str = ""
    at: Any = None
    prompt: Prompt | None = None
    lines: int = 1
    odd: tuple[str, ...] = ()


class Unread(NamedTuple):
    """A line or file that could not be read; ``original`` is None where it is too large to be kept, too."""

    place: Place
    original: bytes | None
    size: int
    reason: str


@dataclass
class Progress:
    """How far reading has come; ``skipped`` lines and messages hold no thinking, and neither do ``other_files``."""

    done_bytes: int = 0
    total_bytes: int = 0
    files: int = 0
    other_files: int = 0
    lines: int = 0
    skipped: int = 0
