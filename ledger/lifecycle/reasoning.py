"""The state machine of a reasoning graph: started, extended, concluded; always acyclic and without dangling steps.

A step may rest only on steps that came before it or with it, so a graph has no cycle if every extension was checked
alone. A concluded graph may still be extended, and concluded again, its owner may retract steps, and any agent may
settle its assumptions: each is another version with another ref. Briefs and validations are about the graph and do not
change it. Only imports extend an imported graph. The rules are ``proto/rules/reasoning.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from typing import Final

import msgspec
from msgspec.structs import replace

from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.reasoning import ReasoningExtended
from deedbook.ledger.lifecycle.machine import Question, StateMachine, Unmet, import_is_own
from deedbook.ledger.lifecycle.rules import Row


class ReasoningState(msgspec.Struct, frozen=True, array_like=True, tag="reasoning"):
    """The graph's owner, the name of its state, and the numbers of its steps."""

    owner: str
    status: str
    steps: frozenset[int] = frozenset()


def _apply(question: Question[ReasoningState], row: Row) -> ReasoningState:
    state = question.state or ReasoningState(question.event.author, "")
    steps = state.steps | _new_steps(question.data) if "steps" in row.records else state.steps
    if "retraction" in row.records:
        steps -= {question.data.step}
    return replace(state, status=row.to or state.status, steps=steps)


def _new_steps(data: ReasoningExtended) -> frozenset[int]:
    return frozenset(step.step_number for step in data.steps)


def _steps_before(question: Question[ReasoningState]) -> frozenset[int]:
    return frozenset() if question.state is None else question.state.steps


def _has_steps(question: Question[ReasoningState]) -> Unmet | None:
    message = f"reasoning {question.event.name} has no steps yet: its author must add one first"
    return None if _steps_before(question) else Unmet(message)


def _extension_is_not_empty(question: Question[ReasoningState]) -> Unmet | None:
    return None if question.data.steps else Unmet("the extension is empty: add a step")


def _steps_are_new(question: Question[ReasoningState]) -> Unmet | None:
    known = set(_steps_before(question))
    for step in question.data.steps:
        if step.step_number in known:
            return Unmet(f"step {step.step_number} already exists: use another number", {"step": step.step_number})
        known.add(step.step_number)
    return None


def _step_exists(question: Question[ReasoningState]) -> Unmet | None:
    number = question.data.step
    is_present = number in _steps_before(question)
    return None if is_present else Unmet(f"there is no step {number}", {"step": number})


def _dependencies_are_of_new_steps(question: Question[ReasoningState]) -> Unmet | None:
    added = _new_steps(question.data)
    present = _steps_before(question) | added
    for number, rests_on in question.data.dependencies.items():
        if number not in added:
            return Unmet(f"step {number} is not new: dependencies must come in the same event as their step")
        for wanted in rests_on:
            if wanted not in present:
                return Unmet(f"step {number} rests on step {wanted}, which does not exist")
    return None


def _steps_form_no_cycle(question: Question[ReasoningState]) -> Unmet | None:
    try:
        TopologicalSorter(question.data.dependencies).prepare()
    except CycleError as error:
        cycle = [int(number) for number in error.args[1]]
        return Unmet(f"the steps depend on each other in a cycle: {cycle}", {"cycle": cycle})
    return None


def _read_data(event: Event) -> object:
    return read_as(event).data


_CONDITIONS: Final[dict[str, Callable[[Question[ReasoningState]], Unmet | None]]] = {
    "import_is_own": import_is_own,
    "has_steps": _has_steps,
    "extension_is_not_empty": _extension_is_not_empty,
    "steps_are_new": _steps_are_new,
    "step_exists": _step_exists,
    "dependencies_are_of_new_steps": _dependencies_are_of_new_steps,
    "steps_form_no_cycle": _steps_form_no_cycle,
}

MACHINE: Final = StateMachine(
    family="reasoning",
    state_name=lambda state, _event: state.status,
    party=lambda state, _party, _ledger: (state.owner,),
    apply=_apply,
    conditions=_CONDITIONS,
    read_data=_read_data,
    hint=lambda _state, event, _ledger: (
        "" if event.kind == "reasoning.validated" else ": start your own with `deed reasoning start`"
    ),
)
