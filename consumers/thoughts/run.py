"""Runs a task: starts the agents that search a problem, and reads the result.

On a ledger in a folder the six are service agents that the node key registers if they are new; on a server they are
already registered. A role may be bound to another agent instead, by the registered identity key of that agent: then no
process here plays the role, and that agent answers over the bus. Only one process at a time plays a task, because two
would send every question to a model twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from deedbook.consumers.sdk.ledger import entries_now
from deedbook.consumers.sdk.service import service_author
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import Progress, TaskReader
from deedbook.consumers.thoughts.phrases import language_of
from deedbook.consumers.thoughts.processes import Assignment, Processes, author_of
from deedbook.consumers.thoughts.settings import TaskOptions, read_task_type, search_config
from deedbook.consumers.thoughts.task import AGENTS, Task, path_to_best
from deedbook.consumers.thoughts.thinkers.absent import NOBODY
from deedbook.consumers.thoughts.thinkers.calling_agent import AGENT
from deedbook.consumers.thoughts.thinkers.registry import check_named, choose_thinker, is_program, thinker_named
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused, Unavailable, did_you_mean, near
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.config import Actions, Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.trust import actions_of
from deedbook.ledger.system.files import lock_file

poll_wait_s: Final = 0.25
problem_size_max_bytes: Final = 14_000
"""Size as JSON, a quarter of an event: a prompt and the root node repeat the problem, and a path adds its steps."""
BINDABLE: Final[tuple[kinds.Role, ...]] = ("generator", "evaluator")

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
    task_id: str | None = None,
    progress: Progress | None = None,
    client: Client | None = None,
) -> dict[str, Any]:
    """Search a problem with six agents and return the outcome; ``progress`` is called with each event of the task.

    A bound agent that does not answer a request within ``answer_wait_s`` pauses the task. A passed ``client`` stays
    open. Raises Refused: ``INVALID_FIELD`` for invalid options or an empty problem; ``USAGE`` if no thinker reads the
    problem; ``AGENT_UNKNOWN`` or ``KEY_REVOKED`` for an agent that cannot be bound; the codes of keys. Unavailable: the
    ledger cannot be used; ``resume_task`` continues the task.
    """
    options = options or TaskOptions()
    check_named(options.thinker)
    with _opened(settings, client) as ledger:
        assignment = prepare(settings, ledger, problem, options, task_id)
        with locked_task(settings, assignment.opening.task_id):
            return _play(assignment, TaskReader(ledger, assignment.opening.task_id, assignment.start, progress))


def prepare(
    settings: Settings, client: Client, problem: str, options: TaskOptions, task_id: str | None = None
) -> Assignment:
    """Return the assignment of a new task's processes; afterwards their keys exist and are registered."""
    if not problem.strip():
        raise Refused("INVALID_FIELD", "the problem is empty: say what to solve", path="$.problem")
    if (size := len(msgspec.json.encode(problem))) > problem_size_max_bytes:
        message = f"the problem has {size} bytes; the limit is {problem_size_max_bytes}: shorten it"
        raise Refused("TOO_LARGE", message, path="$.problem")
    task_type = read_task_type(options.task_type)
    search_config(task_type, None, options.overrides)
    actions = actions_of(settings, client)
    keys = role_keys(settings, client)
    bindings = {role: kinds.RoleBinding(role=role, agent=name, key=keys[role]) for role, name in AGENTS.items()}
    bindings |= _others(client, options.bound)
    opened = kinds.TotStarted(
        task_id=task_id or new_task_id(),
        problem=problem,
        task_type=task_type,
        roles=list(bindings.values()),
        options=options.to_strings(),
        thinker=choose_thinker(problem, task_type, actions, options.thinker).name,
        language=options.language or language_of(problem),
    )
    return _assignment(settings, actions, opened, client.head().size)


def _assignment(settings: Settings, actions: Actions, opening: kinds.TotStarted, start: int) -> Assignment:
    return Assignment(str(settings.home), settings.config, actions, settings.server, opening.thinker, start, opening)


