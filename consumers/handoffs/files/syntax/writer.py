"""Writes progress into an existing file and changes nothing else, or writes a new file in the protocol's form.

Additions go where the form has them; ``comparison`` undoes exactly these additions. A new file leaves out empty keys
and sections except ``Depends-on`` (``(none)``) and ``Reviewer`` (``—``), because a file without one means the default
reviewer. Every written file is parsed again; a text that would be parsed differently (an unclosed code fence, a line
break in a title) is refused with the name of its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from deedbook.consumers.handoffs.files.syntax.document import Checkbox, HandoffFile
from deedbook.consumers.handoffs.files.syntax.lines import (
    Edit,
    apply_edits,
    is_blank,
    join_lines,
    quoted,
    text_of,
    trim_blank,
)
from deedbook.consumers.handoffs.files.syntax.note_labels import NOTE_LABELS
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import lines_for, notes_text, trimmed
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffContent, ReceiverNotes
from deedbook.ledger.format.forms import DAY_PATTERN

_STATUS_WORD: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_LOG_LINE: Final = re.compile(rf"- {DAY_PATTERN[1:]} \[[^\]]*\](?: |$)")
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+][ \t]+)?")


class Progress(msgspec.Struct, frozen=True):
    """The progress of a handoff: the part of a file that may change without a new approval.

    ``tasks`` and ``criteria`` map positions (from 0) to whether they are ticked; others stay as they are. ``evidence``
    maps positions of criteria to ``DATE [author] met: text``, or to an empty text for none. ``log`` has the lines to
    add, each ``- DATE [author] text``.
    """

    status: str | None = None
    tasks: Mapping[int, bool] = {}
    criteria: Mapping[int, bool] = {}
    evidence: Mapping[int, str] = {}
    log: Sequence[str] = ()


def render(file: HandoffFile, progress: Progress) -> bytes:
    """Return the file with this progress; everything else keeps its bytes.

    Raises Refused: ``INVALID_FIELD`` for an invalid position, status or log line; ``INVALID_FORMAT`` if a log line
    would be inside a block that the file leaves open.
    """
    edits = [*_status_edits(file, progress.status)]
    edits += _tick_edits(file, file.tasks, progress.tasks, "task")
    edits += _tick_edits(file, file.criteria, progress.criteria, "criterion")
    for position, text in progress.evidence.items():
        _check_position(file.criteria, position, "criterion")
        if file.criteria[position].evidence != (evidence := evidence_text(text)):
            edits.append(evidence_edit(file.criteria[position], evidence))
    edits += _log_edits(file, [log_text(line) for line in progress.log])
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def with_done_as_notes(file: HandoffFile) -> bytes:
    """Return a new handoff's file in which each ticked task is a note ``- Done: …``.

    The receiver of a new handoff has done no task yet. Text below the task moves to the notes with it; further tasks
    below it stay tasks.
    """
    done = [task for task in file.tasks if task.is_checked]
    if not done:
        return file.content
    edits: list[Edit] = []
    lines: list[str] = []
    for task in done:
        has_tasks = any(task.last_line < other.line <= task.end_line for other in file.tasks)
        stop = task.last_line if has_tasks else task.end_line
        edits.append(Edit(task.line - 1, stop))
        lines.append(f"- {NOTE_LABELS['done']}: {task.text}")
        below = map(str.strip, map(text_of, file.lines[task.last_line : stop]))
        lines += [f"  {text}" for text in below if text]
    if section := file.section("Receiver Notes"):
        edits.append(Edit(section.body, section.body, tuple(lines)))
    else:
        edits.append(Edit(len(file.lines), len(file.lines), ("", "## Receiver Notes", *lines, "")))
    return join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)


def replace_at(file: HandoffFile, line: int, column: int, old: str, new: str) -> Edit:
    """Return the edit that replaces ``old`` by ``new`` on a line (counted from 1)."""
    text = text_of(file.lines[line - 1])
    return Edit(line - 1, line, (text[:column] + new + text[column + len(old) :],))


def log_text(line: str) -> str:
    """Return a log line as one line without control characters."""
    text = _CONTROL.sub(" ", line).rstrip()
    if not _LOG_LINE.match(text):
        raise Refused(
            "INVALID_FIELD", f"{quoted(text)} is not a log line: it must be '- DATE [author] text'", field="log"
        )
    return text


def _status_edits(file: HandoffFile, status: str | None) -> Iterator[Edit]:
    if status is None or (file.status and file.status.word == status):
        return
    if not _STATUS_WORD.fullmatch(status):
        raise Refused(
            "INVALID_FIELD",
            f"{quoted(status)} is not a status word: use lower-case letters a to z, with _ between words",
            field="status",
        )
    if file.status:
        yield replace_at(file, file.status.line, file.status.column, file.status.written, status)
    elif entry := file.entry("Status"):
        # The key exists with an empty value, or one without a word: replace it.
        yield replace_at(file, entry.line, entry.column, text_of(file.lines[entry.line - 1])[entry.column :], status)
    elif file.meta:
        first = file.meta[0].line - 1
        yield Edit(first, first, (f"{bullet_of(file.lines[first])}Status: {status}",))
    elif meta := file.section("Meta"):
        yield Edit(meta.body, meta.body, (f"- Status: {status}",))
    else:
        stop = file.title_stop
        after = ("",) if stop < len(file.lines) and not is_blank(file.lines[stop]) else ()
        # A file with only a title gets a newline at its end: without one it would be read as cut off.
        after = after if stop < len(file.lines) else ("",)
        yield Edit(stop, stop, ("", "## Meta", f"- Status: {status}", *after))


def _tick_edits(file: HandoffFile, boxes: Sequence[Checkbox], ticks: Mapping[int, bool], label: str) -> Iterator[Edit]:
    for position, is_checked in ticks.items():
        _check_position(boxes, position, label)
        if boxes[position].is_checked is not is_checked:
            yield tick(file, boxes[position], "x" if is_checked else " ")


def tick(file: HandoffFile, box: Checkbox, mark: str) -> Edit:
    """Return the edit that sets the mark of a box."""
    return replace_at(file, box.line, box.column, " ", mark)


def _check_position(boxes: Sequence[Checkbox], position: int, label: str) -> None:
    if not 0 <= position < len(boxes):
        message = f"the file has no {label} {position}; it has {len(boxes)} (counted from 0)"
        raise Refused("INVALID_FIELD", message, field=label, position=position)


def evidence_text(text: str) -> str:
    """Return the evidence of a criterion as one line without control characters."""
    return " ".join(_CONTROL.sub(" ", text).split())


def evidence_edit(box: Checkbox, text: str) -> Edit:
    """Return the edit that sets the line of evidence below a box; an empty text removes it."""
    at = box.last_line
    new = (f"{' ' * (box.column - 1)}- {text}",) if text else ()
    return Edit(at, at if box.evidence_line is None else at + 1, new)


def bullet_of(line: str) -> str:
    """Return the indentation and list mark of a line, without a number."""
    bullet = _BULLET.match(line)
    return bullet[0] if bullet else ""


def closed_end(file: HandoffFile) -> int:
    """Return the position after the last line, where a section can be added."""
    if file.open_line:
        message = (
            f"the block that line {file.open_line} opens is never closed: close it, so that a section can be added"
        )
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


NO_VALUE: Final = "—"
NO_DEPENDENCY: Final = "(none)"

_LINE_BREAK: Final = re.compile(r"[\r\n\x00]")
_HASHES_AT_END: Final = re.compile(r"(?:^|[ \t])#+$")


FIELDS: Final = (
    "title",
    "to",
    "reviewer",
    "proposal",
    "depends_on",
    "reasoning_refs",
    "task",
    "tasks",
    "criteria",
    "notes",
    "context",
)
"""The fields of a handoff's content that are in its file and can be amended."""


