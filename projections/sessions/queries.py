"""Questions about sessions: list them, show one with all that was recorded in it, follow its vectors.

``imported`` of a session is None, or says where it comes from and who imported it (``projections.records.marks``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal

from deedbook.projections.answers.query import (
    Answer,
    ById,
    Listing,
    Page,
    QueryContext,
    Where,
    list_of,
    row_of_id,
    with_json,
)
from deedbook.projections.reports.calibration import VECTOR_NAMES, bias_of, difference, ends_of

LISTING: Final = Listing("SELECT * FROM sessions", "sessions", "started_index", time="happened_ms", cursors="sessions")
_REPORTED: Final = (
    "SELECT session_id, coalesce(nullif(task, ''), task_summary) AS task, json_array_length(key_findings) AS findings "
    "FROM handoff_reports WHERE imported IS NOT NULL AND session_id IN"
)
_RECORDED: Final = "SELECT * FROM {} WHERE session_id = ? ORDER BY event_index"
_TABLES: Final = {"tools": "tools_used"}  # of what is counted under another name
# Which count of a session its correction lowers.
_CORRECTED: Final = {"finding.retracted": "findings", "dead_end.retracted": "dead_ends", "unknown.resolved": "unknowns"}


class SessionList(Page, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    ai_id: str | None = None
    status: Literal["open", "ended", "imported"] | None = None


def find_session(context: QueryContext, args: str) -> dict[str, Any]:
    """Return the row of a session by its id or an unambiguous beginning of it."""
    return row_of_id(context, "sessions", args, "session")


def list_sessions(context: QueryContext, args: SessionList) -> Answer:
    """Return ``{"sessions", "total", "next"}``, newest first; what was taken back or resolved counts no more."""
    where = Where(args, "author", "ai_id", "status")
    page = list_of(context, LISTING, where, args, of="sessions", read=_session)
    rows = {row["id"]: row for row in page["sessions"]}
    marks = ", ".join("?" * len(rows))
    reported, corrected = context.together((f"{_REPORTED} ({marks})", tuple(rows)), _corrected(rows))
    for one in reported:  # of an imported one all that is known, often
        row = rows[one["session_id"]]
        row["task"] = row["task"] or one["task"]
        row["findings"] = max(row["findings"], one["findings"])
    for one in _first_of_each(corrected):
        rows[one["session_id"]][_CORRECTED[one["kind"]]] -= 1
    return page


def show_session(context: QueryContext, args: ById) -> Answer:
    """Return a session with its assessments, findings, unknowns, dead ends and tools, in the order of the log.

    The numbers of each stand under ``counts``. A vector that was not assessed is absent from ``vectors``. The
    ``correction`` of what was found out is None, or who took it back or resolved it, when, and in which ``words``.
    """
    name = args.id.removeprefix("session/")
    (*rows,), corrected = context.together(("SELECT * FROM sessions WHERE id = ?", (name,)), _corrected([name]))
    if not rows:
        rows = [find_session(context, args.id)]
        corrected = context.rows(*_corrected([rows[0]["id"]]))
    (row,) = rows
    corrections = {one.pop("target_index"): one for one in _first_of_each(corrected)}
    counts = {key: row.pop(key) for key in ("assessments", "findings", "unknowns", "dead_ends", "tools")}
    some = [of for of, count in counts.items() if count]
    found = context.together(*[(_RECORDED.format(_TABLES.get(of, of)), (row["id"],)) for of in some])
    recorded: dict[str, list[Answer]] = {of: [] for of in counts} | {
        of: [*map(_event, rows)] for of, rows in zip(some, found, strict=True)
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
    """Return what was corrected in sessions, in order, each with the ``text`` of its target.

    Of several corrections of one event the first counts; one whose kind is not for its target counts as none.
    """
    return _first_of_each(context.rows(*_corrected(sessions)))


def _corrected(sessions: Collection[str]) -> tuple[str, tuple[str, ...]]:
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


def follow_vectors(context: QueryContext, args: ById) -> Answer:
    """Return how a session's vectors moved: its assessments as ``points`` in order, and what the ends say together.

    ``changes`` of a point are against the last time that each vector was assessed. ``deltas``, overall confidence and
    ``calibration_status`` compare PREFLIGHT and POSTFLIGHT as a report does; ``bias`` is negative when uncertainty
    fell by more than knowledge grew.
    """
    name = find_session(context, args.id)["id"]
    rows = context.rows(_RECORDED.format("assessments"), (name,))
    assessments = [_assessment(_event(row)) for row in rows]
    ends = ends_of(assessments)
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
