"""The fold of sessions: a small state with counts, and a row for each recorded thing, which never changes.

Records of another tool are folded as the events that they are mapped to (``read_as``). A session of such records is
*imported*, and neither open nor ended. Its ``author`` is the importer, its ``ai_id`` the agent that is said to have
worked. Its task is the first goal: each goal is mapped to a start of the session, and a session may have several goals.
``happened_ms`` is the time to show: the claimed time of an imported record (0 if it is undated), else the ledger's own.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.answers.answer import UNDATED_MS
from deedbook.projections.records.marks import UNKNOWN, Imported, claimed_author, encoded, happened_ms, imported_of
from deedbook.projections.reports.calibration import VECTOR_NAMES
from deedbook.projections.views.projection import (
    Logged,
    Projection,
    Row,
    Rows,
    Table,
    json_text,
    kinds_of,
    names_of,
    row_of,
    unfolded,
)
from deedbook.projections.views.registry import VIEW_VERSIONS


class SessionRow(Row, frozen=True):
    """A session after its events, with the counts of recorded things; ``imported`` is JSON."""

    id: str
    author: str = ""
    ai_id: str = ""
    task: str = ""
    resumes: str = ""
    status: str = "open"
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
    imported: str | None = None


def _recorded(name: str, **columns: Any) -> Any:
    """Return the row type of a recorded thing: its own columns between the common ones."""
    first, last = {"event_index": int, "session_id": str}, {"at": str, "accepted_ms": int, "happened_ms": int}
    fields = (first | columns | last).items()
    return msgspec.defstruct(name, fields, bases=(Row,), module=__name__, frozen=True)


_WEIGHT: Final = {"impact": float | None, "topic": str}
# An assessment has a column for every vector: NULL, never 0, for one that was not assessed.
_VECTORS: Final = dict.fromkeys(("overall_confidence", *VECTOR_NAMES), float | None)
AssessmentRow: Final = _recorded("AssessmentRow", phase=str, round=int, reasoning=str, **_VECTORS)
FindingRow: Final = _recorded("FindingRow", finding=str, evidence=str, **_WEIGHT)
UnknownRow: Final = _recorded("UnknownRow", unknown=str, **_WEIGHT)
DeadEndRow: Final = _recorded("DeadEndRow", approach=str, why_failed=str, **_WEIGHT, basis=str | None)
ToolRow: Final = _recorded("ToolRow", tool=str, purpose=str, topic=str)
# ``target`` is the id of the corrected event; ``words`` is the reason of a retraction, or the answer to an unknown.
CorrectionRow: Final = _recorded("CorrectionRow", target=str, kind=str, author=str, words=str)


def _of_session(name: str, row: type[Row], *more: tuple[str, ...]) -> Table:
    return Table(name, row, primary_key=("event_index",), indexes=(("session_id", "event_index"), *more))


_BY_TIME: Final = ("happened_ms", "event_index")
_INDEXES: Final = (
    ("author", "started_index"),
    ("ai_id", "started_index"),
    ("started_index",),
    ("happened_ms", "started_index"),
)
SESSIONS: Final = Table("sessions", SessionRow, primary_key=("id",), owner="id", indexes=_INDEXES, long=("ai_id",))
ASSESSMENTS: Final = _of_session("assessments", AssessmentRow)
FINDINGS: Final = _of_session("findings", FindingRow, _BY_TIME)
UNKNOWNS: Final = _of_session("unknowns", UnknownRow, _BY_TIME)
DEAD_ENDS: Final = _of_session("dead_ends", DeadEndRow, _BY_TIME)
TOOLS: Final = _of_session("tools_used", ToolRow)
CORRECTIONS: Final = _of_session("corrections", CorrectionRow, ("kind", "happened_ms"))


# The name of the count and the row type of each counted kind.
_COUNTED: Final[dict[type[Any], tuple[str, Any]]] = {
    kinds.AssessmentRecorded: ("assessments", AssessmentRow),
    kinds.FindingLogged: ("findings", FindingRow),
    kinds.UnknownLogged: ("unknowns", UnknownRow),
    kinds.DeadEndLogged: ("dead_ends", DeadEndRow),
    kinds.ToolUsed: ("tools", ToolRow),
}


def fold(state: SessionRow, event: Event) -> SessionRow:
    """Return the session after one more of its events."""
    mark = imported_of(event)
    if mark is not None:
        state = _with_record(state, event, mark)
    changes: dict[str, Any] = {}
    match read_as(event).data:
        case data if type(data) in _COUNTED:
            count = _COUNTED[type(data)][0]
            changes = {count: getattr(state, count) + 1}
        case kinds.SessionStarted() as data if state.imported is not None:
            changes = {"task": state.task or data.task, "resumes": state.resumes or data.resumes}
        case kinds.SessionStarted() as data:
            changes = {"author": event.author, "ai_id": data.ai_id, "task": data.task, "resumes": data.resumes}
            changes |= {"started_index": event.index, "started_ms": event.accepted_ms, "happened_ms": event.accepted_ms}
        case kinds.SessionEnded() as data:
            changes = {"status": "imported" if state.imported else "ended", "summary": data.summary}
            changes |= {"ended_index": event.index, "ended_ms": event.accepted_ms}
        case kinds.Correction() | kinds.ReportGenerated() | RecordImported():  # they change no count
            pass
        case _:  # event data is an open set; the handled kinds are listed in VIEW
            raise unfolded(event)
    return msgspec.structs.replace(state, updated_index=event.index, **changes)


def _with_record(state: SessionRow, event: Event, mark: Imported) -> SessionRow:
    """Return the session after an imported record, which names its agent and its beginning."""
    if state.imported is None:
        return msgspec.structs.replace(
            state,
            author=event.author,
            ai_id=claimed_author(event),
            started_index=event.index,
            started_ms=event.accepted_ms,
            happened_ms=happened_ms(event),
            status="imported",
            imported=encoded(mark),
        )
    ai_id = claimed_author(event) if state.ai_id == UNKNOWN else state.ai_id
    times = [at_ms for at_ms in (state.happened_ms, happened_ms(event)) if at_ms != UNDATED_MS]
    return msgspec.structs.replace(state, ai_id=ai_id, happened_ms=min(times, default=UNDATED_MS))


keys: Final = names_of("session")


def added(state: SessionRow | None, logged: Logged) -> Rows:
    """Return the row of the recorded thing."""
    event = logged.event
    if state is None:
        return ()
    position: dict[str, Any] = {"event_index": event.index, "session_id": state.id, "at": event.at}
    position |= {"accepted_ms": event.accepted_ms, "happened_ms": happened_ms(event)}
    match read_as(event).data:
        case kinds.AssessmentRecorded() as data:
            return (row_of(AssessmentRow, data, data.vectors, **position),)
        case kinds.FindingLogged() as data:
            # The most frequent of all rows: without ``row_of`` it takes a fifth of the time (measured).
            evidence = json_text(data.evidence)
            return (
                FindingRow(finding=data.finding, evidence=evidence, impact=data.impact, topic=data.topic, **position),
            )
        case kinds.UnknownLogged() | kinds.DeadEndLogged() | kinds.ToolUsed() as data:
            return (row_of(_COUNTED[type(data)][1], data, **position),)
        case kinds.Correction() as data:
            words = data.answer if isinstance(data, kinds.UnknownResolved) else getattr(data, "reason", "")
            return (row_of(CorrectionRow, data, kind=event.kind, author=event.author, words=words, **position),)
        case _:  # the other kinds of a session have no row of their own
            return ()


VIEW: Final = Projection(
    name="sessions",
    version=VIEW_VERSIONS["sessions"],
    handles=kinds_of("session") | {"record.imported"},
    tables=(SESSIONS, ASSESSMENTS, FINDINGS, UNKNOWNS, DEAD_ENDS, TOOLS, CORRECTIONS),
    state=SessionRow,
    keys=keys,
    fold=fold,
    rows=lambda session: (session,),
    added=added,
)
