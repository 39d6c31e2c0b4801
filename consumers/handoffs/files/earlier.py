"""The file of a handoff as it was after each of its events: how an old file is told from an edited one.

A file may come back from a version control system, or be the work of another agent's watcher that knew one event more.
Neither is an edit of anybody, and nothing of it may be signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from consumers.handoffs.files.current import fitting, rendered
from consumers.handoffs.files.syntax.parsing import parse
from ledger.client import read_event
from ledger.errors import Refused
from projections.handoffs.fold import HandoffRecord, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from consumers.handoffs.files.syntax.document import HandoffFile

versions_max: Final = 500


def last_rendered(
    shown: dict[str, Any],
    content: bytes,
    read_entry: Callable[[int], bytes],
    read_blob: Callable[[str], bytes],
) -> int | None:
    """Return the index of the last event after which the file was ``content``; None when it never was.

    ``shown`` is the answer of ``handoffs.show``; of longer lives only the last ``versions_max`` events are looked at.
    """
    skeletons: dict[int, HandoffFile] = {}
    found = None
    for count, (index, record) in enumerate(_records(shown, read_entry), 1):
        if len(shown["log"]) - count >= versions_max:
            continue
        then = _shown(record) | {"log": shown["log"][:count]}
        at = then["skeleton_index"]
        try:
            if then["skeleton"] is not None and at not in skeletons:
                skeletons[at] = fitting(then, parse(read_blob(then["skeleton"])))
            is_same = rendered(then, skeletons.get(at)) == content
        except Refused:
            is_same = False  # what could not be written as a file never was one
        if is_same:
            found = index
    return found


def statuses(shown: dict[str, Any], read_entry: Callable[[int], bytes]) -> list[tuple[int, str]]:
    """Return the status after each event of a handoff, with the event's index."""
    return [(index, record.life.status) for index, record in _records(shown, read_entry) if record.life is not None]


def _records(shown: dict[str, Any], read_entry: Callable[[int], bytes]) -> Iterator[tuple[int, HandoffRecord]]:
    record = HandoffRecord(id=shown["id"])
    for line in shown["log"]:
        index = line["event_index"]
        record = fold(record, read_event(index, read_entry(index)))
        yield index, record


def _shown(record: HandoffRecord) -> dict[str, Any]:
    """Return a record in the words of ``handoffs.show``, as far as they stand in a file."""
    life, content = record.life, record.content
    assert life is not None  # noqa: S101 - a fold of at least one event
    assert content is not None  # noqa: S101 - as above
    return {
        "title": content.title,
        "from": life.sender,
        "to": life.receiver,
        "status": life.status,
        "reviewer": content.reviewer or (life.reviewer if life.reviewer != life.sender else None),
        "created": record.created,
        "proposal": content.proposal,
        "depends_on": [{"id": one} for one in content.depends_on],
        "task": content.task,
        "tasks": [
            {"position": at, "text": text, "done": done}
            for at, (text, done) in enumerate(zip(content.tasks, life.tasks, strict=True))
        ],
        "criteria": [
            {"position": at, "text": text, "mark": mark}
            for at, (text, mark) in enumerate(zip(content.criteria, life.criteria, strict=True))
        ],
        "context": content.context,
        "skeleton": content.skeleton,
        "skeleton_index": record.content_index,
        "claimed_status": life.claimed_status,
    }
