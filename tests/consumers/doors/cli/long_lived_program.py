"""A process that appends three times, as a node does: it goes on after a refusal, and prints what it was answered."""

from __future__ import annotations

import sys

from ledger import Author, Draft, Home, LocalClient, open_key
from ledger.config import read_settings
from ledger.errors import BatonError, Unavailable
from ledger.events.session import SessionStarted

settings = read_settings()
key = open_key(Home(settings.home).key_file("alice"))
code = 0
with LocalClient(settings) as client:
    author = Author(client, "alice", lambda kinds: key)
    for number in range(3):
        try:
            (accepted,) = author.emit(Draft(stream=f"{sys.argv[1]}-{number}", data=SessionStarted()))
        except Unavailable as refusal:
            print(refusal, file=sys.stderr)
            code = refusal.exit_code
        except BatonError as error:
            sys.exit(f"not {error}")
        else:
            sys.stdout.write(f"{accepted.index}  {accepted.id}\n")
            sys.stdout.flush()
sys.exit(code)
