"""A task from outside: six processes search a problem, and whoever started them reads what they come to.

The ledger is all that they share. What happens if we crash here: the agents see their standard input end and stop;
``resume_task`` starts six others, which go on from the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import asdict

from consumers.sdk.ledger import entries_now
from consumers.thoughts.processes import Assignment, Processes, held_keys, role_keys
from consumers.thoughts.settings import TaskOptions, read_task_type, search_config
from consumers.thoughts.task import AGENTS, Task
from consumers.thoughts.thinkers import thinker_named
from ledger.client import Client, open_client, read_event
from ledger.config import Actions, Settings
from ledger.errors import Refused
from ledger.events import tot as kinds
from ledger.events.body import Event
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
    thinker: str = "game24",
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
    settings: Settings, client: Client, problem: str, options: TaskOptions, *, thinker: str, task_id: str | None = None
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
        thinker=thinker_named(thinker, actions).name,
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
    failure = task.failure or (None if complete is None else complete.error)
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
