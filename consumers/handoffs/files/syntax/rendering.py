"""Writing progress into a file: a status word, ticks, log lines, and not one byte more (DESIGN §10).

One changed tick is one changed line. What is added stands where the seed has it: a missing status first in the Meta
block (or in a block of its own below the title), log lines at the end of the Log section, a missing section at the
end of the file. ``comparing`` undoes exactly these additions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from consumers.handoffs.files.syntax.document import Checkbox, HandoffFile
from consumers.handoffs.files.syntax.lines import Edit, apply_edits, is_blank, join_lines, quoted, text_of, trim_blank
from ledger.errors import Refused
from ledger.events.fields import DAY_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS_WORD: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_LOG_LINE: Final = re.compile(rf"- {DAY_PATTERN[1:]} \[[^\]]*\](?: |$)")
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+][ \t]+)?")


class Progress(msgspec.Struct, frozen=True):
    """How far a handoff has come: what of a file may change without a new approval.

    ``tasks`` and ``criteria`` map positions (from 0) to whether they are ticked; what is not named stays. ``log`` are
    lines to add, each ``- DATE [author] text``.
    """

    status: str | None = None
    tasks: Mapping[int, bool] = {}
    criteria: Mapping[int, bool] = {}
    log: Sequence[str] = ()


def render(file: HandoffFile, progress: Progress) -> bytes:
    """Return the file with this progress in it; everything else keeps its bytes.

    Raises:
        Refused: ``INVALID_FIELD`` for a position, status or log line that cannot be; ``INVALID_FORMAT`` when a log
            line would fall into a block that the file leaves open.
    """
    edits = [*_status_edits(file, progress.status)]
    edits += _tick_edits(file, file.tasks, progress.tasks, "task")
    edits += _tick_edits(file, file.criteria, progress.criteria, "criterion")
    edits += _log_edits(file, [log_text(line) for line in progress.log])
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def replace_at(file: HandoffFile, line: int, column: int, old: str, new: str) -> Edit:
    """Return the edit that puts ``new`` where ``old`` stands on a line (counted from 1)."""
    text = text_of(file.lines[line - 1])
    return Edit(line - 1, line, (text[:column] + new + text[column + len(old) :],))


def log_text(line: str) -> str:
    """Return a log line as it is written: one line, without control characters.

    Raises:
        Refused: ``INVALID_FIELD`` where it is not ``- DATE [author] text``.
    """
    text = _CONTROL.sub(" ", line).rstrip()
    if not _LOG_LINE.match(text):
        raise Refused("INVALID_FIELD", f"{quoted(text)} is no log line: it must be '- DATE [author] text'", field="log")
    return text


def _status_edits(file: HandoffFile, status: str | None) -> Iterator[Edit]:
    if status is None or (file.status and file.status.word == status):
        return
    if not _STATUS_WORD.fullmatch(status):
        raise Refused("INVALID_FIELD", f"{quoted(status)} is no status word", field="status")
    if file.status:
        yield replace_at(file, file.status.line, file.status.column, file.status.written, status)
    elif entry := file.entry("Status"):
        # The key is there and says nothing, or something without a word in it: that gives way.
        yield replace_at(file, entry.line, entry.column, text_of(file.lines[entry.line - 1])[entry.column :], status)
    elif file.meta:
        first = file.meta[0].line - 1
        yield Edit(first, first, (f"{bullet_of(file.lines[first])}Status: {status}",))
    elif meta := file.section("Meta"):
        yield Edit(meta.body, meta.body, (f"- Status: {status}",))
    else:
        stop = file.title_stop
        after = ("",) if stop < len(file.lines) and not is_blank(file.lines[stop]) else ()
        # A file that is nothing but a title gets a newline at its end: without one it would read as cut off.
        after = after if stop < len(file.lines) else ("",)
        yield Edit(stop, stop, ("", "## Meta", f"- Status: {status}", *after))


def _tick_edits(file: HandoffFile, boxes: Sequence[Checkbox], ticks: Mapping[int, bool], what: str) -> Iterator[Edit]:
    for position, is_checked in ticks.items():
        if not 0 <= position < len(boxes):
            message = f"the file has no {what} {position}; it has {len(boxes)} (counted from 0)"
            raise Refused("INVALID_FIELD", message, field=what, position=position)
        if boxes[position].is_checked is not is_checked:
            yield tick(file, boxes[position], "x" if is_checked else " ")


def tick(file: HandoffFile, box: Checkbox, mark: str) -> Edit:
    """Return the edit that puts a mark into a box."""
    return replace_at(file, box.line, box.column, " ", mark)


def bullet_of(line: str) -> str:
    """Return the indentation and list mark that a line begins with; a number is not repeated."""
    found = _BULLET.match(line)
    return found[0] if found else ""


def closed_end(file: HandoffFile) -> int:
    """Return the place behind the last line, where a section can be added.

    Raises:
        Refused: ``INVALID_FORMAT`` where a block is left open that would swallow it.
    """
    if file.open_line:
        message = f"the block that line {file.open_line} opens is never closed: close it, so that more can be added"
        raise Refused("INVALID_FORMAT", message, line=file.open_line)
    return len(file.lines)


def _log_edits(file: HandoffFile, texts: Sequence[str]) -> Iterator[Edit]:
    if not texts:
        return
    section = file.section("Log")
    if section is None:
        end = closed_end(file)
        before = () if is_blank(file.lines[-1]) else ("",)
        yield Edit(end, end, (*before, "## Log", *texts))
        return
    if section.stop == len(file.lines):
        closed_end(file)
    _, stop = trim_blank(file.lines, section.body, section.stop)
    yield Edit(stop, stop, tuple(texts))
