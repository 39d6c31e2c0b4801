"""A task from outside: six processes search a problem, and whoever started them reads what they come to.

The ledger is all that they share. Each is ``python -m consumers.thoughts.run ROLE``, told in one line on standard
input what to play; it is started again when it dies, and ended by its own pid. What happens if we crash here: the
agents see their standard input end and stop; ``resume_task`` starts six others, which go on from the log. Exit code 0:
the task is over. What goes wrong is one JSON line on standard output.

On a ledger in a folder the six are service agents that the node key registers when they are new. On a server they are
registered already, and their keys lie in the folder of whoever starts them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec
from msgspec.structs import asdict

from consumers.sdk.ledger import entries_now
from consumers.thoughts.agents import Agent
from consumers.thoughts.settings import TaskOptions, read_task_type, search_config
from consumers.thoughts.task import AGENTS, Task
from consumers.thoughts.thinkers import choose_thinker, thinker_named
from ledger.author import Author
from ledger.client import Client, open_client, read_event
from ledger.config import Actions, Config, Settings
from ledger.errors import BatonError, Exit, Refused, Unavailable
from ledger.events import tot as kinds
from ledger.events.body import Event
from ledger.home import Home
from ledger.trust import actions_of

Progress: TypeAlias = "Callable[[Event], None]"

poll_wait_s: Final = 0.25

_ID_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_task_id() -> str:
    """Return a new task's id, ``tot-YYYYMMDD-HHMMSS-xxxxxx`` in UTC."""
    short = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(6))
    return f"tot-{datetime.now(UTC):%Y%m%d-%H%M%S}-{short}"


def run_task(
    settings: Settings,
    problem: str,
    options: TaskOptions | None = None,
    *,
    thinker: str | None = None,
    task_id: str | None = None,
    progress: Progress | None = None,
    client: Client | None = None,
) -> dict[str, Any]:
    """Search a problem with six agents and return the outcome; ``progress`` sees each event of the task.

    ``client`` is one of the same ledger that is open already, and stays open.

    Raises:
        Refused: ``INVALID_FIELD`` for options or a problem that cannot be; ``USAGE`` for an unknown thinker; the codes
            of keys.
        Unavailable: the ledger cannot be used; ``resume_task`` goes on with what is there.
    """
    with _opened(settings, client) as ledger:
        assignment = prepare(settings, ledger, problem, options or TaskOptions(), thinker=thinker, task_id=task_id)
        return _play(assignment, _Reading(ledger, assignment, progress))


def prepare(
    settings: Settings,
    client: Client,
    problem: str,
    options: TaskOptions,
    *,
    thinker: str | None = None,
    task_id: str | None = None,
) -> Assignment:
    """Return what the six processes of a new task are told; their keys are there and registered after this."""
    if not problem.strip():
        raise Refused("INVALID_FIELD", "there is no problem to search", path="$.problem")
    task_type = read_task_type(options.task_type)
    search_config(task_type, None, options.overrides)
    actions = actions_of(settings, client)
    keys = role_keys(settings, client)
    opened = kinds.TotStarted(
        task_id=task_id or new_task_id(),
        problem=problem,
        task_type=task_type,
        roles=[kinds.RoleBinding(role=role, agent=name, key=keys[role]) for role, name in AGENTS.items()],
        thinker=choose_thinker(problem, task_type, actions, thinker).name,
        options=options.to_strings(),
    )
    return _assignment(settings, actions, opened, client.head().size)


def resume_task(
    settings: Settings, task_id: str, *, progress: Progress | None = None, client: Client | None = None
) -> dict[str, Any]:
    """Go on with a task, whatever became of its agents, and return the outcome.

    For a task that is over and kept nobody is started, and ``pids`` is empty.

    Raises:
        Refused: ``NOT_FOUND`` for an unknown task; ``NOT_AUTHORIZED`` when its roles' keys are not here.
        Unavailable: as ``run_task``.
    """
    with _opened(settings, client) as ledger:
        opening = read_task(ledger, task_id)[0]
        actions = actions_of(settings, ledger)
        assignment = _assignment(settings, actions, opening.data, opening.index)
        reading = _Reading(ledger, assignment, progress)
        reading.read(0)
        if reading.is_kept():
            return outcome(reading.task) | {"pids": {}}
        bound = {binding.role: binding.key for binding in opening.data.roles}
        if bound != held_keys(settings):
            raise Refused("NOT_AUTHORIZED", f"the roles of {task_id} are bound to keys that are not here", task=task_id)
        return _play(assignment, reading)


