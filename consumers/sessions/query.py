"""Asking for reports by agent, date and task, over the view ``reports.list``.

The pattern works before the limit, on every report, in linear time (RE2) and ignoring case; ``total_found`` counts all
that match, and ``next`` is the ``cursor`` of the page after this one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from deedbook.consumers.sdk.times import parse_since
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.projections.reports.report import read_report, uncorrected


def query_reports(  # noqa: PLR0917 - in the order that the API gives them
    ask: Ask,
    now: datetime,
    ai_id: str | None = None,
    since: str | None = None,
    task_pattern: str | None = None,
    limit: int = 10,
    cursor: int | None = None,
) -> dict[str, Any]:
    """Return ``{"reports": [{session_id, ai_id, author, timestamp, task, outcome, …}], "total_found", "next"}``.

    ``epistemic_growth`` is the change of overall confidence: 0.0 where nothing was assessed on both sides, and then
    ``is_assessed`` is false. ``imported`` of a report is None, or says where another tool's came from. ``next`` is None
    on the last page. Raises Refused: ``INVALID_FIELD`` for a date or limit that is none; ``PATTERN_NOT_SUPPORTED``.
    """
    since_ms = None if since is None else parse_since(since, now)
    arguments = {"ai_id": ai_id, "since_ms": since_ms, "task_pattern": task_pattern, "limit": limit, "cursor": cursor}
    page = ask("reports.list", {name: value for name, value in arguments.items() if value is not None})
    return page | {"reports": [_row(report) for report in page["reports"]]}


def mode_of(mode: str | None, session_id: str | None, count: int | None) -> str:
    """Return which sessions are meant: the mode given, or that which the other options mean."""
    meant = "session_id" if session_id is not None else "last_n" if (count or 1) > 1 else "last"
    if mode in (None, meant) or (mode, meant) == ("last_n", "last"):
        return mode or meant
    if mode not in {"last", "last_n"}:
        return mode  # what it lacks, or that there is no such mode, says who resumes
    if session_id is not None:
        raise Refused("USAGE", f"the id of a session goes with resume mode session_id, not {mode}")
    return "last_n"


def _row(report: dict[str, Any]) -> dict[str, Any]:
    growth = report["overall_confidence_delta"]
    return {name: report[name] for name in ("session_id", "ai_id", "author", "timestamp")} | {
        "task": report["task"] or report["task_summary"],
        "outcome": report["outcome"],
        "key_findings": uncorrected(read_report(report)).key_findings,
        "epistemic_growth": 0.0 if growth is None else growth,
        "is_assessed": growth is not None,
        "imported": report["imported"],
    }
