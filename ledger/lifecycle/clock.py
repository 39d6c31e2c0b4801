"""The ledger's clock: which time the next entry is given, and what a replay accepts. Pure.

An entry is accepted at the system's time, but never before the entry before it. A system whose time lies too far from
the last entry's is not believed, because a single entry of the year 2099 would end every lease and session key: until
the root signs ``ledger.clock_set``, whose time may lie before the last one, nothing else is accepted.

What was granted by a wrong clock and neither used nor given up comes into force when that time is really reached: a
lease for its own length, a session key until the end that its agent signed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from ledger.errors import Refused
from ledger.events import EventData
from ledger.events.authority import ClockSet, EpochStarted
from ledger.limits import clock_backward_max_ms, clock_forward_max_ms, clock_max_ms

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
        '`baton clock set --as root --reason "..."`; if not, set this machine\'s clock'
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


Say: TypeAlias = "Callable[[int, str, str], None]"  # Takes what is found of an entry: its index, a code, and words.


class ClockMark(msgspec.Struct, frozen=True):
    """Where a ``Clock`` stands that is not in doubt: ``jumps`` are the times (ms) of entries that jumped ahead."""

    before_ms: int
    now_ms: int
    changed_at: int
    jumps: dict[int, int]


class Clock:
    """The ledger's clock along the log: it goes back only where the root set it, and never jumps ahead otherwise.

    Where it goes back, either the entry before is ahead or this one is behind. The next entry tells which of them fits;
    at the end of the log nobody can tell, and both are named. A jump ahead of which the root said later, by setting the
    clock back before it, that it was wrong, is a note: what was granted meanwhile holds no longer.
    """

    def __init__(self, problem: Say, note: Say) -> None:
        self._problem, self._note = problem, note
        self._before = 0
        self._changed_at = 0
        self._doubt: tuple[int, int] | None = None
        self._jumps: dict[int, int] = {}
        self._index = -1
        self.now = 0

    def mark(self) -> ClockMark | None:
        """Return where it stands, for ``go_on``; None while the next entry has to tell."""
        return None if self._doubt else ClockMark(self._before, self.now, self._changed_at, dict(self._jumps))

    def go_on(self, mark: ClockMark, index: int) -> None:
        """Go on after the entry at ``index``, from where another clock stood there."""
        self._before, self.now, self._changed_at, self._index = mark.before_ms, mark.now_ms, mark.changed_at, index
        self._jumps = dict(mark.jumps)

    def check(self, index: int, accepted_ms: int, data: EventData | None = None) -> None:
        """Compare the time of the next entry with those before it; ``data`` says whether it may set the clock."""
        if isinstance(data, ClockSet):
            self._index = index
            self._set(index, accepted_ms)
            return
        is_next, self._index = index == self._index + 1, index  # in a bundle of one stream, most are not
        if is_next and index > 0 and is_jump(self.now, accepted_ms) and not isinstance(data, EpochStarted):
            self._jumps[index] = accepted_ms
        if self._doubt is not None:
            behind, behind_ms = self._doubt
            self._doubt = None
            if accepted_ms >= self.now:
                self._blame(behind)
            else:
                self._blame(behind - 1)
                self.now, self._changed_at = behind_ms, behind
        if accepted_ms > self.now:
            self._before, self.now, self._changed_at = self.now, accepted_ms, index
        elif accepted_ms < self.now:
            if self._changed_at == index - 1 and accepted_ms >= self._before:
                self._doubt = (index, accepted_ms)
            else:
                self._blame(index)

    def end(self) -> None:
        """Settle what the next entry would have told."""
        self._settle()
        for index in self._jumps:
            message = f"the time of entry {index} is more than {forward_days_max} days after the one before it"
            self._problem(index, "CLOCK_JUMPED", f"{message}, and the root did not set the clock")

    def _set(self, index: int, accepted_ms: int) -> None:
        self._settle()
        for jump in [jump for jump, jump_ms in self._jumps.items() if jump_ms > accepted_ms]:
            del self._jumps[jump]
            message = f"entry {jump} was accepted under a wrong clock, which the root set right at entry {index}"
            self._note(jump, "CLOCK_JUMPED", message)
        self._before = self.now = accepted_ms
        self._changed_at = index

    def _settle(self) -> None:
        if self._doubt is not None:
            self._blame(self._doubt[0] - 1)
            self._blame(self._doubt[0])
            self._doubt = None

    def _blame(self, index: int) -> None:
        self._jumps.pop(index, None)
        self._problem(index, "VERIFICATION_FAILED", f"the time of entry {index} does not fit those beside it")
