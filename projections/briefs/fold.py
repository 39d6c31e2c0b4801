"""The fold of published briefs: one row a ``reasoning.briefed``, never changed.

``data`` is the event's data as JSON; the columns beside it are what a receiver chooses by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.codec import encode_sorted
from projections.projection import Table, event_rows
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from projections.projection import Logged, NoState, Rows

BRIEFS: Final = Table(
    "briefs",
    {
        "event_index": "INTEGER NOT NULL",
        "reasoning_ref": "TEXT NOT NULL",
        "level": "TEXT NOT NULL",
        "budget": "INTEGER NOT NULL",
        "tokens": "INTEGER NOT NULL",
        "exact": "INTEGER NOT NULL",
        "fidelity": "REAL NOT NULL",
        "band": "TEXT NOT NULL",
        "compressor": "TEXT NOT NULL",
        "compressor_version": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "data": "TEXT NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("reasoning_ref", "level"),),
)


def added(_state: NoState | None, logged: Logged) -> Rows:
    """Return the brief's row."""
    event, data = logged.event, logged.event.data
    brief = data.brief
    row = (
        event.index,
        brief.reasoning_ref,
        brief.level,
        brief.budget,
        data.tokens,
        int(brief.exact),
        brief.fidelity.value,
        brief.fidelity.band,
        brief.compressor_name,
        brief.compressor_version,
        event.author,
        event.accepted_ms,
        encode_sorted(data).decode(),
    )
    return {"briefs": [row]}


BRIEF_VIEW: Final = event_rows("briefs", VIEW_VERSIONS["briefs"], frozenset({"reasoning.briefed"}), BRIEFS, added)
