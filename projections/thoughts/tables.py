"""The tables of trees of thoughts. What is not known yet is NULL; lists and objects are JSON."""

from __future__ import annotations

from typing import Final

from projections.projection import Table

TASKS: Final = Table(
    "tot_tasks",
    {
        "id": "TEXT NOT NULL",
        "status": "TEXT NOT NULL",
        "problem": "TEXT NOT NULL",
        "task_type": "TEXT NOT NULL",
        "thinker": "TEXT NOT NULL",
        "author": "TEXT NOT NULL",
        "roles": "TEXT NOT NULL",
        "options": "TEXT NOT NULL",
        "search_config": "TEXT",
        "root_id": "TEXT",
        "search_state": "TEXT NOT NULL",
        "stats": "TEXT NOT NULL",
        "claimed_stats": "TEXT",
        "tree_digest": "TEXT NOT NULL",
        "tree_ref": "TEXT",
        "solution": "TEXT",
        "failure": "TEXT",
        "waiting": "TEXT NOT NULL",
        "started_index": "INTEGER NOT NULL",
        "started_ms": "INTEGER NOT NULL",
        "ended_index": "INTEGER",
        "ended_ms": "INTEGER",
        "updated_index": "INTEGER NOT NULL",
        "updated_ms": "INTEGER NOT NULL",
    },
    primary_key=("id",),
    owner="id",
    indexes=(("started_index",), ("status", "started_index"), ("task_type", "started_index")),
)

# ``position`` is the order in which nodes were added; ``source_id`` is the generator's answer that a node came from.
NODES: Final = Table(
    "tot_nodes",
    {
        "task_id": "TEXT NOT NULL",
        "position": "INTEGER NOT NULL",
        "id": "TEXT NOT NULL",
        "parent_id": "TEXT",
        "children_ids": "TEXT NOT NULL",
        "depth": "INTEGER NOT NULL",
        "content": "TEXT NOT NULL",
        "action_type": "TEXT NOT NULL",
        "score": "REAL",
        "confidence": "REAL",
        "reasoning": "TEXT",
        "status": "TEXT NOT NULL",
        "metadata": "TEXT NOT NULL",
        "temp_id": "TEXT",
        "source_id": "TEXT",
        "added_index": "INTEGER NOT NULL",
    },
    primary_key=("task_id", "position"),
    owner="task_id",
    indexes=(("task_id", "id"),),
)

# One row an event. A request has its own id as ``request_id``; its answer has that too, and its own as ``answer_id``.
MESSAGES: Final = Table(
    "tot_messages",
    {
        "event_index": "INTEGER NOT NULL",
        "task_id": "TEXT NOT NULL",
        "event_id": "TEXT NOT NULL",
        "request_id": "TEXT",
        "answer_id": "TEXT",
        "sender": "TEXT NOT NULL",
        "receiver": "TEXT",
        "type": "TEXT NOT NULL",
        "round": "INTEGER NOT NULL",
        "signer": "TEXT NOT NULL",
        "key": "TEXT NOT NULL",
        "error": "TEXT",
        "text": "TEXT NOT NULL",
        "entries": "TEXT NOT NULL",
        "accepted_ms": "INTEGER NOT NULL",
    },
    primary_key=("event_index",),
    indexes=(("task_id", "event_index"), ("task_id", "request_id")),
)
