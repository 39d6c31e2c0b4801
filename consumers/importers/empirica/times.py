"""The times that notes claim, as RFC 3339 UTC where they can be read; else as they stand. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

_unix_max_s: Final = 253_402_300_799
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Claimed(NamedTuple):
    """A claimed time: its text, its Unix microseconds (None: it cannot be read), and what had to be assumed."""

    text: str
    at_us: int | None
    assumed: str = ""


def claimed_time(value: Any) -> Claimed | None:
    """Return the time that a value claims: ISO 8601, or Unix seconds; None for a value that is no time at all."""
    if isinstance(value, str) and value.strip():
        return _of_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or not 0 <= value <= _unix_max_s:
        return None
    return _claimed(_EPOCH + timedelta(microseconds=round(value * 1_000_000)))


def _of_text(text: str) -> Claimed:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _claimed(moment.astimezone(UTC))
        return _claimed(moment.replace(tzinfo=UTC))._replace(assumed="it names no zone: read as UTC")
    except (ValueError, OverflowError):
        return Claimed(text, None)


def _claimed(moment: datetime) -> Claimed:
    places = "microseconds" if moment.microsecond else "seconds"
    text = moment.isoformat(timespec=places).replace("+00:00", "Z")
    return Claimed(text, (moment - _EPOCH) // timedelta(microseconds=1))
