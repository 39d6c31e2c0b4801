"""`/s/ID`: what an agent knew before and after, what it recorded on the way, its report, and what came of it."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.ledger.errors import or_none
from deedbook.projections.answers.query import page_rows_max
from deedbook.projections.reports.calibration import INVERTED, VECTOR_NAMES, assessment_pair, bias_above

rows_max: Final = 200
_MADE: Final = frozenset({"handoff.created", "handoff.completed"})
_ENDS: Final = frozenset({"PREFLIGHT", "POSTFLIGHT"})


def session(seen: Seen) -> Page:
    """Return ``{"session", "vectors", "has", "trajectory", "limit", "report", "handoffs", "reasonings", "rows_max"}``.

    Of each vector ``before`` and ``after`` are what PREFLIGHT and POSTFLIGHT say (None: not assessed), ``between`` what
    other assessments said meanwhile, ``is_inverted`` that less is better.
    """
    row = seen.ask("sessions.show", id=seen.params["id"])
    assessments = row.pop("assessments")
    trajectory = seen.ask("sessions.trajectory", id=row["id"])
    ends = assessment_pair(assessments)
    before, after = ({} if side is None else side["vectors"] for side in (ends.preflight, ends.postflight))
    between = [one["vectors"] for one in assessments if one["phase"] not in _ENDS]
    vectors = [
        {
            "name": name,
            "before": before.get(name),
            "after": after.get(name),
            "is_inverted": name in INVERTED,
            "change": trajectory["deltas"].get(name),
            "between": [one[name] for one in between if name in one],
        }
        for name in VECTOR_NAMES
    ]
    lists = {name: row[name][:rows_max] for name in ("findings", "unknowns", "dead_ends", "tools")}
    data = {
        "session": row | lists | {"compromised": row.get("compromised")},
        "rows_max": rows_max,
        "vectors": vectors,
        "has": {"before": ends.preflight is not None, "after": ends.postflight is not None},
        "trajectory": trajectory,
        "limit": bias_above,
        "handoffs": _handoffs(seen, row),
        "report": or_none(lambda: seen.ask("reports.show", id=row["id"])),
        "reasonings": seen.ask("reasoning.list", session=row["id"], limit=rows_max)["reasonings"],
    }
    return Page("session.html", row["task"] or row["id"], data)


def _handoffs(seen: Seen, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the handoffs that the session's author created or completed while it ran; nobody knows of an imported one.

    Among its author's next events that is, as many as a page of them holds.
    """
    if row["imported"] is not None:
        return []
    asked = {"author": row["author"], "after": row["started_index"]}
    end = row["ended_index"]
    if end is None:  # nobody ended it: its author's next one did
        begun = seen.ask("catalog.find", kind="session.started", limit=1, **asked)["events"]
        end = begun[0]["event_index"] if begun else seen.head
    events = seen.ask("catalog.find", limit=page_rows_max, **asked)["events"]
    made = [one["stream"] for one in events if one["event_index"] <= end and one["kind"] in _MADE]
    ids = [stream.removeprefix("handoff/") for stream in dict.fromkeys(made)]
    return list(seen.ask("handoffs.existing", ids=ids)["handoffs"].values())
