"""How well agents judge themselves over time, and what a session's author finished meanwhile.

Calibration counts the latest report of each session, but none that was imported: another tool measures by rules of its
own. A negative bias is overconfident (``projections.reports.calibration``).
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from ledger.events.session import Calibration
from projections.query import Answer, Arguments, ById, Limit, Moment, Where
from projections.reports.calibration import bias_above, bias_of, decimals, label_of_bias
from projections.sessions.queries import find_session

accomplished_max: Final = 200

_DONE: Final = {
    "handoff.task_checked": ("task done: ", "task undone: "),
    "handoff.criterion_checked": ("criterion met: ", "criterion open again: "),
    "handoff.completed": ("completed", ""),
}


class OfAgent(Arguments, frozen=True):
    """One agent, or all; the newest ``limit`` reports of each stand as points, all of them count."""

    ai_id: str | None = None
    since_ms: int | None = None
    limit: Limit = 50


def calibration(moment: Moment, asked: OfAgent) -> Answer:
    """Return ``{"agents", "imported_left_out"}``: what agents reported, and how many imported reports do not count.

    Per agent ``points`` (oldest first), ``counts`` of labels, ``bias`` and what it means.
    """
    where = Where(asked, "ai_id")
    where.given("happened_ms >= ?", asked.since_ms)
    left_out = moment.count(f"SELECT count(imported) FROM handoff_reports{where.sql}", where.values)  # noqa: S608
    where.add("imported IS NULL")
    sql = (
        "SELECT ai_id, session_id, report_id, timestamp, calibration_status, epistemic_deltas "  # noqa: S608
        f"FROM handoff_reports{where.sql} ORDER BY ai_id, event_index"
    )
    agents: dict[str, list[dict[str, Any]]] = {}
    for row in moment.rows(sql, where.values):
        agents.setdefault(row["ai_id"], []).append(_point(row))
    return {
        "agents": [_agent(ai_id, points, asked.limit) for ai_id, points in agents.items()],
        "imported_left_out": left_out,
    }


def accomplished(moment: Moment, asked: ById) -> Answer:
    """Return ``{"session_id", "accomplished", "items", "total"}``: what the session's author finished in handoffs.

    That is every task done, criterion met and handoff completed by that author between the events that started and
    ended the session (to the end of the log while it is open), unless it was undone there too. Texts are whole.
    """
    session = find_session(moment, asked.id)
    sql = (
        "SELECT event_index, handoff_id, at, kind, text FROM handoff_log WHERE author = ? AND event_index > ? "
        "AND (? IS NULL OR event_index < ?) AND kind IN (?, ?, ?) ORDER BY event_index"
    )
    end = session["ended_index"]
    asked_for = (session["author"], session["started_index"], end, end, *_DONE)
    rows = [] if session["imported"] else moment.rows(sql, asked_for)  # its author only brought it in
    items = _finished(rows)
    return {
        "session_id": session["id"],
        "accomplished": [f"{item['text']} (handoff {item['handoff_id']})" for item in items[:accomplished_max]],
        "items": items[:accomplished_max],
        "total": len(items),
    }


def bias_text(bias: float | None) -> str:
    """Return one sentence on what a mean of dk - du says about an agent."""
    if bias is None:
        return "No report of this agent assesses KNOW and UNCERTAINTY on both sides, so nothing can be said."
    status = label_of_bias(bias)
    if bias == 0:
        return "Knowledge grew as much as uncertainty fell: no bias."
    more, less = ("Uncertainty fell", "knowledge grew") if bias < 0 else ("Knowledge grew", "uncertainty fell")
    meaning = {
        "overconfident": "the agent tends to be overconfident.",
        "underconfident": "the agent tends to be underconfident.",
        "well_calibrated": f"within the {bias_above:.2f} that count as well calibrated.",
    }
    return f"{more} by {abs(bias):.2f} more than {less} on average: {meaning[status]}"


def _point(row: dict[str, Any]) -> dict[str, Any]:
    deltas = msgspec.json.decode(row["epistemic_deltas"])
    know, uncertainty = deltas.get("know"), deltas.get("uncertainty")
    return {
        "timestamp": row["timestamp"],
        "session_id": row["session_id"],
        "report_id": row["report_id"],
        "dk": know,
        "du": None if uncertainty is None else 0.0 - uncertainty,
        "bias": bias_of(know, uncertainty),
        "status": row["calibration_status"],
    }


def _agent(ai_id: str, points: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    biases = [point["bias"] for point in points if point["bias"] is not None]
    bias = round(sum(biases) / len(biases), decimals) + 0.0 if biases else None
    return {
        "ai_id": ai_id,
        "points": points[-limit:],
        "counts": {status: sum(point["status"] == status for point in points) for status in get_args(Calibration)},
        "total": len(points),
        "assessed": len(biases),
        "bias": bias,
        "meaning": bias_text(bias),
    }


def _finished(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was done and not undone later, each once, in the order of the log."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        done, undone = _DONE[row["kind"]]
        place = (row["handoff_id"], row["kind"])
        if row["text"].startswith(done):
            key = (*place, row["text"].removeprefix(done) if undone else "")
            found.pop(key, None)
            found[key] = row
        else:
            what = row["text"].removeprefix(undone)
            # A criterion's evidence follows it in brackets: "tests are green (make test)".
            gone = [key for key in found if key[:2] == place and (key[2] == what or key[2].startswith(f"{what} ("))]
            for key in gone:
                del found[key]
    return list(found.values())
