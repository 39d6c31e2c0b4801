"""A whole graph as events: the same ref when folded, each within an entry, and admitted by a real ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from graphs import CHINESE, audit_graph, chain, graph, odd_graphs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deedbook.consumers.importers.reasoning import data_size_max_bytes, extensions_of, submissions_of
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import batch_events_max, batch_size_max_bytes
from deedbook.projections.reasoning.graph import GraphState, apply_event, memory_of, ref_of
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.events.fields import EventData


def folded(events: list[EventData]) -> GraphState:
    state = GraphState()
    for event in events:
        state = apply_event(state, event, "")
    return state


def with_steps(*contents: str, **changes: Any) -> ReasoningMemory:
    steps = [{"step": n, "type": "inference", "content": text} for n, text in enumerate(contents, start=1)]
    return graph({"task": "t", "conclusion": "c", "steps": steps} | changes)


def admit(ledger: Ledger, name: str, events: list[EventData]) -> None:
    """Submit a graph's events to a real ledger, group by group."""
    for group in submissions_of(events):
        drafts = [Draft(stream=f"reasoning/{name}", data=event) for event in group]
        assert len(ledger.submit(ledger.sign("alice", *drafts))) == len(group)


def refusal_of(memory: ReasoningMemory) -> Refused:
    with pytest.raises(Refused) as refused:
        extensions_of(memory)
    return refused.value


# The same graph


@pytest.mark.parametrize("memory", [audit_graph(), graph(CHINESE), chain(1), chain(40)])
def test_folded_events_have_the_graphs_ref(memory: ReasoningMemory) -> None:
    events = extensions_of(memory, domain="security", session="s-1")
    assert [type(event) for event in events] == [ReasoningStarted, ReasoningExtended, ReasoningConcluded]
    assert ref_of(folded(events)) == compute_reasoning_ref(memory)
    assert memory_of(folded(events), memory.reasoning_id) == memory
    assert isinstance(events[0], ReasoningStarted)
    assert (events[0].domain, events[0].session) == ("security", "s-1")


@given(odd_graphs(), st.data())
def test_any_graph_is_recorded_as_itself_or_refused_by_name(memory: ReasoningMemory, data: st.DataObject) -> None:
    # Texts that an event cannot hold are replaced, so that most graphs can be recorded.
    steps = [
        replace(
            step, content=step.content or "x", **{name: [text or "x" for text in getattr(step, name)] for name in LISTS}
        )
        for step in memory.steps
    ]
    limitations = [text or "x" for text in memory.known_limitations] if memory.conclusion else []
    order = data.draw(st.permutations(steps))
    memory = replace(memory, task=memory.task or "x", steps=order, known_limitations=limitations)
    if not order:
        assert refusal_of(memory).details["field"] == "steps"
        return
    assert ref_of(folded(extensions_of(memory))) == compute_reasoning_ref(memory)


LISTS = ("evidence", "assumptions", "alternatives_considered")


def test_graph_without_conclusion_is_left_open() -> None:
    memory = with_steps("a", conclusion="")
    assert [type(event) for event in extensions_of(memory)] == [ReasoningStarted, ReasoningExtended]


# Sizes


def test_two_thousand_steps_become_events_that_each_fit_an_entry(ledger: Ledger) -> None:
    memory = chain(2_000)
    events = extensions_of(memory)
    assert 3 < len(events) < batch_events_max
    assert all(len(encode_canonical(event)) <= data_size_max_bytes for event in events)
    assert ref_of(folded(events)) == compute_reasoning_ref(memory)
    admit(ledger, "密" * 130, events)  # as long as the name of a stream can be


def test_large_steps_are_recorded_one_an_event_in_several_submissions(ledger: Ledger) -> None:
    memory = with_steps(*(f"{number} " + "密" * 13_000 for number in range(40)))
    events = extensions_of(memory)
    groups = submissions_of(events)
    assert (len(events), len(groups)) == (42, 2)
    assert [event for group in groups for event in group] == events
    admit(ledger, "large", events)