def _others(client: Client, bound: Mapping[str, str]) -> dict[kinds.Role, kinds.RoleBinding]:
    """Return the roles that are bound to other agents, each with the identity key that the log proves."""
    if bound.keys() - set(BINDABLE) or {*bound.values()} & {*AGENTS.values()}:
        names = ", ".join(AGENTS.values())
        message = f"other agents can play only {' and '.join(BINDABLE)}: name an agent whose name is none of {names}"
        raise Refused("USAGE", message)
    if len({*bound.values()}) != len(bound):
        raise Refused("USAGE", "generator and evaluator must be two different agents: name two")
    bindings: dict[kinds.Role, kinds.RoleBinding] = {}
    for role, name in ((role, bound[role]) for role in BINDABLE if role in bound):
        size = client.streams.read(f"agent/{name}").head.size
        agent = client.streams.authority.agent(name, size)
        if agent is None or agent.removed_index is not None:
            alike = did_you_mean(near(name, (other.name for other in client.agents() if other.removed_index is None)))
            why = "is not registered" if agent is None else "was removed"
            message = f"{name} {why}, so it cannot be the {role}: register it with `deed agent add NAME`{alike}"
            raise Refused("AGENT_UNKNOWN", message, name=name)
        key = client.streams.authority.key(agent.key, size)
        if key is None or not key.is_valid:
            message = f"the identity key of {name} was revoked, so it cannot be the {role}: name another agent"
            raise Refused("KEY_REVOKED", message, name=name)
        bindings[role] = kinds.RoleBinding(role=role, agent=name, key=agent.key)
    return bindings


def resume_task(
    settings: Settings,
    task_id: str,
    *,
    best_path: bool = False,
    progress: Progress | None = None,
    client: Client | None = None,
) -> dict[str, Any]:
    """Continue a task, whatever state its agents are in, and return the outcome.

    A task with a model continues with the model that is configured now; answered questions are not asked again. With
    ``best_path``, a paused task ends with its best path as the answer. For a finished task with a stored reasoning no
    process is started, and ``pids`` is empty. Raises as ``run_task``, and ``NOT_FOUND``; ``NOT_AUTHORIZED`` if its
    roles' keys are not here; ``STORE_IN_USE`` if another process plays it; ``USAGE`` without a best path to take.
    """
    with _opened(settings, client) as ledger:
        opening = read_task(ledger, task_id)[0]
        actions = actions_of(settings, ledger)
        assignment = _assignment(settings, actions, opening.data, opening.index)
        reading = TaskReader(ledger, task_id, opening.index, progress)
        reading.read()
        if _is_kept(ledger, reading.task):
            return outcome(reading.task) | {"pids": {}}
        _require_keys(settings, opening.data)
        others = {binding.role: binding for binding in opening.data.roles if binding.role not in assignment.ours}
        if others != _others(ledger, {role: binding.agent for role, binding in others.items()}):
            message = f"an agent of {task_id} has a new key: run `deed tot stop {task_id}`, then start a new task"
            raise Refused("KEY_REVOKED", message, task=task_id)
        with locked_task(settings, task_id):
            reading.read()
            if reading.task.thinker.startswith(f"{AGENT}:") and not best_path:
                message = f"{reading.task.thinker} thinks about {task_id}: the agent answers its questions over MCP"
                raise Refused("USAGE", message, task=task_id)
            if best_path and not _has_best_path(reading.task):
                message = "only a paused task whose thinker proves nothing has a best path to take, after its first \
thought: leave best-path out, or end the task with `deed tot stop`"
                raise Refused("USAGE", message, task=task_id)
            thinker = thinker_named(NOBODY if best_path else reading.task.thinker, actions).name
            if reading.task.paused is not None:
                resumed = kinds.TotResumed(sender="orchestrator", task_id=task_id, thinker=thinker, best_path=best_path)
                _append(settings, ledger, resumed, reading.task.paused.id)
            return _play(replace(assignment, thinker=thinker), reading)


def stop_task(settings: Settings, task_id: str, reason: str, *, client: Client | None = None) -> dict[str, Any]:
    """End a task for good with a reason, and return the outcome. Raises as ``resume_task``; ``INVALID_FIELD``."""
    if not reason.strip():
        raise Refused("INVALID_FIELD", "give a reason: the task's log records why it was stopped", path="$.reason")
    with _opened(settings, client) as ledger:
        opening = read_task(ledger, task_id)[0]
        reading = TaskReader(ledger, task_id, opening.index)
        reading.read()
        if not reading.task.is_over:
            _require_keys(settings, opening.data)
            failure = kinds.Failure(code="SEARCH_STOPPED", message=reason, recoverable=False)
            _append(settings, ledger, kinds.TotError(sender="orchestrator", task_id=task_id, error=failure), opening.id)
            reading.read()
        return outcome(reading.task)


def _append(settings: Settings, client: Client, data: kinds.TotResumed | kinds.TotError, cause: str) -> None:
    """Append the end or the resumption of a task as its orchestrator, unless another process was faster."""
    is_ours = settings.server is None or settings.agent == AGENTS["orchestrator"]
    own = nullcontext(client) if is_ours else open_client(replace(settings, agent=AGENTS["orchestrator"]))
    with own as ledger:
        try:
            draft = Draft(stream=f"tot/{data.task_id}", data=data, causes=[cause])
            author_of("orchestrator", settings, ledger).emit(draft)
        except Refused as refusal:
            if refusal.code != "TRANSITION_NOT_ALLOWED":
                raise


