"""Sweeps sessions that nobody closed or reported on.

A session is *idle* since the last event in its stream, by the ledger's clock. A report is *missing* if a POSTFLIGHT, or
a CHECK of a session that is over, has no later report: an open session may still reach its POSTFLIGHT. A report is also
missing if a session without assessments is over and has findings. Only the acting agent's own sessions are swept,
because nobody else may write to them; imported ones are left out. A failure for one session is recorded, and the sweep
continues with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from deedbook.consumers.sessions.open_sessions import SWEPT
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.client import Ask, every_row, rows_per_page
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import SessionEnded
from deedbook.ledger.limits import clock_backward_max_ms

REPORTING_PHASES: Final = ("POSTFLIGHT", "CHECK")

MakesReport = Callable[[str], dict[str, Any]]


class Activity(NamedTuple):
    """The facts of a session for a sweep; indexes are those of the log, None if there is none."""

    session_id: str
    is_open: bool
    last_ms: int
    assessed: dict[str, int]
    report_index: int | None = None
    has_findings: bool = False


class SweepFailure(NamedTuple):
    """A step of a sweep (``report`` or ``end``) that failed for a session, and its error."""

    session_id: str
    what: str
    error: DeedbookError


class SweepResult(NamedTuple):
    """The result of a sweep: ids of ended sessions, reports with their sessions, failures, and the number checked."""

    ended: list[str]
    reported: list[dict[str, Any]]
    unmade: list[SweepFailure]
    looked_at: int


def decide(activity: Activity, *, now_ms: int, older_than_ms: int) -> tuple[bool, bool]:
    """Return whether a sweep ends a session, and whether it makes its report."""
    idle_ms = now_ms - activity.last_ms
    # A last event in the future was recorded while the ledger's clock was wrong.
    end = activity.is_open and not -clock_backward_max_ms <= idle_ms < older_than_ms
    is_over = end or not activity.is_open
    phases = REPORTING_PHASES if is_over else REPORTING_PHASES[:1]
    asking = max((activity.assessed[phase] for phase in phases if phase in activity.assessed), default=-1)
    is_unreported = is_over and activity.has_findings and activity.report_index is None
    return end, is_unreported or asking > (-1 if activity.report_index is None else activity.report_index)


def sweep(
    author: Author, ask: Ask, make_report: MakesReport, *, now_ms: int, older_than_ms: int, is_dry: bool = False
) -> SweepResult:
    """End the author's idle sessions and make the missing reports; with ``is_dry`` only return what would be done."""
    done = SweepResult([], [], [], 0)
    for activity, version in list(_activities(ask, author.name)):
        must_end, must_report = decide(activity, now_ms=now_ms, older_than_ms=older_than_ms)
        done = done._replace(looked_at=done.looked_at + 1)
        # The report comes first, because it may use the session's summary; "swept" says nothing about the work.
        appended = must_report and _report(make_report, activity.session_id, done, is_dry=is_dry)
        # If we crash here, the report is in the log, and the next sweep ends the session.
        if must_end:
            _end(author, activity.session_id, version + appended, done, is_dry=is_dry)
    return done


def _report(make_report: MakesReport, session_id: str, done: SweepResult, *, is_dry: bool) -> bool:
    """Return whether an event was appended (or would be); an equal report is not appended again."""
    try:
        report = {} if is_dry else make_report(session_id)
    except DeedbookError as error:
        done.unmade.append(SweepFailure(session_id, "report", error))
        return False
    if report.get("is_repeat"):
        return False
    done.reported.append({"session_id": session_id, **report})
    return True


def _end(author: Author, session_id: str, version: int, done: SweepResult, *, is_dry: bool) -> None:
    try:
        if not is_dry:
            author.emit(Draft(stream=f"session/{session_id}", data=SessionEnded(summary=SWEPT), expect=version))
    except Refused as refusal:
        # Somebody wrote to the session meanwhile, so it is not idle any more.
        if refusal.code != "STREAM_CONFLICT":
            done.unmade.append(SweepFailure(session_id, "end", refusal))
        return
    done.ended.append(session_id)


def _activities(ask: Ask, agent: str) -> Iterator[tuple[Activity, int]]:
    """Yield the agent's sessions that may need a sweep, each with the version of its stream."""
    reports = _last_by_stream(ask, "report.generated", agent)
    assessments = _last_by_stream(ask, "assessment.recorded", agent)
    for row in every_row(ask, "sessions.list", {"author": agent}):
        if row["imported"] is not None:
            continue
        name, is_open = row["id"], row["status"] == "open"
        stream = f"session/{name}"
        report = reports.get(stream)
        is_assessed = assessments.get(stream, -1) > (-1 if report is None else report)
        has_findings = row["findings"] > 0
        if not (is_open or is_assessed or (has_findings and report is None)):
            continue
        # Nothing was assessed since the report, so the sweep does not need the phases.
        assessed = ask("sessions.show", {"id": name})["assessments"] if is_assessed else []
        last_ms = version = 0
        if is_open:  # find the last accepted event: the view's last one for this session, or a later one
            since = {"stream": stream, "after": row["updated_index"] - 1, "limit": rows_per_page}
            page = ask("catalog.find", since)
            last_ms, version = page["items"][-1]["accepted_ms"], page["total"]
        last_of_each_phase = {assessment["phase"]: assessment["event_index"] for assessment in assessed}
        yield Activity(name, is_open, last_ms, last_of_each_phase, report, has_findings), version


def _last_by_stream(ask: Ask, kind: str, agent: str) -> dict[str, int]:
    """Return the index of the last event of ``kind`` in each of the agent's streams."""
    rows = every_row(ask, "catalog.find", {"kind": kind, "author": agent})
    return {row["stream"]: row["event_index"] for row in rows}
