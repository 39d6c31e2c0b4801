"""An event in words: the line of its handoff's log, or a phrase for its kind and the event's text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from deedbook.ledger.families import Family, find
from deedbook.projections.answers.query import QueryContext, json_list

# In the style of a handoff's log ("task done: …"). A kind that is not here is named by its last part.
_PHRASES: Final = {
    "agent.invited": "invited an agent",
    "assessment.recorded": "assessed",
    "blob.stored": "stored a blob",
    "dead_end.logged": "dead end",
    "decision.made": "decided",
    "decision.withdrawn": "withdrew a decision",
    "finding.logged": "found",
    "finding.retracted": "retracted a finding",
    "dead_end.retracted": "retracted a dead end",
    "entry.redacted": "redacted an entry",
    "entry.redaction_proposed": "proposed to redact an entry",
    "key.compromised": "reported a stolen key",
    "key.delegated": "delegated to a session key",
    "key.revoked": "revoked a key",
    "kind.declared": "declared a kind",
    "key.rotated": "replaced a key",
    "checkpoint_key.rotated": "replaced the key of checkpoints",
    "ledger.created": "created the ledger",
    "question.asked": "asks",
    "question.settled": "settled a question",
    "reasoning.assumption_settled": "settled an assumption",
    "reasoning.briefed": "wrote a brief",
    "reasoning.extended": "reasoned",
    "reasoning.started": "began to reason",
    "reasoning.step_retracted": "retracted a step",
    "reasoning.validated": "validated the reasoning",
    "record.imported": "imported a record",
    "report.generated": "reported",
    "review.requested": "asks for a review",
    "role.granted": "was granted a role",
    "role.revoked": "lost a role",
    "session.ended": "ended the session",
    "session.started": "began a session",
    "snapshot.taken": "took a snapshot",
    "subject.erased": "erased a subject",
    "tool.used": "used a tool",
    "unknown.logged": "does not know",
    "unknown.resolved": "resolved an unknown",
}

# The thing of an event's stream, and the event's line in the log of a handoff.
_THINGS: Final = """
    SELECT e.event_index, coalesce(l.text, CASE v.verdict WHEN 'approved' THEN 'said yes' ELSE 'said no' END
            || CASE v.comment WHEN '' THEN '' ELSE ': ' || v.comment END) AS line, k.phrase, k.line AS fields,
        coalesce(nullif(h.title, ''), nullif(s.task, ''), nullif(r.task, '')) AS title
    FROM events e
    LEFT JOIN handoff_log l ON l.event_index = e.event_index
    LEFT JOIN kind_events k ON k.event_index = e.event_index
    LEFT JOIN handoffs h ON h.id = substr(e.stream, 9) AND substr(e.stream, 1, 8) = 'handoff/'
    LEFT JOIN sessions s ON s.id = substr(e.stream, 9) AND substr(e.stream, 1, 8) = 'session/'
    LEFT JOIN reviews v ON v.id = substr(e.stream, 8) AND v.answered_index = e.event_index
    LEFT JOIN reasonings r ON r.id = substr(e.stream, 11) AND substr(e.stream, 1, 10) = 'reasoning/'
    WHERE e.event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"""


class EventWords(NamedTuple):
    """The line of an event in the log of a handoff, and the title or task of the thing that the event belongs to.

    An event of a declared kind has a line by its schema.
    """

    line: str | None
    title: str | None


def words_of(context: QueryContext, indexes: Iterable[int]) -> dict[int, EventWords]:
    """Return the words for events, by index."""
    rows = context.rows(_THINGS, (json_list(indexes),))
    return {row["event_index"]: EventWords(_line(row), row["title"]) for row in rows}


def _line(row: dict[str, Any]) -> str | None:
    if row["phrase"] is None:
        line: str | None = row["line"]
        return line
    return f"{row['phrase']}: {row['fields']}" if row["fields"] else row["phrase"]


def _phrase_of_family(kind: str) -> str | None:
    family = find(kind.partition(".")[0])
    return family.phrases.get(kind) if isinstance(family, Family) else None


def did(row: dict[str, Any], line: str | None) -> str:
    """Return what an event's agent did; ``line`` is its line in the log of a handoff, or by the schema of its kind."""
    type_: str = row["type"]
    if line is not None:
        return f"wrote: {line}" if type_ == "handoff.logged" else line
    phrase = _PHRASES.get(type_) or _phrase_of_family(type_) or type_.partition(".")[2].replace("_", " ")
    return f"{phrase}: {row['text']}" if row["text"] else phrase
