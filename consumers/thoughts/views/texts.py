"""The texts of a search's events. Requests have none, because they repeat nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from deedbook.consumers.thoughts import events as tot


def _solution(data: tot.FinalSolution) -> Iterable[str]:
    solution = data.payload
    return [] if solution is None else (solution.answer, *solution.reasoning_trace, *solution.alternative_solutions)


TEXTS: Final[dict[type[Any], Callable[[Any], Iterable[str]]]] = {
    tot.TotStarted: lambda data: (data.problem,),
    tot.TotNodesAdded: lambda data: [node.content for node in data.nodes],
    tot.EvaluationResults: lambda data: [
        evaluation.reasoning for evaluation in (data.payload.evaluations if data.payload else ())
    ],
    tot.FinalSolution: _solution,
    tot.TotError: lambda data: (data.error.message,),
    tot.TotLogWritten: lambda data: [entry.msg for entry in data.entries],
}
