"""The fold of imported records: one row each. There is no state: a record never changes."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.events.imported import RecordClaims, RecordImported, read_mapped
from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class RecordRow(Row, frozen=True):
    """An imported record; ``dirty`` counts the values of the original that could not be read as intended."""

    event_index: int
    stream: str
    original: str
    source: str
    format: str
    mapped_kind: str | None
    reason: str
    claimed_author: str | None
    claimed_at: str | None
    importer: str
    accepted_ms: int
    dirty: int


RECORDS: Final = Table(
    "records",
    RecordRow,
    primary_key=("event_index",),
    indexes=(("original", "source"), ("source",), ("format", "event_index"), ("mapped_kind", "event_index")),
    long=("source",),
)


def added(logged: Logged) -> Rows:
    """Return the record's row."""
    event = logged.event
    data: RecordImported = event.data
    return (row_of(RecordRow, data, event, event_index=event.index, importer=event.author, dirty=_dirty(data)),)


def _dirty(data: RecordImported) -> int:
    mapped = read_mapped(data)
    return len(mapped[1].dirty) if mapped is not None and isinstance(mapped[1], RecordClaims) else 0


VIEW: Final = event_rows("records", VIEW_VERSIONS["records"], frozenset({"record.imported"}), (RECORDS,), added)
