"""The fold of snapshots: one row a ``snapshot.taken``, never changed; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.codec import encode_sorted
from projections.projection import Table, event_rows
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from projections.projection import Logged, NoState, Rows

SNAPSHOTS: Final = Table(
    "snapshots",
    {
        "event_index": "INTEGER NOT NULL",
        "id": "TEXT NOT NULL",
        "event_id": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "session_id": "TEXT NOT NULL",
        "domain": "TEXT NOT NULL",
        "reasoning_ref": "TEXT",
        "reasoning_fidelity": "REAL",
        "level": "TEXT",
        "context_source": "TEXT NOT NULL",
        "context_summary": "TEXT NOT NULL",
        "conclusion": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "data": "TEXT NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("id",), ("session_id",), ("reasoning_ref",), ("author",)),
)


def added(_state: NoState | None, logged: Logged) -> Rows:
    """Return the snapshot's row."""
    event, data = logged.event, logged.event.data
    row = (
        event.index,
        event.name,
        event.id,
        event.author,
        data.session_id,
        data.domain,
        data.reasoning_ref,
        data.reasoning_fidelity,
        data.level,
        data.context_source,
        data.context_summary,
        data.conclusion,
        event.accepted_ms,
        encode_sorted(data).decode(),
    )
    return {"snapshots": [row]}


SNAPSHOT_VIEW: Final = event_rows(
    "snapshots", VIEW_VERSIONS["snapshots"], frozenset({"snapshot.taken"}), SNAPSHOTS, added
)