@contextmanager
def locked_task(settings: Settings, task_id: str) -> Iterator[None]:
    """Hold the lock of a task: only one process of this machine plays it."""
    path = settings.home / f"{PurePath(task_id).name}.lock"
    message = f"another process is searching {task_id}: follow it with `deed tot show {task_id} --follow`"
    with lock_file(path, Unavailable("STORE_IN_USE", message, task_id=task_id)):
        yield
        path.unlink(missing_ok=True)


def _require_keys(settings: Settings, started: kinds.TotStarted) -> None:
    home, ours = Home(settings.home), [binding for binding in started.roles if binding.agent in AGENTS.values()]
    if any(not home.key_file(role.agent).exists() or home.open(role.agent).public.hex() != role.key for role in ours):
        message = f"the roles of {started.task_id} need keys that this machine does not have"
        raise Refused("NOT_AUTHORIZED", message, task=started.task_id)


def read_task(client: Client, task_id: str) -> list[Event]:
    """Return the events of a task, in order."""
    events = [read_event(index, data) for index, data in entries_now(client, stream=f"tot/{task_id}")]
    if not events:
        raise Refused("NOT_FOUND", f"no task is named {task_id}", task_id=task_id)
    return events


def _opened(settings: Settings, client: Client | None) -> AbstractContextManager[Client]:
    """Return ``client``, which stays open, or a new client: a process can open a folder only once."""
    if client is not None:
        return nullcontext(client)
    if settings.server is not None and settings.agent is None:
        settings = replace(settings, agent=AGENTS["orchestrator"])
    return open_client(settings)


def _play(assignment: Assignment, reading: TaskReader) -> dict[str, Any]:
    with Processes(assignment) as processes:
        while not processes.is_done():
            reading.read(poll_wait_s)
        reading.read()
        return outcome(reading.task) | {"pids": processes.pids}


def _is_kept(client: Client, task: Task) -> bool:
    """Return whether a task is over and its reasoning, if it has one, is in the ledger."""
    if not task.is_over or task.solution is None:
        return task.is_over
    entries = entries_now(client, task.solution.index, stream=f"reasoning/{task.id}")
    return next(entries, None) is not None


def _has_best_path(task: Task) -> bool:
    return task.paused is not None and not is_program(task.thinker) and len(task.nodes) > 1


def outcome(task: Task) -> dict[str, Any]:
    """Return the outcome of a task; ``error`` is None if it was solved, ``stats`` if no search began.

    ``paused`` is the reason of a pause (also its ``error``), the command that continues the task, and the command that
    ends it with its best path as the answer, if it has one; else it is None.
    """
    solution: kinds.Solution | None = task.solution.data.payload if task.solution is not None else None
    complete: kinds.SearchComplete | None = task.complete.data if task.complete is not None else None
    pause: kinds.Failure | None = None if task.paused is None or task.is_over else task.paused.data.error
    failure = task.failure or (pause if complete is None else complete.error)
    return {
        "task_id": task.id,
        "language": task.language,
        "answer": None if solution is None else solution.answer,
        "reasoning_trace": [] if solution is None else solution.reasoning_trace,
        "confidence": None if solution is None else solution.confidence,
        "verification": None if solution is None else asdict(solution.verification),
        "alternative_solutions": [] if solution is None else solution.alternative_solutions,
        "dimension_scores": {} if solution is None else _dimension_scores(task),
        "stats": None if complete is None else asdict(complete.payload.stats),
        "error": None if failure is None else asdict(failure),
        "paused": None if pause is None else asdict(pause) | resumptions(task.id, has_path=_has_best_path(task)),
        "reasoning": None if solution is None else f"reasoning/{task.id}",
        "keys": {} if task.started is None else {binding.role: binding.key for binding in task.started.roles},
    }


def _dimension_scores(task: Task) -> dict[str, float]:
    """Return the scores of the answer's last thought by criterion."""
    evaluation = path_to_best(task.nodes)[-1].evaluation
    return {} if evaluation is None else evaluation.dimension_scores


def resumptions(task_id: str, *, has_path: bool) -> dict[str, str | None]:
    """Return the commands that continue a paused task, and that end it with its best path as the answer."""
    resume = f"deed tot resume {task_id}"
    return {"resume": resume, "best_path": f"{resume} --best-path" if has_path else None}


def role_keys(settings: Settings, client: Client) -> dict[str, str]:
    """Return the public keys (hex) of the six roles; on a ledger in a folder, register new ones."""
    home = Home(settings.home)
    if settings.server is None:
        assert isinstance(client, LocalClient)  # noqa: S101 - without a server there is no other
        for name in AGENTS.values():
            service_author(client, name)
    return {role: home.open(name).public.hex() for role, name in AGENTS.items()}
