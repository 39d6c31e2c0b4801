"""Thinkers: what thinks behind the decomposer, the generator, the evaluator and the synthesizer.

    >>> from consumers.thoughts.thinkers.game24 import Game24
    >>> from ledger.events.tot import GeneratePayload, GenerationContext, ThoughtNode
    >>> problem = "用4、9、10、13得到24"
    >>> root = ThoughtNode(id="root", depth=0, content=problem)
    >>> asked = GeneratePayload(root, "sequential_proposal", 2, GenerationContext(problem=problem))
    >>> answer = Game24().generate([root], asked)
    >>> [candidate.content for candidate in answer.candidates]
    ['13 - 10 = 3, 剩余: 3, 4, 9', '13 + 10 = 23, 剩余: 4, 9, 23']

A thinker may be a program or a model; the search cannot tell them apart. A *path* is the list of nodes from the root to
a node. What a thinker cannot do it says by returning a ``Failure``, which the agent sends as the message's ``error``:
nothing is raised across this border, so a bad thinker cannot stop an agent. ``llm_calls`` counts asks of the thinker
(independent sampling k, a proposal 1, scoring n, a vote 1), whether a model or a program is asked.

``LlmThinker`` asks any endpoint that speaks OpenAI's chat completions. The others are examples of the protocol whose
answers can be checked: ``Game24``, ``Planning``, ``Debugging``. To add one, write its class and name it in
``thinker_named``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ledger.config import Actions
from ledger.errors import Refused
from ledger.events import tot as kinds

P = TypeVar("P")
Path: TypeAlias = Sequence[kinds.ThoughtNode]

THINKERS: Final = ("game24", "planning", "debugging", "llm")
candidates_max: Final = 64


class Thinker(Protocol):
    """What thinks. Every method is total: it returns its answer, or the ``Failure`` that says why there is none."""

    @property
    def name(self) -> str:
        """What ``tot.started`` calls this thinker."""
        ...

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape of a problem."""
        ...

    def generate(self, path: Path, asked: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return up to ``num_candidates`` thoughts that could follow the last node of ``path``; none at a dead end."""
        ...

    def evaluate(self, paths: Sequence[Path], asked: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return what the last node of each path is worth, 0 to 10, their ranking, and which should be pruned."""
        ...

    def is_solution(self, path: Path) -> bool:
        """Return whether the last node claims to be a solution; pure, because a restarted explorer asks again."""
        ...

    def synthesize(self, path: Path, problem: str) -> kinds.Solution | kinds.Failure:
        """Return the answer that a path leads to, verified as far as this thinker can."""
        ...


class ProgramThinker(ABC, Generic[P]):
    """A thinker that is a program: it reads the problem ``P`` out of its text, and works on that; see ``Thinker``."""

    name: str

    @abstractmethod
    def _read(self, text: str) -> P | kinds.Failure:
        """Return the problem that a text states."""

    @abstractmethod
    def _shape(self, problem: P) -> kinds.Decomposition:
        """Return the shape of a problem."""

    @abstractmethod
    def _proposals(self, path: Path, problem: P, k: int) -> Iterable[tuple[str, str]] | kinds.Failure:
        """Return what could follow a path, best first, as ``(content, action_type)``; at least ``k`` if there are."""

    @abstractmethod
    def _judged(
        self, paths: Sequence[Path], problem: P, strategy: kinds.EvaluationStrategy
    ) -> list[kinds.NodeEvaluation]:
        """Return what the last node of each path is worth."""

    @abstractmethod
    def _solves(self, path: Path, problem: P) -> bool:
        """Return whether the last node of a path claims to be a solution."""

    @abstractmethod
    def _solution(self, path: Path, problem: P) -> kinds.Solution:
        """Return the answer that a path leads to, checked from the problem's own words."""

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape of a problem; its type is in its text."""
        read = self._read(problem)
        return read if isinstance(read, kinds.Failure) else self._shape(read)

    def generate(self, path: Path, asked: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return the first proposals, with the temporary ids cand_1, cand_2 …."""
        read, k = self._read(path[0].content), asked.num_candidates
        texts = read if isinstance(read, kinds.Failure) else self._proposals(path, read, k)
        if isinstance(texts, kinds.Failure):
            return texts
        candidates = [
            kinds.Candidate(temp_id=f"cand_{number}", content=content, action_type=action_type)
            for number, (content, action_type) in enumerate(islice(texts, min(k, candidates_max)), 1)
        ]
        calls = k if asked.generation_strategy == "independent_sampling" else 1
        return kinds.GeneratedPayload(candidates=candidates, llm_calls=calls)

    def evaluate(self, paths: Sequence[Path], asked: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return what the last node of each path is worth."""
        read, strategy = self._read(paths[0][0].content), asked.evaluation_strategy
        return read if isinstance(read, kinds.Failure) else ranked(self._judged(paths, read, strategy), strategy)

    def is_solution(self, path: Path) -> bool:
        """Return whether the last node claims to be a solution."""
        read = self._read(path[0].content)
        return not isinstance(read, kinds.Failure) and self._solves(path, read)

    def synthesize(self, path: Path, problem: str) -> kinds.Solution | kinds.Failure:
        """Return the checked answer that a path leads to."""
        read = self._read(problem)
        return read if isinstance(read, kinds.Failure) else self._solution(path, read)


def thinker_named(name: str, actions: Actions) -> Thinker:
    """Return a thinker by the name that ``tot.started`` keeps (``llm:MODEL`` is the configured model).

    Each is loaded when it is asked for, the model's with an HTTP client.
    """
    match name.partition(":")[0]:
        case "game24":
            from consumers.thoughts.thinkers.game24 import Game24  # noqa: PLC0415

            return Game24()
        case "planning":
            from consumers.thoughts.thinkers.planning import Planning  # noqa: PLC0415

            return Planning()
        case "debugging":
            from consumers.thoughts.thinkers.debugging import Debugging  # noqa: PLC0415

            return Debugging()
        case "llm":
            from consumers.sdk.llm.model import named_client  # noqa: PLC0415
            from consumers.thoughts.thinkers.llm import LlmThinker  # noqa: PLC0415

            return LlmThinker(named_client(actions))
        case _:  # any other name
            raise Refused("USAGE", f"there is no thinker {name[:60]!r}: {', '.join(THINKERS)}")


def ranked(
    evaluations: list[kinds.NodeEvaluation], strategy: kinds.EvaluationStrategy, *, hopeless_below: float = 1.0
) -> kinds.ResultsPayload:
    """Return evaluations with their ranking, best first; those below ``hopeless_below`` are suggested for pruning."""
    order = sorted(evaluations, key=lambda evaluation: (-evaluation.score, -evaluation.confidence))
    return kinds.ResultsPayload(
        evaluations=evaluations,
        ranking=[evaluation.node_id for evaluation in order],
        pruning_suggestions=[evaluation.node_id for evaluation in evaluations if evaluation.score < hopeless_below],
        llm_calls=len(evaluations) if strategy == "independent_scoring" else 1,
    )


def invalid(message: str) -> kinds.Failure:
    """Return the failure of a problem or path that this thinker cannot read; asking again does not help."""
    return kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False)
