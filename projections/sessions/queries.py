"""Queries about sessions: list them, show one with everything recorded in it, follow its vectors.

``imported`` of a session is None, or has its origin and its importer (``projections.records.marks``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal

from deedbook.projections.answers.query import (
    ById,
    ListArguments,
    Listing,
    Plain,
    QueryContext,
    Where,
    plain_list_of,
    row_of_id,
    with_json,
)
from deedbook.projections.reports.calibration import VECTOR_NAMES, assessment_pair, bias_of, difference

LISTING: Final = Listing("SELECT * FROM sessions", "sessions", "started_index", time="happened_ms", cursors="sessions")
_REPORTED: Final = (
    "SELECT session_id, coalesce(nullif(task, ''), task_summary) AS task, json_array_length(key_findings) AS findings "
    "FROM handoff_reports WHERE imported IS NOT NULL AND session_id IN"
)
_RECORDED: Final = "SELECT * FROM {} WHERE session_id = ? ORDER BY event_index"
_TABLES: Final = {"tools": "tools_used"}  # tables whose count has another name
# The count that a correction lowers.
_CORRECTED: Final = {"finding.retracted": "findings", "dead_end.retracted": "dead_ends", "unknown.resolved": "unknowns"}


class SessionList(ListArguments, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    ai_id: str | None = None
    status: Literal["open", "ended", "imported"] | None = None


def find_session(context: QueryContext, reference: str) -> dict[str, Any]:
    """Return the row of a session by its id or an unambiguous beginning of it."""
    return row_of_id(context, "sessions", reference, "session")


def list_sessions(context: QueryContext, args: SessionList) -> Plain:
    """Return ``{"sessions", "total", "next"}``, newest first; retracted or resolved things are not counted."""
    where = Where(args, "author", "ai_id", "status")
    page = plain_list_of(context, LISTING, where, args, of="sessions", read=_session)
    rows = {session["id"]: session for session in page["sessions"]}
    marks = ", ".join("?" * len(rows))
    reported, corrected = context.together((f"{_REPORTED} ({marks})", tuple(rows)), _corrections_query(rows))
    for row in reported:  # often the only data of an imported session
        session = rows[row["session_id"]]
        session["task"] = session["task"] or row["task"]
        session["findings"] = max(session["findings"], row["findings"])
    for row in _first_of_each(corrected):
        rows[row["session_id"]][_CORRECTED[row["kind"]]] -= 1
    return page


def show_session(context: QueryContext, args: ById) -> Plain:
    """Return a session with its assessments, findings, unknowns, dead ends and tools, in the order of the log.

    ``counts`` has the number of each. A vector that was not assessed is absent from ``vectors``. ``correction`` is
    None, or says who retracted or resolved the thing, when, and in which ``words``.
    """
    name = args.id.removeprefix("session/")
    (*rows,), corrected = context.together(("SELECT * FROM sessions WHERE id = ?", (name,)), _corrections_query([name]))
    if not rows:
        rows = [find_session(context, args.id)]
        corrected = context.rows(*_corrections_query([rows[0]["id"]]))
    (row,) = rows
    corrections = {correction.pop("target_index"): correction for correction in _first_of_each(corrected)}
    counts = {key: row.pop(key) for key in ("assessments", "findings", "unknowns", "dead_ends", "tools")}
    some = [of for of, count in counts.items() if count]
    results = context.together(*[(_RECORDED.format(_TABLES.get(of, of)), (row["id"],)) for of in some])
    recorded: dict[str, list[Plain]] = {of: [] for of in counts} | {
        of: [*map(_event, rows)] for of, rows in zip(some, results, strict=True)
    }

    def correctable(of: str) -> list[dict[str, Any]]:
        return [event | {"correction": corrections.get(event["event_index"])} for event in recorded[of]]

    return _session(row) | {
        "counts": counts,
        "assessments": [_assessment(row) for row in recorded["assessments"]],
        "findings": [with_json(row, "evidence") for row in correctable("findings")],
        "unknowns": correctable("unknowns"),
        "dead_ends": correctable("dead_ends"),
        "tools": recorded["tools"],
    }


def corrections_of(context: QueryContext, *sessions: str) -> list[dict[str, Any]]:
    """Return the corrections in sessions, in order, each with the ``text`` of its target.

    Only the first correction of an event counts, and only if its kind fits the target.
    """
    return _first_of_each(context.rows(*_corrections_query(sessions)))


def _corrections_query(sessions: Collection[str]) -> tuple[str, tuple[str, ...]]:
    sql = f"""
        SELECT c.session_id, c.kind, c.event_index, c.author, c.words, c.happened_ms, e.event_index AS target_index,
            coalesce(f.finding, u.unknown, d.approach || ' (' || d.why_failed || ')') AS text
        FROM corrections c JOIN events e ON e.id = c.target
        LEFT JOIN findings f ON c.kind = 'finding.retracted' AND f.event_index = e.event_index
        LEFT JOIN unknowns u ON c.kind = 'unknown.resolved' AND u.event_index = e.event_index
        LEFT JOIN dead_ends d ON c.kind = 'dead_end.retracted' AND d.event_index = e.event_index
        WHERE c.session_id IN ({", ".join("?" * len(sessions))})
        ORDER BY c.event_index DESC"""  # noqa: S608 - marks alone
    return sql, tuple(sessions)


def _first_of_each(corrected: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    first = {row["target_index"]: row for row in corrected if row["text"] is not None}
    return sorted(first.values(), key=lambda row: int(row["event_index"]))


def follow_vectors(context: QueryContext, args: ById) -> Plain:
    """Return how a session's vectors moved: its assessments in order as ``points``, and their comparison.

    ``changes`` of a point are differences to the last assessment of each vector. ``deltas``, overall confidence and
    ``calibration_status`` compare PREFLIGHT and POSTFLIGHT as a report does. ``bias`` is negative if uncertainty fell
    by more than knowledge grew.
    """
    name = find_session(context, args.id)["id"]
    rows = context.rows(_RECORDED.format("assessments"), (name,))
    assessments = [_assessment(_event(row)) for row in rows]
    ends = assessment_pair(assessments)
    compared = ends.comparison
    last: dict[str, float] = {}
    for assessment in assessments:
        vectors = assessment["vectors"]
        assessment["changes"] = {name: difference(last[name], vectors[name]) for name in vectors if name in last}
        last |= vectors
    return {
        "session_id": name,
        "points": assessments,
        "report_type": ends.report_type,
        **compared._asdict(),
        "bias": bias_of(compared.deltas.get("know"), compared.deltas.get("uncertainty")),
    }


def _event(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "session_id"}


def _session(row: dict[str, Any]) -> dict[str, Any]:
    return with_json(row, "imported")


def _assessment(row: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in row.items() if key not in VECTOR_NAMES}
    return plain | {"vectors": {name: row[name] for name in VECTOR_NAMES if row[name] is not None}}
