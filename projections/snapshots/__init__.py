"""Snapshots: what an agent knew at one moment, small enough to travel, and how the next one reads it.

    >>> from deedbook.projections.briefs.prompt import TransferLevel
    >>> from deedbook.projections.briefs.gates import should_fetch_full_reasoning
    >>> from deedbook.projections.snapshots.snapshot import EnhancedEpistemicSnapshot, to_context_prompt
    >>> snapshot = EnhancedEpistemicSnapshot(
    ...     snapshot_id="abc123", vectors={"uncertainty": 0.6}, context_summary="API has JWT secret in logs")
    >>> to_context_prompt(snapshot, TransferLevel.MINIMAL).prompt
    'CONTEXT: API has JWT secret in logs'
    >>> snapshot.vectors["UNCERTAINTY"]
    0.6
    >>> should_fetch_full_reasoning(snapshot).rule.name
    'high_uncertainty'

A snapshot carries the brief of its reasoning at each level it was made for: a receiver needs nothing else to read it.
Taking and receiving snapshots is a consumer's work (``consumers.reasoning.snapshots``).
"""
