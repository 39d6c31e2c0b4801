"""`/s/ID`: a session with its assessments, findings, report, handoffs and reasonings."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.interfaces.dashboard.pages.evidence import with_places_of_findings
from deedbook.ledger.errors import or_none
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.reports.calibration import INVERTED, VECTOR_NAMES, assessment_pair, bias_above
from deedbook.projections.reports.trends import TICKED

rows_max: Final = 200
_MADE: Final = frozenset({"handoff.created", "handoff.completed"})
_ENDS: Final = frozenset({"PREFLIGHT", "POSTFLIGHT"})


def session(context: PageContext) -> Page:
    """Return the session with its ``vectors``, ``trajectory``, ``report``, ``handoffs`` and ``reasonings``.

    Each vector has ``before`` and ``after`` from PREFLIGHT and POSTFLIGHT (None: not assessed), ``between`` from other
    assessments, ``is_inverted`` if a lower value is better, and ``missing``, why it has no ``change``. ``ticked`` are
    the report's lines about tasks and criteria, in the order of their handoffs.
    """
    row = context.ask("sessions.show", id=context.params["id"])
    assessments = row.pop("assessments")
    trajectory = context.ask("sessions.trajectory", id=row["id"])
    ends = assessment_pair(assessments)
    before, after = ({} if side is None else side["vectors"] for side in (ends.preflight, ends.postflight))
    between = [assessment["vectors"] for assessment in assessments if assessment["phase"] not in _ENDS]
    has = {"before": ends.preflight is not None, "after": ends.postflight is not None}
    vectors = [
        {
            "name": name,
            "before": before.get(name),
            "after": after.get(name),
            "is_inverted": name in INVERTED,
            "change": trajectory["deltas"].get(name),
            "missing": _missing(is_before=name in before, is_after=name in after, has=has),
            "between": [assessment[name] for assessment in between if name in assessment],
        }
        for name in VECTOR_NAMES
    ]
    lists = {name: row[name][:rows_max] for name in ("findings", "unknowns", "dead_ends", "tools")}
    lists["findings"] = with_places_of_findings(context, lists["findings"])
    report = or_none(lambda: context.ask("reports.show", id=row["id"]))
    ticked = [line for line in report["report"]["accomplished"] if line.startswith(TICKED)] if report else []
    data = {
        "session": row | lists | {"compromised": row.get("compromised")},
        "rows_max": rows_max,
        "vectors": vectors,
        "has": has,
        "trajectory": trajectory,
        "limit": bias_above,
        "handoffs": _handoffs(context, row),
        "report": report,
        "ticked": sorted(ticked, key=lambda line: line.rpartition("(handoff ")[2]),
        "reasonings": context.ask("reasoning.list", session=row["id"], limit=rows_max)["items"],
    }
    return Page("session.html", row["task"] or row["id"], data)


def _missing(*, is_before: bool, is_after: bool, has: dict[str, bool]) -> str:
    """Return why a vector has no change: the assessment that it lacks; empty if it has both."""
    if is_before == is_after:
        return "" if is_before else "not assessed"
    if is_before:
        return "not assessed after" if has["after"] else "no POSTFLIGHT yet"
    return "not assessed before" if has["before"] else "no PREFLIGHT"


def _handoffs(context: PageContext, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the handoffs that the session's author created or completed while it ran; none for an imported session.

    Only the first page of the author's events since the start is considered.
    """
    if row["imported"] is not None:
        return []
    filters = {"author": row["author"], "after": row["started_index"]}
    end = row["ended_index"]
    if end is None:  # without an end event the author's next session ends it
        later_sessions = context.ask("catalog.find", kind="session.started", limit=1, **filters)["items"]
        end = later_sessions[0]["event_index"] if later_sessions else context.head
    events = context.ask("catalog.find", limit=page_rows_max, **filters)["items"]
    streams = [event["stream"] for event in events if event["event_index"] <= end and event["kind"] in _MADE]
    ids = [stream.removeprefix("handoff/") for stream in dict.fromkeys(streams)]
    return list(context.ask("handoffs.existing", ids=ids)["handoffs"].values())
