"""The fold of sessions: a small state that counts, and one row for everything an agent recorded.

What was recorded is written once and never again, so a session of ten thousand findings folds as fast as a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events import KINDS
from ledger.events import session as kinds
from projections.projection import Projection, by_name_of_stream
from projections.sessions.tables import ASSESSMENTS, DEAD_ENDS, FINDINGS, SESSIONS, TOOLS, UNKNOWNS, VECTOR_NAMES
from projections.versions import VIEW_VERSIONS

if TYPE_CHECKING:
    from ledger.events.body import Event
    from projections.projection import Logged, Row, Rows


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    """One session as its events left it."""

    id: str
    author: str = ""
    ai_id: str = ""
    task: str = ""
    resumes: str = ""
    summary: str = ""
    assessments: int = 0
    findings: int = 0
    unknowns: int = 0
    dead_ends: int = 0
    tools: int = 0
    started_index: int = -1
    started_ms: int = 0
    ended_index: int | None = None
    ended_ms: int | None = None
    updated_index: int = -1


def fold(state: SessionRecord, event: Event) -> SessionRecord:
    """Return the session after one more of its events."""
    state = msgspec.structs.replace(state, updated_index=event.index)
    match event.data:
        case kinds.SessionStarted() as data:
            return msgspec.structs.replace(
                state,
                author=event.author,
                ai_id=data.ai_id,
                task=data.task,
                resumes=data.resumes,
                started_index=event.index,
                started_ms=event.accepted_ms,
            )
        case kinds.AssessmentRecorded():
            return msgspec.structs.replace(state, assessments=state.assessments + 1)
        case kinds.FindingLogged():
            return msgspec.structs.replace(state, findings=state.findings + 1)
        case kinds.UnknownLogged():
            return msgspec.structs.replace(state, unknowns=state.unknowns + 1)
        case kinds.DeadEndLogged():
            return msgspec.structs.replace(state, dead_ends=state.dead_ends + 1)
        case kinds.ToolUsed():
            return msgspec.structs.replace(state, tools=state.tools + 1)
        case kinds.SessionEnded() as data:
            return msgspec.structs.replace(
                state, summary=data.summary, ended_index=event.index, ended_ms=event.accepted_ms
            )
        case _:
            return state


def rows(state: SessionRecord) -> Rows:
    """Return the session's row."""
    row = (
        state.id,
        state.author,
        state.ai_id,
        state.task,
        state.resumes,
        "open" if state.ended_index is None else "ended",
        state.summary,
        state.assessments,
        state.findings,
        state.unknowns,
        state.dead_ends,
        state.tools,
        state.started_index,
        state.started_ms,
        state.ended_index,
        state.ended_ms,
        state.updated_index,
    )
    return {"sessions": [row]}


def added(_state: SessionRecord | None, logged: Logged) -> Rows:
    """Return the row of what the event recorded."""
    event = logged.event
    first: Row = (event.index, event.name)
    last: Row = (event.at, event.accepted_ms)
    match event.data:
        case kinds.AssessmentRecorded() as data:
            vectors = tuple(getattr(data.vectors, name) for name in VECTOR_NAMES)
            words = (data.phase, data.round, data.reasoning, data.overall_confidence)
            return {"assessments": [(*first, *words, *vectors, *last)]}
        case kinds.FindingLogged() as data:
            evidence = encode_sorted(data.evidence).decode()
            return {"findings": [(*first, data.finding, evidence, data.impact, data.subject, *last)]}
        case kinds.UnknownLogged() as data:
            return {"unknowns": [(*first, data.unknown, data.impact, data.subject, *last)]}
        case kinds.DeadEndLogged() as data:
            return {"dead_ends": [(*first, data.approach, data.why_failed, data.impact, data.subject, *last)]}
        case kinds.ToolUsed() as data:
            return {"tools_used": [(*first, data.tool, data.purpose, *last)]}
        case _:
            return {}


SESSION_VIEW: Final = Projection(
    name="sessions",
    version=VIEW_VERSIONS["sessions"],
    handles=frozenset(name for name, kind in KINDS.items() if kind.stream == "session"),
    tables=(SESSIONS, ASSESSMENTS, FINDINGS, UNKNOWNS, DEAD_ENDS, TOOLS),
    state=SessionRecord,
    initial=SessionRecord,
    keys=by_name_of_stream,
    fold=fold,
    rows=rows,
    added=added,
)
