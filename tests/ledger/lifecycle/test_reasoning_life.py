"""A reasoning graph grows by its owner's steps, and never has a cycle or a reference to a missing step."""

from __future__ import annotations

from graphlib import TopologicalSorter

from given import fact
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning as kinds
from deedbook.ledger.lifecycle.reasoning import MACHINE, ReasoningState


def extension(*steps: int, dependencies: dict[int, list[int]] | None = None) -> kinds.ReasoningExtended:
    """Return an extension of steps with these numbers."""
    return kinds.ReasoningExtended(
        steps=[kinds.Step(step_number=number, type="inference", content="c") for number in steps],
        dependencies=dependencies or {},
    )


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