def read_task(client: Client, task_id: str) -> list[Event]:
    """Return the events of a task, in order."""
    events = [read_event(index, data) for index, data in entries_now(client, stream=f"tot/{task_id}")]
    if not events:
        raise Refused("NOT_FOUND", f"there is no task {task_id}", task_id=task_id)
    return events


def _opened(settings: Settings, client: Client | None) -> AbstractContextManager[Client]:
    """Return ``client``, which stays open, or a new one: a folder can be opened once in a process."""
    if client is not None:
        return nullcontext(client)
    if settings.server is not None and settings.agent is None:
        settings = msgspec.structs.replace(settings, agent=AGENTS["orchestrator"])
    return open_client(settings)


def _assignment(settings: Settings, actions: Actions, opened: kinds.TotStarted, start: int) -> Assignment:
    home, config, server = str(settings.home), settings.config, settings.server
    return Assignment(home, config, actions, server, opened.task_id, opened.thinker, start, opened)


def _play(assignment: Assignment, reading: _Reading) -> dict[str, Any]:
    with Processes(assignment) as processes:
        while not processes.is_done():
            reading.read(poll_wait_s)
        reading.read(0)
        return outcome(reading.task) | {"pids": processes.pids}


class _Reading:
    def __init__(self, client: Client, assignment: Assignment, progress: Progress | None) -> None:
        self.task = Task(assignment.task_id)
        self._client = client
        self._position = assignment.start
        self._progress = progress

    def read(self, wait_s: float) -> None:
        """Read to the end; wait for news if there are none."""
        while True:
            page = self._client.entries(self._position, stream=f"tot/{self.task.id}", wait_s=wait_s)
            for index, data in page.entries:
                event = read_event(index, data)
                self.task.apply(event)
                if self._progress is not None:
                    self._progress(event)
            self._position = page.next_index
            if self._position >= page.size:
                return

    def is_kept(self) -> bool:
        """Return whether the task is over and its reasoning, if it came to one, is in the ledger."""
        if not self.task.is_over or self.task.solution is None:
            return self.task.is_over
        kept = entries_now(self._client, self.task.solution.index, stream=f"reasoning/{self.task.id}")
        return next(kept, None) is not None


def outcome(task: Task) -> dict[str, Any]:
    """Return what a task came to; ``error`` is None when it was solved, and ``stats`` when no search began."""
    solution: kinds.Solution | None = task.solution.data.payload if task.solution is not None else None
    complete: kinds.SearchComplete | None = task.complete.data if task.complete is not None else None
    paused: kinds.TotPaused | None = task.paused.data if task.paused is not None else None
    failure = task.failure or (None if complete is None else complete.error) or (paused and paused.error)
    return {
        "task_id": task.id,
        "answer": None if solution is None else solution.answer,
        "reasoning_trace": [] if solution is None else solution.reasoning_trace,
        "confidence": None if solution is None else solution.confidence,
        "verification": None if solution is None else asdict(solution.verification),
        "alternative_solutions": [] if solution is None else solution.alternative_solutions,
        "stats": None if complete is None else asdict(complete.payload.stats),
        "error": None if failure is None else asdict(failure),
        "reasoning": None if solution is None else f"reasoning/{task.id}",
        "keys": {} if task.started is None else {binding.role: binding.key for binding in task.started.roles},
    }


restarts_max: Final = 3
stop_wait_s: Final = 10.0


class Assignment(msgspec.Struct, frozen=True):
    """What a process is told: the ledger, the task, its thinker, where to read from, and what opens it if it is new.

    ``actions`` is what whoever starts it was allowed by the user, and no file is asked again.
    """

    home: str
    config: Config
    actions: Actions
    server: str | None
    task_id: str
    thinker: str
    start: int
    opening: kinds.TotStarted | None = None