def write(content: HandoffContent, sender: str, *, status: str = "pending", log: Sequence[str] = ()) -> bytes:
    r"""Return the bytes of a v2 file: UTF-8, ``\n``, in the form's order; texts are read back as ``trimmed``.

    ``log`` has lines of the form ``- DATE [author] text``. Raises Refused: ``INVALID_FIELD`` with the ``field`` that a
    file cannot hold; ``TOO_LARGE`` for a file over the limit.
    """
    lines = [f"# Handoff: {title_text(content.title)}", "", "## Meta", *_meta_lines(content, sender, status)]
    lines += ["", "## Task", *lines_for(content.task)]
    for heading, texts in (("Tasks", content.tasks), ("Acceptance Criteria", content.criteria)):
        if texts:
            lines += ["", f"## {heading}", *(f"- [ ] {one_line(text, heading)}" for text in texts)]
    if notes := notes_text(content.notes):
        lines += ["", "## Receiver Notes", *lines_for(notes)]
    if trimmed(content.context):
        lines += ["", "## Context", *lines_for(content.context)]
    lines += ["", "## Log", *map(log_text, log)]
    written = join_lines([line + "\n" for line in lines], has_mark=False)
    others = {"sender": sender, "to": content.to or "", "status": status, "log": tuple(map(log_text, log))}
    read_back(written, {name: getattr(content, name) for name in (*FIELDS, "created")} | others)
    return written


