"""Thinkers: the programs or models behind the decomposer, the generator, the evaluator and the synthesizer.

    >>> from deedbook.consumers.thoughts.thinkers.game24 import Game24
    >>> from deedbook.consumers.thoughts.events import GeneratePayload, ThoughtContext, ThoughtNode
    >>> problem = "4 9 10 13"
    >>> root = ThoughtNode(id="root", depth=0, content=problem)
    >>> context = ThoughtContext(problem=problem, current_depth=1, max_depth=3)
    >>> request = GeneratePayload(root, "sequential_proposal", 2, context)
    >>> answer = Game24().generate([root], request)
    >>> [candidate.content for candidate in answer.candidates]
    ['13 - 9 = 4, left: 4, 4, 10', '13 - 10 = 3, left: 3, 4, 9']

A thinker may be a program or a model; the search treats both alike. A *path* is the list of nodes from the root to a
node. A thinker that fails returns a ``Failure``, which the agent sends as the message's ``error``.

Installed packages, including this one, register programs as entry points of the group ``deedbook.thinkers``: a name,
and a callable without arguments that makes the thinker. Nothing is loaded from the working folder. A program thinks
about a problem only if it ``reads`` it; the configured model (``llm``) gets all other problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from deedbook.consumers.thoughts import events as kinds

Path: TypeAlias = Sequence[kinds.ThoughtNode]

candidates_max: Final = 64
hopeless_below: Final = 1.0
solution_score_min: Final = 5.0


class ModelAnswer(NamedTuple):
    """One answer of a model: the parsed object, or ``fault``, the reason why it is unusable; and its cost."""

    answer: dict[str, Any] | None
    fault: str
    usage: kinds.Usage


class Recorder(Protocol):
    """Records the answers of a model for one request; threads call it in parallel."""

    def recall(self, prompt_sha256: str) -> ModelAnswer | None:
        """Return the recorded answer to a prompt, from any request; without usage if another request paid for it."""

    def may_ask_again(self) -> bool:
        """Return whether the budget allows one more request; if so, the request is reserved."""

    def record(self, prompt_sha256: str, model: str, answered: ModelAnswer) -> None:
        """Record an answer that was just paid for. It is used only after this returns."""


@runtime_checkable
class Thinker(Protocol):
    """A program or model that thinks. Every method is total: it returns an answer, or a ``Failure`` with the reason."""

    language: kinds.Language
    """The language of its texts; the agent that uses it sets the task's language."""

    @property
    def name(self) -> str:
        """The name of this thinker in ``tot.started``."""

    @property
    def problems(self) -> str:
        """The problems that it reads, in a phrase for people."""

    @property
    def checks(self) -> bool:
        """Whether ``is_solution`` and ``synthesize`` prove answers.

        If not, the best path at the depth limit is an answer, too.
        """

    def reads(self, problem: str, task_type: str) -> bool:
        """Return whether it can think about a problem of this task type."""

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape of a problem."""

    def generate(self, path: Path, request: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return up to ``num_candidates`` thoughts that may follow the last node of ``path``; none at a dead end."""

    def evaluate(self, paths: Sequence[Path], request: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return the score (0 to 10) of the last node of each path, their ranking, and nodes to prune."""

    def is_solution(self, path: Path) -> bool:
        """Return whether the last node claims to be a solution; pure, because a restarted explorer asks again."""

    def synthesize(self, request: kinds.SynthesizePayload) -> kinds.Solution | kinds.Failure:
        """Return the answer of the best path, verified as far as this thinker can."""


@runtime_checkable
class PaidThinker(Thinker, Protocol):
    """A thinker that asks a model; ``at_work`` makes a separate one for each request."""

    usage: kinds.Usage

    def at_work(self, *, deadline: str | None, recorder: Recorder) -> PaidThinker:
        """Return a thinker for one request; afterwards its ``usage`` is the whole cost, including failures."""


def claims_solution(path: Path) -> bool:
    """Return whether the last thought was proposed as a solution and not scored below ``solution_score_min``."""
    last = path[-1]
    judged = last.evaluation is None or last.evaluation.score >= solution_score_min
    return len(path) > 1 and str(last.metadata.get("is_solution")).lower() == "true" and judged


def ranked(evaluations: list[kinds.NodeEvaluation]) -> kinds.ResultsPayload:
    """Return evaluations with their ranking, best first; those below ``hopeless_below`` are suggested for pruning."""
    order = sorted(evaluations, key=lambda node: (-node.score, -node.confidence))
    hopeless = [node.node_id for node in evaluations if node.score < hopeless_below]
    return kinds.ResultsPayload(evaluations, ranking=[node.node_id for node in order], pruning_suggestions=hopeless)
