"""The command line: how people and scripts meet a ledger.

``--json`` prints exactly one document; follow modes print one JSON object a line. Nothing prompts off a terminal.
"""

from __future__ import annotations

import sys

try:
    from consumers.doors.cli.start import import_libraries

    import_libraries()
    from consumers.doors.cli.program import main
except ImportError as error:
    from consumers.doors.cli.installation import PACKAGES, problem_of

    # Somebody else's `ledger` stands before ours: no verb can run, not even the one that would say so.
    problems = [problem for package in PACKAGES if (problem := problem_of(package)) is not None]
    if not problems:
        raise
    sys.stderr.write("".join(f"STORE_UNAVAILABLE: {problem}\n" for problem in problems))
    raise SystemExit(7) from error

__all__ = ["main"]
