"""Putting what happened in the ledger into a file that somebody else is editing: both keep what is theirs.

Pure. Used while a file holds edits that nobody here may sign: they stay where they are, and the ledger's news come in
around them. Where both changed the text itself there is no such file, and the two are shown side by side.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from consumers.handoffs.files.syntax.comparing import differences, matched, with_progress_of
from consumers.handoffs.files.syntax.rendering import Progress, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from consumers.handoffs.files.syntax.document import Checkbox, HandoffFile, LogLine


def is_text_changed(base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether anything but progress differs.

    The log is the ledger's, so a line taken out of it is no change of the text.
    """
    return with_progress_of(edited, base) != base.content


def are_in_conflict(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bool:
    """Whether both sides changed the text since ``base``, and not to the same."""
    return is_text_changed(base, edited) and is_text_changed(base, ledger) and is_text_changed(ledger, edited)


def looks_outdated(*, base: HandoffFile, edited: HandoffFile) -> bool:
    """Whether a file seems to be an older one that somebody went on editing, so that more than additions needs a look.

    What gives it away is a log without lines that the ledger wrote: nobody takes these out to untick a box.
    """
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
    if is_text_changed(base, ledger):
        return render(
            ledger,
            Progress(
                status=ours.status,
                tasks=moved(ours.tasks, base.tasks, ledger.tasks),
                criteria=moved(ours.criteria, base.criteria, ledger.criteria),
            ),
        )
    known = Counter((line.author, line.text) for line in ours.log)  # the same words may be logged twice
    news = []
    for line in theirs.log:
        if known[line.author, line.text]:
            known[line.author, line.text] -= 1
        else:
            news.append(f"- {line.day} [{line.author}] {line.text}")
    return render(
        edited,
        Progress(
            status=theirs.status if ours.status is None else None,
            tasks=moved(theirs.tasks, base.tasks, edited.tasks),
            criteria=moved(theirs.criteria, base.criteria, edited.criteria),
            log=news,
        ),
    )


def moved(ticks: Mapping[int, bool], base: Sequence[Checkbox], other: Sequence[Checkbox]) -> dict[int, bool]:
    """Return ticks at the positions that their boxes have in another file; boxes that are gone are left out."""
    places = {place: position for position, place in matched(base, other).items()}
    return {places[position]: tick for position, tick in ticks.items() if position in places}


def _said(line: LogLine) -> tuple[str | None, str]:
    return line.author, line.text
