"""The fold of snapshots: a row for each ``snapshot.taken``; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import Final

from deedbook.projections.views.projection import Logged, Row, Rows, Table, event_rows, json_text, row_of
from deedbook.projections.views.registry import VIEW_VERSIONS


class SnapshotRow(Row, frozen=True):
    """A snapshot; ``id`` is the name of its stream."""

    event_index: int
    id: str
    event_id: str
    author: str
    session_id: str
    domain: str
    reasoning_ref: str | None
    reasoning_fidelity: float | None
    level: str | None
    context_source: str
    context_summary: str
    conclusion: str
    accepted_ms: int
    data: str


SNAPSHOTS: Final = Table(
    "snapshots",
    SnapshotRow,
    primary_key=("event_index",),
    indexes=(("id",), ("session_id",), ("reasoning_ref",), ("author",)),
)


def added(logged: Logged) -> Rows:
    """Return the snapshot's row."""
    event, data = logged.event, logged.event.data
    names = {"event_index": event.index, "id": event.name, "event_id": event.id}
    return (row_of(SnapshotRow, event, data, **names, data=json_text(data)),)


VIEW: Final = event_rows("snapshots", VIEW_VERSIONS["snapshots"], frozenset({"snapshot.taken"}), (SNAPSHOTS,), added)
