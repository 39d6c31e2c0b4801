"""`/agents` and `/a/NAME`: who may write, who is at work, with which keys, and how well each judges itself."""

from __future__ import annotations

from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Page, Seen
from deedbook.projections.reports.calibration import bias_above

rows_max: Final = 20
points_max: Final = 50
idle_after_ms: Final = 15 * 60_000
"""Who wrote nothing for so long, and holds no lease, is not called at work."""


def agents(seen: Seen) -> Page:
    """Return ``{"agents", "services"}``, those at work first."""
    rows = [_at_work(row, seen.now_ms) for row in seen.ask("agents.activity")["agents"]]
    rows.sort(key=lambda row: (not row["is_at_work"], -row["last"]["accepted_ms"] if row["last"] else 0))
    services = [row for row in rows if row["roles"] in (["service"], [])]
    return Page("agents.html", "Agents", {"agents": [row for row in rows if row not in services], "services": services})


def _at_work(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    is_recent = row["last"] is not None and now_ms - row["last"]["accepted_ms"] < idle_after_ms
    is_busy = any((one["lease_until_ms"] or 0) > now_ms for one in row["handoffs"])  # without a lease it may lie about
    begun = row["open_sessions"] > 0 or bool(row["handoffs"])
    return row | {"compromised": row.get("compromised"), "is_at_work": is_busy or (is_recent and begun)}


def agent(seen: Seen) -> Page:
    """Return ``{"agent", "calibration", "limit", "sessions", "sent", "received", "events"}``."""
    name = seen.ask("agents.show", name=seen.params["name"])["name"]
    row = next(row for row in seen.ask("agents.activity", all=True)["agents"] if row["name"] == name)
    data = {
        "agent": _at_work(row, seen.now_ms),
        "limit": bias_above,
        "calibration": seen.ask("reports.calibration", author=name, limit=points_max)["agents"],
        "sessions": seen.ask("sessions.list", author=name, limit=rows_max),
        "sent": seen.ask("handoffs.list", **{"from": name}, limit=rows_max),
        "received": seen.ask("handoffs.list", to=name, limit=rows_max),
        "events": seen.ask("catalog.find", author=name, newest=True, limit=rows_max),
    }
    return Page("agent.html", name, data)
