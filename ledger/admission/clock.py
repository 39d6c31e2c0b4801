"""Checks the times of the entries during a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from deedbook.ledger.events.authority import ClockSet, HistoryReset
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.lifecycle.clock import forward_days_max, is_jump

ReportIssue: TypeAlias = "Callable[[int, str, str], None]"  # Takes an entry's index, a code and a message.


class ClockMark(msgspec.Struct, frozen=True):
    """The state of a ``Clock`` while no entry's time is in doubt.

    ``jumps``: index and time (ms) of entries that jumped ahead.
    """

    before_ms: int
    now_ms: int
    changed_at: int
    jumps: dict[int, int]


class Clock:
    """Compares the times of entries: the clock may go back or jump ahead only where root set it.

    If it goes back, either the entry before is too late or this one is too early. The next entry decides which. At the
    end of the log this is unknown, and both are reported. A jump ahead is a problem, unless root later set the clock
    back to a time before the jump. Then it is only noted, because leases and keys granted meanwhile are not valid yet.
    """

    def __init__(self, problem: ReportIssue, note: ReportIssue) -> None:
        self._problem, self._note = problem, note
        self._before = 0
        self._changed_at = 0
        self._doubt: tuple[int, int] | None = None
        self._jumps: dict[int, int] = {}
        self._index = -1
        self.now = 0

    def mark(self) -> ClockMark | None:
        """Return the state for ``go_on``; None while a time is in doubt until the next entry."""
        return None if self._doubt else ClockMark(self._before, self.now, self._changed_at, dict(self._jumps))

    def go_on(self, mark: ClockMark, index: int) -> None:
        """Continue after the entry at ``index`` with the state that another clock had at that entry."""
        self._before, self.now, self._changed_at, self._index = mark.before_ms, mark.now_ms, mark.changed_at, index
        self._jumps = dict(mark.jumps)

    def check(self, index: int, accepted_ms: int, data: EventData | None = None) -> None:
        """Compare the time of the next entry with those before it. ``data`` shows whether it may set the clock."""
        if isinstance(data, ClockSet):
            self._index = index
            self._set(index, accepted_ms)
            return
        # In a bundle of one stream, most entries are not adjacent, so a large step in time is not a jump.
        is_next, self._index = index == self._index + 1, index
        if is_next and index > 0 and is_jump(self.now, accepted_ms) and not isinstance(data, HistoryReset):
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
        """Report problems that no later entry has settled."""
        self._settle()
        for index in self._jumps:
            message = f"entry {index} is more than {forward_days_max} days later than the entry before it"
            self._problem(index, "CLOCK_JUMPED", f"{message}, and root did not set the clock")

    def _set(self, index: int, accepted_ms: int) -> None:
        self._settle()
        for jump in [jump for jump, jump_ms in self._jumps.items() if jump_ms > accepted_ms]:
            del self._jumps[jump]
            message = f"entry {jump} was accepted while the clock was wrong; root corrected it at entry {index}"
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
        message = f"the time of entry {index} does not fit the times of the entries next to it"
        self._problem(index, "VERIFICATION_FAILED", message)
