"""The fold of sessions: a small state that counts, and one row for everything an agent recorded.

What was recorded is written once and never again, so a session of ten thousand findings folds as fast as a short one.

What another tool recorded is folded as what it stands for (``read_as``). A session of such records is *imported*, and
neither open nor ended: its ``author`` is who imported it, its ``ai_id`` who is said to have worked. It has the task of
the first goal, because a goal is mapped to a start, and several may stand in one session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ledger.codec import encode_sorted
from ledger.events import KINDS
from ledger.events import session as kinds
from ledger.events.body import read_as
from projections.projection import Projection
from projections.records.marks import UNKNOWN, Imported, claimed_author, encoded, happened_ms, imported_of
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
    happened_ms: int = 0
    imported: Imported | None = None


def fold(state: SessionRecord, event: Event) -> SessionRecord:
    """Return the session after one more of its events."""
    state = msgspec.structs.replace(state, updated_index=event.index)
    mark = imported_of(event)
    if mark is not None:
        state = _with_record(state, event, mark)
    match read_as(event).data:
        case kinds.SessionStarted() as data if state.imported is not None:
            return msgspec.structs.replace(state, task=state.task or data.task, resumes=state.resumes or data.resumes)
        case kinds.SessionStarted() as data:
            return msgspec.structs.replace(
                state,
                author=event.author,
                ai_id=data.ai_id,
                task=data.task,
                resumes=data.resumes,
                started_index=event.index,
                started_ms=event.accepted_ms,
                happened_ms=event.accepted_ms,
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


def _with_record(state: SessionRecord, event: Event, mark: Imported) -> SessionRecord:
    """Return the session with what every imported record says of it: whose it is, and since when."""
    if state.imported is None:
        return msgspec.structs.replace(
            state,
            author=event.author,
            ai_id=claimed_author(event),
            started_index=event.index,
            started_ms=event.accepted_ms,
            happened_ms=happened_ms(event),
            imported=mark,
        )
    ai_id = claimed_author(event) if state.ai_id == UNKNOWN else state.ai_id
    return msgspec.structs.replace(state, ai_id=ai_id, happened_ms=min(state.happened_ms, happened_ms(event)))


def rows(state: SessionRecord) -> Rows:
    """Return the session's row."""
    status = "imported" if state.imported else "open" if state.ended_index is None else "ended"
    row = (
        state.id,
        state.author,
        state.ai_id,
        state.task,
        state.resumes,
        status,
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
        state.happened_ms,
        encoded(state.imported),
    )
    return {"sessions": [row]}


def added(_state: SessionRecord | None, logged: Logged) -> Rows:
    """Return the row of what the event recorded."""
    event = logged.event
    if not keys(event):
        return {}
    first: Row = (event.index, event.name)
    last: Row = (event.at, event.accepted_ms, happened_ms(event))
    match read_as(event).data:
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


def keys(event: Event) -> tuple[str, ...]:
    """Return the id of the event's session; none for a record that stands for something else."""
    return (event.name,) if event.stream.startswith("session/") else ()


SESSION_VIEW: Final = Projection(
    name="sessions",
    version=VIEW_VERSIONS["sessions"],
    handles=frozenset(name for name, kind in KINDS.items() if kind.stream == "session") | {"record.imported"},
    tables=(SESSIONS, ASSESSMENTS, FINDINGS, UNKNOWNS, DEAD_ENDS, TOOLS),
    state=SessionRecord,
    initial=SessionRecord,
    keys=keys,
    fold=fold,
    rows=rows,
    added=added,
)
