"""What a thinker is: the small protocol behind the decomposer, the generator, the evaluator and the synthesizer.

A thinker may be a program or a model; the search cannot tell them apart. A *path* is the list of nodes from the root to
a node. What a thinker cannot do it says by returning a ``Failure``, which the agent sends as the message's ``error``:
nothing is raised across this border, so a bad thinker cannot stop an agent.

``llm_calls`` counts asks of the thinker as the seed prices them (independent sampling k, a proposal 1, scoring n, a
vote 1), whether a model or a program is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ledger.events.tot import (
    Candidate,
    Decomposition,
    EvaluationContext,
    EvaluationStrategy,
    Failure,
    GeneratedPayload,
    GenerationContext,
    GenerationStrategy,
    NodeEvaluation,
    ResultsPayload,
    Solution,
    ThoughtNode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Path: TypeAlias = "Sequence[ThoughtNode]"

candidates_max: Final = 64


class Thinker(Protocol):
    """What thinks. Every method is total: it returns its answer, or the ``Failure`` that says why there is none."""

    @property
    def name(self) -> str:
        """What ``tot.started`` calls this thinker."""
        ...

    def decompose(self, problem: str, task_type: str) -> Decomposition | Failure:
        """Return the shape of a problem."""
        ...

    def generate(
        self, path: Path, strategy: GenerationStrategy, k: int, context: GenerationContext
    ) -> GeneratedPayload | Failure:
        """Return up to ``k`` thoughts that could follow the last node of ``path``; none at a dead end."""
        ...

    def evaluate(
        self, paths: Sequence[Path], strategy: EvaluationStrategy, criteria: Sequence[str], context: EvaluationContext
    ) -> ResultsPayload | Failure:
        """Return what the last node of each path is worth, 0 to 10, their ranking, and which should be pruned."""
        ...

    def is_solution(self, path: Path) -> bool:
        """Return whether the last node claims to be a solution; pure, because a restarted explorer asks again."""
        ...

    def synthesize(self, path: Path, problem: str) -> Solution | Failure:
        """Return the answer that a path leads to, verified as far as this thinker can."""
        ...


def proposed(candidates: Iterable[tuple[str, str]], strategy: GenerationStrategy, k: int) -> GeneratedPayload:
    """Return the first ``k`` of ``(content, action_type)``, with temporary ids as the seed spells them (cand_1)."""
    kept: list[Candidate] = []
    for content, action_type in candidates:
        if len(kept) == min(k, candidates_max):
            break
        kept.append(Candidate(temp_id=f"cand_{len(kept) + 1}", content=content, action_type=action_type))
    return GeneratedPayload(candidates=kept, llm_calls=k if strategy == "independent_sampling" else 1)


def ranked(
    evaluations: list[NodeEvaluation], strategy: EvaluationStrategy, *, hopeless_below: float = 1.0
) -> ResultsPayload:
    """Return evaluations with their ranking, best first; those below ``hopeless_below`` are suggested for pruning."""
    order = sorted(evaluations, key=lambda one: (-one.score, -one.confidence))
    return ResultsPayload(
        evaluations=evaluations,
        ranking=[one.node_id for one in order],
        pruning_suggestions=[one.node_id for one in evaluations if one.score < hopeless_below],
        llm_calls=len(evaluations) if strategy == "independent_scoring" else 1,
    )


def invalid(message: str) -> Failure:
    """Return the failure of a problem or path that this thinker cannot read; asking again does not help."""
    return Failure(code="INVALID_FORMAT", message=message, recoverable=False)
