"""Putting what happened in the ledger into a file that somebody else is editing: both keep what is theirs.

Pure. Used while a file holds edits that nobody here may sign: they stay where they are, and the ledger's news come in
around them. Where both changed the text itself there is no such file, and the two are shown side by side.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from consumers.handoff_files.comparing import differences, matched
from consumers.handoff_files.rendering import Progress, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from consumers.handoff_files.document import Checkbox, HandoffFile


def are_in_conflict(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bool:
    """Whether both sides changed the text since ``base``, and not to the same."""
    return (
        differences(base, edited).is_content_changed
        and differences(base, ledger).is_content_changed
        and differences(ledger, edited).is_content_changed
    )


def merge(*, base: HandoffFile, edited: HandoffFile, ledger: HandoffFile) -> bytes:
    """Return the edited file with the ledger's progress since ``base``, or the ledger's text with the edited progress.

    Raises:
        Refused: ``INVALID_FORMAT`` when a log line would fall into a block that the file leaves open.
    """
    ours, theirs = differences(base, edited), differences(base, ledger)
    if theirs.is_content_changed:
        return render(
            ledger,
            Progress(
                status=ours.status,
                tasks=_moved(ours.tasks, base.tasks, ledger.tasks),
                criteria=_moved(ours.criteria, base.criteria, ledger.criteria),
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
            tasks=_moved(theirs.tasks, base.tasks, edited.tasks),
            criteria=_moved(theirs.criteria, base.criteria, edited.criteria),
            log=news,
        ),
    )


def _moved(ticks: Mapping[int, bool], base: Sequence[Checkbox], other: Sequence[Checkbox]) -> dict[int, bool]:
    """Return ticks at the positions that their boxes have in another file; boxes that are gone are left out."""
    places = {place: position for position, place in matched(base, other).items()}
    return {places[position]: tick for position, tick in ticks.items() if position in places}
