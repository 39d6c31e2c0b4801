"""What a person changed in a file, progress or content, and putting the ledger's news into a file that is being edited.

Check boxes and log lines are matched by their text, equal ones in their order, so that a line put in above moves
nothing. Content is everything else: the file with its progress taken back is compared byte for byte.

While a file holds edits that nobody here may sign, they stay where they are, and the ledger's news come in around them
(``merge``). Where both changed the text itself there is no such file, and the two are shown side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from consumers.handoffs.files.syntax.document import Checkbox, HandoffFile, LogLine
from consumers.handoffs.files.syntax.lines import Edit, apply_edits, is_blank, join_lines
from consumers.handoffs.files.syntax.writer import Progress, render, replace_at, tick

Line = TypeVar("Line")

_key: Final = attrgetter("day", "author", "text")
_said: Final = attrgetter("author", "text")

_FIELDS: Final = ("title", "sender", "to", "reviewer", "created", "proposal", "depends_on", "task", "context")


class Edits(msgspec.Struct, frozen=True):
    """The difference between two readings of a file.

    ``tasks`` and ``criteria`` map positions in the base to their new tick. ``fields`` names what of the content reads
    differently; it may be empty although ``is_content_changed``, when only text of no field (or spacing) changed.
    """

    status: str | None
    tasks: Mapping[int, bool]
    criteria: Mapping[int, bool]
    log: tuple[LogLine, ...]
    is_content_changed: bool
    fields: tuple[str, ...]


def differences(base: HandoffFile, edited: HandoffFile) -> Edits:
    """Return what was changed from ``base`` to ``edited``; a log line that was taken away is a change of content."""
    added = list(unknown(edited.log, _key, Counter(map(_key, base.log))))
    word = edited.status.word if edited.status else None
    is_log_kept = [_key(line) for line in base.log] == [_key(line) for line in edited.log if line not in added]
    return Edits(
        status=word if word != (base.status.word if base.status else None) else None,
        tasks=_changed_ticks(base.tasks, edited.tasks),
        criteria=_changed_ticks(base.criteria, edited.criteria),
        log=tuple(added),
        is_content_changed=not is_log_kept or is_text_changed(base, edited),
        fields=tuple(_changed_fields(base, edited)),
    )


def with_progress_of(edited: HandoffFile, base: HandoffFile) -> bytes:
    """Return ``edited`` with the status, ticks and log of ``base``; boxes that ``base`` lacks are left open."""
    edits = [*_status_taken_back(edited, base)]
    edits += _ticks_taken_back(edited, edited.tasks, base, base.tasks)
    edits += _ticks_taken_back(edited, edited.criteria, base, base.criteria)
    edits += _log_taken_back(edited, base)
    return join_lines(apply_edits(edited.lines, edits), has_mark=edited.has_mark)


def _changed_fields(base: HandoffFile, edited: HandoffFile) -> Iterator[str]:
    for name in _FIELDS:
        if getattr(base, name) != getattr(edited, name):
            yield name
    for name, before, after in (("tasks", base.tasks, edited.tasks), ("criteria", base.criteria, edited.criteria)):
        if [box.text for box in before] != [box.text for box in after]:
            yield name


def matched(base: Sequence[Checkbox], edited: Sequence[Checkbox]) -> dict[int, int]:
    """Map positions in ``edited`` to those of the same text in ``base``, the n-th to the n-th."""
    places = {box: position for position, box in enumerate(_numbered(base))}
    return {position: places[box] for position, box in enumerate(_numbered(edited)) if box in places}


def _numbered(boxes: Sequence[Checkbox]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for box in boxes:
        yield box.text, seen[box.text]
        seen[box.text] += 1


def _changed_ticks(base: Sequence[Checkbox], edited: Sequence[Checkbox]) -> dict[int, bool]:
    pairs = matched(base, edited).items()
    changed = {place: edited[at].is_checked for at, place in pairs if base[place].is_checked != edited[at].is_checked}
    return dict(sorted(changed.items()))


def unknown(lines: Iterable[Line], key: Callable[[Line], Hashable], known: Counter[Any]) -> Iterator[Line]:
    """Yield the lines that are not known: each is as often as it is counted, since the same may be said twice."""
    for line in lines:
        if known[key(line)]:
            known[key(line)] -= 1
        else:
            yield line


def _status_taken_back(edited: HandoffFile, base: HandoffFile) -> Iterator[Edit]:
    if not edited.status:
        return
    if base.status:
        yield replace_at(edited, edited.status.line, edited.status.column, edited.status.written, base.status.written)
        return
    line = edited.status.line - 1
    entry = edited.entry("Status")
    if entry is None or entry.line != line + 1 or edited.status.rest:
        return
    if before := base.entry("Status"):
        # The key was there without a word; what stood there comes back.
        old = base.lines[before.line - 1].rstrip("\r\n")[before.column :]
        yield replace_at(edited, line + 1, edited.status.column, edited.status.written, old)
    elif (meta := edited.section("Meta")) and not base.section("Meta") and len(edited.meta) == 1:
        is_spaced = base.title_stop < len(base.lines) and not is_blank(base.lines[base.title_stop])
        last = line + 2 if is_spaced and line + 1 < meta.stop and is_blank(edited.lines[line + 1]) else line + 1
        first = meta.start - 1 if meta.start and is_blank(edited.lines[meta.start - 1]) else meta.start
        yield Edit(first, last)
    else:
        yield Edit(line, line + 1)


def _ticks_taken_back(
    edited: HandoffFile, boxes: Sequence[Checkbox], base: HandoffFile, before: Sequence[Checkbox]
) -> Iterator[Edit]:
    pairs = matched(before, boxes)
    for position, box in enumerate(boxes):
        mark = " "
        if position in pairs:
            old = before[pairs[position]]
            mark = base.lines[old.line - 1][old.column]
        if edited.lines[box.line - 1][box.column] != mark:
            yield tick(edited, box, mark)


def _log_taken_back(edited: HandoffFile, base: HandoffFile) -> Iterator[Edit]:
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
    """Whether anything but progress differs; the log is the ledger's, so a line taken out of it does not count."""
    return with_progress_of(edited, base) != base.content


