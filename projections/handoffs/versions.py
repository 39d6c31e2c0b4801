"""Every version of a handoff, and the changes between two, which a reviewer reads before signing the next one.

Each event that sets the content makes a version: the first is 1, and each amendment and each import over it makes the
next. Repeated content also makes a new version, with the ref of the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise, product, zip_longest
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

pairs_compared_max: Final = 2_500
likeness_min: Final = 0.4
"""Lines with less in common are one removed and one added line, not one changed line."""

# Fields that follow from the others, or present them in a file.
_NOT_COMPARED: Final = ("template", "notes", "created")


class VersionRange(query.Arguments, frozen=True, rename={"since": "from", "number": "to"}):
    """``from`` and ``to`` are the numbers of two versions of the handoff ``id``.

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

    If they differ only in text that belongs to no field, this is a change of the ``file``, with the refs of both.

    >>> changes_of({"tasks": ["a", "b"], "notes": {}}, {"tasks": ["a", "c", "d"], "notes": {}})[0].counts
    {'kept': 1, 'removed': 1, 'added': 2}
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
    """Yield the lines of both contents in order. A line that replaces a similar one is a changed line."""
    for operation, start, end, first, last in SequenceMatcher(None, old, new).get_opcodes():
        is_equal = operation == "equal"
        pairs = (zip_longest if is_equal else _paired)(old[start:end], new[first:last])
        for was, text in pairs:
            mark: LineMark = (
                "kept" if is_equal else "removed" if text is None else "added" if was is None else "changed"
            )
            yield ChangedLine(
                mark=mark, text=(was or "") if text is None else text, was=was if mark == "changed" else None
            )


def _paired(old: list[str], new: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """Yield the lines of a replaced block in order, each beside the line that it resembles, or beside None.

    A line that replaces a single line is paired with it in any case. A block with too many lines is paired by position.
    """
    if len(old) == len(new) == 1 or len(old) * len(new) > pairs_compared_max:
        yield from zip_longest(old, new)
        return
    sides = [[Counter(map("".join, pairwise(line))) for line in lines] for lines in (old, new)]
    # best[i][j] is the highest sum of likenesses for the lines from i and j on.
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    likeness = {}
    for i, j in product(reversed(range(len(old))), reversed(range(len(new)))):
        likeness[i, j] = _likeness(sides[0][i], sides[1][j])
        paired = best[i + 1][j + 1] + likeness[i, j] if likeness[i, j] >= likeness_min else 0.0
        best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(old) and j < len(new):
        if best[i][j] == best[i + 1][j]:
            yield old[i], None
            i += 1
        elif best[i][j] == best[i][j + 1]:
            yield None, new[j]
            j += 1
        else:
            yield old[i], new[j]
            i, j = i + 1, j + 1
    yield from zip_longest(old[i:], ())
    yield from zip_longest((), new[j:])


def _likeness(old: Counter[str], new: Counter[str]) -> float:
    """Return the share of the pairs of neighbouring characters that two lines have in common, from 0 to 1."""
    return 2 * (old & new).total() / max(1, old.total() + new.total())
