"""Marks of erased bodies: who erased the texts behind a row, when and why.

They are computed on reading, like the marks of compromised signatures. An answer about the past carries today's marks,
because the texts are erased from it, too. A row of an event is marked if its body was erased, any other row if a body
of its stream was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from deedbook.projections.answers.answer import Redacted
from deedbook.projections.answers.query import QueryContext, json_list

sentences_max: Final = 10
# ``main.`` names the present table: in an answer about the past, another hides it (``projections.answers.past``).
_SELECT: Final = (
    'SELECT r.event_index AS redaction, r.entry, r.author AS "by", r.accepted_ms AS at_ms, r.reason, e.stream '
    "FROM main.redactions r JOIN events e ON e.event_index = r.entry AND e.body_ref = r.remnant WHERE "
)
_OF_ENTRIES: Final = "r.entry IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) ORDER BY r.event_index"
_OF_STREAMS: Final = "e.stream IN (SELECT value FROM json_each(?)) ORDER BY r.event_index"


def redactions_of(context: QueryContext, indexes: Collection[int], streams: Collection[str]) -> dict[Any, Redacted]:
    """Return the redactions of entries, by index, and of streams, by name."""
    found: dict[Any, Redacted] = {}
    for name, sql, targets in (("entry", _OF_ENTRIES, indexes), ("stream", _OF_STREAMS, streams)):
        for row in context.rows(_SELECT + sql, (json_list(sorted(targets)),)) if targets else ():
            fields = {column: row[column] for column in ("redaction", "entry", "by", "at_ms", "reason")}
            note(found, row[name], Redacted(**fields))
    return found


def note(found: dict[Any, Redacted], target: int | str, redacted: Redacted) -> None:
    """Add a later redaction to those of a row. The mark names the newest one, and gives their number."""
    number = found[target].entries + 1 if target in found else 1
    found[target] = replace(redacted, entries=number)


def redacted_sentences(answer: Any) -> list[str]:
    """Return a sentence for each mark in the answer, as plain values."""
    marks = {mark["redaction"]: mark for mark in _marks(answer)}
    return [sentence(marks[index]) for index in sorted(marks, reverse=True)[:sentences_max]]


def sentence(mark: dict[str, Any]) -> str:
    """Return the text of a mark as a sentence."""
    day = datetime.fromtimestamp(mark["at_ms"] / 1000, UTC).date()
    more = f" (and {mark['entries'] - 1} more of its entries)" if mark.get("entries", 1) > 1 else ""
    return f"entry {mark['entry']} was redacted by {mark['by']} on {day}: {mark['reason']}{more}"


def _marks(value: Any) -> Iterator[dict[str, Any]]:
    pending: list[Any] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            mark = part.get("redacted")
            if isinstance(mark, dict) and "redaction" in mark:
                yield mark
            pending.extend(part.values())
        elif isinstance(part, Iterable) and not isinstance(part, str | bytes):
            pending.extend(part)