def are_in_conflict(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bool:
    """Whether both sides changed the text since ``base``, and not to the same."""
    return is_text_changed(base, edited) and is_text_changed(base, ledger) and is_text_changed(ledger, edited)


def looks_outdated(*, base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether a file seems an older one that somebody went on editing, so that more than additions needs a look."""
    # What gives it away is a log without lines that the ledger wrote: nobody takes these out to untick a box.
    if not Counter(map(_said, base.log)) - Counter(map(_said, edited.log)):
        return False
    edits = differences(base, edited)
    takes_back = not all((*edits.tasks.values(), *edits.criteria.values()))
    return takes_back or edits.status is not None or is_text_changed(base, edited)


def is_one_tick(base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether a single check box is all that differs."""
    edits = differences(base, edited)
    is_all = edits.status is None and not edits.log and not edits.is_content_changed
    return is_all and len(edits.tasks) + len(edits.criteria) == 1


def merge(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bytes:
    """Return the edited file with the ledger's progress since ``base``, or the ledger's text with the edited progress.

    Raises:
        Refused: ``INVALID_FORMAT`` when a log line would fall into a block that the file leaves open.
    """
    ours, theirs = differences(base, edited), differences(base, ledger)
    is_ledgers = is_text_changed(base, ledger)
    target, added = (ledger, ours) if is_ledgers else (edited, theirs)
    news = () if is_ledgers else unknown(theirs.log, _said, Counter(map(_said, ours.log)))
    progress = Progress(
        status=added.status if is_ledgers or ours.status is None else None,
        tasks=moved(added.tasks, base.tasks, target.tasks),
        criteria=moved(added.criteria, base.criteria, target.criteria),
        log=[f"- {line.day} [{line.author}] {line.text}" for line in news],
    )
    return render(target, progress)


def moved(ticks: Mapping[int, bool], base: Sequence[Checkbox], other: Sequence[Checkbox]) -> dict[int, bool]:
    """Return ticks at the positions that their boxes have in another file; boxes that are gone are left out."""
    places = {place: position for position, place in matched(base, other).items()}
    return {places[position]: tick for position, tick in ticks.items() if position in places}
