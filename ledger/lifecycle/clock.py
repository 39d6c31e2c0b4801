"""The ledger's clock: the time of the next entry, and the times that a replay accepts. Pure.

An entry gets the system's time, but never an earlier time than the entry before it. The ledger does not accept a system
time too far from the last entry's, because a single entry of the year 2099 would end every lease and session key. Then
it accepts nothing until root signs ``ledger.clock_set``, whose time may be before the last entry's. A lease or session
key that was granted under a wrong clock and is unused becomes valid when that time is really reached: a lease for its
own length, a session key until the end that its agent signed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import clock_backward_max_ms, clock_forward_max_ms, clock_max_ms

forward_days_max: Final = clock_forward_max_ms // 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The time span in which a lease or session key is valid, by the ledger's clock (Unix ms)."""

    from_ms: int
    until_ms: int

    def holds(self, now_ms: int) -> bool:
        """Return whether it is valid at ``now_ms``."""
        return self.from_ms <= now_ms < self.until_ms


def clock_text(now_ms: int) -> str:
    """Return a time of the ledger's clock as text: ISO 8601, UTC, always to the millisecond, so that texts sort."""
    return (_EPOCH + timedelta(milliseconds=now_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ledger_now(last_ms: int, system_ms: int) -> int:
    """Return the ledger's time after its last entry. It does not go back when the system's clock does."""
    return max(last_ms, system_ms)


def next_ms(last_ms: int | None, system_ms: int) -> int:
    """Return the time of the next entry; ``last_ms`` is the last entry's time, None before the first.

    Raises Refused: ``CLOCK_JUMPED``.
    """
    if not 0 <= system_ms <= clock_max_ms:
        message = f"this machine's clock ({system_ms} ms of Unix time) is outside the years 1970 to 9999: set it"
        raise Refused("CLOCK_JUMPED", message, system_ms=system_ms)
    if last_ms is None or -clock_backward_max_ms <= system_ms - last_ms <= clock_forward_max_ms:
        return system_ms if last_ms is None else ledger_now(last_ms, system_ms)
    raise Refused("CLOCK_JUMPED", jump_text(last_ms, system_ms), last_ms=last_ms, system_ms=system_ms)


def jump_text(last_ms: int, system_ms: int) -> str:
    """Return the error message for a system time that is too far from the last entry's."""
    distance = "later" if system_ms > last_ms else "earlier"
    days = round(abs(system_ms - last_ms) / 86_400_000)
    return (
        f"this machine's clock says {clock_text(system_ms)}, {days} days {distance} than the last entry "
        f"({clock_text(last_ms)}): if it is right, run "
        '`deed clock set --as root --reason "..."`; if not, set this machine\'s clock'
    )


def check_set(set_ms: int, system_ms: int) -> None:
    """Refuse a time set by root that differs too much from this system's time: one of the two is wrong.

    Raises Refused: ``CLOCK_JUMPED``.
    """
    is_shared = abs(set_ms - system_ms) <= clock_backward_max_ms
    if not (is_shared and 0 <= set_ms <= clock_max_ms and 0 <= system_ms <= clock_max_ms):
        message = f"root set the clock to {clock_text(set_ms)}, but the clock of the ledger's machine differs"
        raise Refused("CLOCK_JUMPED", f"{message}: correct the wrong clock", set_ms=set_ms, system_ms=system_ms)


def is_jump(before_ms: int, after_ms: int) -> bool:
    """Return whether an entry is so much later than the one before it that it needs ``ledger.clock_set``."""
    return after_ms - before_ms > clock_forward_max_ms
