"""A process that appends three times, as a node does: it continues after a refusal, and prints each answer."""

from __future__ import annotations

import os
import sys
from typing import Final

from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.settings import read_settings

OUT, ERR = 1, 2
unavailable: Final = 7


def append(stream: str) -> int:
    """Append to three streams, whatever the result of each; return the exit code."""
    settings, code = read_settings(), 0
    key = open_key(Home(settings.home).key_file("alice"))
    with LocalClient(settings) as client:
        author = Author(client, "alice", lambda kinds: key)
        for number in range(3):
            try:
                (accepted,) = author.emit(Draft(stream=f"{stream}-{number}", data=SessionStarted()))
            except Unavailable as refusal:
                os.write(ERR, f"{refusal}\n".encode())
                code = unavailable
            else:
                os.write(OUT, f"{accepted.index}  {accepted.id}\n".encode())
    return code


if __name__ == "__main__":
    try:
        sys.exit(append(sys.argv[1]))
    except (Unavailable, OSError):  # the folder cannot be opened, or there is no reader of the report
        sys.exit(unavailable)
