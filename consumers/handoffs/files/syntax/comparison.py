"""Finds a person's changes in a file, and writes changed content or the ledger's news into an existing file.

Check boxes and log lines are matched by their text, equal ones in their order, so a line inserted above moves nothing.
Content is everything but progress: files are compared byte for byte with their progress removed.

In a revision an unchanged element keeps its bytes, and a missing key or section is added in the order of the form.
Tasks and criteria that are equal at the beginning and end of the old and new list keep their lines (and the notes below
them); the others are replaced in place. All boxes of a revised list are left open, as in an amended handoff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from deedbook.consumers.handoffs.files.syntax import writer
from deedbook.consumers.handoffs.files.syntax.document import (
    META_KEYS,
    SECTIONS,
    Checkbox,
    HandoffFile,
    LogLine,
    title_column,
)
from deedbook.consumers.handoffs.files.syntax.lines import (
    Edit,
    apply_edits,
    is_blank,
    join_lines,
    text_of,
    trim_blank,
)
from deedbook.consumers.handoffs.files.syntax.sections import lines_for, notes_text, trimmed

Line = TypeVar("Line")
Mark = TypeVar("Mark", bool, str)

_key: Final = attrgetter("day", "author", "text")
_entry_of: Final = attrgetter("author", "text")


class Edits(msgspec.Struct, frozen=True):
    """The difference between two readings of a file.

    ``tasks`` and ``criteria`` map positions in the base to their new tick. ``evidence`` maps positions of criteria to
    their new line of evidence (empty: none). ``log`` has the new lines, ``gone`` the removed ones. ``fields`` may be
    empty although the content changed, because some text belongs to no field.
    """

    status: str | None
    tasks: Mapping[int, bool]
    criteria: Mapping[int, bool]
    log: tuple[LogLine, ...]
    gone: tuple[LogLine, ...]
    is_content_changed: bool
    fields: tuple[str, ...]
    evidence: Mapping[int, str] = {}


def differences(base: HandoffFile, edited: HandoffFile) -> Edits:
    """Return the changes from ``base`` to ``edited``; a removed log line is a change of content."""
    status = edited.status.word if edited.status else None
    gone = tuple(unknown(base.log, _key, Counter(map(_key, edited.log))))
    before, after = writer.fields_of(base), writer.fields_of(edited)
    return Edits(
        status=status if status != (base.status.word if base.status else None) else None,
        tasks=_changed_ticks(base.tasks, edited.tasks),
        criteria=_changed_ticks(base.criteria, edited.criteria),
        log=tuple(unknown(edited.log, _key, Counter(map(_key, base.log)))),
        gone=gone,
        is_content_changed=bool(gone) or is_text_changed(base, edited),
        fields=tuple(name for name in ("sender", "created", *writer.FIELDS) if before[name] != after[name]),
        evidence=_changed_evidence(base.criteria, edited.criteria),
    )


def with_progress_of(edited: HandoffFile, base: HandoffFile) -> bytes:
    """Return ``edited`` with the status, ticks, evidence and log of ``base``; boxes that ``base`` lacks are open."""
    edits = [*_status_restored(edited, base)]
    edits += _ticks_restored(edited, edited.tasks, base, base.tasks)
    edits += _ticks_restored(edited, edited.criteria, base, base.criteria)
    edits += _evidence_restored(edited, base)
    edits += _log_restored(edited, base)
    return join_lines(apply_edits(edited.lines, edits), has_mark=edited.has_mark)


def matched(base: Sequence[Checkbox], edited: Sequence[Checkbox]) -> dict[int, int]:
    """Map positions in ``edited`` to positions in ``base`` with the same text. The n-th occurrence matches the n-th."""
    positions = {box: position for position, box in enumerate(_numbered(base))}
    return {position: positions[box] for position, box in enumerate(_numbered(edited)) if box in positions}


def _numbered(boxes: Sequence[Checkbox]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for box in boxes:
        yield box.text, seen[box.text]
        seen[box.text] += 1


def _changed_ticks(base: Sequence[Checkbox], edited: Sequence[Checkbox]) -> dict[int, bool]:
    pairs = matched(base, edited).items()
    changed = {old: edited[new].is_checked for new, old in pairs if base[old].is_checked != edited[new].is_checked}
    return dict(sorted(changed.items()))


def _changed_evidence(base: Sequence[Checkbox], edited: Sequence[Checkbox]) -> dict[int, str]:
    pairs = matched(base, edited).items()
    changed = {old: edited[new].evidence for new, old in pairs if base[old].evidence != edited[new].evidence}
    return dict(sorted(changed.items()))


def unknown(lines: Iterable[Line], key: Callable[[Line], Hashable], known: Counter[Any]) -> Iterator[Line]:
    """Yield the lines that are not in ``known``. ``known`` counts lines, because a line may occur twice."""
    for line in lines:
        if known[key(line)]:
            known[key(line)] -= 1
        else:
            yield line


def _status_restored(edited: HandoffFile, base: HandoffFile) -> Iterator[Edit]:
    if not edited.status:
        return
    if base.status:
        yield writer.replace_at(
            edited, edited.status.line, edited.status.column, edited.status.written, base.status.written
        )
        return
    line = edited.status.line - 1
    entry = edited.entry("Status")
    if entry is None or entry.line != line + 1 or edited.status.rest:
        return
    if before := base.entry("Status"):
        # The base has the key without a status word; restore its value.
        old = base.lines[before.line - 1].rstrip("\r\n")[before.column :]
        yield writer.replace_at(edited, line + 1, edited.status.column, edited.status.written, old)
    elif (meta := edited.section("Meta")) and not base.section("Meta") and len(edited.meta) == 1:
        is_spaced = base.title_stop < len(base.lines) and not is_blank(base.lines[base.title_stop])
        last = line + 2 if is_spaced and line + 1 < meta.stop and is_blank(edited.lines[line + 1]) else line + 1
        first = meta.start - 1 if meta.start and is_blank(edited.lines[meta.start - 1]) else meta.start
        yield Edit(first, last)
    else:
        yield Edit(line, line + 1)


def _ticks_restored(
    edited: HandoffFile, boxes: Sequence[Checkbox], base: HandoffFile, before: Sequence[Checkbox]
) -> Iterator[Edit]:
    pairs = matched(before, boxes)
    for position, box in enumerate(boxes):
        mark = " "
        if position in pairs:
            old = before[pairs[position]]
            mark = base.lines[old.line - 1][old.column]
        if edited.lines[box.line - 1][box.column] != mark:
            yield writer.tick(edited, box, mark)


def _evidence_restored(edited: HandoffFile, base: HandoffFile) -> Iterator[Edit]:
    pairs = matched(base.criteria, edited.criteria)
    for position, box in enumerate(edited.criteria):
        old = base.criteria[pairs[position]] if position in pairs else None
        lines = () if old is None or old.evidence_line is None else (base.lines[old.evidence_line - 1],)
        stop = box.last_line if box.evidence_line is None else box.evidence_line
        if edited.lines[box.last_line : stop] != lines:
            yield Edit(box.last_line, stop, lines)


def _log_restored(edited: HandoffFile, base: HandoffFile) -> Iterator[Edit]:
    section, before = edited.section("Log"), base.section("Log")
    if before:
        old = base.lines[before.body : before.stop]
        if section:
            if edited.lines[section.body : section.stop] != old:
                yield Edit(section.body, section.stop, old)
        elif base.log:
            blank = () if is_blank(edited.lines[-1]) else ("",)
            yield Edit(len(edited.lines), len(edited.lines), (*blank, *base.lines[before.start : before.stop]))
    elif section:
        is_spaced = not is_blank(base.lines[-1]) and section.start and is_blank(edited.lines[section.start - 1])
        yield Edit(section.start - 1 if is_spaced else section.start, section.stop)


def is_text_changed(base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether anything but progress differs; a removed log line does not count, because the log is the ledger's."""
    return with_progress_of(edited, base) != base.content


