"""Reasoning: given these events, expect this graph, and the same ref from every computation."""

from __future__ import annotations

import hashlib

from folding import facts, rows_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.ledger.events.reasoning import (
    AssumptionSettled,
    ReasoningConcluded,
    ReasoningExtended,
    ReasoningStarted,
    Step,
    StepRetracted,
)
from deedbook.projections.reasoning.fold import VIEW as REASONING_VIEW
from deedbook.projections.reasoning.graph import GraphState, apply_event, canonical_text, memory_of, ref_of
from deedbook.projections.reasoning.memory import Settlement, canonical_json, compute_reasoning_ref, memory_from_dict

STARTED = ReasoningStarted(task="Is it safe?", ai_id="bob-1", reasoning_strategy="top-down", domain="security")


def graph(*data):
    """Return the graph after a start and ``data``."""
    state = apply_event(GraphState(), STARTED, "bob")
    for one in data:
        state = apply_event(state, one, "bob")
    return state


def step(number, **fields):
    """Return an observation."""
    return Step(**{"step_number": number, "type": "observation", "content": f"Step {number}"} | fields)


def test_the_graph_of_the_events_is_the_graph_of_the_seeds_json():
    folded = graph(
        ReasoningExtended(steps=[step(1, evidence=["a.py:3"], confidence=1)]),
        ReasoningExtended(steps=[step(2, type="assumption", needs_validation=True)], dependencies={2: [1]}),
        ReasoningConcluded(conclusion="Yes", confidence_in_reasoning=0.8, known_limitations=["one"]),
    )
    memory, unmapped = memory_from_dict(
        {
            "task": "Is it safe?",
            "ai_id": "bob-1",
            "reasoning_strategy": "top-down",
            "conclusion": "Yes",
            "confidence_in_reasoning": 0.8,
            "known_limitations": ["one"],
            "steps": [
                {"step": 1, "type": "observation", "content": "Step 1", "evidence_refs": ["a.py:3"], "confidence": 1},
                {"step": 2, "type": "assumption", "content": "Step 2", "needs_validation": True},
            ],
            "dependencies": {"2": [1]},
        }
    )
    assert not unmapped
    assert memory_of(folded, "") == memory
    assert ref_of(folded) == compute_reasoning_ref(memory)


def test_the_domain_is_never_part_of_the_ref():
    other = ReasoningStarted(task="Is it safe?", ai_id="bob-1", reasoning_strategy="top-down", domain="")
    assert ref_of(apply_event(GraphState(), other, "bob")) == ref_of(graph())


def test_a_settled_assumption_keeps_its_step_and_says_by_whom_it_was_settled_and_how():
    assumption = step(3, type="assumption", content="Logs are not encrypted", needs_validation=True)
    before = graph(ReasoningExtended(steps=[assumption]))
    settled = AssumptionSettled(step=3, holds=False, how="logs encrypted since 2024-10", evidence=["logging.yaml:4"])
    after = apply_event(before, settled, "rita")
    (updated,) = memory_of(after, "r").steps
    settlement = Settlement("rita", holds=False, how="logs encrypted since 2024-10", evidence=["logging.yaml:4"])
    assert updated == replace(memory_of(before, "r").steps[0], settled=[settlement])
    assert ref_of(after) != ref_of(before)
    again = memory_of(apply_event(after, replace(settled, holds=True, evidence=[]), "bob"), "r")
    assert [(said.by, said.holds) for said in again.steps[0].settlements()] == [("rita", False), ("bob", True)]


def test_a_retracted_step_is_gone_with_every_link_to_it():
    steps = [step(number) for number in (1, 2, 3)]
    before = graph(ReasoningExtended(steps=steps, dependencies={2: [1], 3: [1, 2]}))
    after = memory_of(apply_event(before, StepRetracted(step=1, reason="misread"), "bob"), "r")
    assert [each.step_number for each in after.steps] == [2, 3]
    assert after.dependencies == {3: [2]}
    assert compute_reasoning_ref(after) == ref_of(apply_event(before, StepRetracted(step=1, reason="other"), "bob"))


def test_concluding_again_keeps_the_confidence_and_limitations_that_it_does_not_name():
    first = ReasoningConcluded(conclusion="Yes", confidence_in_reasoning=0.8, known_limitations=["one"])
    again = memory_of(graph(first, ReasoningConcluded(conclusion="No")), "r")
    assert (again.conclusion, again.confidence_in_reasoning, again.known_limitations) == ("No", 0.8, ["one"])
    other = ReasoningConcluded(conclusion="No", confidence_in_reasoning=1.0, known_limitations=[])
    last = memory_of(graph(first, other), "r")
    assert (last.confidence_in_reasoning, last.known_limitations) == (1.0, [])


