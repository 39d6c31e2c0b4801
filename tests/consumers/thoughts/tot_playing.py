"""Six agents of a Tree-of-Thoughts task in threads of one process, and the invariants of their messages."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import Agent
from deedbook.consumers.thoughts.processes import author_of
from deedbook.consumers.thoughts.run import outcome, prepare, resume_task, run_task
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.consumers.thoughts.task import AGENTS, Task
from deedbook.ledger.events.entries import read_event
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.consumers.thoughts.processes import Assignment
    from deedbook.consumers.thoughts.thinkers import Thinker
    from deedbook.ledger.events.body import Event

PROBLEM = "4 9 10 13"
ANSWER = "(10 - (13 - 9)) × 4 = 24"


def play(
    ledger: Ledger,
    thinker: Thinker,
    problem: str = PROBLEM,
    options: TaskOptions | None = None,
    *,
    copies: int = 1,
    **given: Any,
) -> dict[str, Any]:
    """Let ``copies`` agents of each of our roles play a new task to its end; return the outcome."""
    options = (options or TaskOptions())._replace(thinker="game24", **given)
    with ledger.client() as client:
        part = prepare(ledger.settings(), client, problem, options)
    return play_part(ledger, thinker, part, copies=copies)


def play_part(ledger: Ledger, thinker: Thinker, part: Assignment, *, copies: int = 1) -> dict[str, Any]:
    """Let agents continue an existing task, until it is over or pauses; return the outcome."""
    stop, errors = threading.Event(), list[Exception]()

    def act(role: kinds.Role) -> None:
        with ledger.client() as client:
            author = author_of(role, ledger.settings(), client)
            try:
                Agent(role, author, thinker, part.opening).run(stop, part.start)
            except Exception as error:  # noqa: BLE001 - the test reports it
                errors.append(error)
                stop.set()

    threads = [threading.Thread(target=act, args=(role,)) for role in part.ours for _ in range(copies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return outcome(read(ledger, part.opening.task_id))


def solve(ledger: Ledger, *arguments: Any, **options: Any) -> dict[str, Any]:
    """Let six processes solve a task."""
    with ledger.client() as client:
        return run_task(ledger.settings(), *arguments, client=client, **options)


def resume(ledger: Ledger, task_id: str) -> dict[str, Any]:
    """Resume a task."""
    with ledger.client() as client:
        return resume_task(ledger.settings(), task_id, client=client)


def events(ledger: Ledger, stream: str) -> list[Event]:
    """Return the events of a stream."""
    size = ledger.head()[0]
    with ledger.log.snapshot() as snapshot:
        found = [read_event(index, snapshot.entry(index)) for index in range(size)]
    return [event for event in found if event.stream == stream]


def read(ledger: Ledger, task_id: str) -> Task:
    """Return the task from its events."""
    task = Task(task_id)
    for event in events(ledger, f"tot/{task_id}"):
        task.apply(event)
    return task


def check(ledger: Ledger, task_id: str, *, agents: int = len(AGENTS)) -> dict[str, Any]:
    """Check that no message is repeated and that ``agents`` agents played; return the answer of ``tot.prove``."""
    said = events(ledger, f"tot/{task_id}")
    asked = {event.id: event for event in said if isinstance(event.data, kinds.Question)}
    answers = [event for event in said if isinstance(event.data, kinds.Answer)]
    answered = Counter(cause for event in answers for cause in event.causes if cause in asked)
    assert answered == dict.fromkeys(asked, 1)
    assert len({event.key for event in said}) == len({event.author for event in said}) == agents
    bound = {binding.role: binding.agent for binding in said[0].data.roles}
    assert all(event.author == bound[event.data.sender] for event in answers)
    logs = Counter((event.author, *event.causes) for event in said if isinstance(event.data, kinds.TotLogWritten))
    assert not logs or max(logs.values()) == 1
    unkeyed = (kinds.TotStarted, kinds.TotPaused, kinds.TotResumed)
    ours = [event for event in said if event.author in AGENTS.values() and not isinstance(event.data, unkeyed)]
    assert len({event.idem for event in ours if event.idem is not None}) == len(ours)
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        proof: dict[str, Any] = reader.answer("tot.prove", {"id": task_id})
        _check_end(reader, task_id, said)
    assert proof["passed"]
    return proof


def _check_end(reader: Reader, task_id: str, said: list[Event]) -> None:
    """Check that the view shows the same tree and stats with which the explorer closed the search."""
    closed = [event.data.payload for event in said if isinstance(event.data, kinds.SearchComplete)]
    shown, tree = reader.answer("tot.show", {"id": task_id}), reader.answer("tot.tree", {"id": task_id})
    assert [shown["stats"]] == [msgspec.structs.asdict(payload.stats) for payload in closed]
    for payload in closed:
        assert tree["search_state"]["best_path"] == [node.id for node in payload.best_path]
        assert payload.tree is None or msgspec.convert(tree, kinds.ThoughtTree) == payload.tree
