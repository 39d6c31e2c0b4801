"""The state machine of a reasoning graph: started, extended, concluded; always acyclic and without dangling steps.

A step may rest only on steps that came before it or with it, so a graph has no cycle if every extension was checked
alone. A concluded graph may still be extended (an assumption was settled since) and concluded again: each is another
version with another ref. Briefs and validations are about the graph and do not change it. The owner's own validation
is refused, because it would not be independent. Only imports extend an imported graph.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Final

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.events.body import Event, read_as
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.lifecycle import require_imported

# Events about a graph that do not change it.
ABOUT: Final = (kinds.ReasoningBriefed, kinds.ReasoningValidated)


class ReasoningState(msgspec.Struct, frozen=True, array_like=True, tag="reasoning"):
    """The graph's owner, its step numbers, whether it was concluded, and whether it was imported."""

    owner: str
    steps: frozenset[int] = frozenset()
    is_concluded: bool = False
    is_imported: bool = False


def transition(state: ReasoningState | None, event: Event) -> ReasoningState:
    """Return the state after ``event``.

    Raises Refused: ``TRANSITION_NOT_ALLOWED``, ``NOT_AUTHORIZED`` or ``STEP_CONFLICT``.
    """
    if isinstance(event.data, RecordImported):
        require_imported(event, None if state is None else (state.owner, state.is_imported))
        return replace(_changed(state, read_as(event)), is_imported=True)
    if state is not None and state.is_imported and not isinstance(event.data, ABOUT):
        message = f"reasoning {event.name} was imported and cannot be extended: start your own reasoning that cites it"
        raise Refused("TRANSITION_NOT_ALLOWED", message, status="imported")
    return _changed(state, event)


def _changed(state: ReasoningState | None, event: Event) -> ReasoningState:
    if isinstance(event.data, kinds.ReasoningStarted):
        if state is not None:
            raise Refused("TRANSITION_NOT_ALLOWED", f"reasoning {event.name} already exists: choose another id")
        return ReasoningState(event.author)
    if state is None:
        raise Refused(
            "TRANSITION_NOT_ALLOWED", f"there is no reasoning {event.name}: start it first (reasoning.started)"
        )
    if isinstance(event.data, ABOUT):
        if not state.steps:
            raise Refused(
                "TRANSITION_NOT_ALLOWED", f"reasoning {event.name} has no steps yet: its author must add one first"
            )
        if isinstance(event.data, kinds.ReasoningValidated) and event.author == state.owner:
            message = f"{state.owner} cannot validate their own reasoning: ask a reviewer"
            raise Refused("NOT_AUTHORIZED", message, owner=state.owner)
        return state
    if event.author != state.owner:
        message = f"reasoning {event.name} belongs to {state.owner}: start your own with `deed reasoning start`"
        raise Refused("NOT_AUTHORIZED", message, owner=state.owner)
    if isinstance(event.data, kinds.ReasoningConcluded):
        if not state.steps:
            raise Refused("TRANSITION_NOT_ALLOWED", f"reasoning {event.name} has no steps yet: add one first")
        return replace(state, is_concluded=True)
    return replace(state, steps=_extend(state.steps, event.data))


def _extend(known: frozenset[int], data: kinds.ReasoningExtended) -> frozenset[int]:
    added: set[int] = set()
    for step in data.steps:
        if step.step_number in known or step.step_number in added:
            message = f"step {step.step_number} already exists: use another number"
            raise Refused("STEP_CONFLICT", message, step=step.step_number)
        added.add(step.step_number)
    if not added and not data.assumptions_updated:
        raise Refused("STEP_CONFLICT", "the extension is empty: add a step or update an assumption")
    present = known | added
    for number in data.assumptions_updated:
        if number not in present:
            raise Refused("STEP_CONFLICT", f"there is no assumption {number} to update", step=number)
    _check_dependencies(data.dependencies, added, present)
    return present


def _check_dependencies(dependencies: dict[int, list[int]], added: set[int], present: frozenset[int]) -> None:
    for number, rests_on in dependencies.items():
        if number not in added:
            message = f"step {number} is not new: dependencies must come in the same event as their step"
            raise Refused("STEP_CONFLICT", message)
        for wanted in rests_on:
            if wanted not in present:
                raise Refused("STEP_CONFLICT", f"step {number} rests on step {wanted}, which does not exist")
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        cycle = [int(number) for number in error.args[1]]
        raise Refused("STEP_CONFLICT", f"the steps depend on each other in a cycle: {cycle}", cycle=cycle) from error
