"""Snapshots: what an agent knew at one moment, small enough to travel, and how the next one reads it (seed 001).

    >>> from projections.briefs import TransferLevel, should_fetch_full_reasoning
    >>> from projections.snapshots import EnhancedEpistemicSnapshot, to_context_prompt
    >>> snapshot = EnhancedEpistemicSnapshot(
    ...     snapshot_id="abc123", vectors={"uncertainty": 0.6}, context_summary="API has JWT secret in logs")
    >>> to_context_prompt(snapshot, TransferLevel.MINIMAL).prompt
    'CONTEXT: API has JWT secret in logs'
    >>> snapshot.vectors["UNCERTAINTY"]
    0.6
    >>> should_fetch_full_reasoning(snapshot).rule.name
    'high_uncertainty'

A snapshot carries the brief of its reasoning at each level it was made for: a receiver needs nothing else to read it.
Taking and receiving snapshots is a consumer's work (``consumers.reasoning.snapshots``). Names are loaded when
first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from projections.snapshots.context import CONTEXT_TOKENS_MAX, derive_context
    from projections.snapshots.snapshot import (
        SNAPSHOT_TOKENS_MAX,
        EnhancedEpistemicSnapshot,
        render_snapshot,
        snapshot_of,
        to_context_prompt,
    )
    from projections.snapshots.vectors import AssessedVectors, read_vectors

__all__ = [
    "CONTEXT_TOKENS_MAX",
    "SNAPSHOT_TOKENS_MAX",
    "AssessedVectors",
    "EnhancedEpistemicSnapshot",
    "derive_context",
    "read_vectors",
    "render_snapshot",
    "snapshot_of",
    "to_context_prompt",
]

__getattr__ = front_door(
    __name__,
    {
        "context": ("CONTEXT_TOKENS_MAX", "derive_context"),
        "snapshot": (
            "SNAPSHOT_TOKENS_MAX",
            "EnhancedEpistemicSnapshot",
            "render_snapshot",
            "snapshot_of",
            "to_context_prompt",
        ),
        "vectors": ("AssessedVectors", "read_vectors"),
    },
)
