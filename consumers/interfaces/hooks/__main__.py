"""``python -P -m deedbook.consumers.interfaces.hooks HARNESS [--as NAME] [--home DIR] [--server URL]``: what harnesses
call.

Exits with 0 whatever it is called with: 2, which argument parsers exit with, would block the host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deedbook.consumers.interfaces.hooks.responses import respond_to
from deedbook.consumers.interfaces.hooks.supervisor import Call, Work, supervise


def call_of(words: Sequence[str]) -> Call | None:
    """Return the call that a command line makes; None for one that setup does not write."""
    options = {"--as": "", "--home": "", "--server": ""}
    if not words or len(words) % 2 == 0:
        return None
    for name, value in zip(words[1::2], words[2::2], strict=True):
        if name not in options:
            return None
        options[name] = value
    home = options["--home"]
    return Call(words[0], options["--as"] or None, Path(home) if home else None, options["--server"] or None)


def respond(work: Work) -> bytes:
    """Do what the event asks for, with what that needs loaded only now: this process may have little to do."""
    return respond_to(work)


def main(words: Sequence[str]) -> None:
    """Answer one call and end this process."""
    try:
        call = call_of(words)
        if call is not None:
            supervise(call, respond)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
