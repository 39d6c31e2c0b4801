"""The elements of a handoff file with their positions, and the spellings of the protocol's own words.

Every element has its ``line`` (counted from 1) and, if a part of the line may be changed later, its ``column`` (in
characters, from 0).

Headings and keys are compared without case, the markup around them or a colon after a heading; each also has Chinese
names, in traditional and simplified script. Headings and keys that are not in the tables below stay as text of the
file.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from deedbook.consumers.handoffs.files.syntax.lines import Problem, join_lines
from deedbook.ledger.events.handoff import ReceiverNotes
from deedbook.ledger.format.chinese import both_scripts, simplified

Format: TypeAlias = Literal["handoff/v1", "handoff/v2", "proposal"]

# The order in the protocol's form: a missing key or section is added before the first one that follows it here.
META_KEYS: Final = ("Status", "From", "To", "Reviewer", "Created", "Proposal", "Depends-on", "Reasoning")
SECTIONS: Final = ("Meta", "Task", "Tasks", "Acceptance Criteria", "Receiver Notes", "Context", "Log")


class MetaEntry(msgspec.Struct, frozen=True):
    """One ``key: value`` of the Meta block. Newlines join continuation lines to the value."""

    key: str
    name: str  # one of ``META_KEYS``, or the key in lower case with hyphens (``github-issue``)
    value: str
    line: int
    last_line: int
    column: int


class StatusText(msgspec.Struct, frozen=True):
    """The status: ``word`` in the protocol's spelling, ``written`` in the file's, and the text after it."""

    word: str
    written: str
    rest: str
    line: int
    column: int


class Checkbox(msgspec.Struct, frozen=True):
    """A list item with a box."""

    text: str
    is_checked: bool
    line: int
    last_line: int  # the last line of its text
    end_line: int  # the end of everything below it
    column: int  # the column of the tick
    evidence: str = ""  # for a criterion: the line below its text that says who met or waived it, and by what
    evidence_line: int | None = None


class LogLine(msgspec.Struct, frozen=True):
    """An entry of the log; ``day`` and ``author`` are None if it lacks the form ``- DATE [author] text``."""

    text: str
    line: int
    last_line: int
    day: str | None = None
    author: str | None = None


class Section(msgspec.Struct, frozen=True):
    """A part of the file under a ``## `` heading: lines ``start`` (the heading's) to ``stop``, counted from 0."""

    name: str  # one of ``SECTIONS``; empty if the heading is none of these, or repeats an earlier one
    heading: str
    start: int
    body: int
    stop: int


class HandoffFile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed handoff or proposal file; the title's lines end before ``title_stop`` (from 0)."""

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
    reasoning_refs: tuple[str, ...]
    task: str
    tasks: tuple[Checkbox, ...]
    criteria: tuple[Checkbox, ...]
    notes: ReceiverNotes
    context: str
    log: tuple[LogLine, ...]
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    has_mark: bool
    lines: tuple[str, ...]
    open_line: int | None = None

    @property
    def content(self) -> bytes:
        """The original bytes of the file."""
        return join_lines(self.lines, has_mark=self.has_mark)

    def entry(self, name: str) -> MetaEntry | None:
        """Return the first entry of a key of ``META_KEYS``, or None."""
        return next((entry for entry in self.meta if entry.name == name), None)

    def section(self, name: str) -> Section | None:
        """Return the first section with a name of ``SECTIONS``, or None."""
        return next((section for section in self.sections if section.name == name), None)


_SECTION_NAMES: Final = {
    "Meta": ("metadata", "元资料", "元数据"),
    "Task": ("body", "任务"),
    "Tasks": ("子任务",),
    "Acceptance Criteria": ("acceptance criterion", "验收条件", "验收标准"),
    "Receiver Notes": ("notes for the receiver", "接手须知"),
    "Context": ("背景",),
    "Log": ("日志", "记录"),
}
_KEY_NAMES: Final = {
    "Status": ("状态",),
    "Reviewer": ("审核",),
    "Proposal": ("提案",),
    "Depends-on": ("依赖",),
    "Reasoning": ("推理",),
}
_SECTION_OF: Final = {other: name for name in SECTIONS for other in (name.casefold(), *_SECTION_NAMES[name])}
_KEY_OF: Final = {other: name for name in META_KEYS for other in (name.casefold(), *_KEY_NAMES.get(name, ()))}
_NONE: Final = frozenset({"", "-", "–", "—", "none", "n/a", "无"})
_AROUND: Final = re.compile(r"^[\W_]+|[\W_]+$")
_TITLE: Final = re.compile(r"\s*(?:(handoff|交接)|(proposal|提案))\s*[:：]\s*", re.IGNORECASE)
_STATUS_HEADING: Final = re.compile(both_scripts(r"[\s*_`]*(?:status|状态)[\s*_`]*[:：][\s*_`]*(?=\S)"), re.IGNORECASE)


def section_name(heading: str) -> str:
    """Return the name in ``SECTIONS`` of a heading, or an empty text."""
    return _SECTION_OF.get(" ".join(simplified(_AROUND.sub("", heading)).casefold().split()), "")


def key_name(key: str) -> str:
    """Return the name of a key in ``META_KEYS``; for any other key, the key in normalised spelling."""
    plain = re.sub(r"[\s_-]+", "-", key.strip().casefold())
    return _KEY_OF.get(simplified(plain), plain)


def split_title(heading: str) -> tuple[str | None, str]:
    """Return ``handoff``, ``proposal`` or None by the prefix of a title, and the title without it."""
    title = _TITLE.match(heading)
    if not title:
        return None, heading.strip()
    return ("handoff" if title[1] else "proposal"), heading[title.end() :].strip()


def title_column(line: str) -> int | None:
    """Return the column of the title on a line like ``# Handoff: …``, or None if the line is no such heading."""
    hashes = re.match(r" {0,3}#[ \t]+", line)
    if not hashes:
        return None
    title = _TITLE.match(line, hashes.end())
    return title.end() if title else hashes.end()


def status_heading(heading: str) -> int | None:
    """Return the column of the value in a heading like ``Status: completed (2026-02-12)``, or None."""
    title = _STATUS_HEADING.match(heading)
    return title.end() if title else None


def is_none(value: str) -> bool:
    """Whether a value means "none": ``(none)``, ``—``, ``-`` and the like."""
    return simplified(value).strip().strip("()（）").strip().casefold() in _NONE


def value_or_none(value: str) -> str | None:
    """Return a value, or None if it means "none"."""
    return None if is_none(value) else value.strip()
