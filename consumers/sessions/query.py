"""Queries reports by agent, date and task, over the view ``reports.list``.

The pattern is applied before the limit, on every report, in linear time (RE2) and ignoring case; ``total_found`` counts
all matches, and ``next`` is the ``after`` of the next page.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from deedbook.consumers.sdk.times import parse_since, parse_until
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
    after: int | None = None,
    *,
    until: str | None = None,
) -> dict[str, Any]:
    """Return ``{"reports": [{session_id, ai_id, author, timestamp, task, outcome, …}], "total_found", "next"}``.

    ``epistemic_growth`` is the change of overall confidence; if it was not assessed before and after, it is 0.0 and
    ``is_assessed`` is false. ``imported`` is None, or the source of a report from another tool. ``next`` is None on the
    last page. Raises Refused: ``INVALID_FIELD`` for an invalid date or limit; ``PATTERN_NOT_SUPPORTED``.
    """
    since_ms = None if since is None else parse_since(since, now)
    until_ms = None if until is None else parse_until(until, now)
    arguments = {"ai_id": ai_id, "since": since_ms, "until": until_ms, "task_pattern": task_pattern}
    arguments |= {"limit": limit, "after": after}
    page = ask("reports.list", {name: value for name, value in arguments.items() if value is not None})
    return page | {"reports": [_row(report) for report in page["reports"]]}


def mode_of(mode: str | None, session_id: str | None, count: int | None) -> str:
    """Return the resume mode: ``mode`` if it is set, else the mode that the other options imply."""
    implied = "session_id" if session_id is not None else "last_n" if (count or 1) > 1 else "last"
    if mode in (None, implied) or (mode, implied) == ("last_n", "last"):
        return mode or implied
    if mode not in {"last", "last_n"}:
        return mode  # ``resume`` refuses an unknown mode, or one without a session
    if session_id is not None:
        raise Refused(
            "USAGE", f"the resume mode {mode} takes no session id: omit the id, or choose the mode session_id"
        )
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
