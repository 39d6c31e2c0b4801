"""Asking for reports by agent, date and task: the seed's answer over ``reports.list`` (seed 004).

The pattern works before the limit, on every report, in linear time (RE2) and ignoring case; ``total_found`` counts all
that match, and ``next`` is the ``cursor`` of the page after this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumers.sessions.reports.since import parse_since

if TYPE_CHECKING:
    from datetime import datetime

    from ledger.client import Ask


def query_reports(
    answer: Ask,
    now: datetime,
    *,
    ai_id: str | None = None,
    since: str | None = None,
    task_pattern: str | None = None,
    limit: int = 10,
    cursor: int | None = None,
) -> dict[str, Any]:
    """Return ``{"reports": [{session_id, ai_id, timestamp, task, key_findings, epistemic_growth}], "total_found", …}``.

    ``imported`` of a report is None, or says where another tool's came from.

    ``epistemic_growth`` is the change of overall confidence: 0.0 where nothing was assessed on both sides, as in the
    seed, and then ``is_assessed`` is false. ``next`` is None on the last page.

    Raises:
        Refused: ``INVALID_FIELD`` for a date or limit that is none; ``PATTERN_NOT_SUPPORTED``.
    """
    asked = {
        "ai_id": ai_id,
        "since_ms": None if since is None else parse_since(since, now),
        "task_pattern": task_pattern,
        "limit": limit,
        "cursor": cursor,
    }
    found = answer("reports.list", {name: value for name, value in asked.items() if value is not None})
    return {
        "reports": [_told(report) for report in found["reports"]],
        "total_found": found["total_found"],
        "next": found["next"],
    }


def _told(report: dict[str, Any]) -> dict[str, Any]:
    growth = report["overall_confidence_delta"]
    return {
        "session_id": report["session_id"],
        "ai_id": report["ai_id"],
        "timestamp": report["timestamp"],
        "task": report["task_summary"],
        "key_findings": report["key_findings"],
        "epistemic_growth": 0.0 if growth is None else growth,
        "is_assessed": growth is not None,
        "imported": report["imported"],
    }
