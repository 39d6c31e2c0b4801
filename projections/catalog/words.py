"""An event in words: the line of its handoff's log, or a phrase for its kind and the event's text."""

from __future__ import annotations

from typing import Any, Final

# In the style of a handoff's log ("task done: …"). A kind that is not here is named by its last part.
_PHRASES: Final = {
    "agent.invited": "invited an agent",
    "agent.registered": "registered",
    "agent.removed": "removed",
    "assessment.recorded": "assessed",
    "blob.stored": "stored a blob",
    "dead_end.logged": "dead end",
    "decision.made": "decided",
    "decision.withdrawn": "withdrew a decision",
    "finding.logged": "found",
    "finding.retracted": "retracted a finding",
    "dead_end.retracted": "retracted a dead end",
    "key.compromised": "reported a stolen key",
    "key.delegated": "delegated to a session key",
    "key.revoked": "revoked a key",
    "key.rotated": "replaced a key",
    "checkpoint_key.rotated": "replaced the key of checkpoints",
    "ledger.created": "created the ledger",
    "question.answered": "answered",
    "question.asked": "asks",
    "question.settled": "settled a question",
    "reasoning.assumption_settled": "settled an assumption",
    "reasoning.briefed": "wrote a brief",
    "reasoning.concluded": "concluded",
    "reasoning.extended": "reasoned",
    "reasoning.started": "began to reason",
    "reasoning.step_retracted": "retracted a step",
    "reasoning.validated": "validated the reasoning",
    "record.imported": "imported a record",
    "report.generated": "reported",
    "review.answered": "answered a review",
    "review.requested": "asks for a review",
    "role.granted": "was granted a role",
    "role.revoked": "lost a role",
    "session.ended": "ended the session",
    "session.started": "began a session",
    "snapshot.taken": "took a snapshot",
    "tool.used": "used a tool",
    "tot.started": "began to search",
    "unknown.logged": "does not know",
    "unknown.resolved": "resolved an unknown",
}


def did(row: dict[str, Any], line: str | None) -> str:
    """Return what an event's agent did; ``line`` is its line in the log of a handoff."""
    if line is not None:
        return line
    type_: str = row["type"]
    phrase = _PHRASES.get(type_) or type_.partition(".")[2].replace("_", " ")
    return f"{phrase}: {row['text']}" if row["text"] else phrase
