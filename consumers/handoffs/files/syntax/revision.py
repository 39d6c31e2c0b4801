"""Writing changed content into a file that exists: what changed gives way, all other text stays.

An element that says the same already keeps its bytes. A key or section that is missing is added in the form's order.
Tasks and criteria that are the same at the beginning and at the end keep their lines (and the notes below them), what
lies between is replaced in place. All boxes of a list that is given are left open, as in an amended handoff.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from consumers.handoffs.files.syntax.document import META_KEYS, SECTIONS, Checkbox, HandoffFile, MetaEntry, title_column
from consumers.handoffs.files.syntax.lines import Edit, apply_edits, is_blank, join_lines, text_of, trim_blank
from consumers.handoffs.files.syntax.sections import lines_for, trimmed
from consumers.handoffs.files.syntax.writer import (
    NO_VALUE,
    bullet_of,
    closed_end,
    dependencies_text,
    fields_of,
    one_line,
    read_back,
    tick,
    title_text,
)

_KEYS: Final = {"to": "To", "reviewer": "Reviewer", "proposal": "Proposal", "depends_on": "Depends-on"}
_HEADINGS: Final = {"task": "Task", "tasks": "Tasks", "criteria": "Acceptance Criteria", "context": "Context"}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """The elements to replace; what is ``UNSET`` stays. None says that there is no reviewer or proposal."""

    title: str | UnsetType = UNSET
    to: str | UnsetType = UNSET
    reviewer: str | UnsetType | None = UNSET
    proposal: str | UnsetType | None = UNSET
    depends_on: Sequence[str] | UnsetType = UNSET
    task: str | UnsetType = UNSET
    tasks: Sequence[str] | UnsetType = UNSET
    criteria: Sequence[str] | UnsetType = UNSET
    context: str | UnsetType = UNSET


def revise(file: HandoffFile, changes: Revision) -> bytes:
    """Return the file with these elements replaced.

    Raises:
        Refused: ``INVALID_FIELD`` naming the ``field`` that the file cannot hold; ``INVALID_FORMAT`` when a section
            would have to be added behind a block that the file leaves open.
    """
    given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
    edits: list[Edit] = []
    if not isinstance(changes.title, UnsetType) and changes.title.strip() != file.title:
        edits.append(_title_edit(file, changes.title))
    edits += _meta_edits(file, changes)
    for name, heading in _HEADINGS.items():
        if name not in given:
            continue
        if name in ("tasks", "criteria"):
            texts = [one_line(text, name).strip() for text in given[name]]
            edits += _list_edits(file, heading, texts, getattr(file, name))
        else:
            edits += _text_edits(file, heading, given[name], getattr(file, name))
    written = join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)
    read_back(written, {name: value for name, value in fields_of(file).items() if name != "log"} | given)
    return written


def _title_edit(file: HandoffFile, title: str) -> Edit:
    start = file.title_line - 1
    line = text_of(file.lines[start])
    column = title_column(line)
    if column is None:  # an underlined title
        prefix = "Proposal" if file.format == "proposal" else "Handoff"
        return Edit(start, file.title_stop, (f"# {prefix}: {title_text(title)}",))
    return Edit(start, start + 1, (line[:column] + title_text(title),))


def _meta_edits(file: HandoffFile, changes: Revision) -> Iterator[Edit]:
    """Yield the edits of the Meta block; where there is none, all of a new one in one edit."""
    added: list[str] = []
    for name, key in _KEYS.items():
        value = getattr(changes, name)
        if _is_said(file, name, value):
            continue
        text = dependencies_text(value) if name == "depends_on" else NO_VALUE if value is None else value.strip()
        text = one_line(text, name)
        if entry := file.entry(key):
            line = text_of(file.lines[entry.line - 1])[: entry.column]
            yield Edit(entry.line - 1, entry.last_line, (line + ("" if line[-1:].isspace() else " ") + text,))
        elif file.meta:
            yield _added_key(file, key, text)
        else:
            added.append(f"- {key}: {text}")
    if added:
        if meta := file.section("Meta"):
            yield Edit(meta.body, meta.body, tuple(added))
        else:
            yield Edit(file.title_stop, file.title_stop, ("", "## Meta", *added, ""))


def _is_said(file: HandoffFile, name: str, value: Any) -> bool:
    """Tell whether a key needs no edit: nothing is asked, or the file says it."""
    if value is UNSET:
        return True
    if name == "reviewer" and value is None:
        # That there is none has to be written: a file without the key means the default reviewer.
        return file.reviewer is None and file.entry("Reviewer") is not None
    return bool(getattr(file, name) == (tuple(value) if name == "depends_on" else value))


def _added_key(file: HandoffFile, key: str, text: str) -> Edit:
    present = [entry for name in META_KEYS[: META_KEYS.index(key)] if (entry := file.entry(name))]
    first: MetaEntry = present[-1] if present else file.meta[0]
    place = first.last_line if present else first.line - 1
    return Edit(place, place, (f"{bullet_of(file.lines[first.line - 1])}{key}: {text}",))


def _text_edits(file: HandoffFile, name: str, text: str, old: str) -> Iterator[Edit]:
    if trimmed(text) == old:
        return
    if section := file.section(name):
        yield Edit(*trim_blank(file.lines, section.body, section.stop), lines_for(text))
    else:
        yield _added_section(file, name, lines_for(text))


def _added_section(file: HandoffFile, name: str, body: Sequence[str]) -> Edit:
    later = SECTIONS[SECTIONS.index(name) + 1 :]
    place = min((section.start for section in file.sections if section.name in later), default=None)
    if place is None:
        place = closed_end(file)
        return Edit(place, place, (*(() if is_blank(file.lines[-1]) else ("",)), f"## {name}", *body))
    return Edit(place, place, (*(() if is_blank(file.lines[place - 1]) else ("",)), f"## {name}", *body, ""))


def _list_edits(file: HandoffFile, name: str, texts: Sequence[str], boxes: Sequence[Checkbox]) -> Iterator[Edit]:
    section = file.section(name)
    if section is None:
        if texts:
            yield _added_section(file, name, [f"- [ ] {text}" for text in texts])
        return
    if not boxes:
        start, stop = trim_blank(file.lines, section.body, section.stop)
        blank = ("",) if texts and stop > start else ()
        yield Edit(stop, stop, (*blank, *(f"- [ ] {text}" for text in texts)))
        return
    head, tail = _same_ends([box.text for box in boxes], texts)
    middle, new = boxes[head : len(boxes) - tail], texts[head : len(texts) - tail]
    for box in (*boxes[:head], *boxes[len(boxes) - tail :]):
        if box.is_checked:
            yield tick(file, box, " ")
    for box, text in zip(middle, new, strict=False):
        yield Edit(box.line - 1, box.last_line, (_prefix(file, box) + text,))
    for position in range(head + len(new), len(boxes) - tail):
        box = boxes[position]
        following = boxes[position + 1].line - 1 if position + 1 < len(boxes) else box.end_line
        yield Edit(box.line - 1, max(box.last_line, min(box.end_line, following)))
    if len(new) > len(middle):
        model = boxes[len(boxes) - tail] if tail else boxes[-1]
        place = model.line - 1 if tail else model.end_line
        yield Edit(place, place, tuple(_prefix(file, model) + text for text in new[len(middle) :]))


def _prefix(file: HandoffFile, box: Checkbox) -> str:
    """Return how a new item beside this one begins: its indentation and mark, and an open box."""
    return file.lines[box.line - 1][: box.column] + " ] "


def _same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many elements are the same at the beginning and, of the others, at the end."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return head, tail
