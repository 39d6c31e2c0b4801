"""Events between the messages of a search: paid answers, pauses, and the user's end of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story as story
from given import fold, refusal
from tot_story import N11, N12, TASK, spoken

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts import transition as tot
from deedbook.consumers.thoughts.transition import TotState, transition
from deedbook.ledger.format.codec import decode_packed, encode_packed

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData

EVENTS = story.events()
BUSY = kinds.Failure(code="LLM_UNAVAILABLE", message="429", recoverable=True, retry_after_s=60)
# Positions in the story: request and answer of the generator, request and answer of the evaluator, then a pruned node.
GENERATE, GENERATED, EVALUATE, RESULTS, PRUNED = 6, 7, 9, 10, 11


def after(count: int, *then: tuple[str, EventData, tuple[int, ...]]) -> TotState:
    """Return the state after the first ``count`` events of the story, then the events ``then`` from index 900 on."""
    events = [spoken(role, data, index=900 + at, causes=causes) for at, (role, data, causes) in enumerate(then)]
    return fold(transition, *EVENTS[:count], *events)


def code_of(state: TotState, role: str, data: EventData, *causes: int) -> str:
    return refusal(transition, state, spoken(role, data, index=990, causes=causes)).code


def paid(digit: str = "a", sender: kinds.Role = "generator", **fields: Any) -> kinds.TotModelAnswered:
    made: dict[str, Any] = {"answer": {"candidates": []}, "usage": story.USAGE} | fields
    return kinds.TotModelAnswered(sender=sender, task_id=TASK, prompt_sha256=digit * 64, model="m", **made)


def paused(sender: kinds.Role = "explorer") -> kinds.TotPaused:
    return kinds.TotPaused(sender=sender, task_id=TASK, error=BUSY)


def resumed(sender: kinds.Role = "orchestrator") -> kinds.TotResumed:
    return kinds.TotResumed(sender=sender, task_id=TASK, thinker="llm:other")


def stopped() -> kinds.TotError:
    failure = kinds.Failure(code="SEARCH_STOPPED", message="enough", recoverable=False)
    return kinds.TotError(sender="orchestrator", task_id=TASK, error=failure)


ASKED = after(GENERATE + 1)
PAUSED = after(GENERATED + 1, ("explorer", paused(), (GENERATED,)))


def test_paid_answer_belongs_to_a_request_that_waits_for_its_role() -> None:
    assert len(transition(ASKED, spoken("generator", paid(), index=7, causes=(GENERATE,))).prompts["generator"]) == 1
    for causes in ((), (0,), (3,), (5,)):  # no cause, the start, the explorer's own request, a line for people
        assert code_of(ASKED, "generator", paid(), *causes) == "TRANSITION_NOT_ALLOWED"
    assert code_of(after(GENERATED + 1), "generator", paid(), GENERATE) == "TRANSITION_NOT_ALLOWED"
    assert code_of(ASKED, "explorer", paid(sender="explorer"), 3) == "TRANSITION_NOT_ALLOWED"
    assert code_of(ASKED, "evaluator", paid(sender="evaluator"), GENERATE) == "TRANSITION_NOT_ALLOWED"
    assert code_of(ASKED, "evaluator", paid(), GENERATE) == "NOT_AUTHORIZED"
    other = msgspec.structs.replace(paid(), task_id="tot-20260212-100000-zzzzzz")
    assert code_of(ASKED, "generator", other, GENERATE) == "INVALID_FIELD"


def test_question_is_paid_once_by_each_role_and_no_role_answers_or_uses_up_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = after(GENERATE + 1, ("generator", paid(), (GENERATE,)))
    assert code_of(once, "generator", paid(fault="no JSON", answer=None), GENERATE) == "TRANSITION_NOT_ALLOWED"
    assert (
        len(transition(once, spoken("generator", paid("b"), index=990, causes=(GENERATE,))).prompts["generator"]) == 2
    )
    later = fold(
        transition,
        *EVENTS[: GENERATE + 1],
        spoken("generator", paid(), index=900, causes=(GENERATE,)),
        *EVENTS[GENERATED : EVALUATE + 1],
    )
    monkeypatch.setattr(tot, "prompts_max", 1)
    assert transition(later, spoken("evaluator", paid(sender="evaluator"), index=990, causes=(EVALUATE,)))


def test_question_with_an_unusable_answer_is_paid_again_once_the_search_is_resumed() -> None:
    faulty, asked = paid(answer=None, fault="it is prose"), ("generator", paid("b"), (GENERATE,))
    state = after(GENERATE + 1, ("generator", faulty, (GENERATE,)), asked)
    assert code_of(state, "generator", paid(), GENERATE) == "TRANSITION_NOT_ALLOWED"
    state = transition(state, spoken("explorer", paused(), index=991, causes=(GENERATE,)))
    state = transition(state, spoken("orchestrator", resumed(), index=992))
    again = transition(state, spoken("generator", paid(), index=993, causes=(GENERATE,)))
    assert (len(again.prompts["generator"]), again.faulty) == (2, {})
    assert code_of(state, "generator", paid("b"), GENERATE) == "TRANSITION_NOT_ALLOWED"


def test_node_that_is_not_taken_gets_no_children() -> None:
    marked = kinds.TotNodesMarked(node_ids=[N11.id], status="not_taken", reason="answered")
    state = transition(after(9), spoken("explorer", marked, index=990, causes=(3,)))
    assert state.nodes[N11.id].status == "not_taken"
    asked = next(event for event in EVENTS[9:] if event.kind == "tot.generate_thoughts")
    assert code_of(state, "explorer", asked.data, 3) == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("fields", [{"answer": None}, {"fault": "it is prose"}])
def test_paid_answer_was_read_or_has_a_fault(fields: dict[str, Any]) -> None:
    assert code_of(ASKED, "generator", paid(**fields), GENERATE) == "INVALID_FIELD"


def test_answers_of_a_model_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tot, "prompts_max", 1)
    once = after(GENERATE + 1, ("generator", paid(), (GENERATE,)))
    assert code_of(once, "generator", paid("b"), GENERATE) == "TOO_LARGE"


def test_paused_search_asks_and_grows_nothing() -> None:
    for position in (8, 9, 11, len(EVENTS) - 1):
        one = story.STORY[position]
        assert code_of(PAUSED, one.role, one.data, *one.causes) == "TRANSITION_NOT_ALLOWED"
    assert code_of(PAUSED, "explorer", paused(), GENERATED) == "TRANSITION_NOT_ALLOWED"
    lines = spoken("explorer", story.STORY[5].data, index=990)
    assert transition(PAUSED, lines) == PAUSED


def test_what_was_asked_before_a_pause_is_paid_and_answered_in_it() -> None:
    state = after(GENERATE + 1, ("explorer", paused(), (GENERATE,)), ("generator", paid(), (GENERATE,)))
    state = transition(state, EVENTS[GENERATED])
    assert (state.is_paused, len(state.drawn), len(state.prompts)) == (True, 1, 1)


def test_resumed_search_goes_on_where_it_was() -> None:
    state = transition(PAUSED, spoken("orchestrator", resumed(), index=990))
    assert state == msgspec.structs.replace(PAUSED, is_paused=False)
    assert transition(state, EVENTS[8]).nodes.keys() == {"root", N11.id, N12.id}
    assert transition(state, spoken("explorer", paused(), index=991, causes=(GENERATED,))).is_paused


def test_only_a_paused_task_is_resumed_and_only_once_by_its_orchestrator() -> None:
    assert code_of(ASKED, "orchestrator", resumed()) == "TRANSITION_NOT_ALLOWED"
    again = transition(PAUSED, spoken("orchestrator", resumed(), index=990))
    assert code_of(again, "orchestrator", resumed()) == "TRANSITION_NOT_ALLOWED"
    assert code_of(PAUSED, "explorer", resumed("explorer")) == "TRANSITION_NOT_ALLOWED"
    assert code_of(PAUSED, "explorer", resumed()) == "NOT_AUTHORIZED"


def test_pause_names_what_it_waits_for_and_is_said_by_who_asks() -> None:
    for causes in ((), (0,), (5,), (8,)):
        assert code_of(after(GENERATED + 1), "explorer", paused(), *causes) == "INVALID_FIELD"
    assert code_of(ASKED, "generator", paused("generator"), GENERATE) == "TRANSITION_NOT_ALLOWED"
    assert after(2, ("orchestrator", paused("orchestrator"), (1,))).is_paused  # before the search begins


@pytest.mark.parametrize("state", [ASKED, PAUSED])
def test_error_of_the_orchestrator_ends_a_task_for_good(state: TotState) -> None:
    ended = transition(state, spoken("orchestrator", stopped(), index=990))
    assert ended.is_ended
    for role, data, cause in (
        ("orchestrator", resumed(), 0),
        ("orchestrator", stopped(), 0),
        ("explorer", paused(), GENERATE),
        ("generator", paid("c"), GENERATE),
        ("generator", EVENTS[GENERATED].data, GENERATE),
    ):
        assert code_of(ended, role, data, cause) == "TRANSITION_NOT_ALLOWED"
    assert code_of(after(len(EVENTS)), "orchestrator", stopped()) == "TRANSITION_NOT_ALLOWED"


def test_pauses_and_prompts_survive_the_packed_form() -> None:
    state = after(GENERATE + 1, ("generator", paid(), (GENERATE,)), ("explorer", paused(), (GENERATE,)))
    assert decode_packed(encode_packed(state), msgspec.msgpack.Decoder(TotState)) == state
