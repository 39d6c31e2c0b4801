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

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path as Folder
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from deedbook.consumers.sdk.llm.model import named_client
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import tot as kinds
from deedbook.ledger.home.config import Actions

Path: TypeAlias = Sequence[kinds.ThoughtNode]

GROUP: Final = "deedbook.thinkers"
MODEL: Final = "llm"
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


def choose_thinker(problem: str, task_type: str, actions: Actions, named: str | None = None) -> Thinker:
    """Return who is ``named``, else a program that reads the problem, else the model. Raises Refused: ``USAGE``."""
    if named is not None:
        return thinker_named(named, actions)
    programs = list[Thinker]()
    for point in registered().values():
        programs.append(program := _made(point))
        if _called(point, partial(program.reads, problem, task_type)):
            return program
    if actions.llm:
        return thinker_named(MODEL, actions)
    known = "; ".join(f"{program.name} reads {program.problems}" for program in programs)
    message = (
        f"no program reads this {task_type} problem, and no model is configured: give config.toml a table [llm] "
        f"(deploy/README.md; `deed doctor --llm` tries it), or name who thinks by --thinker: {known}"
    )
    raise Refused("USAGE", message, thinkers=[program.name for program in programs])


def thinker_named(name: str, actions: Actions) -> Thinker:
    """Return a thinker, loaded now, by the name that ``tot.started`` keeps (``llm:MODEL`` is the configured model)."""
    if name.partition(":")[0] == MODEL:
        return LlmThinker(named_client(actions))
    points = registered()
    if name not in points:
        alike = did_you_mean(near(name, points))
        raise Refused("USAGE", f"there is no thinker {name[:60]!r}: {', '.join([*points, MODEL])}{alike}")
    return _made(points[name])


def registered() -> dict[str, EntryPoint]:
    """Return the programs of installed packages by their names, ours first; none is loaded by this."""
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (not point.value.startswith(__name__), point)):
        # `python -m` puts the working folder first, and a stranger's may look like a package.
        if point.dist is not None and Folder(str(point.dist.locate_file(""))).resolve() == Folder.cwd():
            continue
        if point.name == MODEL or point.name in points:
            raise _unusable(point, "there is another one of this name")
        points[point.name] = point
    return points


def _made(point: EntryPoint) -> Thinker:
    thinker = _called(point, _called(point, point.load))
    if not isinstance(thinker, Thinker) or thinker.name != point.name:
        raise _unusable(point, f"it is no Thinker that calls itself {point.name}")
    return thinker


def _called(point: EntryPoint, call: Callable[[], Any]) -> Any:
    """Return what a package's thinker answers before a search; what it raises is an error that names it."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise _unusable(point, f"{type(error).__name__}: {error}"[:300]) from error


def _unusable(point: EntryPoint, why: str) -> Refused:
    package = point.dist.name if point.dist else "no package"
    message = f"the thinker {point.name} of {package} cannot be used: {why}: mend or uninstall it, or name another"
    return Refused("USAGE", message)


def ranked(evaluations: list[kinds.NodeEvaluation]) -> kinds.ResultsPayload:
    """Return evaluations with their ranking, best first; those below ``hopeless_below`` are suggested for pruning."""
    order = sorted(evaluations, key=lambda one: (-one.score, -one.confidence))
    hopeless = [one.node_id for one in evaluations if one.score < hopeless_below]
    return kinds.ResultsPayload(evaluations, ranking=[one.node_id for one in order], pruning_suggestions=hopeless)
