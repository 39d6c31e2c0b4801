"""A program that erases the bodies of entries: ``FOLDER SUBMISSION OTHER``, files with signed redactions.

It prints ``admitted`` when the first redaction is in the log, and ``erased`` when the log's file has no erased body any
more. While the file is rewritten, it appends entries and prints ``added`` for each, and submits the other redaction and
prints ``admitted other``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from building import Ledger

from deedbook.ledger.admission import rewriter
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.envelope import decode_submission

folder, submission, other = map(Path, sys.argv[1:])
rewriter.range_events_max = 16  # type: ignore[misc] # the log is small, and has to have several pages
steps: list[int] = []


def meanwhile(done: int, _total: int) -> None:
    """Write to the log while it is copied."""
    steps.append(done)
    match len(steps):
        case 2:
            ledger.gate.submit(decode_submission(other.read_bytes()))
            print("admitted other", flush=True)
        case 1 | 4 | 5:
            ledger.emit("alice", "session/s", FindingLogged(finding=f"meanwhile {len(steps)}"))
            print("added", flush=True)


with Ledger(folder) as ledger:
    ledger.gate.submit(decode_submission(submission.read_bytes()))
    print("admitted", flush=True)
    rewriter.finish_erasures(ledger.log, meanwhile)
    print("erased", flush=True)
