"""The fold of snapshots: one row a ``snapshot.taken``, never changed; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.codec import encode_sorted
from projections.projection import NoState, Projection, Table

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Rows

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


def fold(state: NoState, _event: Event) -> NoState:
    """Return the state: there is none."""
    return state


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


SNAPSHOT_VIEW: Final = Projection(
    name="snapshots",
    version=1,
    handles=frozenset({"snapshot.taken"}),
    tables=(SNAPSHOTS,),
    state=NoState,
    initial=lambda _key: NoState(),
    fold=fold,
    added=added,
)
