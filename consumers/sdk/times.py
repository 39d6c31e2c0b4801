"""Points in time as people write them.

A point in time is ISO 8601 / RFC 3339 (without an offset UTC; a date alone means its midnight), the local midnight of
"today", "yesterday" or "last monday", or a number of units before the caller's now ("7 days ago", "7d"). The extra
``dates`` reads other words, in English or Chinese. A time in the future is refused, because it would find nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import converted
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.instants import iso_time, to_ms

index_max_digits: Final = 15
since_max_chars: Final = 64
clock_difference_max: Final = timedelta(hours=1)  # the ledger's clock may be ahead of this machine's
_LANGUAGES: Final = ["en", "zh"]
_DAYS_AGO: Final = {"today": 0, "今天": 0, "yesterday": 1, "昨天": 1}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNFINISHED: Final = frozenset({"this week", "this month"})
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY_MS: Final = 86_400_000
_AGO: Final = re.compile(r"([0-9]{1,9})(?: (second|minute|hour|day|week)s? ago|([hdw]))")
# A number with a letter ("9M") or a stray character is no time, though ``dateparser`` would guess one.
_WORDS: Final = re.compile(r"(?=.*(?:[^\W\d_]{3}|[\u4e00-\u9fff]))[\w ,.:/'’-]+")
_UNITS: Final = {unit: timedelta(**{f"{unit}s": 1}) for unit in ("second", "minute", "hour", "day", "week")}
_LETTERS: Final = {"h": "hour", "d": "day", "w": "week"}


def parse_since(text: str, now: datetime, field: str = "since") -> int:
    """Return the Unix milliseconds of the time in ``text``. Raises Refused: ``INVALID_FIELD`` with the ``field``."""
    given = converted(text, str, field).strip()
    if 0 < len(given) <= since_max_chars:
        moment = iso_time(given) or _day(given.lower(), now) or _ago(given.lower(), now) or _in_words(given, now)
        if moment is not None:
            return to_ms(moment)
    advice = 'write 2025-11-01, 2025-11-01T08:00:00Z, today, "last monday", "10 minutes ago" or 7d'
    message = f"{field} is not a time: {text[:since_max_chars]!r}; {advice}"
    raise Refused("INVALID_FIELD", message, field=field)


def parse_until(text: str, now: datetime) -> int:
    """Return the end of a range: a day ("2025-11-01", "yesterday") counts to its end, "this week" to ``now``.

    Raises Refused: as ``parse_since``.
    """
    begins, given = parse_since(text, now, "until"), text.strip().lower()
    if given in _UNFINISHED:
        return to_ms(now)
    is_day = _DATE.fullmatch(given) is not None or _day(given, now) is not None
    return begins + is_day * _DAY_MS


def parse_moment(text: str, field: str = "as_of") -> str:
    """Return an entry's index unchanged, and a time (as for ``parse_since``) in ISO 8601."""
    if text.isdecimal() and len(text) <= index_max_digits:
        return text
    now = datetime.now(UTC)
    try:
        moment_ms = parse_since(text, now, field)
    except Refused as error:
        raise Refused(error.code, f"{error.message}, or an entry's index (120)", field=field) from None
    if moment_ms > to_ms(now + clock_difference_max):
        raise Refused("NOT_FOUND", f"{field} is in the future: {text[:since_max_chars]}", field=field)
    return clock_text(moment_ms)


def _day(given: str, now: datetime) -> datetime | None:
    """Return the local midnight at which a day ("today", "last monday"), week or month began; None for other texts."""
    today = now.astimezone().date()
    name = given.removeprefix("last ").strip()
    if given in _DAYS_AGO:
        ago = _DAYS_AGO[given]
    elif given in _UNFINISHED:  # the beginning of the period
        ago = today.weekday() if given == "this week" else today.day - 1
    elif name in _WEEKDAYS:
        ago = (today.weekday() - _WEEKDAYS.index(name)) % 7 or (7 if name != given else 0)
    else:
        return None
    # Converted to local time only here, because the UTC offset may have changed since that day.
    return datetime.combine(today - timedelta(days=ago), time()).astimezone()


def _ago(given: str, now: datetime) -> datetime | None:
    """Return the time of a text like "7 days ago" or "7d"; None for other texts."""
    parts = _AGO.fullmatch(given)
    if parts is None:
        return None
    try:
        return now - int(parts[1]) * _UNITS[parts[2] or _LETTERS[parts[3]]]
    except OverflowError:  # earlier than any time that Python knows
        return datetime.min.replace(tzinfo=UTC)


def _in_words(given: str, now: datetime) -> datetime | None:
    """Return the time of any other English or Chinese text; None without the extra ``dates``."""
    if _WORDS.fullmatch(given) is None:
        return None
    try:
        import dateparser  # noqa: PLC0415 - extra `dates`
    except ModuleNotFoundError:
        return None
    settings = {"RELATIVE_BASE": now, "TIMEZONE": "UTC", "RETURN_AS_TIMEZONE_AWARE": True, "PARSERS": ["relative-time"]}
    try:
        moment: datetime | None = dateparser.parse(given, languages=_LANGUAGES, settings=settings)
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment <= now else None
