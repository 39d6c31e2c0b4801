"""Starts and runs the processes of a task: one for each role that is ours.

The processes share only the ledger. Each is ``python -m deedbook.consumers.thoughts.processes ROLE`` and gets its
assignment in one line on standard input; it is started again if it dies, and ended by its own pid. If we crash, the
agents see their standard input end and stop; ``resume_task`` starts others, which continue from the log. Exit code 0:
the task is over or paused. An error is one JSON line on standard output.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import Agent
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.registry import thinker_named
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
from deedbook.ledger.format.codec import convert, read_json
from deedbook.ledger.home.config import Actions, Config, Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.system.resource import Resource

restarts_max: Final = 3
stop_wait_s: Final = 10.0


class Assignment(msgspec.Struct, frozen=True):
    """The assignment of a process: the ledger, the thinker, the index to read from, and the opening of a new task.

    ``actions`` are those that the user allowed to the starting process; no file is read for them again.
    """

    home: str
    config: Config
    actions: Actions
    server: str | None
    thinker: str
    start: int
    opening: kinds.TotStarted

    @property
    def ours(self) -> list[kinds.Role]:
        """The roles that are played here, without those bound to other agents."""
        return [binding.role for binding in self.opening.roles if binding.agent in AGENTS.values()]


class Processes(Resource):
    """The processes of one task: six, minus the roles that are bound to other agents."""

    def __init__(self, assignment: Assignment) -> None:
        """Start them."""
        self._assignment = assignment
        self._children: dict[kinds.Role, subprocess.Popen[bytes]] = {}
        self._restarts = dict.fromkeys(AGENTS, 0)
        try:
            for role in assignment.ours:
                self._start(role)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[kinds.Role, int]:
        """The process of each role."""
        return {role: child.pid for role, child in self._children.items()}

    def is_done(self) -> bool:
        """Return whether all processes have finished; start a dead one again, at most ``restarts_max`` times."""
        codes = {role: child.poll() for role, child in self._children.items()}
        for role, code in codes.items():
            if code not in (None, 0):
                self._replace(role)
        return all(code == 0 for code in codes.values())

    def close(self) -> None:
        """End our processes: close their input, and kill those that are still running after ``stop_wait_s``."""
        for child in self._children.values():
            _close(child)
        for child in self._children.values():
            try:
                child.wait(stop_wait_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self, role: kinds.Role) -> None:
        # In a process session of its own: ^C reaches only the process that runs the task, which then ends the others.
        command, pipe = [sys.executable, "-P", "-m", __name__, role], subprocess.PIPE
        # -P: the working folder may be a stranger's, with modules named like ours.
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603 - our own
        self._children[role] = child
        assert child.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # it died at once: ``is_done`` sees that
            child.stdin.write(msgspec.json.encode(self._assignment) + b"\n")
            child.stdin.flush()

    def _replace(self, role: kinds.Role) -> None:
        child = self._children[role]
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        output = child.stdout.read()
        code = child.wait()
        _close(child)
        error = DeedbookError.from_dict(msgspec.json.decode(output)) if output else None
        if isinstance(error, Refused):
            raise error.with_details(role=role)
        if self._restarts[role] == restarts_max:
            message = f"the {role} process ended {restarts_max + 1} times, the last time with exit code {code}"
            raise error or Unavailable("STORE_UNAVAILABLE", message)
        self._restarts[role] += 1
        self._start(role)


def _close(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def author_of(role: kinds.Role, settings: Settings, client: Client) -> Author:
    """Return the author of ``role``, with its own key."""
    key = Home(settings.home).open(AGENTS[role])
    return Author(client, AGENTS[role], lambda _: key)


def main() -> int:
    """Play a role until the task is over; return the exit code."""
    assignment = read_json(sys.stdin.buffer.readline(), Assignment)
    stop = threading.Event()

    def watch() -> None:
        # Not through the buffer: a thread that holds its lock would prevent the interpreter from ending.
        while os.read(0, 4096):
            continue
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        role = convert(sys.argv[1], kinds.Role)
        home, config = Path(assignment.home), assignment.config
        settings = Settings(home=home, config=config, server=assignment.server, agent=AGENTS[role])
        thinker = thinker_named(assignment.thinker, assignment.actions)
        client = open_client(settings)
        author = author_of(role, settings, client)
        agent = Agent(role, author, thinker, assignment.opening)
        code = Exit.OK if agent.run(stop, assignment.start) else Exit.UNAVAILABLE
        if agent.is_idle:
            client.close()  # otherwise a thread may be writing, and closing the store under it may hang
    except DeedbookError as error:
        sys.stdout.buffer.write(msgspec.json.encode(error.to_dict()) + b"\n")
        sys.stdout.buffer.flush()
        code = error.exit_code
    return code


if __name__ == "__main__":
    # At once: a thread that waits for a model would keep the interpreter alive as long as that takes.
    os._exit(main())
