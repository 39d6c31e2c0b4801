"""The times that other tools' records claim, as RFC 3339 UTC where they can be read; else as they stand. Pure.

Unix times are told apart by their digits: what counts milliseconds, microseconds or nanoseconds has 13, 16 or 19 of
them between the years 2001 and 2286, and no moment that a tool could have recorded has so many seconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

_unix_max_s: Final = 253_402_300_799
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTIONS: Final = {
    "milliseconds": (10**12, 10**3),
    "microseconds": (10**15, 10**6),
    "nanoseconds": (10**18, 10**9),
}
_UNIX_TEXT: Final = re.compile(r"[0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19}")


class Claimed(NamedTuple):
    """A claimed time: its text, its Unix microseconds (None: it cannot be read), and what had to be assumed."""

    text: str
    at_us: int | None
    assumed: str = ""
    has_zone: bool = True


def claimed_time(value: Any) -> Claimed | None:
    """Return the time that a value claims: ISO 8601, or a Unix time; None for a value that is no time at all."""
    if isinstance(value, str) and value.strip():
        text = value.strip()
        if not _UNIX_TEXT.fullmatch(text):
            return _of_text(text)
        found = _of_number(float(text) if "." in text else int(text))
        return None if found is None else found._replace(assumed=found.assumed or "read as Unix seconds")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _of_number(value)


def _of_number(value: float) -> Claimed | None:
    if 0 <= value <= _unix_max_s:  # so NaN, infinities and integers that no float holds are none, too
        return _claimed(_EPOCH + timedelta(microseconds=round(value * 1_000_000)))
    for name, (least, a_second) in _FRACTIONS.items():
        if least <= value < 10 * least:
            moment = _EPOCH + timedelta(microseconds=int(value) * 1_000_000 // a_second)
            return _claimed(moment)._replace(assumed=f"read as Unix {name}")
    return None


def _of_text(text: str) -> Claimed:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _claimed(moment.astimezone(UTC))
        return _claimed(moment.replace(tzinfo=UTC))._replace(assumed="it names no zone: read as UTC", has_zone=False)
    except (ValueError, OverflowError):
        return Claimed(text, None)


def _claimed(moment: datetime) -> Claimed:
    places = "microseconds" if moment.microsecond else "seconds"
    text = moment.isoformat(timespec=places).replace("+00:00", "Z")
    return Claimed(text, (moment - _EPOCH) // timedelta(microseconds=1))
