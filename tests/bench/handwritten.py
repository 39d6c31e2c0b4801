"""A projection written by hand for the ``eventsourcing`` library: dicts, ``executemany``, 10,000 events a commit.

It reads the notifications of the library's recorder through its mapper and fills the tables that Baton's catalog,
session and handoff views fill from the same events, with the same SQLite settings, and makes the secondary indexes at
the end, as Baton does when it rebuilds. It keeps no states, no positions and no digests, checks nothing, and leaves
empty what the library does not have (a signing key, the version hash of a handoff).
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ledger.codec import encode_sorted
from projections.catalog.fold import EVENT_REFS, EVENTS, STREAMS
from projections.handoffs.tables import CRITERIA, DEPENDENCIES, HANDOFFS, LOG, TASKS
from projections.sessions.tables import ASSESSMENTS, DEAD_ENDS, FINDINGS, SESSIONS, TOOLS, UNKNOWNS

if TYPE_CHECKING:
    from pathlib import Path

    from eventsourcing.application import Application

PAGE: Final = 10_000
TABLES: Final = (
    *(EVENTS, EVENT_REFS, STREAMS, SESSIONS, FINDINGS, ASSESSMENTS, UNKNOWNS, DEAD_ENDS, TOOLS),
    *(HANDOFFS, TASKS, CRITERIA, DEPENDENCIES, LOG),
)


class HandWritten:
    """Fills the tables from one application's events."""

    def __init__(self, path: Path) -> None:
        """Make the tables in a new file."""
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -65536", "temp_store = MEMORY"):
            self.db.execute(f"PRAGMA {pragma}")
        for table in TABLES:
            columns = ", ".join(f'"{name}" {sort}' for name, sort in table.columns.items())
            option = " WITHOUT ROWID" if len(table.primary_key) > 1 else ""
            self.db.execute(
                f'CREATE TABLE "{table.name}" ({columns}, PRIMARY KEY ({", ".join(table.primary_key)})){option}'
            )
        self.streams: dict[str, list[Any]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.handoffs: dict[str, dict[str, Any]] = {}
        self.forget()

    def forget(self) -> None:
        """Start a new page of rows."""
        self.rows: dict[str, list[tuple[Any, ...]]] = {table.name: [] for table in TABLES}
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
        known = self.streams.setdefault(stream, [stream, sort, name, 0, index, index])
        known[3] += 1
        known[5] = index
        self.changed[stream] = None
        digest = "sha256:" + hashlib.sha256(one.state).hexdigest()
        event_id = f"{one.originator_id.hex}:{one.originator_version}"
        place = (index, event_id, digest, body["kind"], stream, known[3])
        self.rows["events"].append((*place, body["author"], "", body["at"], 0, None, len(one.state)))
        if sort == "session":
            self.take_session(index, name, body)
        elif sort == "handoff":
            self.take_handoff(index, name, body)

    def take_session(self, index: int, name: str, body: dict[str, Any]) -> None:
        """Fold one event of a session."""
        data = body["data"]
        match body["kind"]:
            case "session.started":
                self.sessions[name] = {"author": body["author"], "task": data["task"], "findings": 0, "index": index}
            case "finding.logged":
                self.sessions[name]["findings"] += 1
                evidence = encode_sorted(data["evidence"]).decode()
                row = (index, name, data["finding"], evidence, data.get("impact"), "", body["at"], 0)
                self.rows["findings"].append(row)
        self.sessions[name]["updated"] = index

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
                handoff |= {"status": "approved", "approved_index": index}
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
        self.rows["handoff_log"].append((index, name, body["at"][:10], body["at"], body["author"], kind, text))

    def write(self) -> None:
        """Write the page's rows, and the present rows of everything that changed."""
        for stream in self.changed:
            self.rows["streams"].append(tuple(self.streams[stream]))
            sort, _, name = stream.partition("/")
            if sort == "session":
                self.rows["sessions"].append(_session_row(name, self.sessions[name]))
            elif sort == "handoff":
                handoff = self.handoffs[name]
                self.rows["handoffs"].append(_handoff_row(name, handoff))
                self.rows["handoff_tasks"] += [(name, at, *task) for at, task in enumerate(handoff["tasks"])]
                self.rows["handoff_criteria"] += [(name, at, *one, "") for at, one in enumerate(handoff["criteria"])]
        for table in TABLES:
            marks = ", ".join("?" * len(table.columns))
            self.db.executemany(f'INSERT OR REPLACE INTO "{table.name}" VALUES ({marks})', self.rows[table.name])


def _session_row(name: str, one: dict[str, Any]) -> tuple[Any, ...]:
    counts = (0, one["findings"], 0, 0, 0)
    words = (one["author"], "", one["task"], "", "open", "")
    return (name, *words, *counts, one["index"], 0, None, None, one["updated"])


def _handoff_row(name: str, one: dict[str, Any]) -> tuple[Any, ...]:
    done = (sum(done for _, done in one["tasks"]), len(one["tasks"]))
    met = (sum(mark != "open" for _, mark, _ in one["criteria"]), len(one["criteria"]))
    turns = [one.get(f"{turn}_index") for turn in ("created", "approved", "claimed", "completed", "verified")]
    people = (one["from"], one["to"], one["reviewer"])
    words = ("", "2026-02-12", None, "completed", one["task"], one["context"], None, None, None)
    result = ("", None, one.get("summary", ""), "[]", None)
    return (name, one["status"], one["title"], *people, *words, *done, *met, *result, *turns, one["updated"], 0)
