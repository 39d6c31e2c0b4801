"""A reasoning graph grows by its owner's steps, and at no time holds a cycle or a step that is not there."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest
from event_examples import EXAMPLES
from given import fact, fold, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.lifecycle.reasoning import MACHINE, ReasoningState

START = fact("alice", kinds.ReasoningStarted(task="why"))
CONCLUDE = fact("alice", kinds.ReasoningConcluded(conclusion="so"))
BRIEF = convert(EXAMPLES["reasoning.briefed"], kinds.ReasoningBriefed)
THREE = ReasoningState("alice", "open", frozenset({1, 2, 3}))


def extension(
    *steps: int, dependencies: dict[int, list[int]] | None = None, updated: dict[int, str] | None = None
) -> kinds.ReasoningExtended:
    """Return an extension of steps with these numbers."""
    return kinds.ReasoningExtended(
        steps=[kinds.Step(step_number=number, type="inference", content="c") for number in steps],
        dependencies=dependencies or {},
        assumptions_updated=updated or {},
    )


def test_graph_grows_step_by_step_and_is_concluded() -> None:
    state = fold(
        MACHINE.decide,
        START,
        fact("alice", extension(1)),
        fact("alice", extension(10, dependencies={10: [1]})),
        CONCLUDE,
    )
    assert state == ReasoningState("alice", "concluded", frozenset({1, 10}))


def test_concluded_graph_can_be_extended_and_concluded_anew() -> None:
    state = fold(MACHINE.decide, START, fact("alice", extension(1)), CONCLUDE, fact("alice", extension(2)), CONCLUDE)
    assert state.steps == {1, 2}


@pytest.mark.parametrize(
    "data",
    [
        extension(1),
        extension(4, 4),
        extension(),
        extension(4, dependencies={4: [9]}),
        extension(4, dependencies={4: [4]}),
        extension(4, 5, dependencies={4: [5], 5: [4]}),
        extension(4, 5, 6, dependencies={4: [6], 5: [4], 6: [5]}),
        extension(4, dependencies={3: [1], 4: []}),
        extension(4, dependencies={3: [4]}),
        extension(updated={9: "refuted"}),
    ],
    ids=[
        "a step that exists",
        "a step twice",
        "nothing",
        "on a missing step",
        "on itself",
        "a circle of two",
        "a circle of three",
        "dependencies of an old step",
        "an old step on a new one",
        "a missing assumption",
    ],
)
def test_extension_that_does_not_fit_the_graph_is_refused(data: kinds.ReasoningExtended) -> None:
    assert refusal(MACHINE.decide, THREE, fact("alice", data)).code == "STEP_CONFLICT"


def test_circle_is_named() -> None:
    refused = refusal(MACHINE.decide, THREE, fact("alice", extension(4, 5, dependencies={4: [5], 5: [4]})))
    cycle = refused.details["cycle"]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {4, 5}


@pytest.mark.parametrize(
    "data",
    [
        extension(updated={2: "holds"}),
        extension(4, updated={4: "holds"}),
        extension(5, 4, dependencies={5: [4, 1], 4: [3]}),
    ],
)
def test_extension_that_fits_is_taken(data: kinds.ReasoningExtended) -> None:
    assert MACHINE.decide(THREE, fact("alice", data)).steps == THREE.steps | {step.step_number for step in data.steps}


def test_nobody_else_extends_or_concludes() -> None:
    assert refusal(MACHINE.decide, THREE, fact("bob", extension(4))).code == "NOT_AUTHORIZED"
    assert (
        refusal(MACHINE.decide, THREE, fact("bob", kinds.ReasoningConcluded(conclusion="c"))).code == "NOT_AUTHORIZED"
    )


def test_brief_by_somebody_else_changes_nothing() -> None:
    assert MACHINE.decide(THREE, fact("compressor", BRIEF)) == THREE


@pytest.mark.parametrize("data", [extension(1), kinds.ReasoningConcluded(conclusion="c"), BRIEF])
def test_nothing_precedes_the_start(data: kinds.ReasoningExtended) -> None:
    assert refusal(MACHINE.decide, None, fact("alice", data)).code == "NOT_FOUND"


@pytest.mark.parametrize("data", [kinds.ReasoningConcluded(conclusion="c"), BRIEF])
def test_graph_without_steps_is_neither_concluded_nor_briefed(data: kinds.ReasoningConcluded) -> None:
    assert (
        refusal(MACHINE.decide, ReasoningState("alice", "open"), fact("alice", data)).code == "TRANSITION_NOT_ALLOWED"
    )


def test_reasoning_is_started_once() -> None:
    assert refusal(MACHINE.decide, THREE, START).code == "TRANSITION_NOT_ALLOWED"


numbers = st.integers(1, 6)
extensions = st.tuples(
    st.lists(numbers, max_size=3), st.dictionaries(numbers, st.lists(numbers, max_size=3), max_size=3)
)


@given(st.lists(extensions, max_size=8))
@settings(deadline=None)
def test_no_sequence_of_extensions_makes_a_cycle_or_a_dangling_step(
    tried: list[tuple[list[int], dict[int, list[int]]]],
) -> None:
    state = ReasoningState("alice", "open")
    edges: dict[int, list[int]] = {}
    for steps, dependencies in tried:
        try:
            state = MACHINE.decide(state, fact("alice", extension(*steps, dependencies=dependencies)))
        except Refused:
            continue
        assert not edges.keys() & dependencies.keys()
        edges |= dependencies
    TopologicalSorter(edges).prepare()
    assert {one for rests_on in edges.values() for one in rests_on} | edges.keys() <= state.steps
