"""Queries reports by agent, date and task, over the view ``reports.list``.

The pattern is applied before the limit, on every report, in linear time (RE2) and ignoring case; ``total_found`` counts
all matches, and ``next`` is the ``cursor`` of the next page. A point in time is ISO 8601 / RFC 3339 (UTC without an
offset; a date alone is its midnight), the local midnight of "today", "yesterday" or "last monday", or counted back from
the caller's now ("7 days ago", in English or Chinese). A time in the future is refused, because it would find nothing.
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

    ``epistemic_growth`` is the change of overall confidence; if it was not assessed before and after, it is 0.0 and
    ``is_assessed`` is false. ``imported`` is None, or the source of a report from another tool. ``next`` is None on the
    last page. Raises Refused: ``INVALID_FIELD`` for an invalid date or limit; ``PATTERN_NOT_SUPPORTED``.
    """
    since_ms = None if since is None else parse_since(since, now)
    arguments = {"ai_id": ai_id, "since_ms": since_ms, "task_pattern": task_pattern, "limit": limit, "cursor": cursor}
    page = ask("reports.list", {name: value for name, value in arguments.items() if value is not None})
    return page | {"reports": [_row(report) for report in page["reports"]]}


def mode_of(mode: str | None, session_id: str | None, count: int | None) -> str:
    """Return the resume mode: the given one, or the one that the other options imply."""
    implied = "session_id" if session_id is not None else "last_n" if (count or 1) > 1 else "last"
    if mode in (None, implied) or (mode, implied) == ("last_n", "last"):
        return mode or implied
    if mode not in {"last", "last_n"}:
        return mode  # ``resume`` refuses an unknown mode, or one without a session
    if session_id is not None:
        raise Refused("USAGE", f"a session's id needs the resume mode session_id, not {mode}")
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
    """Return the Unix milliseconds of ``text``. Raises Refused: ``INVALID_FIELD``, with ``field``."""
    value = converted(text, str, field).strip()
    if 0 < len(value) <= since_max_chars:
        time_ = iso_time(value) or _day(value.lower(), now) or _relative(value, now)
        if time_ is not None:
            return to_ms(time_)
    advice = 'write 2025-11-01, 2025-11-01T08:00:00Z, today, "last monday" or "7 days ago"'
    message = f"{field} is not a date or a time in the past: {text[:since_max_chars]!r}; {advice}"
    raise Refused("INVALID_FIELD", message, field=field)


def parse_moment(text: str, field: str = "as_of") -> str:
    """Return an entry's index as it is, or a time (see ``parse_since``) in ISO 8601."""
    if text.isdecimal() and len(text) <= index_max_digits:
        return text
    try:
        return clock_text(parse_since(text, datetime.now(UTC), field))
    except Refused as error:
        raise Refused(error.code, f"{error.message}, or an entry's index, for example 120", field=field) from None


def _day(text: str, now: datetime) -> datetime | None:
    """Return the local midnight of a day in the last week; None if the text names no day."""
    today = now.astimezone().date()
    name = text.removeprefix("last ").strip()
    if text in _DAYS_AGO:
        ago = _DAYS_AGO[text]
    elif text in {"this week", "this month"}:  # from its beginning
        ago = today.weekday() if text == "this week" else today.day - 1
    elif name in _WEEKDAYS:
        ago = (today.weekday() - _WEEKDAYS.index(name)) % 7 or (7 if name != text else 0)
    else:
        return None
    # Made local only here, because daylight saving time may have changed since.
    return datetime.combine(today - timedelta(days=ago), time()).astimezone()


def _relative(text: str, now: datetime) -> datetime | None:
    settings = {"RELATIVE_BASE": now, "TIMEZONE": "UTC", "RETURN_AS_TIMEZONE_AWARE": True, "PARSERS": ["relative-time"]}
    try:
        time_: datetime | None = dateparser.parse(text, languages=_LANGUAGES, settings=settings)
    except (ValueError, OverflowError):
        return None
    return time_ if time_ is not None and time_ <= now else None