def test_submissions_hold_no_more_events_than_one_may() -> None:
    events: list[EventData] = [ReasoningExtended()] * 600
    groups = submissions_of(events)
    assert max(map(len, groups)) <= batch_events_max
    assert sum(map(len, groups)) == 600
    assert all(sum(len(encode_canonical(event)) for event in group) < batch_size_max_bytes for group in groups)
    assert submissions_of([]) == []


@pytest.mark.parametrize("content", ["x" * 50 * 1024, "密" * 17_000, "x" * 40_001, '"' * 25_000])
def test_step_that_fits_no_event_is_refused_by_its_number(content: str) -> None:
    refusal = refusal_of(with_steps("a", "b", content))
    assert (refusal.code, refusal.details["step"]) == ("TOO_LARGE", 3)
    assert "step 3 has" in refusal.message


def test_step_that_just_fits_is_recorded(ledger: Ledger) -> None:
    memory = with_steps("a", "x" * 40_000, "b")
    events = extensions_of(memory)
    assert len(events) == 3  # the small steps fit into one event
    admit(ledger, "edge", events)


@pytest.mark.parametrize("field", ["task", "conclusion"])
def test_text_of_the_graph_that_fits_no_event_is_refused_by_name(field: str) -> None:
    refusal = refusal_of(with_steps("a", **{field: "x" * 50_000}))
    assert (refusal.code, refusal.details["field"]) == ("TOO_LARGE", field)


# Order


def test_step_that_rests_on_a_later_one_shares_its_event(ledger: Ledger) -> None:
    text = "x" * 9_000
    memory = with_steps(*[text] * 8, dependencies={"2": [4], "6": [7], "8": [1]})
    events = extensions_of(memory)
    for event in events:
        assert isinstance(event, ReasoningStarted | ReasoningExtended | ReasoningConcluded)
    extended = [event for event in events if isinstance(event, ReasoningExtended)]
    assert [[step.step_number for step in event.steps] for event in extended] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    admit(ledger, "order", events)


def test_steps_bound_together_beyond_an_event_are_refused() -> None:
    refusal = refusal_of(with_steps(*["x" * 9_000] * 8, dependencies={"1": [8]}))
    assert (refusal.code, refusal.details["step"]) == ("TOO_LARGE", 1)
    assert "steps 1 to 8 rest on later ones" in refusal.message


def test_circle_is_refused_before_anything_is_made() -> None:
    memory = replace(with_steps("a", "b"), dependencies={1: [2], 2: [1]})
    assert refusal_of(memory).code == "STEP_CONFLICT"


# Content that events cannot hold


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"content": ""}, "INVALID_FIELD"),
        ({"evidence": [""]}, "INVALID_FIELD"),
        ({"evidence": ["x" * 2_001]}, "INVALID_FIELD"),
        ({"validation_method": ""}, "INVALID_FIELD"),
        ({"content": "half \ud800"}, "INVALID_FIELD"),
        ({"type": "guess"}, "INVALID_FIELD"),
        ({"confidence": float("nan")}, "INVALID_FIELD"),
        ({"confidence": -0.0}, "INVALID_FIELD"),
    ],
)
def test_step_that_an_event_cannot_hold_is_refused(step: dict[str, Any], code: str) -> None:
    memory = with_steps("a", "b")
    steps = [memory.steps[0], replace(memory.steps[1], **step)]
    assert refusal_of(replace(memory, steps=steps)).code == code


def test_refusal_of_a_step_names_the_field() -> None:
    memory = with_steps("a", "b")
    refusal = refusal_of(replace(memory, steps=[memory.steps[0], replace(memory.steps[1], evidence=["", "x"])]))
    assert (refusal.details["step"], refusal.details["path"]) == (2, "step 2.evidence[0]")


def test_confidence_and_limitations_without_a_conclusion_are_refused() -> None:
    refusal = refusal_of(with_steps("a", conclusion="", known_limitations=["nobody looked"]))
    assert (refusal.code, refusal.details["field"]) == ("INVALID_FIELD", "conclusion")


def test_graph_without_steps_or_task_is_refused() -> None:
    assert refusal_of(with_steps()).details["field"] == "steps"
    assert refusal_of(with_steps("a", task="")).code == "INVALID_FIELD"
