"""The point in time that a question starts from: ISO 8601 / RFC 3339, or counted back from now ("7 days ago").

A time without an offset is UTC, a date alone is its midnight in UTC. Counted back by dateparser, in English and
Chinese, strictly: the whole text must be a relative time, and one that lies ahead is refused like any other nonsense,
because its answer would always be empty. The clock is the caller's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ledger.codec import converted
from ledger.errors import Refused

since_max_chars: Final = 64
_LANGUAGES: Final = ["en", "zh"]


def parse_since(text: str, now: datetime) -> int:
    """Return the Unix milliseconds that ``text`` stands for (seed 004, "query_handoff_reports").

    Raises:
        Refused: ``INVALID_FIELD`` when it is neither a date nor a time counted back from ``now``.
    """
    asked = converted(text, str, "since").strip()
    if 0 < len(asked) <= since_max_chars:
        moment = _iso(asked) or _relative(asked, now)
        if moment is not None:
            return int(moment.timestamp() * 1000)
    raise Refused(
        "INVALID_FIELD",
        f"since is no date and no time ago: {text[:since_max_chars]!r}; write 2025-11-01, 2025-11-01T08:00:00Z or"
        ' "7 days ago"',
        field="since",
    )


def _iso(asked: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(asked)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # an offset can carry the first day of the calendar out of it


def _relative(asked: str, now: datetime) -> datetime | None:
    import dateparser  # noqa: PLC0415 - loads its languages, which few commands need

    settings = {
        "RELATIVE_BASE": now,
        "TIMEZONE": "UTC",
        "RETURN_AS_TIMEZONE_AWARE": True,
        "PARSERS": ["relative-time"],
    }
    try:
        moment: datetime | None = dateparser.parse(asked, languages=_LANGUAGES, settings=settings)
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment <= now else None
