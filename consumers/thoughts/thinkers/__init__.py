"""Thinkers: what thinks behind the decomposer, the generator, the evaluator and the synthesizer.

    >>> from deedbook.consumers.thoughts.thinkers.game24 import Game24
    >>> from deedbook.ledger.events.tot import GeneratePayload, ThoughtContext, ThoughtNode
    >>> problem = "4 9 10 13"
    >>> root = ThoughtNode(id="root", depth=0, content=problem)
    >>> context = ThoughtContext(problem=problem, current_depth=1, max_depth=3)
    >>> asked = GeneratePayload(root, "sequential_proposal", 2, context)
    >>> answer = Game24().generate([root], asked)
    >>> [candidate.content for candidate in answer.candidates]
    ['13 - 9 = 4, left: 4, 4, 10', '13 - 10 = 3, left: 3, 4, 9']

A thinker may be a program or a model; the search cannot tell them apart. A *path* is the list of nodes from the root to
a node. What a thinker cannot do it says by returning a ``Failure``, which the agent sends as the message's ``error``.

Programs are registered by installed packages as entry points of the group ``deedbook.thinkers``, ours among them: a
name, and what makes the thinker when it is called without arguments. Nothing of the working folder is loaded. A program
thinks about a problem only if it ``reads`` it; the others are the configured model's (``llm``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from deedbook.ledger.events import tot as kinds

Path: TypeAlias = Sequence[kinds.ThoughtNode]

candidates_max: Final = 64
hopeless_below: Final = 1.0


class Answered(NamedTuple):
    """What a model answered once: the object as it was read, or ``fault``, what was wrong with it; and its cost."""

    answer: dict[str, Any] | None
    fault: str
    usage: kinds.Usage


class Recorder(Protocol):
    """What remembers the answers of a model for one request; threads call it at the same time."""

    def recall(self, prompt_sha256: str) -> Answered | None:
        """Return what was answered to a prompt, whoever asked it; without usage if another request paid for it."""

    def may_ask_again(self) -> bool:
        """Return whether the budget bears one request more than what is asked already; if so, that is reserved."""

    def record(self, prompt_sha256: str, model: str, answered: Answered) -> None:
        """Keep an answer that was paid just now. It is used only after this returned."""


@runtime_checkable
class Thinker(Protocol):
    """What thinks. Every method is total: it returns its answer, or the ``Failure`` that says why there is none."""

    language: kinds.Language
    """What it speaks: whoever plays a role of a task sets the task's."""

    @property
    def name(self) -> str:
        """What ``tot.started`` calls this thinker."""

    @property
    def problems(self) -> str:
        """What it reads, in a phrase for people."""

    @property
    def checks(self) -> bool:
        """Whether ``is_solution`` and ``synthesize`` prove an answer; else the best path at the depth limit is one."""

    def reads(self, problem: str, task_type: str) -> bool:
        """Return whether it can think about a problem of a type of the table, or another."""

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        """Return the shape of a problem."""

    def generate(self, path: Path, asked: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        """Return up to ``num_candidates`` thoughts that could follow the last node of ``path``; none at a dead end."""

    def evaluate(self, paths: Sequence[Path], asked: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        """Return what the last node of each path is worth, 0 to 10, their ranking, and which should be pruned."""

    def is_solution(self, path: Path) -> bool:
        """Return whether the last node claims to be a solution; pure, because a restarted explorer asks again."""

    def synthesize(self, asked: kinds.SynthesizePayload) -> kinds.Solution | kinds.Failure:
        """Return the answer that the best path leads to, verified as far as this thinker can."""


@runtime_checkable
class PaidThinker(Thinker, Protocol):
    """A thinker that asks a model: each request is answered by one that is ``at_work`` on it alone."""

    usage: kinds.Usage

    def at_work(self, *, deadline: str | None, recorder: Recorder) -> PaidThinker:
        """Return a thinker for one request; its ``usage`` is afterwards what all of it cost, also what failed."""


def ranked(evaluations: list[kinds.NodeEvaluation]) -> kinds.ResultsPayload:
    """Return evaluations with their ranking, best first; those below ``hopeless_below`` are suggested for pruning."""
    order = sorted(evaluations, key=lambda one: (-one.score, -one.confidence))
    hopeless = [one.node_id for one in evaluations if one.score < hopeless_below]
    return kinds.ResultsPayload(evaluations, ranking=[one.node_id for one in order], pruning_suggestions=hopeless)
