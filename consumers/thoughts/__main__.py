"""The process of one agent: ``python -m consumers.thoughts ROLE``, told in one line on standard input what to play.

The line holds where the ledger is and which task it is about. When standard input ends, whoever started the process is
gone, and it ends too. Exit code 0: the task is over. What goes wrong is one JSON line on standard output.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

from consumers.thoughts.agents import Agent
from consumers.thoughts.processes import Part
from consumers.thoughts.starting import author_of, thinker_named
from consumers.thoughts.task import AGENTS
from ledger.config import Settings
from ledger.connect import open_client
from ledger.errors import BatonError, Exit, Refused
from ledger.events import tot as kinds


def main() -> int:
    """Play a role until the task is over; return the exit code."""
    part = msgspec.json.decode(sys.stdin.buffer.readline(), type=Part)
    stop = threading.Event()

    def watch() -> None:
        # Not through the buffer: a thread that holds its lock would keep the interpreter from ending.
        while os.read(0, 4096):
            continue
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        role = _role(sys.argv[1])
        settings = Settings(home=Path(part.home), config=part.config, server=part.server, agent=AGENTS[role])
        thinker = thinker_named(part.thinker, part.config)
        with open_client(settings) as client:
            agent = Agent(role, part.task_id, author_of(role, settings, client), thinker, opening=part.opening)
            return Exit.OK if agent.run(stop, part.start) else Exit.UNAVAILABLE
    except BatonError as error:
        sys.stdout.buffer.write(msgspec.json.encode(error.to_dict()) + b"\n")
        sys.stdout.buffer.flush()
        return error.exit_code


def _role(name: str) -> kinds.Role:
    if name not in AGENTS:
        raise Refused("USAGE", f"there is no role {name[:60]!r}: {', '.join(AGENTS)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