def are_in_conflict(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bool:
    """Whether both sides changed the text since ``base``, and differently."""
    return is_text_changed(base, edited) and is_text_changed(base, ledger) and is_text_changed(ledger, edited)


def looks_outdated(*, base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether a file seems to be an edited older version.

    Then a person must check every edit that is not an addition.
    """
    # An older version lacks log lines that the ledger wrote. A person who unticks a box does not remove such lines.
    if not Counter(map(_entry_of, base.log)) - Counter(map(_entry_of, edited.log)):
        return False
    edits = differences(base, edited)
    is_removing = not all((*edits.tasks.values(), *edits.criteria.values()))
    return is_removing or edits.status is not None or is_text_changed(base, edited)


def is_one_tick(base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether a single check box is the only difference."""
    edits = differences(base, edited)
    is_all = edits.status is None and not edits.log and not edits.is_content_changed
    return is_all and len(edits.tasks) + len(edits.criteria) == 1 and edits.evidence.keys() <= edits.criteria.keys()


def merge(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bytes:
    """Return a file with the changes of both sides: the text of one side with the new progress of the other.

    Edits that the acting agent may not sign stay. Raises Refused: ``INVALID_FORMAT`` if a log line would be inside a
    block that the file leaves open.
    """
    ours, theirs = differences(base, edited), differences(base, ledger)
    is_ledgers = is_text_changed(base, ledger)
    target, added = (ledger, ours) if is_ledgers else (edited, theirs)
    news = () if is_ledgers else unknown(theirs.log, _entry_of, Counter(map(_entry_of, ours.log)))
    progress = writer.Progress(
        status=added.status if is_ledgers or ours.status is None else None,
        tasks=moved(added.tasks, base.tasks, target.tasks),
        criteria=moved(added.criteria, base.criteria, target.criteria),
        evidence=moved(added.evidence, base.criteria, target.criteria),
        log=[f"- {line.day} [{line.author}] {line.text}" for line in news],
    )
    return writer.render(target, progress)


def moved(ticks: Mapping[int, Mark], base: Sequence[Checkbox], other: Sequence[Checkbox]) -> dict[int, Mark]:
    """Return ticks or evidence at the positions that their boxes have in another file.

    Boxes that are missing there are left out.
    """
    positions = {old: new for new, old in matched(base, other).items()}
    return {positions[old]: mark for old, mark in ticks.items() if old in positions}


_KEYS: Final = {
    "to": "To",
    "reviewer": "Reviewer",
    "proposal": "Proposal",
    "depends_on": "Depends-on",
    "reasoning_refs": "Reasoning",
}
_LISTS: Final = {"depends_on": writer.dependencies_text, "reasoning_refs": writer.refs_text}
_HEADINGS: Final = {
    "task": "Task",
    "tasks": "Tasks",
    "criteria": "Acceptance Criteria",
    "notes": "Receiver Notes",
    "context": "Context",
}


def revise(file: HandoffFile, changes: Mapping[str, Any]) -> bytes:
    """Return the file with new values for some of ``writer.FIELDS``; None means no reviewer or proposal.

    Raises Refused: ``INVALID_FIELD`` with the ``field`` that the file cannot hold; ``INVALID_FORMAT`` if a section
    would have to be added after a block that the file leaves open.
    """
    edits: list[Edit] = []
    if "title" in changes and changes["title"].strip() != file.title:
        edits.append(_title_edit(file, changes["title"]))
    edits += _meta_edits(file, changes)
    for name, heading in _HEADINGS.items():
        if name not in changes:
            continue
        if name in ("tasks", "criteria"):
            texts = [writer.one_line(text, name).strip() for text in changes[name]]
            edits += _list_edits(file, heading, texts, getattr(file, name))
        elif name == "notes":
            edits += _text_edits(file, heading, notes_text(changes[name]), notes_text(file.notes))
        else:
            edits += _text_edits(file, heading, changes[name], getattr(file, name))
    written = join_lines(apply_edits(file.lines, edits), has_mark=file.has_mark)
    before = {name: value for name, value in writer.fields_of(file).items() if name != "log"}
    writer.read_back(written, before | dict(changes))
    return written


def _title_edit(file: HandoffFile, title: str) -> Edit:
    start = file.title_line - 1
    line = text_of(file.lines[start])
    column = title_column(line)
    if column is None:  # an underlined title
        prefix = "Proposal" if file.format == "proposal" else "Handoff"
        return Edit(start, file.title_stop, (f"# {prefix}: {writer.title_text(title)}",))
    return Edit(start, start + 1, (line[:column] + writer.title_text(title),))


def _meta_edits(file: HandoffFile, changes: Mapping[str, Any]) -> Iterator[Edit]:
    """Yield the edits of the Meta block; if there is none, one edit that adds it."""
    added: list[str] = []
    for name, key in _KEYS.items():
        if name not in changes or _has_value(file, name, value := changes[name]):
            continue
        write = _LISTS.get(name)
        text = writer.one_line(write(value) if write else writer.NO_VALUE if value is None else value.strip(), name)
        if entry := file.entry(key):
            line = text_of(file.lines[entry.line - 1])[: entry.column]
            yield Edit(entry.line - 1, entry.last_line, (line + ("" if line[-1:].isspace() else " ") + text,))
        elif file.meta:
            present = [entry for name in META_KEYS[: META_KEYS.index(key)] if (entry := file.entry(name))]
            beside = present[-1] if present else file.meta[0]
            position = beside.last_line if present else beside.line - 1
            yield Edit(position, position, (f"{writer.bullet_of(file.lines[beside.line - 1])}{key}: {text}",))
        else:
            added.append(f"- {key}: {text}")
    if added:
        if meta := file.section("Meta"):
            yield Edit(meta.body, meta.body, tuple(added))
        else:
            yield Edit(file.title_stop, file.title_stop, ("", "## Meta", *added, ""))


def _has_value(file: HandoffFile, name: str, value: Any) -> bool:
    """Return whether the file has this value for a key."""
    if name == "reviewer" and value is None:
        # "None" must be written: a file without the key means the default reviewer.
        return file.reviewer is None and file.entry("Reviewer") is not None
    return bool(getattr(file, name) == (tuple(value) if name in _LISTS else value))


def _text_edits(file: HandoffFile, name: str, text: str, old: str) -> Iterator[Edit]:
    if trimmed(text) == old:
        return
    if section := file.section(name):
        yield Edit(*trim_blank(file.lines, section.body, section.stop), lines_for(text))
    else:
        yield _added_section(file, name, lines_for(text))


def _added_section(file: HandoffFile, name: str, body: Sequence[str]) -> Edit:
    later = SECTIONS[SECTIONS.index(name) + 1 :]
    position = min((section.start for section in file.sections if section.name in later), default=None)
    if position is None:
        position = writer.closed_end(file)
        return Edit(position, position, (*(() if is_blank(file.lines[-1]) else ("",)), f"## {name}", *body))
    return Edit(position, position, (*(() if is_blank(file.lines[position - 1]) else ("",)), f"## {name}", *body, ""))


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
            yield writer.tick(file, box, " ")
    for box, text in zip(middle, new, strict=False):
        yield Edit(box.line - 1, box.last_line, (_prefix(file, box) + text,))
    for position in range(head + len(new), len(boxes) - tail):
        box = boxes[position]
        following = boxes[position + 1].line - 1 if position + 1 < len(boxes) else box.end_line
        yield Edit(box.line - 1, max(box.last_line, min(box.end_line, following)))
    if len(new) > len(middle):
        model = boxes[len(boxes) - tail] if tail else boxes[-1]
        position = model.line - 1 if tail else model.end_line
        yield Edit(position, position, tuple(_prefix(file, model) + text for text in new[len(middle) :]))


def _prefix(file: HandoffFile, box: Checkbox) -> str:
    """Return the beginning of a new item beside this one: indentation, list mark and an open box."""
    return file.lines[box.line - 1][: box.column] + " ] "


def _same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the number of equal elements at the beginning and, among the others, at the end."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return head, tail
