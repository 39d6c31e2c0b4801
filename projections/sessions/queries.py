"""Queries about sessions: list them, show one with everything recorded in it, follow its vectors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from deedbook.ledger.events.session import Deltas, Vectors
from deedbook.projections.answers.answer import UNDATED_MS, Page
from deedbook.projections.answers.query import (
    ById,
    Entries,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Since,
    Until,
    Where,
    page_of,
    row_of_id,
    with_json,
)
from deedbook.projections.records.marks import AGENT, decoded
from deedbook.projections.reports.calibration import VECTOR_NAMES, assessment_pair, bias_of, difference
from deedbook.projections.sessions.answers import (
    AppliedCorrection,
    CorrectionKind,
    RecordCounts,
    RecordedAssessment,
    RecordedDeadEnd,
    RecordedFinding,
    RecordedTool,
    RecordedUnknown,
    SessionLine,
    SessionStatus,
    ShownSession,
    StatementLine,
    StatementType,
    Trajectory,
    TrajectoryPoint,
)

LISTING: Final = Listing("SELECT * FROM sessions", "sessions", "started_index", time="happened_ms", cursors="sessions")
_REPORTED: Final = (
    "SELECT session_id, coalesce(nullif(task, ''), task_summary) AS task, json_array_length(key_findings) AS findings "
    "FROM handoff_reports WHERE imported IS NOT NULL AND session_id IN"
)
_RECORDED: Final = "SELECT * FROM {} WHERE session_id = ? ORDER BY event_index"
_TABLES: Final = {"tools": "tools_used"}  # tables whose count has another name
# For each type of statement: its table, the columns of its text and of its detail, and the kind of its correction.
_STATEMENTS: Final[dict[StatementType, tuple[str, str, str, CorrectionKind]]] = {
    "finding": ("findings", "finding", "''", "finding.retracted"),
    "unknown": ("unknowns", "unknown", "''", "unknown.resolved"),
    "dead_end": ("dead_ends", "approach", "t.why_failed", "dead_end.retracted"),
}
_CORRECTED_IN: Final = "SELECT o.event_index FROM corrections c JOIN events o ON o.id = c.target"
# The count that a correction lowers has the name of the table.
_CORRECTED: Final[dict[str, str]] = {kind: table for table, _, _, kind in _STATEMENTS.values()}


class SessionList(ListArguments, frozen=True):
    """The filters of a list, newest first. ``agent`` is the author, or the agent that an imported session claims.

    ``since`` and ``until`` limit the time of the session's start.
    """

    author: str | None = None
    ai_id: str | None = None
    agent: str | None = None
    status: SessionStatus | None = None
    since: Since | None = None
    until: Until | None = None


class StatementList(ListArguments, frozen=True):
    """The filters of a list, newest first. ``agent`` is the author, or the agent that an imported record claims.

    ``since`` and ``until`` limit the time of the statement. ``corrected`` selects only statements that were retracted
    or resolved, and ``since`` and ``until`` then limit that time; or (false) only those still in force. The entry that
    starts a session is about each statement in it.
    """

    type: StatementType = "finding"
    agent: str | None = None
    topic: str | None = None
    corrected: bool | None = None
    since: Since | None = None
    until: Until | None = None
    entries: Entries | None = None


def find_session(context: QueryContext, reference: str) -> dict[str, Any]:
    """Return the row of a session by its id or an unambiguous beginning of it."""
    return row_of_id(context, "sessions", reference, "session")


def list_sessions(context: QueryContext, args: SessionList) -> Page[SessionLine]:
    """Return sessions, newest first."""
    where = Where(args, "author", "ai_id", "status")
    where.equal(AGENT.format("sessions"), args.agent)
    where.within("happened_ms", args.since, args.until)
    page, total, following = page_of(context, LISTING, where, args.after, args.limit)
    rows = {row["id"]: row for row in page}
    marks = ", ".join("?" * len(rows))
    reported, corrected = context.together((f"{_REPORTED} ({marks})", tuple(rows)), _corrections_query(rows))
    _count(rows, reported, _first_of_each(corrected))
    return Page(items=[SessionLine(**_with_mark(row)) for row in page], total=total, next=following)


def _count(rows: Mapping[str, Plain], reported: Iterable[Plain], corrections: Iterable[Plain]) -> None:
    """Complete the rows of sessions, by their ids, with imported reports, and do not count what was corrected."""
    for row in reported:  # often the only data of an imported session
        session = rows[row["session_id"]]
        session["task"] = session["task"] or row["task"]
        session["findings"] = max(session["findings"], row["findings"])
    for row in corrections:
        rows[row["session_id"]][_CORRECTED[row["kind"]]] -= 1


def show_session(context: QueryContext, args: ById) -> ShownSession:
    """Return a session with everything recorded in it."""
    name = args.id.removeprefix("session/")
    (*rows,), reported, corrected = context.together(
        ("SELECT * FROM sessions WHERE id = ?", (name,)), (f"{_REPORTED} (?)", (name,)), _corrections_query([name])
    )
    if not rows:
        rows = [find_session(context, args.id)]
        name = rows[0]["id"]
        reported, corrected = context.together((f"{_REPORTED} (?)", (name,)), _corrections_query([name]))
    (row,) = rows
    corrected = _first_of_each(corrected)
    corrections = {correction["target_index"]: correction_of(correction) for correction in corrected}
    some = [of for of in RecordCounts.__struct_fields__ if row[of]]
    _count({row["id"]: row}, reported, corrected)
    counts = RecordCounts(**{of: row.pop(of) for of in RecordCounts.__struct_fields__})
    results = context.together(*[(_RECORDED.format(_TABLES.get(of, of)), (row["id"],)) for of in some])
    recorded = dict(zip(some, results, strict=True))

    def things(of: str) -> list[Plain]:
        return [{name: thing[name] for name in thing if name != "session_id"} for thing in recorded.get(of, [])]

    def statements(of: str) -> list[Plain]:
        return [thing | {"correction": corrections.get(thing["event_index"])} for thing in things(of)]

    return ShownSession(
        **_with_mark(row),
        counts=counts,
        assessments=[RecordedAssessment(**_assessed(thing)) for thing in things("assessments")],
        findings=[RecordedFinding(**with_json(thing, "evidence")) for thing in statements("findings")],
        unknowns=[RecordedUnknown(**thing) for thing in statements("unknowns")],
        dead_ends=[RecordedDeadEnd(**thing) for thing in statements("dead_ends")],
        tools=[RecordedTool(**thing) for thing in things("tools")],
    )


def list_statements(context: QueryContext, args: StatementList) -> Page[StatementLine]:
    """Return findings, unknowns or dead ends of all sessions, newest first."""
    table, text, detail, kind = _STATEMENTS[args.type]
    joined = f"{table} t JOIN events e ON e.event_index = t.event_index"
    listing = Listing(
        f"SELECT t.event_index, t.session_id, t.{text} AS text, {detail} AS detail, t.impact, t.topic, t.accepted_ms, "  # noqa: S608
        "t.happened_ms, e.author, e.agent, s.task, s.imported "
        f"FROM {joined} JOIN sessions s ON s.id = t.session_id",
        joined,
        "t.event_index",
        time="t.happened_ms",
        cursors=table,
    )
    where = Where()
    where.equal("e.agent", args.agent)
    where.equal("t.topic", args.topic)
    where.of_entries("t.event_index", args.entries, titled="e.stream")
    if args.corrected:
        corrected = Where()
        corrected.equal("c.kind", kind)
        corrected.within("c.happened_ms", args.since, args.until)
        where.add(f"t.event_index IN ({_CORRECTED_IN}{corrected.sql})", *corrected.values)
    else:
        where.within("t.happened_ms", args.since, args.until)
        if args.corrected is not None:
            where.add(
                f"NOT EXISTS ({_CORRECTED_IN} WHERE c.kind = ? AND c.session_id = t.session_id "
                "AND o.event_index = t.event_index)",
                kind,
            )
    page, total, following = page_of(context, listing, where, args.after, args.limit)
    applied = corrections_of(context, *{row["session_id"]: None for row in page}) if page else []
    corrections = {row["target_index"]: correction_of(row) for row in applied}
    lines = [
        StatementLine(**_with_mark(row), type=args.type, correction=corrections.get(row["event_index"])) for row in page
    ]
    return Page(items=lines, total=total, next=following)


def corrections_of(context: QueryContext, *sessions: str) -> list[dict[str, Any]]:
    """Return the corrections in sessions, in order, each with the ``text`` of its target.

    Only the first correction of an event counts, and only if its kind fits the target.
    """
    return _first_of_each(context.rows(*_corrections_query(sessions)))


def _corrections_query(sessions: Collection[str]) -> tuple[str, tuple[str, ...]]:
    sql = f"""
        SELECT c.session_id, c.kind, c.event_index, c.author, c.words,
            coalesce(nullif(c.happened_ms, {UNDATED_MS}), c.accepted_ms) AS happened_ms, e.event_index AS target_index,
            coalesce(f.finding, u.unknown, d.approach || ' (' || d.why_failed || ')') AS text
        FROM corrections c JOIN events e ON e.id = c.target
        LEFT JOIN findings f ON c.kind = 'finding.retracted' AND f.event_index = e.event_index
        LEFT JOIN unknowns u ON c.kind = 'unknown.resolved' AND u.event_index = e.event_index
        LEFT JOIN dead_ends d ON c.kind = 'dead_end.retracted' AND d.event_index = e.event_index
        WHERE c.session_id IN ({", ".join("?" * len(sessions))})
        ORDER BY c.event_index DESC"""  # noqa: S608 - marks alone
    return sql, tuple(sessions)


def corrections_of_texts(context: QueryContext, *sessions: str) -> list[dict[str, Any]]:
    """Return ``corrections_of``, without corrections of a text that the session states again and has not corrected.

    For readers that know a statement by its text alone: an author retracts a finding to record it with other evidence.
    """
    corrections = corrections_of(context, *sessions)
    corrected = tuple({row["session_id"] for row in corrections})
    if not corrected:
        return []
    marks = ", ".join("?" * len(corrected))
    sql = " UNION ALL ".join(
        f"SELECT t.session_id, '{kind}' AS kind, t.{text} || CASE {detail} WHEN '' THEN '' "  # noqa: S608 - own names
        f"ELSE ' (' || {detail} || ')' END AS text FROM {table} t "
        f"WHERE t.session_id IN ({marks}) AND NOT EXISTS ({_CORRECTED_IN} "
        f"WHERE c.kind = '{kind}' AND c.session_id = t.session_id AND o.event_index = t.event_index)"
        for table, text, detail, kind in _STATEMENTS.values()
    )
    rows = context.rows(sql, corrected * len(_STATEMENTS))
    standing = {(row["session_id"], row["kind"], row["text"].strip()) for row in rows}
    return [row for row in corrections if (row["session_id"], row["kind"], row["text"].strip()) not in standing]


def _first_of_each(corrected: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    first = {row["target_index"]: row for row in corrected if row["text"] is not None}
    return sorted(first.values(), key=lambda row: int(row["event_index"]))


def correction_of(row: dict[str, Any]) -> AppliedCorrection:
    """Return a row of ``corrections_of`` as an answer."""
    return AppliedCorrection(**{name: row[name] for name in AppliedCorrection.__struct_fields__ if name in row})


def follow_vectors(context: QueryContext, args: ById) -> Trajectory:
    """Return the movement of a session's vectors."""
    name = find_session(context, args.id)["id"]
    points: list[TrajectoryPoint] = []
    last: dict[str, float] = {}
    for row in context.rows(_RECORDED.format("assessments"), (name,)):
        vectors = {vector: row[vector] for vector in VECTOR_NAMES if row[vector] is not None}
        changes = {vector: difference(last[vector], vectors[vector]) for vector in vectors if vector in last}
        del row["session_id"]
        points.append(TrajectoryPoint(**_assessed(row), changes=Deltas(**changes)))
        last |= vectors
    ends = assessment_pair([point.to_dict() for point in points])
    compared = ends.comparison
    return Trajectory(
        session_id=name,
        points=points,
        report_type=ends.report_type,
        deltas=Deltas(**compared.deltas),
        overall_confidence_before=compared.overall_confidence_before,
        overall_confidence_after=compared.overall_confidence_after,
        is_overall_given=compared.is_overall_given,
        calibration_status=compared.calibration_status,
        bias=bias_of(compared.deltas.get("know"), compared.deltas.get("uncertainty")),
    )


def _with_mark(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"imported": decoded(row["imported"])}


def _assessed(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an assessment with its vectors together."""
    vectors = Vectors(**{name: row.pop(name) for name in VECTOR_NAMES})
    return row | {"vectors": vectors}
