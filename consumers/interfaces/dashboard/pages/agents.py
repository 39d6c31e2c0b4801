"""`/agents` and `/a/NAME`: the agents with their roles and keys, their current work, and their calibration.

Imported records claim names, too. They have a section and pages of their own, because no key here signs for them.
"""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.ledger.errors import Refused
from deedbook.projections.reports.calibration import bias_above

rows_max: Final = 20
points_max: Final = 50
claimed_shown_max: Final = 50
idle_after_ms: Final = 15 * 60_000
"""An agent that has written nothing for this long and holds no lease is not at work."""


def agents(context: PageContext) -> Page:
    """Return ``{"agents", "at_work", "agents_total", "services", "claimed"}``; agents at work come first.

    ``agents`` also has humans and admins; ``agents_total`` and ``at_work`` count only those with the role of an agent.
    """
    rows = [_at_work(row, context.now_ms) for row in context.ask("agents.activity")["items"]]
    rows.sort(key=lambda row: (row["now"] != "at work", -row["last"]["accepted_ms"] if row["last"] else 0))
    services = [row for row in rows if row["roles"] in (["service"], [])]
    claimed = context.ask("agents.claimed", limit=claimed_shown_max)
    shown = [row for row in rows if row not in services]
    states = [row["now"] for row in shown if "agent" in row["roles"]]
    counts = {"at_work": states.count("at work"), "agents_total": len(states)}
    return Page("agents.html", "Agents", {"agents": shown, **counts, "services": services, "claimed": claimed})


def _at_work(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the row with its state ``now``: ``at work``, ``blocked``, ``quiet`` or ``idle`` (has no work)."""
    is_recent = row["last"] is not None and now_ms - row["last"]["accepted_ms"] < idle_after_ms
    claimed = [handoff for handoff in row["handoffs"] if handoff["status"] == "in_progress"]
    # A claimed handoff without a lease may be abandoned.
    is_busy = any((handoff["lease_until_ms"] or 0) > now_ms for handoff in claimed)
    has_work = row["open_sessions"] > 0 or bool(claimed)
    is_blocked = len(claimed) < len(row["handoffs"])
    is_at_work = is_busy or (is_recent and has_work)
    now = "at work" if is_at_work else "blocked" if is_blocked else "quiet" if has_work else "idle"
    return row | {"compromised": row.get("compromised"), "now": now}


def agent(context: PageContext) -> Page:
    """Return ``{"agent", "calibration", "limit", "sessions", "sent", "received", "events", "claimed"}``.

    A name that only imported records claim has no more than ``claimed`` and ``limit``.
    """
    asked = context.params["name"]
    claimed = _claimed(context, asked)
    try:
        name = context.ask("agents.show", id=asked)["name"]
    except Refused:
        if claimed is None:
            raise
        return Page("claimed.html", asked, {"claimed": claimed, "limit": bias_above})
    row = next(row for row in context.ask("agents.activity", all=True)["items"] if row["name"] == name)
    data = {
        "agent": _at_work(row, context.now_ms),
        "claimed": claimed,
        "limit": bias_above,
        "calibration": context.ask("reports.calibration", author=name, limit=points_max)["items"],
        "sessions": context.ask("sessions.list", author=name, agent=name, limit=rows_max),
        "sent": context.ask("handoffs.list", **{"from": name}, limit=rows_max),
        "received": context.ask("handoffs.list", to=name, limit=rows_max),
        "events": context.ask("catalog.find", author=name, newest=True, limit=rows_max),
    }
    return Page("agent.html", name, data)


def _claimed(context: PageContext, name: str) -> dict[str, Any] | None:
    """Return what imported records claim of a name: their number and times, calibration and sessions."""
    rows = context.ask("agents.claimed", name=name)["items"]
    if not rows:
        return None
    after = context.number("after")
    return {
        **rows[0],
        "calibration": context.ask("reports.calibration", ai_id=name, imported=True, limit=points_max)["items"],
        "sessions": context.ask("sessions.list", ai_id=name, status="imported", after=after, limit=rows_max),
    }
