"""Warnings about new steps that name no premise, and the premises that a warning suggests."""

from __future__ import annotations

import math
from typing import Any

import pytest

from deedbook.consumers.reasoning.links import check_drafts, link_warnings, links_shown_max
from deedbook.consumers.reasoning.operations import NewConclusion, NewStep
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.events.reasoning import ReasoningStarted
from deedbook.projections.reasoning.graph import GraphState, apply_event, memory_of

LOGS = NewStep(type="observation", content="The logs have the secret")
START = ReasoningStarted(task="t")


def warned(*events: EventData, recorded: tuple[EventData, ...] = ()) -> list[str]:
    """Return the warnings about events that follow the ``recorded`` ones."""

    def view(query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert (query, arguments) == ("reasoning.show", {"id": "jwt"})
        if not recorded:
            raise Refused("NOT_FOUND", "no reasoning")
        state = GraphState()
        for data in recorded:
            state = apply_event(state, data, "")
        memory = memory_of(state, "jwt")
        return {
            "memory": {
                "task": memory.task,
                "conclusion": memory.conclusion,
                "steps": [step.to_dict() for step in memory.steps],
                "dependencies": {str(number): rests_on for number, rests_on in memory.dependencies.items()},
            }
        }

    return link_warnings([("reasoning/jwt", data) for data in events], view)


def inferred(number: int, *rests_on: int, content: str = "It leaks", **fields: Any) -> EventData:
    return NewStep(content=content, rests_on=list(rests_on), **fields).extension(number)


def concluded(*rests_on: int, text: str = "Rotate it") -> list[EventData]:
    return NewConclusion(conclusion=text, rests_on=list(rests_on)).events(9)


def test_linked_reasoning_is_not_warned_about() -> None:
    assert warned(START, LOGS.extension(1), inferred(2, 1), *concluded(2)) == []
    # The conclusion needs no link from a later step.
    assert warned(START, LOGS.extension(1), inferred(2, 1), *concluded()) == []


def test_number_that_json_does_not_have_is_refused() -> None:
    draft = ("reasoning/jwt", NewStep(content="It leaks", confidence=math.nan).extension(1))
    with pytest.raises(Refused, match="write a finite one"):
        check_drafts([draft], lambda query, arguments: {})


def test_unlinked_step_is_named_with_what_its_words_suggest() -> None:
    (warning,) = warned(START, LOGS.extension(1), inferred(2, content="So it leaks"))
    assert warning.startswith(
        "step 2 of jwt is unlinked (its words suggest 1): record it again with the steps that it rests on"
    )


def test_step_is_judged_with_the_steps_that_are_recorded() -> None:
    recorded = (START, NewStep(type="observation", content="Perhaps", confidence=0.4).extension(1))
    (warning,) = warned(inferred(2, 1, confidence=0.9), recorded=recorded)
    assert warning == "step 2 of jwt: Its confidence is 0.9, that of its premise 1 0.4"
    assert warned(inferred(2, 1), recorded=recorded) == []  # a default confidence does not count as a statement
    assert warned(NewStep(type="assumption", content="It holds").extension(2), recorded=recorded) == []


def test_conclusion_without_steps_is_offered_the_steps_it_may_rest_on() -> None:
    recorded = (START, LOGS.extension(1), NewStep(type="observation", content="They are kept").extension(2))
    (warning,) = warned(*concluded(), recorded=recorded)
    assert warning == (
        "the conclusion of jwt is unlinked (its words suggest 2): `deed reasoning conclude jwt TEXT --rests-on STEP`"
        " names the steps that it rests on"
    )
    assert warned(*concluded(1, 2), recorded=recorded) == []


def test_many_warnings_are_counted() -> None:
    many = [inferred(number) for number in range(1, 12)]
    warnings = warned(START, *many)
    assert len(warnings) == links_shown_max + 1
    assert warnings[-1] == f"jwt: and {11 - links_shown_max} more warnings about links"


def test_reasoning_that_is_not_there_is_refused_as_by_the_query() -> None:
    with pytest.raises(Refused, match="NOT_FOUND"):
        warned(inferred(2, 1))


@pytest.mark.parametrize(
    ("rests_on", "kinds"), [((), ["ReasoningConcluded"]), ((1, 2), ["ReasoningExtended", "ReasoningConcluded"])]
)
def test_conclusion_that_rests_on_steps_is_a_step(rests_on: tuple[int, ...], kinds: list[str]) -> None:
    events = concluded(*rests_on)
    assert [type(data).__name__ for data in events] == kinds
