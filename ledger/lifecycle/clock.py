"""The ledger's clock: which time the next entry is given, and what a replay accepts. Pure.

An entry is accepted at the system's time, but never before the entry before it. A system whose time lies too far from
the last entry's is not believed, because a single entry of the year 2099 would end every lease and session key: until
the root signs ``ledger.clock_set``, whose time may lie before the last one, nothing else is accepted.

What was granted by a wrong clock and neither used nor given up comes into force when that time is really reached: a
lease for its own length, a session key until the end that its agent signed.
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
    """How long a lease or session key holds by the ledger's clock (Unix ms): not before it was granted."""

    from_ms: int
    until_ms: int

    def holds(self, now_ms: int) -> bool:
        """Return whether it holds now."""
        return self.from_ms <= now_ms < self.until_ms


def clock_text(now_ms: int) -> str:
    """Return a time of the ledger's clock as an event's: ISO 8601, UTC, always to the millisecond, so texts sort."""
    return (_EPOCH + timedelta(milliseconds=now_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ledger_now(last_ms: int, system_ms: int) -> int:
    """Return what the ledger's clock says after its last entry: it does not go back with the system's."""
    return max(last_ms, system_ms)


def next_ms(last_ms: int | None, system_ms: int) -> int:
    """Return the time of the next entry; ``last_ms`` is the last one's, None before the first.

    Raises Refused: ``CLOCK_JUMPED``.
    """
    if not 0 <= system_ms <= clock_max_ms:
        message = f"this machine's clock stands at {system_ms} ms of Unix time, outside the years 1970 to 9999: set it"
        raise Refused("CLOCK_JUMPED", message, system_ms=system_ms)
    if last_ms is None or -clock_backward_max_ms <= system_ms - last_ms <= clock_forward_max_ms:
        return system_ms if last_ms is None else ledger_now(last_ms, system_ms)
    raise Refused("CLOCK_JUMPED", jump_text(last_ms, system_ms), last_ms=last_ms, system_ms=system_ms)


def jump_text(last_ms: int, system_ms: int) -> str:
    """Return what to do about a system whose time lies too far from the last entry's."""
    distance = "later" if system_ms > last_ms else "earlier"
    days = round(abs(system_ms - last_ms) / 86_400_000)
    return (
        f"this machine's clock says {clock_text(system_ms)}, {days} days {distance} than the last entry "
        f"({clock_text(last_ms)}): if that is right, the root says so once with "
        '`deed clock set --as root --reason "..."`; if not, set this machine\'s clock'
    )


def check_set(set_ms: int, system_ms: int) -> None:
    """Refuse a time that the root signed and this system does not share: one of the two is wrong.

    Raises Refused: ``CLOCK_JUMPED``.
    """
    is_shared = abs(set_ms - system_ms) <= clock_backward_max_ms
    if not (is_shared and 0 <= set_ms <= clock_max_ms and 0 <= system_ms <= clock_max_ms):
        message = f"the root says it is {clock_text(set_ms)}, and the clock of the ledger's machine says otherwise"
        raise Refused("CLOCK_JUMPED", f"{message}: set the clock that is wrong", set_ms=set_ms, system_ms=system_ms)


def is_jump(before_ms: int, after_ms: int) -> bool:
    """Return whether an entry lies so far behind the one before it that only ``ledger.clock_set`` may follow so."""
    return after_ms - before_ms > clock_forward_max_ms
