"""Snapshots: the knowledge of an agent at one time, small enough to send, and its form for the next agent.

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

A snapshot has the brief of its reasoning at each of its levels, so a receiver needs nothing else to read it. Consumers
take and receive snapshots (``consumers.reasoning.snapshots``).
"""
