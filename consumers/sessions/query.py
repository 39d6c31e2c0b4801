"""Asking for reports by agent, date and task, over the view ``reports.list``.

The pattern works before the limit, on every report, in linear time (RE2) and ignoring case; ``total_found`` counts all
that match, and ``next`` is the ``cursor`` of the page after this one. A point in time is ISO 8601 / RFC 3339 (without
an offset UTC, a date alone its midnight), the local midnight of "today", "yesterday" or "last monday", or counted back
from the caller's now ("7 days ago", in English or Chinese); one that lies ahead is refused: it would find nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

import dateparser

from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import converted
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.instants import iso_time, to_ms
from deedbook.projections.reports.report import read_report, uncorrected

index_max_digits: Final = 15
since_max_chars: Final = 64
_LANGUAGES: Final = ["en", "zh"]
_DAYS_AGO: Final = {"today": 0, "今天": 0, "yesterday": 1, "昨天": 1}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def query_reports(
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


def parse_since(text: str, now: datetime, field: str = "since") -> int:
    """Return the Unix milliseconds that ``text`` stands for. Raises Refused: ``INVALID_FIELD``, named ``field``."""
    given = converted(text, str, field).strip()
    if 0 < len(given) <= since_max_chars:
        moment = iso_time(given) or _day(given.lower(), now) or _relative(given, now)
        if moment is not None:
            return to_ms(moment)
    advice = 'write 2025-11-01, 2025-11-01T08:00:00Z, today, "last monday" or "7 days ago"'
    message = f"{field} is no date and no time ago: {text[:since_max_chars]!r}; {advice}"
    raise Refused("INVALID_FIELD", message, field=field)


def parse_moment(text: str, field: str = "as_of") -> str:
    """Return the moment that ``text`` names: an entry's index as it is, a time (as of ``parse_since``) in ISO 8601."""
    if text.isdecimal() and len(text) <= index_max_digits:
        return text
    try:
        return clock_text(parse_since(text, datetime.now(UTC), field))
    except Refused as error:
        raise Refused(error.code, f"{error.message}, or an entry's index (120)", field=field) from None


def _day(given: str, now: datetime) -> datetime | None:
    """Return the local midnight with which a day of the last week began; None for what names none."""
    today = now.astimezone().date()
    name = given.removeprefix("last ").strip()
    if given in _DAYS_AGO:
        ago = _DAYS_AGO[given]
    elif given in {"this week", "this month"}:  # since it began, not since now
        ago = today.weekday() if given == "this week" else today.day - 1
    elif name in _WEEKDAYS:
        ago = (today.weekday() - _WEEKDAYS.index(name)) % 7 or (7 if name != given else 0)
    else:
        return None
    # Made local only here: between then and now the clocks may have been changed.
    return datetime.combine(today - timedelta(days=ago), time()).astimezone()


def _relative(given: str, now: datetime) -> datetime | None:
    settings = {"RELATIVE_BASE": now, "TIMEZONE": "UTC", "RETURN_AS_TIMEZONE_AWARE": True, "PARSERS": ["relative-time"]}
    try:
        moment: datetime | None = dateparser.parse(given, languages=_LANGUAGES, settings=settings)
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment <= now else None
