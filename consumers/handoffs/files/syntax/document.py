"""What a handoff file says, and where each word of it stands (seed 002, DESIGN §10).

Everything is frozen, and every element knows its ``line`` (counted from 1) and, where a part of a line is
changed later, its ``column`` (in characters, from 0). The lines themselves are kept beside them: they are the
file, the elements only point into it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from consumers.handoffs.files.syntax.lines import Problem, join_lines

Format: TypeAlias = Literal["handoff/v1", "handoff/v2", "proposal"]

# The seed's order; a key or section that is missing is added before the first that comes after it.
META_KEYS: Final = ("Status", "From", "To", "Reviewer", "Created", "Proposal", "Depends-on")
SECTIONS: Final = ("Meta", "Task", "Tasks", "Acceptance Criteria", "Context", "Log")


class MetaEntry(msgspec.Struct, frozen=True):
    """One ``key: value`` of the Meta block; lines that go on below it are joined to the value with newlines.

    ``name`` is one of ``META_KEYS``, or the key in lower case with hyphens (``github-issue``).
    """

    key: str
    name: str
    value: str
    line: int
    last_line: int
    column: int


class StatusText(msgspec.Struct, frozen=True):
    """The status: ``word`` as the protocol spells it, ``written`` as the file does, and the text after it."""

    word: str
    written: str
    rest: str
    line: int
    column: int


class Checkbox(msgspec.Struct, frozen=True):
    """A list item with a box; ``column`` is that of the tick.

    ``last_line`` is the last line of its text, ``end_line`` of all that stands below it.
    """

    text: str
    is_checked: bool
    line: int
    last_line: int
    end_line: int
    column: int


class LogLine(msgspec.Struct, frozen=True):
    """An entry of the log; ``day`` and ``author`` are None where it lacks the form ``- DATE [author] text``."""

    text: str
    line: int
    last_line: int
    day: str | None = None
    author: str | None = None


class Section(msgspec.Struct, frozen=True):
    """A part of the file under a ``## `` heading: lines ``start`` (the heading's) to ``stop``, counted from 0.

    ``name`` is one of ``SECTIONS``, or empty where the protocol has none for it or an earlier section bears it.
    """

    name: str
    heading: str
    start: int
    body: int
    stop: int


class HandoffFile(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff or proposal file, read; ``title_stop`` is where the title's lines end (from 0)."""

    format: Format
    title: str
    title_line: int
    title_stop: int
    meta: tuple[MetaEntry, ...]
    status: StatusText | None
    sender: str | None
    to: str | None
    reviewer: str | None
    created: str | None
    proposal: str | None
    depends_on: tuple[str, ...]
    task: str
    tasks: tuple[Checkbox, ...]
    criteria: tuple[Checkbox, ...]
    context: str
    log: tuple[LogLine, ...]
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    has_mark: bool
    lines: tuple[str, ...]
    open_line: int | None = None

    @property
    def content(self) -> bytes:
        """The bytes of the file, as they were."""
        return join_lines(self.lines, has_mark=self.has_mark)

    def entry(self, name: str) -> MetaEntry | None:
        """Return the entry that counts for a key of ``META_KEYS``, or None."""
        return next((entry for entry in self.meta if entry.name == name), None)

    def section(self, name: str) -> Section | None:
        """Return the section that counts for a name of ``SECTIONS``, or None."""
        return next((section for section in self.sections if section.name == name), None)
