"""The outcomes of a graph's assumptions, and the steps that rest on a refuted one.

Any agent may settle an assumption. Of each agent's statements, only the newest counts. A single agent can refute it,
even if others disagree. A step that states assumptions of its own (``assumptions``) is settled under its number, too. A
refuted assumption marks every step that rests on it, directly or not. It marks the conclusion, too, unless the
conclusion has links and none of them leads to the assumption.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, Settlement


class Refutation(NamedTuple):
    """A refuted assumption: its step, the statement that refutes it, and what rests on it."""

    step: ReasoningStep
    settlement: Settlement
    rests: list[int]
    is_concluded_from: bool


def counting(step: ReasoningStep) -> list[Settlement]:
    """Return the newest settlement by each agent of a step, the oldest first."""
    newest: dict[str, Settlement] = {}
    for settlement in step.settlements():
        newest.pop(settlement.by, None)
        newest[settlement.by] = settlement
    return list(newest.values())


def outcome_of(step: ReasoningStep) -> Settlement | None:
    """Return the settlement that decides: the newest refutation, else the newest settlement; None without any."""
    settlements = counting(step)
    refuting = [settlement for settlement in settlements if not settlement.holds]
    return next(reversed(refuting or settlements), None)


def outcome_text(step: ReasoningStep) -> str:
    """Return the outcome of a step's assumption in words; empty if nobody settled it."""
    outcome = outcome_of(step)
    if outcome is None:
        return ""
    return f"{'holds, says' if outcome.holds else 'refuted by'} {outcome.by}: {outcome.how.strip()}"


def is_refuted_assumption(step: ReasoningStep) -> bool:
    """Return whether somebody refuted the step's assumption."""
    outcome = outcome_of(step)
    return outcome is not None and not outcome.holds


def refutations_in(memory: ReasoningMemory, concluding: Iterable[int]) -> list[Refutation]:
    """Return the refuted assumptions of a graph whose conclusion is stated by the steps ``concluding``."""
    refuted = [step for step in memory.steps if is_refuted_assumption(step)]
    if not refuted:
        return []
    grounds = set(concluding)
    is_linked = any(memory.dependencies.get(number) for number in grounds)
    found: list[Refutation] = []
    for step in refuted:
        outcome, marked = outcome_of(step), resting_on(memory, step.step_number)
        assert outcome is not None  # noqa: S101 - it is refuted
        is_reached = not grounds.isdisjoint({step.step_number, *marked})
        found.append(Refutation(step, outcome, marked, is_reached or not is_linked))
    return found


def resting_on(memory: ReasoningMemory, number: int) -> list[int]:
    """Return the steps that rest on a step, directly or not, in the order of the graph."""
    supported: dict[int, list[int]] = {}
    for step, premises in memory.dependencies.items():
        for premise in premises:
            supported.setdefault(premise, []).append(step)
    marked: set[int] = set()
    waiting = [number]
    while waiting:
        for step in supported.get(waiting.pop(), ()):
            if step not in marked and step != number:
                marked.add(step)
                waiting.append(step)
    return [step.step_number for step in memory.steps if step.step_number in marked]
