"""The steps that a brief must keep if no step states the conclusion."""

from __future__ import annotations

import pytest

from deedbook.projections.briefs.critical import critical_numbers, dead_ends
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep

EVERY = {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("dependencies", "conclusion", "critical"),
    [
        ({2: [1]}, "Nothing of this", EVERY),  # links lead to only two of six steps, so the premises are unknown
        ({3: [1, 2]}, "Nothing of this", {1, 2, 3}),
        ({2: [1]}, "Step 2", {1, 2}),  # a step states the conclusion
        ({}, "Step 2", EVERY),
    ],
)
def test_steps_where_links_end_carry_a_conclusion_only_if_they_lead_to_half_of_the_steps(
    dependencies: dict[int, list[int]], conclusion: str, critical: set[int]
) -> None:
    steps = [ReasoningStep(step_number=number, type="observation", content=f"Step {number}") for number in EVERY]
    memory = ReasoningMemory("", "", "t", conclusion, steps, dependencies)
    assert critical_numbers(memory) == critical


def test_a_bare_heading_is_critical_only_if_nothing_else_is() -> None:
    texts = ["## Design", "The pool is closed too early", "|---|:--|", "# 1 is the first number\nand 2 follows"]
    steps = [ReasoningStep(number, "observation", text) for number, text in enumerate(texts, 1)]
    memory = ReasoningMemory("", "", "t", "", steps, {2: [1], 4: [2]})
    assert critical_numbers(memory) == {2, 4}
    assert critical_numbers(ReasoningMemory("", "", "t", "", steps[:1], {})) == {1}


def test_dead_end_is_an_inference_that_the_conclusion_does_not_need_with_what_only_it_rests_on() -> None:
    kinds = ["observation", "observation", "inference", "inference", "observation", "conclusion", "hypothesis"]
    steps = [ReasoningStep(number, kind, f"Step {number}") for number, kind in enumerate(kinds, 1)]
    # Step 4 depends on 1, which the conclusion needs, and on 2; nothing depends on 5; 7 depends on 4.
    memory = ReasoningMemory("", "", "t", "Step 6", steps, {3: [1], 4: [1, 2], 6: [3], 7: [4]})
    assert critical_numbers(memory) == {1, 3, 6}
    assert dead_ends(memory, {1, 3, 6}) == [4, 2, 7]