class Processes:
    """The six processes of one task."""

    def __init__(self, assignment: Assignment) -> None:
        """Start them; the orchestrator alone is told what opens the task."""
        self._assignments = {
            role: assignment if role == "orchestrator" else msgspec.structs.replace(assignment, opening=None)
            for role in AGENTS
        }
        self._children: dict[kinds.Role, subprocess.Popen[bytes]] = {}
        self._restarts = dict.fromkeys(AGENTS, 0)
        try:
            for role in AGENTS:
                self._start(role)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    @property
    def pids(self) -> dict[kinds.Role, int]:
        """The process of each role."""
        return {role: child.pid for role, child in self._children.items()}

    def is_done(self) -> bool:
        """Return whether all six saw the end of the task; one that died is started again, ``restarts_max`` times."""
        codes = {role: child.poll() for role, child in self._children.items()}
        for role, code in codes.items():
            if code not in (None, 0):
                self._replace(role)
        return all(code == 0 for code in codes.values())

    def end(self) -> None:
        """End the processes that are ours: their input ends, and who does not follow in ``stop_wait_s`` is killed."""
        for child in self._children.values():
            _close(child)
        for child in self._children.values():
            try:
                child.wait(stop_wait_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self, role: kinds.Role) -> None:
        # In a process session of its own: ^C reaches only whoever runs the task, who then ends the six in order.
        command, pipe = [sys.executable, "-P", "-m", __name__, role], subprocess.PIPE
        # -P: the folder that this runs in may be a stranger's, and hold modules called like ours.
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603 - our own
        self._children[role] = child
        assert child.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # it died at once: ``is_done`` sees that
            child.stdin.write(msgspec.json.encode(self._assignments[role]) + b"\n")
            child.stdin.flush()

    def _replace(self, role: kinds.Role) -> None:
        child = self._children[role]
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        output = child.stdout.read()
        code = child.wait()
        _close(child)
        error = BatonError.from_dict(msgspec.json.decode(output)) if output else None
        if isinstance(error, Refused):
            raise error.with_details(role=role)
        if self._restarts[role] == restarts_max:
            message = f"the {role} ended {restarts_max + 1} times, at last {code}"
            raise error or Unavailable("STORE_UNAVAILABLE", message)
        self._restarts[role] += 1
        self._start(role)


def _close(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def role_keys(settings: Settings, client: Client) -> dict[str, str]:
    """Return the public keys (hex) of the six roles; on a ledger in a folder those that are new are registered."""
    home = Home(settings.home)
    if settings.server is None:
        from consumers.sdk.service import service_author  # noqa: PLC0415 - loads lmdb, as its client does
        from ledger.local import LocalClient  # noqa: PLC0415 - loads lmdb

        assert isinstance(client, LocalClient)  # noqa: S101 - without a server there is no other
        for name in AGENTS.values():
            service_author(client, name)
    return {role: home.open(name).public.hex() for role, name in AGENTS.items()}


def held_keys(settings: Settings) -> dict[str, str]:
    """Return the public keys (hex) of the roles whose keys are here; none is made, and nobody is registered."""
    home = Home(settings.home)
    return {role: home.open(name).public.hex() for role, name in AGENTS.items() if home.key_file(name).exists()}


def author_of(role: kinds.Role, settings: Settings, client: Client) -> Author:
    """Return the author who plays ``role`` with its own key."""
    key = Home(settings.home).open(AGENTS[role])
    return Author(client, AGENTS[role], lambda _: key)


def main() -> int:
    """Play a role until the task is over; return the exit code."""
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    stop = threading.Event()

    def watch() -> None:
        # Not through the buffer: a thread that holds its lock would keep the interpreter from ending.
        while os.read(0, 4096):
            continue
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        role = next((role for role in AGENTS if role == sys.argv[1]), None)
        if role is None:
            raise Refused("USAGE", f"there is no role {sys.argv[1][:60]!r}: {', '.join(AGENTS)}")
        home, config = Path(assignment.home), assignment.config
        settings = Settings(home=home, config=config, server=assignment.server, agent=AGENTS[role])
        thinker = thinker_named(assignment.thinker, assignment.actions)
        with open_client(settings) as client:
            author = author_of(role, settings, client)
            agent = Agent(role, assignment.task_id, author, thinker, opening=assignment.opening)
            return Exit.OK if agent.run(stop, assignment.start) else Exit.UNAVAILABLE
    except BatonError as error:
        sys.stdout.buffer.write(msgspec.json.encode(error.to_dict()) + b"\n")
        sys.stdout.buffer.flush()
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
