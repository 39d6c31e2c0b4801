"""Queries about reports: a single one, lists of the latest ones, and sessions with or without one.

A list has the latest version of each session, newest first: by the ledger's clock, or by the claimed time of imported
ones. ``total_found`` counts all matches.

A pattern is RE2's: matching takes time linear in the text. A pattern that RE2 does not support (backreferences,
look-around), or that compiles to too many instructions, is refused and never tried with another engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import re2

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers import query
from deedbook.projections.answers.answer import Page
from deedbook.projections.records.marks import AGENT, decoded
from deedbook.projections.reports.answers import ReportAnswer, ReportedSession, ReportPage, VersionLine
from deedbook.projections.reports.markdown import with_texts
from deedbook.projections.reports.report import ListedReport, ReportCorrection, is_same
from deedbook.projections.reports.trends import grounds_of
from deedbook.projections.sessions.queries import corrections_of_texts, find_session

pattern_max_chars: Final = 1_000
pattern_memory_max_bytes: Final = 8 * 1024**2
program_instructions_max: Final = 10_000

Pattern: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=pattern_max_chars, description="A pattern as RE2 reads it.")
]

_JOIN: Final = "FROM handoff_reports r JOIN handoff_report_versions v ON v.event_index = r.event_index"
LISTING: Final = query.Listing(
    f"SELECT v.report, r.event_index {_JOIN}",
    "handoff_reports r",
    "r.event_index",
    time="r.happened_ms",
    cursors="handoff_report_versions",
)
# A session that names no agent belongs to its author.
AI_ID: Final = "coalesce(nullif(s.ai_id, ''), s.author)"
SESSIONS: Final = query.Listing(
    f"SELECT s.id AS session_id, {AI_ID} AS ai_id, s.author, s.task, s.resumes, s.status, s.started_ms, s.ended_ms, "  # noqa: S608
    "s.started_index, s.happened_ms, s.imported, v.report FROM sessions s "
    "LEFT JOIN handoff_reports r ON r.session_id = s.id "
    "LEFT JOIN handoff_report_versions v ON v.event_index = r.event_index",
    "sessions s",
    "s.started_index",
    time="s.happened_ms",
    cursors="sessions",
)


class ReportName(query.Arguments, frozen=True):
    """``id`` is that of a session, or of a report's event, or a unique prefix; ``version`` is an event's id."""

    id: str
    version: str | None = None


class ReportList(query.Arguments, frozen=True):
    """The filters of a list; ``task_pattern`` is searched in task, outcome and findings, ignoring case.

    ``agent`` is the author, or the agent that an imported report claims. ``imported`` selects only reports of other
    tools, or (false) leaves them out. ``since`` and ``until`` limit the time of the report. The entry that starts a
    session is about its report.
    """

    ai_id: str | None = None
    author: str | None = None
    agent: str | None = None
    imported: bool | None = None
    since: query.Since | None = None
    until: query.Until | None = None
    entries: query.Entries | None = None
    task_pattern: Pattern | None = None
    after: int | None = None
    limit: query.Limit = 10


class SessionsWithReport(query.Arguments, frozen=True):
    """The filters of the sessions to resume; ``id`` is that of one session, or a prefix that only one id has.

    ``has`` leaves out sessions without a report that recorded nothing (``records``) or have no finding, unknown or dead
    end (``beliefs``); ``imported`` is as in ``ReportList``.
    """

    id: str | None = None
    ai_id: str | None = None
    author: str | None = None
    has: Literal["beliefs", "records"] | None = None
    imported: bool | None = None
    after: int | None = None
    limit: query.Limit = 10


def show_report(context: query.QueryContext, args: ReportName) -> ReportAnswer:
    """Return a version of a session's report; without ``version``, the latest, or the one that ``id`` names.

    Raises Refused: ``NOT_FOUND`` (also for a session without a report), or ``REF_AMBIGUOUS`` with the candidates.
    """
    session, named = _find(context, args)
    sql = "SELECT report_id, event_index, timestamp FROM handoff_report_versions WHERE session_id = ? ORDER BY 2"
    versions = context.rows(sql, (session,))
    if not versions:
        raise Refused("NOT_FOUND", f"session {session} has no report", reference=args.id, session_id=session)
    version = args.version or named
    (latest,) = context.rows("SELECT event_index FROM handoff_reports WHERE session_id = ?", (session,))
    index = latest["event_index"]
    if version is not None:
        fitting = {row["report_id"]: row["event_index"] for row in versions if _is_named(row["report_id"], version)}
        index = fitting[query.only_match(list(fitting), version, f"report of session {session}")]
    (row,) = context.rows("SELECT report FROM handoff_report_versions WHERE event_index = ?", (index,))
    (report,) = _read(context, [row])
    return ReportAnswer(
        report=with_texts(report),
        versions=[VersionLine(**version) for version in versions],
        grounds=grounds_of(context, session)[session],
    )


def list_reports(context: query.QueryContext, args: ReportList) -> ReportPage:
    """Return reports, newest first.

    Raises Refused: ``PATTERN_NOT_SUPPORTED``.
    """
    where = query.Where()
    where.equal("r.ai_id", args.ai_id)
    where.equal("r.author", args.author)
    where.equal(AGENT.format("r"), args.agent)
    where.within("r.happened_ms", args.since, args.until)
    where.of_entries("r.event_index", args.entries, titled="'session/' || r.session_id")
    _by_origin(where, "r", args.imported)
    if args.task_pattern is not None:
        _keep_matching(context, where, args.task_pattern)
    page, total, following = query.page_of(context, LISTING, where, args.after, args.limit)
    return ReportPage(reports=_read(context, page), total_found=total, next=following)


def list_sessions(context: query.QueryContext, args: SessionsWithReport) -> Page[ReportedSession]:
    """Return sessions with their latest reports, newest first."""
    where = query.Where()
    where.equal("s.id", None if args.id is None else find_session(context, args.id)["id"])
    where.equal(AI_ID, args.ai_id)
    where.equal("s.author", args.author)
    if args.has is not None:
        also = " + s.assessments + s.tools" if args.has == "records" else ""
        reported = "EXISTS (SELECT 1 FROM handoff_reports x WHERE x.session_id = s.id)"
        where.add(f"(s.findings + s.unknowns + s.dead_ends{also} > 0 OR {reported})")
    _by_origin(where, "s", args.imported)
    page, total, following = query.page_of(context, SESSIONS, where, args.after, args.limit)
    read = _read(context, [row for row in page if row["report"] is not None])
    reports = {report.session_id: report for report in read}
    sessions = [
        ReportedSession(**row | {"imported": decoded(row["imported"]), "report": reports.get(row["session_id"])})
        for row in page
    ]
    return Page(items=sessions, total=total, next=following)


def _read(context: query.QueryContext, rows: list[dict[str, Any]]) -> list[ListedReport]:
    """Return the reports of rows, with the corrections that came after them, or that concern the same words."""
    reports = [read_json(row["report"], ListedReport) for row in rows]
    by_session: dict[str, list[ReportCorrection]] = {report.session_id: [] for report in reports}
    for row in corrections_of_texts(context, *by_session) if by_session else ():
        fields = {name: row[name] for name in ReportCorrection.__struct_fields__ if name in row}
        correction = ReportCorrection(**fields, timestamp=clock_text(row["happened_ms"]))
        by_session[row["session_id"]].append(correction)

    def is_about(report: ListedReport, correction: ReportCorrection) -> bool:
        texts = (*report.key_findings, *report.remaining_unknowns)
        return correction.event_index > report.event_index or any(is_same(correction.text, text) for text in texts)

    return [
        msgspec.structs.replace(
            report,
            corrections=[correction for correction in by_session[report.session_id] if is_about(report, correction)],
        )
        for report in reports
    ]


def _by_origin(where: query.Where, table: str, imported: bool | None) -> None:  # noqa: FBT001 - three cases, by name
    if imported is not None:
        where.add(f"{table}.imported IS {'NOT ' if imported else ''}NULL")


def _keep_matching(context: query.QueryContext, where: query.Where, pattern: str) -> None:
    """Add the condition that a pattern occurs in the task, its outcome or a finding."""
    matches = matcher(pattern)
    sql = f"SELECT event_index, task, task_summary, key_findings FROM handoff_reports r{where.sql}"  # noqa: S608 - fixed texts
    matching = []
    for row in context.rows(sql, where.values):
        titles = {row["task"] or row["task_summary"], row["task_summary"]}
        if any(map(matches, titles)) or any(map(matches, read_json(row["key_findings"], list[str]))):
            matching.append(row["event_index"])
    where.add("r.event_index IN (SELECT CAST(value AS BIGINT) FROM json_each(?))", query.json_list(matching))


def _find(context: query.QueryContext, args: ReportName) -> tuple[str, str | None]:
    """Return the whole id of the session, and of the report if ``args.id`` names one."""
    try:
        return find_session(context, args.id)["id"], None
    except Refused as refused:
        if refused.code != "NOT_FOUND" or query.prefix_range(args.id, "event") is None:
            raise
        select = "SELECT report_id, session_id FROM handoff_report_versions"
        rows = query.by_ref(context, select, "report_id", "event", args.id)
        sessions = {row["report_id"]: row["session_id"] for row in rows}
        whole = query.only_match(list(sessions), args.id, "session or report")
        return sessions[whole], whole


def _is_named(report_id: str, reference: str) -> bool:
    bounds = query.prefix_range(reference, "event")
    return bounds is not None and bounds[0] <= report_id < bounds[1]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that searches the pattern, ignoring case. Raises Refused: ``PATTERN_NOT_SUPPORTED``."""
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = pattern_memory_max_bytes
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        message = error.args[0] if error.args else error
        why = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise _refusal(pattern, why) from error
    if compiled.programsize > program_instructions_max:
        raise _refusal(pattern, f"it compiles to {compiled.programsize} instructions of {program_instructions_max}")
    return lambda text: compiled.search(text) is not None


def _refusal(pattern: str, why: str) -> Refused:
    message = f"the pattern cannot be used: {why} (RE2 has no back references and no look-around)"
    return Refused("PATTERN_NOT_SUPPORTED", message, pattern=pattern, why=why)
