"""Sessions that are open: which one is meant, and a sweep of those that nobody closed or reported on.

A session is *idle* since the last event in its stream, by the ledger's clock; a report is *missing* when a POSTFLIGHT,
or a CHECK of a session that is over, has no report behind it: one that goes on may still reach its POSTFLIGHT. Only the
sessions of the acting agent are swept, and not what it imported: nobody else may write to them. What cannot be done for
one session is kept with its error, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask, every_row, rows_per_page
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import SessionEnded
from deedbook.ledger.limits import clock_backward_max_ms

SWEPT: Final = "never closed: swept"  # the summary of a session that a sweep ended: nothing about the work
REPORTING_PHASES: Final = ("POSTFLIGHT", "CHECK")
candidates_max: Final = 10

MakesReport = Callable[[str], dict[str, Any]]


class Meant(NamedTuple):
    """The session that is meant; None when the agent has none open, or several between which it goes to and fro."""

    session_id: str | None
    candidates: list[dict[str, Any]]
    total: int


def meant_session(ask: Ask, agent: str) -> Meant:
    """Return the session that is meant where neither the call nor ``DEEDBOOK_SESSION`` names one: the newest open one.

    That is where nothing was recorded in any other since it began: who writes went on from those. Else two are at work
    by one name, or one goes to and fro, and either could be meant; what is signed in the wrong one stays there.
    """
    rows = list(every_row(ask, "sessions.list", "sessions", {"author": agent, "status": "open"}))
    is_clear = bool(rows) and all(row["updated_index"] < rows[0]["started_index"] for row in rows[1:])
    return Meant(rows[0]["id"] if is_clear else None, rows[:candidates_max], len(rows))


class Activity(NamedTuple):
    """What a sweep knows of a session; indexes are those of the log, None where there is none."""

    session_id: str
    is_open: bool
    last_ms: int
    assessed: dict[str, int]
    report_index: int | None = None


class Unmade(NamedTuple):
    """What could not be done for a session."""

    session_id: str
    what: str
    error: DeedbookError


class Swept(NamedTuple):
    """What a sweep did: ids of the sessions it ended, session and answer of the reports it made, what it could not."""

    ended: list[str]
    reported: list[dict[str, Any]]
    unmade: list[Unmade]
    looked_at: int


def decide(activity: Activity, *, now_ms: int, older_than_ms: int) -> tuple[bool, bool]:
    """Return whether a sweep ends a session, and whether it makes its report."""
    idle_ms = now_ms - activity.last_ms
    # What was last heard of in the future was recorded under a wrong clock, which was set right since.
    end = activity.is_open and not -clock_backward_max_ms <= idle_ms < older_than_ms
    is_over = end or not activity.is_open
    phases = REPORTING_PHASES if is_over else REPORTING_PHASES[:1]
    asking = max((activity.assessed[phase] for phase in phases if phase in activity.assessed), default=-1)
    return end, asking > (-1 if activity.report_index is None else activity.report_index)


def sweep(
    author: Author, ask: Ask, make_report: MakesReport, *, now_ms: int, older_than_ms: int, is_dry: bool = False
) -> Swept:
    """End the author's idle sessions, make (by id) the reports that are missing; if ``is_dry`` only say so."""
    done = Swept([], [], [], 0)
    for activity, version in list(_activities(ask, author.name)):
        must_end, must_report = decide(activity, now_ms=now_ms, older_than_ms=older_than_ms)
        done = done._replace(looked_at=done.looked_at + 1)
        # The report first: it may be about the session's summary, and "swept" says nothing about the work.
        appended = must_report and _report(make_report, activity.session_id, done, is_dry=is_dry)
        # If we crash here, the report stands, and the next sweep ends the session.
        if must_end:
            _end(author, activity.session_id, version + appended, done, is_dry=is_dry)
    return done


def _report(make_report: MakesReport, session_id: str, done: Swept, *, is_dry: bool) -> bool:
    """Return whether an event was appended (or would be): a report that would say the same stands already."""
    try:
        report = {} if is_dry else make_report(session_id)
    except DeedbookError as error:
        done.unmade.append(Unmade(session_id, "report", error))
        return False
    if report.get("is_repeat"):
        return False
    done.reported.append({"session_id": session_id, **report})
    return True


def _end(author: Author, session_id: str, version: int, done: Swept, *, is_dry: bool) -> None:
    try:
        if not is_dry:
            author.emit(Draft(stream=f"session/{session_id}", data=SessionEnded(summary=SWEPT), expect=version))
    except Refused as refusal:
        # Somebody wrote to the session meanwhile: it is not idle any more, and is left alone.
        if refusal.code != "STREAM_CONFLICT":
            done.unmade.append(Unmade(session_id, "end", refusal))
        return
    done.ended.append(session_id)


def _activities(ask: Ask, agent: str) -> Iterator[tuple[Activity, int]]:
    """Yield the agent's sessions that may need something, each with the version of its stream."""
    reports = _last_by_stream(ask, "report.generated", agent)
    assessments = _last_by_stream(ask, "assessment.recorded", agent)
    for row in every_row(ask, "sessions.list", "sessions", {"author": agent}):
        if row["imported"] is not None:
            continue
        name, is_open = row["id"], row["status"] == "open"
        stream = f"session/{name}"
        report = reports.get(stream)
        is_assessed = assessments.get(stream, -1) > (-1 if report is None else report)
        if not (is_open or is_assessed):
            continue
        # Where nothing was assessed since the report, the phases would change nothing.
        assessed = ask("sessions.show", {"id": name})["assessments"] if is_assessed else []
        last_ms = version = 0
        if is_open:  # what was accepted last, at the index that the view knows or since then
            since = {"stream": stream, "after": row["updated_index"] - 1, "limit": rows_per_page}
            page = ask("catalog.find", since)
            last_ms, version = page["events"][-1]["accepted_ms"], page["total"]
        last_of_each_phase = {assessment["phase"]: assessment["event_index"] for assessment in assessed}
        yield Activity(name, is_open, last_ms, last_of_each_phase, report), version


def _last_by_stream(ask: Ask, kind: str, agent: str) -> dict[str, int]:
    """Return the index of the last event of ``kind`` in each of the agent's streams."""
    rows = every_row(ask, "catalog.find", "events", {"kind": kind, "author": agent})
    return {row["stream"]: row["event_index"] for row in rows}
