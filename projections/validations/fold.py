"""The fold of validations: one row a ``reasoning.validated``, never changed; ``data`` is the event's data as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.codec import encode_sorted
from projections.projection import Table, event_rows
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from projections.projection import Logged, NoState, Rows

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


VALIDATION_VIEW: Final = event_rows(
    "validations", VIEW_VERSIONS["validations"], frozenset({"reasoning.validated"}), VALIDATIONS, added
)
