"""The fold of imported records: one row each, whatever they stand for. No state: a record is never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.events.imported import RecordClaims, read_mapped
from projections.projection import NoState, Table, event_rows
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.imported import RecordImported
    from projections.projection import Logged, Rows

RECORDS: Final = Table(
    "records",
    {
        "event_index": "INTEGER NOT NULL",
        "stream": "TEXT NOT NULL",
        "original": "TEXT NOT NULL",
        "source": "TEXT NOT NULL",
        "format": "TEXT NOT NULL",
        "mapped_kind": "TEXT",
        "reason": "TEXT NOT NULL",
        "claimed_author": "TEXT",
        "claimed_at": "TEXT",
        "importer": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "dirty": "INTEGER NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("original", "source"), ("source",), ("format", "event_index"), ("mapped_kind", "event_index")),
)


def added(_state: NoState | None, logged: Logged) -> Rows:
    """Return the record's row."""
    event = logged.event
    data: RecordImported = event.data
    row = (
        event.index,
        event.stream,
        data.original,
        data.source,
        data.format,
        data.mapped_kind,
        data.reason,
        data.claimed_author,
        data.claimed_at,
        event.author,
        event.accepted_ms,
        _dirty(data),
    )
    return {"records": [row]}


def _dirty(data: RecordImported) -> int:
    """Return how many values of the original could not be read as they were meant."""
    found = read_mapped(data)
    return len(found[1].dirty) if found is not None and isinstance(found[1], RecordClaims) else 0


RECORD_VIEW: Final = event_rows("records", VIEW_VERSIONS["records"], frozenset({"record.imported"}), RECORDS, added)
