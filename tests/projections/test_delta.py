"""Deltas: there is one between any two versions; the receiver can check it, and no other delta passes the check."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest
from folding import facts, rows_of
from graphs import audit_graph, chain, measure_chain, odd_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.reasoning import (
    AssumptionSettled,
    ReasoningConcluded,
    ReasoningExtended,
    ReasoningStarted,
    Step,
)
from deedbook.projections.reasoning.delta import (
    Delta,
    apply_chain,
    make_delta,
    read_payload,
    write_chain,
    write_full,
    write_squashed,
)
from deedbook.projections.reasoning.fold import VIEW as REASONING_VIEW
from deedbook.projections.reasoning.graph import (
    GraphState,
    ReasoningDelta,
    apply_change,
    apply_event,
    decode_change,
    encode_change,
    memory_of,
    ref_of,
    state_of,
)
from deedbook.projections.reasoning.memory import Settlement, canonical_json, compute_reasoning_ref, memory_from_dict

STARTED = ReasoningStarted(task="Is it safe? 登入", ai_id="bob-1")
EXTENDED = ReasoningExtended(
    steps=[Step(step_number=number, type="assumption", content=f"Step {number}") for number in (1, 2, 10)],
    dependencies={2: [1], 10: [1, 2]},
)
# Step 2 assumes that logs are not encrypted, so this check refutes it.
UPDATED = AssumptionSettled(step=2, holds=False, how="Validated: logs encrypted since 2024-10")
REFUTED = Settlement("bob", holds=False, how="Validated: logs encrypted since 2024-10")
CONCLUDED = ReasoningConcluded(conclusion="Yes", confidence_in_reasoning=0.8, known_limitations=["one", "two"])


def apply_delta(base, delta):
    """Return the graph that a receiver gets by applying one delta."""
    return apply_chain(base, delta.reasoning_ref, [delta.reasoning_delta], delta.target)


def versions(*data):
    """Return the versions of a graph: after its start, then after each event."""
    states = [apply_event(GraphState(), STARTED, "bob")]
    for one in data:
        states.append(apply_event(states[-1], one, "bob"))
    return [memory_of(state, "r") for state in states]


def growing(memory):
    """Return the versions of a graph that grew by one step at a time and was then concluded."""
    start = replace(memory, steps=[], dependencies={}, conclusion="", known_limitations=[])
    found = [start]
    for step in memory.steps:
        number = step.step_number
        links = {number: memory.dependencies[number]} if number in memory.dependencies else {}
        found.append(replace(found[-1], steps=[*found[-1].steps, step], dependencies=found[-1].dependencies | links))
    return [*found, memory]


STARTS, STEPS, SETTLED, ENDED = versions(EXTENDED, UPDATED, CONCLUDED)


def test_delta_has_the_seeds_shape_and_names_only_what_changed():
    delta = make_delta(STEPS, SETTLED).to_dict()
    assert delta == {
        "reasoning_ref": compute_reasoning_ref(STEPS),
        "reasoning_delta": {
            "assumptions_updated": {
                "2": [{"by": "bob", "holds": False, "how": "Validated: logs encrypted since 2024-10"}]
            }
        },
        "target": compute_reasoning_ref(SETTLED),
    }
    added = make_delta(STARTS, STEPS).to_dict()["reasoning_delta"]
    assert added["steps_added"][0] == {"step": 1, "type": "assumption", "content": "Step 1"}
    assert (added["dependencies"], added.keys()) == ({"2": [1], "10": [1, 2]}, {"steps_added", "dependencies"})
    concluded = make_delta(SETTLED, ENDED).to_dict()["reasoning_delta"]
    assert concluded == {"conclusion": "Yes", "confidence_in_reasoning": 0.8, "known_limitations": ["one", "two"]}


def test_squashed_delta_settles_twice_updated_assumptions_once():
    twice = AssumptionSettled(step=2, holds=True, how="not the old ones; nor backups")
    first, last = versions(EXTENDED, UPDATED, twice)[1::2]
    change = make_delta(first, last).reasoning_delta
    again = Settlement("bob", holds=True, how="not the old ones; nor backups")
    assert change == ReasoningDelta(assumptions_updated={2: [REFUTED, again]})
    assert canonical_json(apply_delta(first, make_delta(first, last))) == canonical_json(last)


def test_delta_for_another_base_is_refused():
    delta = make_delta(STEPS, ENDED)
    for base in (STARTS, SETTLED, ENDED, audit_graph()):
        with pytest.raises(Refused) as refused:
            apply_delta(base, delta)
        assert refused.value.code == "VERSION_MISMATCH"
        assert refused.value.details == {
            "base": compute_reasoning_ref(STEPS),
            "held": compute_reasoning_ref(base),
        }


HONEST = make_delta(STARTS, STEPS).reasoning_delta
TAMPERED = {
    "a step's text": replace(HONEST, steps_added=[replace(step, content="x") for step in HONEST.steps_added]),
    "a step left out": replace(HONEST, steps_added=HONEST.steps_added[1:]),
    "a step given twice": replace(HONEST, steps_added=HONEST.steps_added * 2),
    "a link": replace(HONEST, dependencies={2: [1], 10: [2]}),
    "a settled assumption": replace(HONEST, assumptions_updated={1: [REFUTED]}),
    "a conclusion": replace(HONEST, conclusion="No"),
    "a number that is none": replace(HONEST, confidence_in_reasoning=float("nan")),
    "nothing": ReasoningDelta(),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_delta_is_noticed(what):
    delta = replace(make_delta(STARTS, STEPS), reasoning_delta=TAMPERED[what])
    with pytest.raises(Corrupted) as noticed:
        apply_delta(STARTS, delta)
    assert noticed.value.code == "VERIFICATION_FAILED"


def test_delta_that_names_no_version_is_refused():
    for wrong in ({"reasoning_ref": "abc"}, {"target": "sha256:"}, {"target": ""}):
        with pytest.raises(Refused) as refused:
            apply_delta(STARTS, replace(make_delta(STARTS, STEPS), **wrong))
        assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("sent_as", "payload"),
    [
        ("full", "{"),
        ("full", "[]"),
        ("full", '{"task":"t","conclusion":"c","steps":[],"colour":"red"}'),
        ("full", '{"task":"t","conclusion":"c","steps":[{"step":1,"type":"x","content":""}]}'),
        ("full", "[" * 100_000),
        ("squashed", '{"reasoning_ref":"000000000000"}'),
        ("squashed", '{"reasoning_ref":"x","reasoning_delta":{},"target":"x"}'),
        ("chain", '{"reasoning_ref":"000000000000","chain":[{"steps_added":[{"step":"1"}]}],"target":""}'),
        ("diff", write_squashed(compute_reasoning_ref(STARTS), compute_reasoning_ref(STARTS), ReasoningDelta())),
    ],
)
def test_payload_that_makes_no_graph_is_noticed(sent_as, payload):
    with pytest.raises(Corrupted) as noticed:
        read_payload(sent_as, payload, STARTS)
    assert noticed.value.code == "VERIFICATION_FAILED"


def test_delta_sent_to_somebody_without_a_base_is_noticed():
    delta = make_delta(STARTS, STEPS)
    payload = write_squashed(delta.reasoning_ref, delta.target, delta.reasoning_delta)
    assert canonical_json(read_payload("squashed", payload, STARTS)) == canonical_json(STEPS)
    with pytest.raises(Corrupted):
        read_payload("squashed", payload)


def test_payloads_name_versions_by_twelve_digits():
    delta = make_delta(STARTS, STEPS)
    payload = json.loads(write_squashed(delta.reasoning_ref, delta.target, delta.reasoning_delta))
    assert (payload["reasoning_ref"], payload["target"]) == (delta.reasoning_ref[7:19], delta.target[7:19])


def test_each_version_has_its_delta_and_base():
    events = facts("reasoning/r", *(("bob", data) for data in (STARTED, EXTENDED, UPDATED, CONCLUDED)))
    rows = rows_of(REASONING_VIEW, "r", events)
    stored = rows["reasoning_versions"]
    assert [row["base"] for row in stored] == [None, *(row["ref"] for row in stored[:-1])]
    refuted = {"by": "bob", "holds": False, "how": "Validated: logs encrypted since 2024-10"}
    assert json.loads(stored[2]["delta"]) == {"assumptions_updated": {"2": [refuted]}}
    assert "登入" in stored[0]["delta"]


def test_thirty_versions_as_a_chain_cost_a_tenth_of_sending_each_whole():
    cost = measure_chain(growing(chain(28))[:30])
    assert cost.versions == 30
    assert cost.ratio == cost.chain / cost.resent <= 0.10
    assert cost.chain < cost.messages < cost.resent


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TEXTS = st.lists(TEXT, max_size=2)
UNIT = st.one_of(st.floats(0, 1), st.sampled_from([0.0, -0.0, 1.0]))


@st.composite
def events(draw):
    """Draw events that the gate admits: extensions of several steps, updates of old and new steps, conclusions."""
    found, numbers = [], []
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 3)) == 0:
            conclusion = draw(st.sampled_from(["Yes", "No", "也许"]))
            found.append(
                ReasoningConcluded(
                    conclusion=conclusion, confidence_in_reasoning=draw(UNIT), known_limitations=draw(TEXTS)
                )
            )
            continue
        steps, dependencies = [], {}
        for _ in range(draw(st.integers(0 if numbers else 1, 3))):
            number = draw(st.integers(1, 1000).filter(lambda number: number not in numbers))
            optional = {"needs_validation": st.booleans(), "validation_method": TEXT, "conclusion": TEXT}
            optional["evidence_digests"] = st.lists(st.sampled_from(["", "0123456789abcdef"]), max_size=2)
            given = draw(st.fixed_dictionaries({}, optional=optional))
            steps.append(
                Step(
                    step_number=number,
                    type="inference",
                    content=draw(TEXT),
                    evidence=draw(TEXTS),
                    confidence=draw(UNIT),
                    **given,
                )
            )
            if draw(st.booleans()):
                dependencies[number] = draw(st.lists(st.sampled_from(numbers), max_size=2)) if numbers else []
            numbers.append(number)
        found.append(ReasoningExtended(steps=steps, dependencies=dependencies))
        for number in draw(st.lists(st.sampled_from(numbers), max_size=2)):
            how, evidence = draw(st.sampled_from(["a", "b; c", "; "])), draw(TEXTS)
            found.append(AssumptionSettled(step=number, holds=draw(st.booleans()), how=how, evidence=evidence))
    return found


@given(events(), st.data())
def test_any_version_and_its_delta_give_any_other_byte_for_byte(data, choice):
    found = versions(*data)
    base, target = (choice.draw(st.sampled_from(found)) for _ in range(2))
    received = msgspec.json.decode(msgspec.json.encode(make_delta(base, target)), type=Delta)
    assert canonical_json(apply_delta(base, received)) == canonical_json(target)
    assert apply_delta(base, received).reasoning_id == "r"


@given(events(), st.data())
def test_chain_and_squashed_delta_and_the_full_graph_come_to_the_same(data, choice):
    found = versions(*data)
    first = choice.draw(st.integers(0, len(found) - 1))
    last = choice.draw(st.integers(first, len(found) - 1))
    refs = [compute_reasoning_ref(version) for version in found]
    changes = [make_delta(base, target).reasoning_delta for base, target in pairwise(found[first : last + 1])]
    chained = write_chain(refs[first], refs[last], [encode_change(change).decode() for change in changes])
    squashed = write_squashed(refs[first], refs[last], make_delta(found[first], found[last]).reasoning_delta)
    for received in (
        apply_chain(found[first], refs[first], changes, refs[last]),
        read_payload("chain", chained, found[first]),
        read_payload("squashed", squashed, found[first]),
        read_payload("full", write_full(found[last])),
    ):
        assert canonical_json(received) == canonical_json(found[last])


@given(events())
def test_stored_deltas_lead_to_every_version(data):
    rows = rows_of(REASONING_VIEW, "r", facts("reasoning/r", *(("bob", one) for one in (STARTED, *data))))
    state = GraphState()
    for row, version in zip(rows["reasoning_versions"], versions(*data), strict=True):
        state = apply_change(state, decode_change(row["delta"]))
        assert ref_of(state) == row["ref"] == compute_reasoning_ref(version)


@given(odd_graphs(), odd_graphs())
def test_there_is_a_delta_between_any_two_graphs(base, target):
    assert canonical_json(apply_delta(base, make_delta(base, target))) == canonical_json(target)
    assert ref_of(state_of(target)) == compute_reasoning_ref(target)


@settings(max_examples=40, deadline=None)
@given(st.permutations([1, 2, 3, 4, 5]), st.permutations([1, 2, 3, 4, 5, 6]))
def test_order_of_steps_is_part_of_the_graph(before, after):
    def graph(numbers):
        steps = [{"step": number, "type": "observation", "content": f"s{number}"} for number in numbers]
        links = {str(number): [number - 1] for number in numbers if number - 1 in numbers}
        return memory_from_dict({"task": "t", "conclusion": "c", "steps": steps, "dependencies": links})[0]

    base, target = graph(before), graph(after)
    assert canonical_json(apply_delta(base, make_delta(base, target))) == canonical_json(target)
    assert canonical_json(apply_delta(target, make_delta(target, base))) == canonical_json(base)
