"""The fold of validations: one row a ``reasoning.validated``, never changed; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.codec import encode_sorted
from projections.projection import NoState, Projection, Table

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Rows

VALIDATIONS: Final = Table(
    "validations",
    {
        "event_index": "INTEGER NOT NULL",
        "event_id": "TEXT NOT NULL",
        "reasoning_id": "TEXT NOT NULL",
        "reasoning_ref": "TEXT NOT NULL",
        "passed": "INTEGER NOT NULL",
        "issues": "INTEGER NOT NULL",
        "tree": "TEXT NOT NULL",
        "commit_id": "TEXT NOT NULL",
        "validator": "TEXT NOT NULL",
        "validator_version": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "data": "TEXT NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("reasoning_ref", "event_index"),),
)


def fold(state: NoState, _event: Event) -> NoState:
    """Return the state: there is none."""
    return state


def added(_state: NoState | None, logged: Logged) -> Rows:
    """Return the report's row."""
    event, data = logged.event, logged.event.data
    row = (
        event.index,
        event.id,
        event.name,
        data.reasoning_ref,
        int(data.passed),
        data.counts.issues,
        data.tree.sort,
        data.tree.commit,
        data.validator_name,
        data.validator_version,
        event.author,
        event.accepted_ms,
        encode_sorted(data).decode(),
    )
    return {"validations": [row]}


VALIDATION_VIEW: Final = Projection(
    name="validations",
    version=1,
    handles=frozenset({"reasoning.validated"}),
    tables=(VALIDATIONS,),
    state=NoState,
    initial=lambda _key: NoState(),
    fold=fold,
    added=added,
)
