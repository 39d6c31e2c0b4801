"""The tables of handoffs. Positions of tasks and criteria count from 0, as in the events."""

from __future__ import annotations

from typing import Final

from projections.projection import Table

HANDOFFS: Final = Table(
    "handoffs",
    {
        "id": "TEXT NOT NULL",
        "status": "TEXT NOT NULL",
        "title": "TEXT NOT NULL",
        "sender": "TEXT NOT NULL",
        "receiver": "TEXT NOT NULL",
        "reviewer": "TEXT",
        "version": "TEXT NOT NULL",
        "created": "TEXT NOT NULL",
        "proposal": "TEXT",
        "unlock_at": "TEXT NOT NULL",
        "task": "TEXT NOT NULL",
        "context": "TEXT NOT NULL",
        "answers": "TEXT",
        "reasoning_ref": "TEXT",
        "skeleton": "TEXT",
        "skeleton_index": "INTEGER NOT NULL",
        "tasks_done": "INTEGER NOT NULL",
        "tasks_total": "INTEGER NOT NULL",
        "criteria_done": "INTEGER NOT NULL",
        "criteria_total": "INTEGER NOT NULL",
        "importer": "TEXT",
        "claimed_author": "TEXT",
        "claimed_at": "TEXT",
        "claimed_status": "TEXT",
        "claimed_done": "TEXT",
        "source": "TEXT",
        "format": "TEXT",
        "original": "TEXT",
        "is_announced": "INTEGER NOT NULL",
        "superseded_by": "TEXT",
        "reason": "TEXT NOT NULL",
        "lease_until_ms": "INTEGER",
        "summary": "TEXT NOT NULL",
        "artifacts": "TEXT NOT NULL",
        "result_ref": "TEXT",
        "created_index": "INTEGER NOT NULL",
        "approved_index": "INTEGER",
        "claimed_index": "INTEGER",
        "completed_index": "INTEGER",
        "verified_index": "INTEGER",
        "updated_index": "INTEGER NOT NULL",
        "updated_ms": "INTEGER NOT NULL",
    },
    primary_key=("id",),
    owner="id",
    indexes=(
        ("status", "created_index"),
        ("receiver", "status"),
        ("sender",),
        ("reviewer",),
        ("created_index",),
        ("answers",),
    ),
)
TASKS: Final = Table(
    "handoff_tasks",
    {
        "handoff_id": "TEXT NOT NULL",
        "position": "INTEGER NOT NULL",
        "text": "TEXT NOT NULL",
        "is_done": "INTEGER NOT NULL",
    },
    primary_key=("handoff_id", "position"),
    owner="handoff_id",
)
CRITERIA: Final = Table(
    "handoff_criteria",
    {
        "handoff_id": "TEXT NOT NULL",
        "position": "INTEGER NOT NULL",
        "text": "TEXT NOT NULL",
        "mark": "TEXT NOT NULL",
        "evidence": "TEXT NOT NULL",
        "waived_because": "TEXT NOT NULL",
    },
    primary_key=("handoff_id", "position"),
    owner="handoff_id",
)
DEPENDENCIES: Final = Table(
    "handoff_dependencies",
    {"handoff_id": "TEXT NOT NULL", "position": "INTEGER NOT NULL", "depends_on": "TEXT NOT NULL"},
    primary_key=("handoff_id", "position"),
    owner="handoff_id",
    indexes=(("depends_on",),),
)
LOG: Final = Table(
    "handoff_log",
    {
        "event_index": "INTEGER NOT NULL",
        "handoff_id": "TEXT NOT NULL",
        "day": "TEXT NOT NULL",
        "at": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "kind": "TEXT NOT NULL",
        "text": "TEXT NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("handoff_id", "event_index"),),
)
