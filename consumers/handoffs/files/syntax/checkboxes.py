"""Check boxes and log lines of a section (seed 002).

A check box is a list item that begins with ``[ ]``, ``[x]`` or ``[X]``, at any depth, in the order of the lines;
``[-]`` is none. What looks like one and is none (no space behind it, no text) is named: a criterion that is silently
not counted would be a gate left open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from consumers.handoffs.files.syntax.document import Checkbox, LogLine, Section
from consumers.handoffs.files.syntax.lines import Problem, is_blank, quoted, text_of, trim_blank
from ledger.events.fields import DAY_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from consumers.handoffs.files.syntax.blocks import Blocks

_BOX: Final = re.compile(r"\[([ xX])\](?:\s+|$)")
_MARKERS: Final = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?=\[)")
_NEARLY: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]*\[[ xX]?\](?!\()")
_LOG_LINE: Final = re.compile(
    rf"[ ]{{0,3}}[-*+][ \t]+({DAY_PATTERN[1:]})(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?[ \t]+\[([^\]]*)\](?:[ \t]+(.*))?$"
)


def read_checkboxes(lines: Sequence[str], section: Section | None, blocks: Blocks) -> tuple[Checkbox, ...]:
    """Return the check boxes of a section in order."""
    boxes: list[Checkbox] = []
    for item in blocks.items:
        if section is None or not section.body <= item.start < section.stop:
            continue
        found = _BOX.match(item.text)
        markers = _MARKERS.match(lines[item.start])
        if not found or not markers:
            continue
        text = " ".join(part.strip() for part in item.text[found.end() :].split("\n")).strip()
        if text:
            _, end = trim_blank(lines, item.start, item.end)
            column = markers.end() + 1
            boxes.append(Checkbox(text, found[1] != " ", item.start + 1, item.stop, max(item.stop, end), column))
    return tuple(boxes)


def checkbox_problems(
    lines: Sequence[str], section: Section | None, boxes: Sequence[Checkbox], blocks: Blocks
) -> Iterator[Problem]:
    """Yield the lines of a section that look like check boxes and do not count."""
    if section is None:
        return
    counted = {box.line for box in boxes}
    for index in range(section.body, section.stop):
        if index + 1 in counted or index in blocks.code:
            continue
        if _NEARLY.match(lines[index]):
            yield Problem(index + 1, f"{quoted(lines[index].strip())} is no check box: write '- [ ] text'")
    if not boxes:
        for item in blocks.items:
            if section.body <= item.start < section.stop:
                yield Problem(item.start + 1, f"{section.name} holds list items without check boxes; they do not count")
                return


def read_log(
    lines: Sequence[str], section: Section | None, code: frozenset[int]
) -> tuple[tuple[LogLine, ...], list[Problem]]:
    """Return the entries of the Log section, and the list items in it that lack the form ``- DATE [author] text``."""
    entries: list[LogLine] = []
    problems: list[Problem] = []
    for index in range(section.body, section.stop) if section else ():
        text = text_of(lines[index])
        if is_blank(text):
            continue
        found = None if index in code else _LOG_LINE.match(text)
        if found:
            author = found[4].strip() or None
            entries.append(LogLine((found[5] or "").strip(), index + 1, index + 1, found[1], author))
        elif entries and entries[-1].last_line == index and text.startswith((" ", "\t")) and index not in code:
            last = entries[-1]
            entries[-1] = LogLine(f"{last.text} {text.strip()}", last.line, index + 1, last.day, last.author)
        else:
            entries.append(LogLine(text.strip(), index + 1, index + 1))
            if index not in code:
                problems.append(Problem(index + 1, "this line of the Log is not '- DATE [author] text'; it is kept"))
    return tuple(entries), problems
