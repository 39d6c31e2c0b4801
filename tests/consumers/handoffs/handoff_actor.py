"""One of several processes that write handoffs into one ledger: JSON lines with commands in, with answers out.

``{"open": FOLDER}`` opens a ledger, and closes the one before; ``{"author", "stream", "kind", "data", "at", "now_ms"}``
is signed and submitted through a gate of this process's own, by the clock that the command brings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from building import Ledger, key_named

from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.errors import Refused


def act(ledger: Ledger, command: dict[str, Any]) -> dict[str, Any]:
    """Submit a command; return the state after it, or the code of its refusal."""
    draft = Draft(stream=command["stream"], kind=command["kind"], data=command["data"])
    author = command["author"]
    ledger.clock.now_ms = command["now_ms"]
    submission = draft_and_sign([draft], key_named(author), ledger=ledger.id, author=author, at=command["at"])
    try:
        (accepted,) = ledger.submit(submission)
    except Refused as refused:
        return {"code": refused.code, "message": refused.message}
    return {
        "index": accepted.index,
        "id": accepted.id,
        "accepted_ms": accepted.accepted_ms,
        "is_repeat": accepted.is_repeat,
    }


def main() -> None:
    """Serve commands until there are no more."""
    ledger: Ledger | None = None
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if "open" in command:
            if ledger is not None:
                ledger.close()
            ledger = Ledger(Path(command["open"]))
        else:
            assert ledger is not None
            answer = act(ledger, command)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
