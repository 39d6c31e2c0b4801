"""Questions about sessions: list them, show one with all that was recorded in it, follow its vectors.

``imported`` of a session is None, or says where it comes from and who imported it (``projections.records.marks``).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from projections.query import Answer, ById, Listing, Moment, Page, Where, list_of, row_of_id, with_json
from projections.reports.calibration import VECTOR_NAMES, bias_of, difference, ends_of

LISTING: Final = Listing("SELECT * FROM sessions", "sessions", "started_index", time="happened_ms", cursors="sessions")
_REPORTED: Final = (
    "SELECT session_id, coalesce(nullif(task, ''), task_summary) AS task, json_array_length(key_findings) AS findings "
    "FROM handoff_reports WHERE imported IS NOT NULL AND session_id IN"
)
# Which count of a session its correction lowers.
_CORRECTED: Final = {"finding.retracted": "findings", "dead_end.retracted": "dead_ends", "unknown.resolved": "unknowns"}


class SessionList(Page, frozen=True):
    """Filters of a list, newest first."""

    author: str | None = None
    ai_id: str | None = None
    status: Literal["open", "ended", "imported"] | None = None


def find_session(moment: Moment, asked: str) -> dict[str, Any]:
    """Return the row of a session by its id or an unambiguous beginning of it."""
    return row_of_id(moment, "sessions", asked, "session")


def list_sessions(moment: Moment, asked: SessionList) -> Answer:
    """Return ``{"sessions", "total", "next"}``, newest first; what was taken back or resolved counts no more."""
    where = Where(asked, "author", "ai_id", "status")
    page = list_of(moment, LISTING, where, asked, of="sessions", read=_session)
    rows = {row["id"]: row for row in page["sessions"]}
    marks = ", ".join("?" * len(rows))
    for one in moment.rows(f"{_REPORTED} ({marks})", tuple(rows)):  # of an imported one all that is known, often
        row = rows[one["session_id"]]
        row["task"] = row["task"] or one["task"]
        row["findings"] = max(row["findings"], one["findings"])
    for one in corrections_of(moment, *rows):
        rows[one["session_id"]][_CORRECTED[one["kind"]]] -= 1
    return page


def show_session(moment: Moment, asked: ById) -> Answer:
    """Return a session with its assessments, findings, unknowns, dead ends and tools, in the order of the log.

    The numbers of each stand under ``counts``. A vector that was not assessed is absent from ``vectors``. The
    ``correction`` of what was found out is None, or who took it back or resolved it, when, and in which ``words``.
    """
    row = find_session(moment, asked.id)
    name = row["id"]
    corrections = {one.pop("target_index"): one for one in corrections_of(moment, name)}
    counts = {key: row.pop(key) for key in ("assessments", "findings", "unknowns", "dead_ends", "tools")}

    def recorded(of: str, table: str = "") -> list[dict[str, Any]]:
        return _of(moment, table or of, name) if counts[of] else []

    def correctable(of: str) -> list[dict[str, Any]]:
        return [event | {"correction": corrections.get(event["event_index"])} for event in recorded(of)]

    return _session(row) | {
        "counts": counts,
        "assessments": [_assessment(row) for row in recorded("assessments")],
        "findings": [with_json(row, "evidence") for row in correctable("findings")],
        "unknowns": correctable("unknowns"),
        "dead_ends": correctable("dead_ends"),
        "tools": recorded("tools", "tools_used"),
    }


def corrections_of(moment: Moment, *sessions: str) -> list[dict[str, Any]]:
    """Return what was corrected in sessions, in order, each with the ``text`` of its target.

    Of several corrections of one event the first counts; one whose kind is not for its target counts as none.
    """
    sql = f"""
        SELECT c.session_id, c.kind, c.event_index, c.author, c.words, c.happened_ms, e.event_index AS target_index,
            coalesce(f.finding, u.unknown, d.approach || ' (' || d.why_failed || ')') AS text
        FROM corrections c JOIN events e ON e.id = c.target
        LEFT JOIN findings f ON c.kind = 'finding.retracted' AND f.event_index = e.event_index
        LEFT JOIN unknowns u ON c.kind = 'unknown.resolved' AND u.event_index = e.event_index
        LEFT JOIN dead_ends d ON c.kind = 'dead_end.retracted' AND d.event_index = e.event_index
        WHERE c.session_id IN ({", ".join("?" * len(sessions))})
        ORDER BY c.event_index DESC"""  # noqa: S608 - marks alone
    first = {row["target_index"]: row for row in moment.rows(sql, sessions) if row["text"] is not None}
    return sorted(first.values(), key=lambda row: int(row["event_index"]))


def follow_vectors(moment: Moment, asked: ById) -> Answer:
    """Return how a session's vectors moved: its assessments as ``points`` in order, and what the ends say together.

    ``changes`` of a point are against the last time that each vector was assessed. ``deltas``, overall confidence and
    ``calibration_status`` compare PREFLIGHT and POSTFLIGHT as a report does; ``bias`` is negative when uncertainty
    fell by more than knowledge grew.
    """
    name = find_session(moment, asked.id)["id"]
    assessments = [_assessment(row) for row in _of(moment, "assessments", name)]
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


def _of(moment: Moment, table: str, session: str) -> list[dict[str, Any]]:
    sql = f"SELECT * FROM {table} WHERE session_id = ? ORDER BY event_index"  # noqa: S608 - fixed names
    rows = moment.rows(sql, (session,))
    return [{key: value for key, value in row.items() if key != "session_id"} for row in rows]


def _session(row: dict[str, Any]) -> dict[str, Any]:
    return with_json(row, "imported")


def _assessment(row: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in row.items() if key not in VECTOR_NAMES}
    return plain | {"vectors": {name: row[name] for name in VECTOR_NAMES if row[name] is not None}}
