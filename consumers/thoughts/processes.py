"""Starts and runs the processes of a task: one for each role that is ours.

The processes share only the ledger. Each is a child (``sdk.child``) that plays one role. It is started again if it
dies, and ended by its own pid. If we crash, the agents see their connection end and stop; ``resume_task`` starts
others, which continue from the log. Exit code 0: the task is over or paused. An error is sent over the connection.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from deedbook.consumers.sdk.child import Child
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import Agent
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.registry import thinker_named
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
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
        self._children: dict[kinds.Role, Child] = {}
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
        """Return whether all processes have finished. Start a dead process again, at most ``restarts_max`` times."""
        codes = {role: child.poll() for role, child in self._children.items()}
        for role, code in codes.items():
            if code not in (None, 0):
                self._replace(role)
        return all(code == 0 for code in codes.values())

    def close(self) -> None:
        """End our processes: close their connections, and kill those that are still running after ``stop_wait_s``."""
        for child in self._children.values():
            child.connection.close()
        for child in self._children.values():
            child.end(stop_wait_s)

    def _start(self, role: kinds.Role) -> None:
        self._children[role] = Child(play, role, self._assignment)

    def _replace(self, role: kinds.Role) -> None:
        child = self._children[role]
        error: DeedbookError | None = None
        with suppress(EOFError):  # the process died before it could send an error
            error = DeedbookError.from_dict(child.receive())
        code = child.wait()
        child.connection.close()
        if isinstance(error, Refused):
            raise error.with_details(role=role)
        if self._restarts[role] == restarts_max:
            message = f"the {role} process ended {restarts_max + 1} times, the last time with exit code {code}"
            raise error or Unavailable("STORE_UNAVAILABLE", message)
        self._restarts[role] += 1
        self._start(role)


def author_of(role: kinds.Role, settings: Settings, client: Client) -> Author:
    """Return the author of ``role``, with its own key."""
    key = Home(settings.home).open(AGENTS[role])
    return Author(client, AGENTS[role], lambda _: key)


def play(connection: Connection, role: kinds.Role, assignment: Assignment) -> NoReturn:
    """Play a role until the task is over, or until the parent is gone; this is all that its process does."""
    stop = threading.Event()

    def watch() -> None:
        with suppress(EOFError, OSError):
            connection.recv()  # the parent sends nothing, so this ends with the connection
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        settings = Settings(
            home=Path(assignment.home), config=assignment.config, server=assignment.server, agent=AGENTS[role]
        )
        thinker = thinker_named(assignment.thinker, assignment.actions)
        client = open_client(settings)
        agent = Agent(role, author_of(role, settings, client), thinker, assignment.opening)
        code = Exit.OK if agent.run(stop, assignment.start) else Exit.UNAVAILABLE
        if agent.is_idle:
            client.close()  # else a thread may still write, and closing the store meanwhile may hang
    except DeedbookError as error:
        with suppress(OSError):  # the parent is gone
            connection.send(error.to_dict())
        code = error.exit_code
    # At once: a thread that waits for a model would keep the interpreter alive as long as that takes.
    os._exit(code)
