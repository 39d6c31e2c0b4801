"""Durations in the form of options: 90s, 30m, 12h or 7d."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from deedbook.ledger.errors import Refused

ttl_max: Final = timedelta(days=366)


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_ttl(text: str) -> timedelta:
    """Return the duration in ``text``, for example 90s, 30m, 12h or 7d."""
    parts = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    ttl = timedelta(**{_UNITS[parts[2]]: int(parts[1])}) if parts else timedelta()
    if not timedelta() < ttl <= ttl_max:
        raise Refused("USAGE", f"{text!r} is not a duration up to {ttl_max.days} days: write 30m, 12h or 7d")
    return ttl
