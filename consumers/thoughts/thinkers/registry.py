"""Finds thinkers: the programs of installed packages, and the configured model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path as Folder
from typing import Any, Final

from deedbook.consumers.sdk.llm.model import named_client
from deedbook.consumers.thoughts.thinkers import Thinker
from deedbook.consumers.thoughts.thinkers.absent import NOBODY, AbsentThinker
from deedbook.consumers.thoughts.thinkers.calling_agent import AGENT, CallingAgent
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.home.config import Actions

GROUP: Final = "deedbook.thinkers"


MODEL: Final = "llm"


def choose_thinker(problem: str, task_type: str, actions: Actions, named: str | None = None) -> Thinker:
    """Return the thinker ``named``, else a program that reads the problem, else the model. Raises Refused ``USAGE``."""
    if named is not None:
        return thinker_named(named, actions)
    if (program := _reader(problem, task_type)) is not None:
        return program
    if actions.llm:
        return thinker_named(MODEL, actions)
    programs = [_made(point) for point in registered().values()]
    known = "; ".join(f"{program.name} reads {program.problems}" for program in programs)
    message = (
        f"no program reads this {task_type} problem, and no model is configured: add a table [llm] to config.toml "
        f"(deploy/README.md; `deed doctor --llm` tries it), or name a program with --thinker: {known}"
    )
    raise Refused("USAGE", message, thinkers=[program.name for program in programs])


def has_thinker(problem: str, task_type: str, actions: Actions) -> bool:
    """Return whether a program reads the problem or a model is configured."""
    return bool(actions.llm) or _reader(problem, task_type) is not None


def _reader(problem: str, task_type: str) -> Thinker | None:
    """Return the first program that reads the problem."""
    for point in registered().values():
        program = _made(point)
        if _called(point, partial(program.reads, problem, task_type)):
            return program
    return None


def thinker_named(name: str, actions: Actions) -> Thinker:
    """Load and return a thinker by its name in ``tot.started`` (``llm:MODEL`` is the configured model)."""
    if name.partition(":")[0] == MODEL:
        return LlmThinker(named_client(actions))
    if name == NOBODY:
        return AbsentThinker(NOBODY)
    if name.partition(":")[0] == AGENT:
        return CallingAgent(name)
    points = registered()
    if name not in points:
        raise _unknown(name)
    return _made(points[name])


def check_named(name: str | None) -> None:
    """Refuse a name that no user can choose: ``nobody``, or an agent that must call by itself."""
    if name is not None and name.partition(":")[0] in (AGENT, NOBODY):
        raise _unknown(name)


def _unknown(name: str) -> Refused:
    points = registered()
    alike = did_you_mean(near(name, points))
    message = f"no thinker is named {name[:60]!r}, choose from {', '.join([*points, MODEL])}{alike}"
    return Refused("USAGE", message)


def is_program(name: str) -> bool:
    """Return whether a thinker in ``tot.started`` is a program."""
    return name.partition(":")[0] not in (MODEL, AGENT, NOBODY)


def registered() -> dict[str, EntryPoint]:
    """Return the programs of installed packages by name, ours first, without loading any."""
    points: dict[str, EntryPoint] = {}
    for point in sorted(
        entry_points(group=GROUP), key=lambda point: (not point.value.startswith(f"{__package__}."), point)
    ):
        # `python -m` puts the working folder first, and a stranger's folder may look like a package.
        if point.dist is not None and Folder(str(point.dist.locate_file(""))).resolve() == Folder.cwd():
            continue
        if not is_program(point.name) or point.name in points:
            raise _unusable(point, "another thinker has the same name")
        points[point.name] = point
    return points


def _made(point: EntryPoint) -> Thinker:
    thinker = _called(point, _called(point, point.load))
    if not isinstance(thinker, Thinker) or thinker.name != point.name:
        raise _unusable(point, f"it is not a Thinker with the name {point.name}")
    return thinker


def _called(point: EntryPoint, call: Callable[[], Any]) -> Any:
    """Call a package's thinker before a search; an exception becomes a refusal that names the thinker."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise _unusable(point, f"{type(error).__name__}: {error}"[:300]) from error


def _unusable(point: EntryPoint, why: str) -> Refused:
    package = point.dist.name if point.dist else "no package"
    message = f"the thinker {point.name} of {package} cannot be used ({why}): fix or uninstall it, or name another"
    return Refused("USAGE", message)
