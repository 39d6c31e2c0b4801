"""A projection written by hand for the ``eventsourcing`` library: dicts, ``executemany``, 10,000 events a commit.

It reads the notifications of the library's recorder through its mapper and fills the tables that Deedbook's catalog,
session and handoff views fill from the same events, with the same SQLite settings, and creates the secondary indexes at
the end, as Deedbook does in a rebuild. It stores no states, no positions and no digests, and checks nothing. Columns
for which the library has no data stay empty (a signing key, the version hash of a handoff). It uses the views' own row
structs, so it always fills the same columns as they do.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec.structs import astuple, fields, replace

from deedbook.ledger.format.codec import encode_sorted
from deedbook.projections.catalog.fold import EVENT_REFS, EVENTS, STREAMS, EventRow, StreamRow
from deedbook.projections.handoffs.fold import (
    DEPENDENCIES,
    HANDOFFS,
    LOG,
    HandoffRow,
    LogRow,
)
from deedbook.projections.sessions.fold import (
    ASSESSMENTS,
    DEAD_ENDS,
    FINDINGS,
    SESSIONS,
    TOOLS,
    UNKNOWNS,
    FindingRow,
    SessionRow,
)
from deedbook.projections.stores.sqlite import create_table

if TYPE_CHECKING:
    from pathlib import Path

    from eventsourcing.application import Application

    from deedbook.projections.views.projection import Row

PAGE: Final = 10_000
TURNS: Final = ("approved_index", "approval_index", "claimed_index", "completed_index")
TABLES: Final = (
    *(EVENTS, EVENT_REFS, STREAMS, SESSIONS, FINDINGS, ASSESSMENTS, UNKNOWNS, DEAD_ENDS, TOOLS),
    *(HANDOFFS, DEPENDENCIES, LOG),
)


@cache
def empty(row: type[Row]) -> dict[str, Any]:
    """Return a row with empty columns: None where a column may be null, otherwise the empty value of its type."""
    types = {field.name: field.type for field in fields(row)}
    return {
        name: None if NoneType in get_args(given) else given() if given in {bool, int} else ""
        for name, given in types.items()
    }


class HandWritten:
    """Fills the tables from one application's events."""

    def __init__(self, path: Path) -> None:
        """Make the tables in a new file."""
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -65536", "temp_store = MEMORY"):
            self.db.execute(f"PRAGMA {pragma}")
        for table in TABLES:
            create_table(self.db, table, table.name)
        self.streams: dict[str, StreamRow] = {}
        self.sessions: dict[str, SessionRow] = {}
        self.handoffs: dict[str, dict[str, Any]] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the rows of the page before and start a new page."""
        self.rows: defaultdict[type[Row], list[Row]] = defaultdict(list)
        self.changed: dict[str, None] = {}

    def project(self, rival: Application) -> int:
        """Fold all events; return how many there were."""
        start, count = 1, 0
        while found := rival.recorder.select_notifications(start, PAGE):
            for one in found:
                self.take(one.id - 1, one, rival.mapper.to_domain_event(one).body)
            self.db.execute("BEGIN")
            self.write()
            self.db.execute("COMMIT")
            self.forget()
            start, count = found[-1].id + 1, count + len(found)
        for table in TABLES:
            for columns in table.indexes:
                index = "_".join(("by", table.name, *columns))
                self.db.execute(f'CREATE INDEX "{index}" ON "{table.name}" ({", ".join(columns)})')
        return count

    def take(self, index: int, one: Any, body: dict[str, Any]) -> None:
        """Fold one event."""
        stream = body["stream"]
        sort, _, name = stream.partition("/")
        known = self.streams.get(stream) or StreamRow(stream, name, 0, index)
        known = self.streams[stream] = replace(known, version=known.version + 1, last_index=index)
        self.changed[stream] = None
        row = EventRow(
            event_index=index,
            id=f"{one.originator_id.hex}:{one.originator_version}",
            body_ref="sha256:" + hashlib.sha256(one.state).hexdigest(),
            kind=body["kind"],
            stream=stream,
            stream_version=known.version,
            author=body["author"],
            key="",
            at=body["at"],
            accepted_ms=0,
            corr=None,
            text="",
            size=len(one.state),
            type=body["kind"],
            agent=body["author"],
            happened_ms=0,
        )
        self.rows[EventRow].append(row)
        if sort == "session":
            self.take_session(index, name, body)
        elif sort == "handoff":
            self.take_handoff(index, name, body)

    def take_session(self, index: int, name: str, body: dict[str, Any]) -> None:
        """Fold one event of a session."""
        data = body["data"]
        match body["kind"]:
            case "session.started":
                self.sessions[name] = _session_row(name, index, body)
            case "finding.logged":
                session = self.sessions[name]
                self.sessions[name] = replace(session, findings=session.findings + 1)
                given = {"event_index": index, "session_id": name, "at": body["at"], "impact": data.get("impact")}
                given |= {"finding": data["finding"], "evidence": encode_sorted(data["evidence"]).decode()}
                row = FindingRow(**(empty(FindingRow) | given))
                self.rows[FindingRow].append(row)
        self.sessions[name] = replace(self.sessions[name], updated_index=index)

    def take_handoff(self, index: int, name: str, body: dict[str, Any]) -> None:
        """Fold one event of a handoff."""
        data, kind = body["data"], body["kind"]
        if kind == "handoff.created":
            criteria = [[text, "open", ""] for text in data["criteria"]]
            tasks = [[text, 0] for text in data["tasks"]]
            self.handoffs[name] = {**data, "from": body["author"], "created_index": index, "status": "pending"}
            self.handoffs[name] |= {"tasks": tasks, "criteria": criteria}
        handoff = self.handoffs[name]
        match kind:
            case "handoff.approved":
                handoff |= {"status": "approved", "approved_index": index, "approval_index": index}
            case "handoff.claimed":
                handoff |= {"status": "in_progress", "claimed_index": index}
            case "handoff.task_checked":
                handoff["tasks"][data["position"]][1] = 1
            case "handoff.criterion_checked":
                handoff["criteria"][data["position"]][1:] = ["checked", data.get("evidence", "")]
            case "handoff.completed":
                handoff |= {"status": "completed", "completed_index": index, "summary": data["summary"]}
        handoff["updated"] = index
        text = data.get("summary") or kind.partition(".")[2]
        line = (body["at"][:10], body["at"], 0, body["author"], kind, text, data.get("position"))
        self.rows[LogRow].append(LogRow(index, name, *line))

    def write(self) -> None:
        """Write the page's rows, and the current rows of all streams, sessions and handoffs that changed."""
        for stream in self.changed:
            self.rows[StreamRow].append(self.streams[stream])
            sort, _, name = stream.partition("/")
            if sort == "session":
                self.rows[SessionRow].append(self.sessions[name])
            elif sort == "handoff":
                handoff = self.handoffs[name]
                self.rows[HandoffRow].append(_handoff_row(name, handoff))
        for table in TABLES:
            marks = ", ".join("?" * len(table.columns))
            rows = map(astuple, self.rows[table.row])
            self.db.executemany(f'INSERT OR REPLACE INTO "{table.name}" VALUES ({marks})', rows)


def _session_row(name: str, index: int, body: dict[str, Any]) -> SessionRow:
    given = {"id": name, "author": body["author"], "task": body["data"]["task"], "status": "open"}
    return SessionRow(**(empty(SessionRow) | given | {"started_index": index, "updated_index": index}))


def _handoff_row(name: str, handoff: dict[str, Any]) -> HandoffRow:
    marks = [mark for _, mark, _ in handoff["criteria"]]
    given: dict[str, Any] = {
        "id": name,
        "sender": handoff["from"],
        "receiver": handoff["to"],
        "created": "2026-02-12",
        "unlock_at": "completed",
        "tasks_done": sum(done for _, done in handoff["tasks"]),
        "tasks_total": len(handoff["tasks"]),
        "criteria_done": sum(mark != "open" for mark in marks),
        "criteria_total": len(marks),
        "updated_index": handoff["updated"],
    }
    given |= {column: handoff[column] for column in ("status", "title", "reviewer", "task", "context", "created_index")}
    given |= {turn: handoff.get(turn) for turn in TURNS}
    given["summary"] = handoff.get("summary", "")
    return HandoffRow(**(empty(HandoffRow) | given))