def _meta_lines(content: HandoffContent, sender: str, status: str) -> list[str]:
    lines = [f"- Status: {status}", f"- From: {sender}", f"- To: {content.to or ''}"]
    lines.append(f"- Reviewer: {NO_VALUE if content.reviewer is None else content.reviewer}")
    if content.created is not None:
        lines.append(f"- Created: {content.created}")
    if content.proposal is not None:
        lines.append(f"- Proposal: {content.proposal}")
    lines.append(f"- Depends-on: {dependencies_text(content.depends_on)}")
    if content.reasoning_refs:
        lines.append(f"- Reasoning: {refs_text(content.reasoning_refs)}")
    return [one_line(line, line[2:].partition(":")[0]) for line in lines]


def dependencies_text(ids: Sequence[str]) -> str:
    """Return ids as the value of ``Depends-on``."""
    return ", ".join(f"{name}.md" for name in ids) or NO_DEPENDENCY


def refs_text(refs: Sequence[str]) -> str:
    """Return refs as the value of ``Reasoning``."""
    return ", ".join(refs) or NO_DEPENDENCY


def title_text(title: str) -> str:
    """Return a title for its heading. If it ends in hashes, add another hash, or markdown would drop them."""
    text = one_line(title, "title").strip()
    return f"{text} #" if _HASHES_AT_END.search(text) else text


def one_line(text: str, field: str) -> str:
    """Return a text, or refuse it if it has several lines."""
    if _LINE_BREAK.search(text):
        raise Refused("INVALID_FIELD", f"{field} must be on one line", field=field)
    return text


def read_back(written: bytes, expected: Mapping[str, Any]) -> None:
    """Parse a written file, and refuse it unless every expected field is read back."""
    try:
        file = parse(written)
    except Refused as refusal:
        if refusal.code == "TOO_LARGE":
            raise
        message = f"this content cannot be written as a handoff file: {refusal.message}"
        raise Refused("INVALID_FIELD", message, **refusal.details) from refusal
    fields = fields_of(file)
    for name, value in expected.items():
        if fields[name] != _as_read(name, value):
            message = f"{name} cannot be written in a handoff file: it would be read back differently"
            raise Refused("INVALID_FIELD", message, field=name)


def fields_of(file: HandoffFile) -> dict[str, Any]:
    """Return the fields of a file, in the form that ``write`` takes."""
    return {name: getattr(file, name) for name in (*FIELDS, "sender", "created")} | {
        "status": file.status.word if file.status else None,
        "tasks": tuple(box.text for box in file.tasks),
        "criteria": tuple(box.text for box in file.criteria),
        "log": tuple(f"- {line.day} [{line.author or ''}] {line.text}".rstrip() for line in file.log),
    }


def _as_read(name: str, value: Any) -> Any:
    """Return a value as the parser reads it: without the white space around it."""
    match name:
        case "task" | "context":
            return trimmed(value)
        case "tasks" | "criteria":
            return tuple(text.strip() for text in value)
        case "notes":
            texts = msgspec.structs.asdict(value)
            return ReceiverNotes(**{kind: [" ".join(text.split()) for text in notes] for kind, notes in texts.items()})
        case "depends_on" | "reasoning_refs" | "log":
            return tuple(value)
        case _:  # any other field: one line, or None
            return value.strip() if value is not None else None
