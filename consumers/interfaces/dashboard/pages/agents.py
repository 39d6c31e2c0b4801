"""`/agents` and `/a/NAME`: the agents with their roles and keys, their current work, and their calibration."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.projections.reports.calibration import bias_above

rows_max: Final = 20
points_max: Final = 50
idle_after_ms: Final = 15 * 60_000
"""An agent that has written nothing for this long and holds no lease counts as idle."""


def agents(context: PageContext) -> Page:
    """Return ``{"agents", "services"}``; agents at work come first."""
    rows = [_at_work(row, context.now_ms) for row in context.ask("agents.activity")["items"]]
    rows.sort(key=lambda row: (not row["is_at_work"], -row["last"]["accepted_ms"] if row["last"] else 0))
    services = [row for row in rows if row["roles"] in (["service"], [])]
    return Page("agents.html", "Agents", {"agents": [row for row in rows if row not in services], "services": services})


def _at_work(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    is_recent = row["last"] is not None and now_ms - row["last"]["accepted_ms"] < idle_after_ms
    # A claimed handoff without a lease may be abandoned.
    is_busy = any((handoff["lease_until_ms"] or 0) > now_ms for handoff in row["handoffs"])
    has_work = row["open_sessions"] > 0 or bool(row["handoffs"])
    return row | {"compromised": row.get("compromised"), "is_at_work": is_busy or (is_recent and has_work)}


def agent(context: PageContext) -> Page:
    """Return ``{"agent", "calibration", "limit", "sessions", "sent", "received", "events"}``."""
    name = context.ask("agents.show", id=context.params["name"])["name"]
    row = next(row for row in context.ask("agents.activity", all=True)["items"] if row["name"] == name)
    data = {
        "agent": _at_work(row, context.now_ms),
        "limit": bias_above,
        "calibration": context.ask("reports.calibration", author=name, limit=points_max)["items"],
        "sessions": context.ask("sessions.list", author=name, limit=rows_max),
        "sent": context.ask("handoffs.list", **{"from": name}, limit=rows_max),
        "received": context.ask("handoffs.list", to=name, limit=rows_max),
        "events": context.ask("catalog.find", author=name, newest=True, limit=rows_max),
    }
    return Page("agent.html", name, data)
