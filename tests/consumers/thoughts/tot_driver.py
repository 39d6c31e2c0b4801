"""A whole search in one process and in memory: for tests, for the bench, and to see the search without a ledger.

It makes the same messages as six agents, in one list, and can continue from any prefix of that list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from deedbook.consumers.thoughts import answers, task
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.search import next_step
from deedbook.consumers.thoughts.settings import search_config
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.fields import EventData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deedbook.consumers.thoughts.thinkers import Thinker

TASK_ID: Final = "tot-20000101-000000-000000"


class Spoken(NamedTuple):
    """An entry of the in-memory log."""

    id: str
    kind: str
    data: EventData
    causes: list[str]
    accepted_ms: int = 0


class Solved(NamedTuple):
    """The result of a search; ``state`` is None if the problem could not be decomposed."""

    entries: list[Spoken]
    state: task.Task | None
    solution: kinds.Solution | None
    failure: kinds.Failure | None


def solve(
    problem: str,
    config: kinds.SearchConfig | None,
    thinker: Thinker,
    *,
    task_type: str = "math_reasoning",
    entries: Sequence[Spoken] = (),
    clock: Callable[[], int] | None = None,
    usage: kinds.Usage | None = None,
    order: int = 0,
    steps: int = 10_000,
) -> Solved:
    """Return the search after it ran on from ``entries``; ``clock`` returns ms (without it, no time passes).

    ``usage`` is the cost of each answer of a thinker. Of the waiting requests, the one at position ``order`` is
    answered. The search appends at most ``steps`` entries.

    Without ``config`` the table and the decomposition decide.

    Raises:
    Refused: ``INVALID_FIELD`` for a task type that cannot be searched without ``config``.
    """
    log, told = list(entries), task.Task(TASK_ID)
    for entry in log:
        told.apply(entry)
    while len(log) < len(entries) + steps:
        said = _next(log, told, (problem, task_type, config), thinker, order)
        if said is None:
            break
        now_ms = clock() if clock else 0
        if usage and isinstance(said.data, kinds.Reply) and not isinstance(said.data, kinds.SearchComplete):
            said = said._replace(data=msgspec.structs.replace(said.data, usage=usage))
        entry = Spoken(f"e{len(log) + 1}", KIND_OF[type(said.data)], said.data, list(said.causes), now_ms)
        log.append(entry)
        told.apply(entry)
    last = log[-1].data
    failure = getattr(last, "error", None)
    solution = None if told.solution is None else told.solution.data.payload
    return Solved(log, told if told.search else None, solution, failure)


def prefixes(entries: Sequence[Spoken]) -> Iterator[Sequence[Spoken]]:
    """Return every prefix of a search, from the empty one on: what a restarted explorer might find."""
    return (entries[:count] for count in range(len(entries) + 1))


def _next(
    log: list[Spoken], told: Any, wanted: tuple[str, str, kinds.SearchConfig | None], thinker: Thinker, order: int
) -> task.Step | None:
    if told.search is None:
        return _open(log, wanted, thinker)
    step = next_step(told, thinker)
    if step is None and told.requests and told.paused is None:
        request_id, request = list(told.requests.items())[order]
        return task.Step(answers.respond(told.nodes, request, thinker), [request_id])
    return step


def _open(log: list[Spoken], wanted: tuple[str, str, kinds.SearchConfig | None], thinker: Thinker) -> task.Step | None:
    """Make the messages before a search: the decomposition, then the request to search."""
    problem, task_type, config = wanted
    if not log:
        asked = kinds.DecomposePayload(problem=problem, task_type=task_type)
        return task.Step(answers.message(kinds.DecomposeTask, TASK_ID, asked))
    last = log[-1].data
    if isinstance(last, kinds.DecomposeTask):
        return task.Step(answers.respond({}, last, thinker), [log[-1].id])
    if not isinstance(last, kinds.DecompositionResult) or last.payload is None:
        return None
    payload = kinds.InitializePayload(
        problem=problem,
        task_type=task_type,
        search_config=config or search_config(task_type, last.payload),
        decomposition_result=last.payload,
    )
    return task.Step(answers.message(kinds.InitializeSearch, TASK_ID, payload), [log[-1].id])


def wanted(path: Sequence[kinds.ThoughtNode], strategy: Any, k: int, context: kinds.ThoughtContext) -> Any:
    """Return the request for ``k`` thoughts after a path."""
    return kinds.GeneratePayload(path[-1], strategy, k, context)


def answer_to(path: Sequence[kinds.ThoughtNode], problem: str) -> kinds.SynthesizePayload:
    """Return the request for the answer that a path leads to."""
    return kinds.SynthesizePayload(problem, "planning", list(path))


def judged_by(
    paths: Sequence[Sequence[kinds.ThoughtNode]], strategy: Any, criteria: list[str], context: kinds.ThoughtContext
) -> Any:
    """Return the request to evaluate the last nodes of some paths."""
    return kinds.EvaluatePayload([path[-1] for path in paths], strategy, context, criteria)
