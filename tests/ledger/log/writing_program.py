"""A program that writes to a ledger: it appends until it is killed (``appending``) or claims handoffs (``contesting``).

It prints ``append`` when a transaction begins to write, and ``committed INDEX ID`` for each acknowledged event.
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


def report(*fields: object) -> None:
    """Print one line immediately."""
    print(*fields, flush=True)


def findings(stream: str, count: int, start: int) -> list[Draft]:
    """Return drafts of findings of different lengths."""
    texts = [f"{number} " + "x" * (number * 37 % 900) for number in range(start, start + count)]
    return [Draft(stream=stream, data=FindingLogged(finding=text)) for text in texts]


def sizes() -> Iterator[int]:
    """Yield, without end, how many events to append at once."""
    while True:
        yield from (1, 7, 1, 2, 40, 1, 3)


def append_until_ended(ledger: Ledger, run: str, appends: int, share: float) -> None:
    """Append without end; during the append after the first ``appends``, a signal kills this process.

    The signal comes after ``share`` of the previous append's time, because that time depends on the machine and its
    load. It is an unhandled timer signal, which ends the process like SIGKILL. A signal from another process would come
    too late on a busy machine.
    """
    appender: Any = ledger.log.appender
    write = appender.append

    def append_and_report(*arguments: Any) -> Any:
        nonlocal appends, began
        report("append")
        appends, began = appends - 1, time.monotonic()
        if appends == -1:
            signal.setitimer(signal.ITIMER_REAL, share * took)
        return write(*arguments)

    appender.append = append_and_report
    stream, number, began = f"session/{run}", 0, time.monotonic()
    ledger.emit("alice", stream, SessionStarted())
    for count in sizes():
        took = time.monotonic() - began
        for accepted in ledger.submit(ledger.sign("alice", *findings(stream, count, number))):
            report("committed", accepted.index, accepted.id)
        number += count


def contest(ledger: Ledger, run: str, handoffs: int) -> None:
    """Claim every handoff, with findings in between; print each outcome. The two processes begin at opposite ends.

    After its first claim, a process waits for a line of input. So each wins a claim before they compete for any.
    """
    stream = f"session/{run}"
    ledger.emit("bob", stream, SessionStarted())
    report("ready")
    sys.stdin.readline()
    numbers = range(handoffs) if run == "1" else range(handoffs - 1, -1, -1)
    for number in numbers:
        ledger.submit(ledger.sign("bob", *findings(stream, 1 + number % 5, 10 * number)))
        claim = HandoffClaimed(lease_seconds=1000 + int(run))  # differs from the event of the other process
        try:
            report("claimed", number, ledger.emit("bob", f"handoff/c{number}", claim).index)
        except Refused as refusal:
            report("refused", number, refusal.code)
        if number == numbers[0]:
            sys.stdin.readline()


if __name__ == "__main__":
    home, task, name, *rest = sys.argv[1:]
    with Ledger(Path(home)) as opened:
        if task == "appending":
            append_until_ended(opened, name, int(rest[0]), float(rest[1]))
        else:
            contest(opened, name, int(rest[0]))
