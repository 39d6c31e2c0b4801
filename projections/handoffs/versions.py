"""Every version of a handoff, and the changes between two: what a reviewer needs before signing the next one.

Each event that sets the content makes a version: the first is 1, and each amendment and each import over it makes the
next. A content that was there before makes a new version, too, with the same ref as the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise, zip_longest
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffContent, ReceiverNotes
from deedbook.ledger.limits import json_integer_max
from deedbook.projections.answers import query
from deedbook.projections.answers.rows import RowSource
from deedbook.projections.handoffs.answers import Approval, ChangedLine, FieldChange, LineMark, Version, Versions
from deedbook.projections.handoffs.details import find_record
from deedbook.projections.handoffs.fold import LOG, VERSIONS

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=json_integer_max)]

# Fields that follow from the others, or present them in a file.
_NOT_COMPARED: Final = ("template", "notes", "created")


class VersionRange(query.Arguments, frozen=True, rename={"since": "from", "number": "to"}):
    """A handoff, and the numbers of two of its versions.

    ``to`` is the present version by default, ``from`` the last approved one before it, else the one before it.
    """

    id: str
    since: _Number | None = None
    number: _Number | None = None


def versions_of_handoff(source: RowSource, args: VersionRange) -> Versions:
    """Return the versions of a handoff, the content of one, and its changes since an earlier one.

    Raises Refused: ``NOT_FOUND`` for a handoff or a version that does not exist.
    """
    name = find_record(source, args.id).id
    lines = {line["event_index"]: line for line in source.select(LOG, "event_index", handoff_id=name)}
    contents, rows = [], []
    for stored in source.select(VERSIONS, "event_index", handoff_id=name):
        line = lines[stored["event_index"]]
        contents.append(msgspec.json.decode(stored["content"]))
        rows.append({"version": stored["version"], **_event(line), "text": line["text"]})
    approvals = [_event(line) for line in lines.values() if line["kind"] == "handoff.approved"]
    for number, (row, end) in enumerate(pairwise([*rows, {"event_index": 2**53}]), 1):
        own = [approval for approval in approvals if row["event_index"] < approval["event_index"] < end["event_index"]]
        row |= {"number": number, "approvals": own}
    to = args.number or len(rows)
    before = [row["number"] for row in rows[: to - 1] if row["approvals"]] or [to - 1]
    since = args.since or before[-1] or None
    if (last := max(to, since or 0)) > len(rows):
        raise Refused("NOT_FOUND", f"{name} has no version {last}: its last version is {len(rows)}", versions=len(rows))
    changes = [] if since is None else changes_of(contents[since - 1], contents[to - 1])
    versions = [Version(**row | {"approvals": [Approval(**approval) for approval in row["approvals"]]}) for row in rows]
    return Versions(id=name, versions=versions, since=since, number=to, content=contents[to - 1], changes=changes)


def _event(line: dict[str, Any]) -> dict[str, Any]:
    return {"event_index": line["event_index"], "at_ms": line["accepted_ms"], "author": line["author"]}


def changes_of(before: dict[str, Any], after: dict[str, Any]) -> list[FieldChange]:
    """Return the differences between two contents, field by field.

    If they differ only in what no field has, this is a change of the ``file``, with the refs of both.

    >>> changes_of({"tasks": ["a", "b"], "notes": {}}, {"tasks": ["a", "c", "d"], "notes": {}})[0].counts
    {'kept': 1, 'changed': 1, 'added': 1}
    >>> file, other = ({"notes": {}, "template": f"blake3:{digit * 64}"} for digit in "01")
    >>> [(change.field, change.counts) for change in changes_of(file, other)]
    [('file', {'changed': 1})]
    """
    old, new = ({**content, **content["notes"]} for content in (before, after))
    changes = []
    for name in (*HandoffContent.__struct_fields__, *ReceiverNotes.__struct_fields__):
        if name not in _NOT_COMPARED and old.get(name) != new.get(name):
            lines = list(_lines(_texts(old.get(name)), _texts(new.get(name))))
            changes.append(FieldChange(field=name, counts=dict(Counter(line.mark for line in lines)), lines=lines))
    if not changes and old.get("template") != new.get("template"):
        lines = list(_lines(_texts(old.get("template")), _texts(new.get("template"))))
        changes = [FieldChange(field="file", counts=dict(Counter(line.mark for line in lines)), lines=lines)]
    return changes


def _texts(value: str | list[str] | None) -> list[str]:
    return value if isinstance(value, list) else (value or "").splitlines()


def _lines(old: list[str], new: list[str]) -> Iterator[ChangedLine]:
    """Yield the lines of both in order; a line that replaces another one is that line changed."""
    for operation, start, end, first, last in SequenceMatcher(None, old, new).get_opcodes():
        for was, text in zip_longest(old[start:end], new[first:last]):
            mark: LineMark = (
                "kept" if operation == "equal" else "removed" if text is None else "added" if was is None else "changed"
            )
            yield ChangedLine(mark=mark, text=was if text is None else text, was=was if mark == "changed" else None)
