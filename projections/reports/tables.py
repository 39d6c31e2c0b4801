"""The tables of reports: the latest of each session with the seed's columns, and every version ever made (seed 004).

The seed's two indexes are ``by_handoff_reports_ai_id`` and ``by_handoff_reports_timestamp`` here. The columns after the
seed's own are what the queries go by; ``report`` of a version is the whole report as JSON. ``happened_ms`` is the time
of ``timestamp``: what an imported report claims, where that can be true, else the ledger's own.
"""

from __future__ import annotations

from typing import Final

from projections.projection import Table

REPORTS: Final = Table(
    "handoff_reports",
    {
        "session_id": "TEXT NOT NULL",
        "ai_id": "TEXT NOT NULL",
        "timestamp": "TEXT NOT NULL",
        "task_summary": "TEXT NOT NULL",
        "epistemic_deltas": "TEXT NOT NULL",
        "key_findings": "TEXT NOT NULL",
        "remaining_unknowns": "TEXT NOT NULL",
        "next_session_context": "TEXT NOT NULL",
        "recommended_next_steps": "TEXT NOT NULL",
        "calibration_status": "TEXT NOT NULL",
        "compressed_json": "TEXT NOT NULL",
        "markdown_report": "TEXT NOT NULL",
        "created_at": "REAL NOT NULL",
        "report_id": "TEXT NOT NULL",
        "event_index": "INTEGER NOT NULL",
        "author": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "report_type": "TEXT NOT NULL",
        "versions": "INTEGER NOT NULL",
        "task_embedding": "TEXT NOT NULL",
        "findings_embedding": "TEXT NOT NULL",
        "happened_ms": "INTEGER NOT NULL",
        "imported": "TEXT",
    },
    primary_key=("session_id",),
    owner="session_id",
    indexes=(("ai_id",), ("timestamp",), ("event_index",), ("author", "event_index"), ("happened_ms", "event_index")),
)
VERSIONS: Final = Table(
    "handoff_report_versions",
    {
        "event_index": "INTEGER NOT NULL",
        "session_id": "TEXT NOT NULL",
        "report_id": "TEXT NOT NULL",
        "ai_id": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "timestamp": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
        "report_type": "TEXT NOT NULL",
        "calibration_status": "TEXT NOT NULL",
        "report": "TEXT NOT NULL",
        "happened_ms": "INTEGER NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("session_id", "event_index"), ("report_id",)),
)
