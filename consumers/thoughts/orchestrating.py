"""The orchestrator: opens a task, has it decomposed, asks for the search, and keeps what it came to (seed 003).

It decides from the task's events and ``tot.started`` alone, whose options are what somebody asked for. What it cannot
begin ends with ``tot.error``: there is no search yet that could be completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.thoughts.settings import Overrides, search_config
from consumers.thoughts.task import Say, Task, attempts_max
from ledger.errors import Refused
from ledger.events import tot as kinds

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEGERS: Final = ("depth", "branching", "beam_width", "nodes_max", "calls_max", "seconds_max")


class TaskOptions(NamedTuple):
    """How a task is to be searched: its type (in any spelling), and what overrides the table's row for it."""

    task_type: str = "math_reasoning"
    overrides: Overrides = Overrides()

    def to_strings(self) -> dict[str, str]:
        """Return the overrides as ``tot.started`` keeps them."""
        return {name: str(value) for name, value in self.overrides._asdict().items() if value is not None}


def read_overrides(options: Mapping[str, str]) -> Overrides:
    """Return the overrides in the options of ``tot.started``.

    Raises:
        Refused: ``INVALID_FIELD`` for a number that is none.
    """
    found: dict[str, str | int | float] = {}
    for name in Overrides._fields:
        if name not in options:
            continue
        said = options[name]
        try:
            found[name] = int(said) if name in _INTEGERS else float(said) if name == "threshold" else said
        except ValueError as error:
            raise Refused("INVALID_FIELD", f"{name} is a number, not {said[:60]!r}", path=f"$.{name}") from error
    return Overrides(**found)  # type: ignore[arg-type]  # each has its field's type


def orchestrate(task: Task, opening: kinds.TotStarted | None) -> list[Say]:
    """Return what the orchestrator says next, one submission; nothing while it waits."""
    if task.started is None:
        # Without a key: a task of this id that is there already must be refused, even if it was opened in these words.
        return [] if opening is None else [Say("", opening)]
    if task.is_over or task.tree is not None or task.waiting:
        return []
    last = task.decompositions[-1] if task.decompositions else None
    if last is None:
        return [_decompose(task, task.started)]
    failure, shape = last.data.error, last.data.payload
    if shape is None:
        if failure.recoverable and len(task.decompositions) < attempts_max:
            return [_decompose(task, task.started)]
        return [_error(task, failure, last.id)]
    try:
        config = search_config(task.started.task_type, shape, read_overrides(task.started.options))
    except Refused as refusal:
        failure = kinds.Failure(code="INVALID_FORMAT", message=refusal.message, recoverable=False)
        return [_error(task, failure, last.id)]
    wanted = kinds.InitializePayload(
        problem=task.started.problem,
        task_type=task.started.task_type,
        search_config=config,
        decomposition_result=shape,
    )
    asked = kinds.InitializeSearch(
        sender="orchestrator", to="explorer", type="initialize_search", task_id=task.id, payload=wanted
    )
    return [Say(f"ask:initialize_search:{last.id}", asked, [last.id])]


def not_begun(task: Task, message: str) -> list[Say]:
    """Return the end of a task whose search cannot be asked for: the ledger did not take the request."""
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return [_error(task, kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False), cause)]


def _decompose(task: Task, started: kinds.TotStarted) -> Say:
    payload = kinds.DecomposePayload(problem=started.problem, task_type=started.task_type)
    asked = kinds.DecomposeTask(
        sender="orchestrator", to="decomposer", type="decompose_task", task_id=task.id, payload=payload
    )
    cause = task.decompositions[-1].id if task.decompositions else task.started_id
    return Say(f"ask:decompose_task:{cause}", asked, [cause])


def _error(task: Task, failure: kinds.Failure, cause: str) -> Say:
    said = kinds.TotError(sender="orchestrator", task_id=task.id, error=failure)
    return Say(f"error:{cause}", said, [cause])
