"""A process of its own that writes into a ledger: ``appending`` until it is ended, or ``contesting`` claims.

It prints ``append`` when a transaction has begun to write, and ``committed INDEX ID`` when the caller was told so.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from building import Ledger

from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffClaimed
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(*words: object) -> None:
    """Print one line at once."""
    print(*words, flush=True)


def findings(stream: str, count: int, start: int) -> list[Draft]:
    """Return drafts of findings of different lengths."""
    texts = [f"{number} " + "x" * (number * 37 % 900) for number in range(start, start + count)]
    return [Draft(stream=stream, data=FindingLogged(finding=text)) for text in texts]


def sizes() -> Iterator[int]:
    """Yield for ever how many events to append at once."""
    while True:
        yield from (1, 7, 1, 2, 40, 1, 3)


def append_until_ended(ledger: Ledger, run: str, appends: int, share: float) -> None:
    """Append and append; once another has begun after so many, the kernel ends this process within it.

    After that share of the time that the one before took: how long that is, is the machine's and its load's.
    By a signal that nobody handles, as SIGKILL is, and of a timer of its own: another process that is to send it comes
    too late on a machine that has no processor for it.
    """
    appender: Any = ledger.log.appender
    write = appender.append

    def announced(*arguments: Any) -> Any:
        nonlocal appends, began
        say("append")
        appends, began = appends - 1, time.monotonic()
        if appends == -1:
            signal.setitimer(signal.ITIMER_REAL, share * took)
        return write(*arguments)

    appender.append = announced
    stream, number, began = f"session/{run}", 0, time.monotonic()
    ledger.emit("alice", stream, SessionStarted())
    for count in sizes():
        took = time.monotonic() - began
        for accepted in ledger.submit(ledger.sign("alice", *findings(stream, count, number))):
            say("committed", accepted.index, accepted.id)
        number += count


def contest(ledger: Ledger, run: str, handoffs: int) -> None:
    """Claim every handoff, with findings in between, each run from its own end; print each claim's outcome.

    After the first one it waits for another line, so that every run has won a claim before any contests them.
    """
    stream = f"session/{run}"
    ledger.emit("bob", stream, SessionStarted())
    say("ready")
    sys.stdin.readline()
    numbers = range(handoffs) if run == "1" else range(handoffs - 1, -1, -1)
    for number in numbers:
        ledger.submit(ledger.sign("bob", *findings(stream, 1 + number % 5, 10 * number)))
        claim = HandoffClaimed(lease_seconds=1000 + int(run))  # another event than the other process's
        try:
            say("claimed", number, ledger.emit("bob", f"handoff/c{number}", claim).index)
        except Refused as refusal:
            say("refused", number, refusal.code)
        if number == numbers[0]:
            sys.stdin.readline()


if __name__ == "__main__":
    home, task, name, *rest = sys.argv[1:]
    with Ledger(Path(home)) as opened:
        if task == "appending":
            append_until_ended(opened, name, int(rest[0]), float(rest[1]))
        else:
            contest(opened, name, int(rest[0]))
