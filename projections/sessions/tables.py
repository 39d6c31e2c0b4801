"""The tables of sessions. A vector that was not assessed is NULL, never 0 (DESIGN §11).

``happened_ms`` is the time to show: what an imported record claims, where that can be true, else the ledger's own.
"""

from __future__ import annotations

from typing import Final

from ledger.events.session import Vectors
from projections.projection import Table

VECTOR_NAMES: Final = Vectors.__struct_fields__

SESSIONS: Final = Table(
    "sessions",
    {
        "id": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "ai_id": "TEXT NOT NULL",
        "task": "TEXT NOT NULL",
        "resumes": "TEXT NOT NULL",
        "status": "TEXT NOT NULL",
        "summary": "TEXT NOT NULL",
        "assessments": "INTEGER NOT NULL",
        "findings": "INTEGER NOT NULL",
        "unknowns": "INTEGER NOT NULL",
        "dead_ends": "INTEGER NOT NULL",
        "tools": "INTEGER NOT NULL",
        "started_index": "INTEGER NOT NULL",
        "started_ms": "INTEGER NOT NULL",
        "ended_index": "INTEGER",
        "ended_ms": "INTEGER",
        "updated_index": "INTEGER NOT NULL",
        "happened_ms": "INTEGER NOT NULL",
        "imported": "TEXT",
    },
    primary_key=("id",),
    owner="id",
    indexes=(
        ("author", "started_index"),
        ("ai_id", "started_index"),
        ("started_index",),
        ("happened_ms", "started_index"),
    ),
)


def _logged(name: str, columns: dict[str, str]) -> Table:
    """Return a table with one row an event of a session."""
    first = {"event_index": "INTEGER NOT NULL", "session_id": "TEXT NOT NULL"}
    last = {"at": "TEXT NOT NULL", "accepted_ms": "INTEGER NOT NULL", "happened_ms": "INTEGER NOT NULL"}
    return Table(name, first | columns | last, ("event_index",), indexes=(("session_id", "event_index"),))


_WEIGHT: Final = {"impact": "REAL", "subject": "TEXT NOT NULL"}

ASSESSMENTS: Final = _logged(
    "assessments",
    {
        "phase": "TEXT NOT NULL",
        "round": "INTEGER NOT NULL",
        "reasoning": "TEXT NOT NULL",
        "overall_confidence": "REAL",
        **dict.fromkeys(VECTOR_NAMES, "REAL"),
    },
)
FINDINGS: Final = _logged("findings", {"finding": "TEXT NOT NULL", "evidence": "TEXT NOT NULL", **_WEIGHT})
UNKNOWNS: Final = _logged("unknowns", {"unknown": "TEXT NOT NULL", **_WEIGHT})
DEAD_ENDS: Final = _logged("dead_ends", {"approach": "TEXT NOT NULL", "why_failed": "TEXT NOT NULL", **_WEIGHT})
TOOLS: Final = _logged("tools_used", {"tool": "TEXT NOT NULL", "purpose": "TEXT NOT NULL"})
