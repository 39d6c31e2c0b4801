"""A program that erases the body of an entry: ``FOLDER SUBMISSION``, a file with a signed redaction.

It prints ``admitted`` when the redaction is in the log, and ``erased`` when the log's file holds the body no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from building import Ledger

from deedbook.ledger.admission.erasure import finish_erasures
from deedbook.ledger.format.envelope import decode_submission

folder, submission = map(Path, sys.argv[1:])
with Ledger(folder) as ledger:
    ledger.gate.submit(decode_submission(submission.read_bytes()))
    print("admitted", flush=True)
    finish_erasures(ledger.log)
    print("erased", flush=True)