def test_a_settlement_leaves_a_conclusion_as_it_is():
    given = facts(
        "reasoning/r",
        ("bob", STARTED),
        ("bob", ReasoningExtended(steps=[step(1, type="assumption")])),
        ("bob", ReasoningConcluded(conclusion="Yes")),
        ("rita", AssumptionSettled(step=1, holds=False, how="it was measured")),
    )
    (row,) = rows_of(REASONING_VIEW, "r", given)["reasonings"]
    assert (row["status"], row["conclusion"], row["author"], row["version"]) == ("concluded", "Yes", "bob", 4)


def test_each_event_makes_a_version_based_on_the_one_before():
    given = facts(
        "reasoning/r",
        ("bob", STARTED),
        ("bob", ReasoningExtended(steps=[step(1)])),
        ("bob", ReasoningConcluded(conclusion="Yes")),
    )
    rows = rows_of(REASONING_VIEW, "r", given)
    versions = rows["reasoning_versions"]
    assert [(row["version"], row["event_index"], row["steps"]) for row in versions] == [(1, 0, 0), (2, 1, 1), (3, 2, 1)]
    assert [row["base"] for row in versions] == [None, versions[0]["ref"], versions[1]["ref"]]
    (row,) = rows["reasonings"]
    assert (row["ref"], row["version"], row["status"], row["domain"]) == (
        versions[2]["ref"],
        3,
        "concluded",
        "security",
    )


def test_a_concluded_graph_that_is_extended_is_open_again():
    given = facts(
        "reasoning/r",
        ("bob", STARTED),
        ("bob", ReasoningExtended(steps=[step(1)])),
        ("bob", ReasoningConcluded(conclusion="Yes")),
        ("bob", ReasoningExtended(steps=[step(2)])),
    )
    (row,) = rows_of(REASONING_VIEW, "r", given)["reasonings"]
    assert (row["status"], row["conclusion"]) == ("open", "Yes")


def test_versions_of_a_large_graph_cost_their_deltas_and_not_copies():
    data = [ReasoningExtended(steps=[step(number, content="x" * 500)]) for number in range(1, 201)]
    data += [AssumptionSettled(step=number, holds=True, how="settled") for number in range(1, 31)]
    rows = rows_of(REASONING_VIEW, "r", facts("reasoning/r", ("bob", STARTED), *(("bob", one) for one in data)))
    whole = len(canonical_text(graph(*data)))
    assert len(rows["reasoning_versions"]) == 231
    assert sum(len(row["delta"]) for row in rows["reasoning_versions"]) < 1.5 * whole


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TEXTS = st.lists(TEXT, max_size=2)
UNIT = st.one_of(st.floats(0, 1), st.sampled_from([0.0, -0.0, 1.0]))


@st.composite
def deltas(draw):
    """Draw extensions, updates and conclusions as the gate would admit them."""
    found, numbers = [], []
    for _ in range(draw(st.integers(1, 12))):
        match draw(st.sampled_from(["extend", "extend", "update", "conclude"])):
            case "extend":
                number = draw(st.integers(1, 1000).filter(lambda number: number not in numbers))
                rests_on = draw(st.lists(st.sampled_from(numbers), max_size=3)) if numbers else []
                one = Step(
                    step_number=number,
                    type=draw(st.sampled_from(["observation", "inference", "assumption", "hypothesis", "conclusion"])),
                    content=draw(TEXT),
                    reasoning_type=draw(st.sampled_from(["", "deductive"])),
                    evidence=draw(TEXTS),
                    premises=draw(TEXTS),
                    alternatives_considered=draw(TEXTS),
                    assumptions=draw(TEXTS),
                    confidence=draw(UNIT),
                    needs_validation=draw(st.sampled_from([None, True, False])),
                    validation_method=draw(st.one_of(st.none(), TEXT)),
                    conclusion=draw(st.one_of(st.none(), TEXT)),
                    evidence_digests=draw(st.sampled_from([None, [""], ["0123456789abcdef", ""]])),
                )
                found.append(ReasoningExtended(steps=[one], dependencies={number: rests_on}))
                numbers.append(number)
            case "update" if numbers:
                number, how = draw(st.sampled_from(numbers)), draw(TEXT)
                found.append(AssumptionSettled(step=number, holds=draw(st.booleans()), how=how, evidence=draw(TEXTS)))
            case _:
                found.append(
                    ReasoningConcluded(
                        conclusion=draw(TEXT), confidence_in_reasoning=draw(UNIT), known_limitations=draw(TEXTS)
                    )
                )
    return found


@given(deltas())
def test_the_joined_text_is_the_canonical_form_of_the_graph(data):
    state = graph(*data)
    memory = memory_of(state, "any")
    assert canonical_text(state) == canonical_json(memory)
    assert ref_of(state) == compute_reasoning_ref(memory)
    assert ref_of(state) == "sha256:" + hashlib.sha256(canonical_text(state)).hexdigest()
    read_back, _ = memory_from_dict(memory.to_dict())
    assert compute_reasoning_ref(read_back) == ref_of(state)
