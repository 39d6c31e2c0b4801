"""A role that is bound to another's agent: none of our agents plays it, and its agent cannot block ours."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story as story
from building import ROOT, Ledger
from tot_playing import ANSWER, PROBLEM, check, events, play, play_part, read, resume, solve

from deedbook.consumers.thoughts import answers
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.agents import _Recorder
from deedbook.consumers.thoughts.run import prepare
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions
from deedbook.consumers.thoughts.task import Task
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRemoved, KeyRevoked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deedbook.ledger.events.body import Event

ALICE = {"evaluator": "alice"}
ASKED_LAST = next(said.data for said in story.STORY if isinstance(said.data, kinds.SynthesizeSolution))
FEW = TaskOptions(overrides=Overrides(depth=1, branching=2))


def judged(task: Any, event: Event) -> list[kinds.Message]:
    """Return the answer of an honest evaluator."""
    return [answers.respond(task.waiting[event.id].nodes, event.data, Game24())]


@contextmanager
def playing(ledger: Ledger, say: Callable[[Any, Event], list[kinds.Message]]) -> Iterator[list[str]]:
    """Let alice answer the requests to an evaluator, in a thread; yield the codes of her refusals."""
    stop, codes = threading.Event(), list[str]()

    def act() -> None:
        with ledger.client() as client:
            author = Author(client, "alice", lambda _: ledger.keys["alice"])
            for event in follow(client, 0, stop=stop, wait_s=0.1):
                if isinstance(event, int) or not isinstance(event.data, kinds.EvaluateThoughts):
                    continue
                for reply in say(read(ledger, event.name), event):
                    try:
                        author.emit(Draft(stream=event.stream, data=reply, causes=[event.id]))
                    except Refused as refusal:
                        codes.append(refusal.code)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join(60)


def test_bound_evaluator_answers_and_no_process_of_ours_plays_it(ledger: Ledger) -> None:
    ledger.write_keys()
    with playing(ledger, judged) as codes:
        found = solve(ledger, PROBLEM, TaskOptions(bound=ALICE))
    assert (found["answer"], codes) == (ANSWER, [])
    assert "evaluator" not in found["pids"]
    assert len(found["pids"]) == 5
    assert found["keys"]["evaluator"] == ledger.keys["alice"].public.hex()
    proof = check(ledger, found["task_id"])
    by_alice = [answer for answer in proof["answers"] if answer["role"] == "evaluator"]
    assert {(answer["signer"], answer["key"]) for answer in by_alice} == {("alice", found["keys"]["evaluator"])}


def test_answer_that_the_protocol_does_not_take_is_refused_and_one_without_scores_counts_against_the_nodes(
    ledger: Ledger,
) -> None:
    def strange(_: Any, event: Event) -> list[kinds.Message]:
        stranger = kinds.NodeEvaluation(node_id="stranger", score=9.0, confidence=1.0)
        results = (kinds.ResultsPayload(evaluations=[stranger]), kinds.ResultsPayload(evaluations=[]))
        return [answers.message(kinds.EvaluationResults, event.name, payload) for payload in results]

    with playing(ledger, strange) as codes:
        found = play(ledger, Game24(), options=FEW, bound=ALICE)
    assert (found["answer"], found["error"]["code"], codes) == (None, "SEARCH_EXHAUSTED", ["INVALID_FIELD"] * 3)
    asked = [
        event for event in events(ledger, f"tot/{found['task_id']}") if isinstance(event.data, kinds.EvaluateThoughts)
    ]
    assert len(asked) == 3


def test_bound_agent_that_does_not_answer_pauses_the_task_which_goes_on_once_it_does(ledger: Ledger) -> None:
    with ledger.client() as client:
        options = TaskOptions(overrides=Overrides(answer_wait_s=1), bound=ALICE)
        part = prepare(ledger.settings(), client, PROBLEM, options)
    paused = play_part(ledger, Game24(), part)
    request = list(read(ledger, part.opening.task_id).waiting.values())[-1]
    assert paused["paused"]["code"] == paused["error"]["code"] == "EVALUATION_TIMEOUT"
    assert "alice, the evaluator," in paused["error"]["message"]
    assert f"entry {request.event.index}" in paused["error"]["message"]
    assert paused["paused"]["resume"] == f"deed tot resume {part.opening.task_id}"
    with playing(ledger, judged):
        while (found := resume(ledger, part.opening.task_id))["paused"]:
            continue  # on a busy machine alice may miss the deadline again
    assert found["answer"] == ANSWER
    check(ledger, part.opening.task_id)


def test_what_a_bound_agent_says_that_it_paid_is_shown_and_ends_no_search(ledger: Ledger) -> None:
    def dear(task: Any, event: Event) -> list[kinds.Message]:
        return [msgspec.structs.replace(one, usage=kinds.Usage(requests=2**53 - 1)) for one in judged(task, event)]

    with playing(ledger, dear):
        found = play(ledger, Game24(), bound=ALICE)
    assert (found["answer"], found["stats"]["llm_calls"]) == (ANSWER, 2**53 - 1)


def test_what_a_bound_agent_says_that_a_model_answered_is_no_answer_to_us() -> None:
    task = Task(story.TASK)
    for role in ("evaluator", "synthesizer"):
        paid = kinds.TotModelAnswered(
            sender=role, task_id=story.TASK, prompt_sha256="a" * 64, model="m", answer={"answer": role}
        )
        task.apply(story.spoken(role, paid, index=7))
        asked = story.spoken("explorer", ASKED_LAST, index=9)
        recalled = _Recorder(None, task, asked, Overrides()).recall("a" * 64)  # type: ignore[arg-type]
        assert (recalled and recalled.answer) == ({"answer": role} if role == "synthesizer" else None)


@pytest.mark.parametrize(
    ("bound", "code"),
    [
        ({"evaluator": "nobody"}, "AGENT_UNKNOWN"),
        ({"evaluator": "bob"}, "AGENT_UNKNOWN"),
        ({"generator": "alice"}, "KEY_REVOKED"),
        ({"generator": "rita", "evaluator": "rita"}, "USAGE"),
        ({"evaluator": "tot-generator"}, "USAGE"),
        ({"explorer": "rita"}, "USAGE"),
    ],
)
def test_agent_that_cannot_be_bound_is_refused_before_anybody_starts(
    ledger: Ledger, bound: dict[str, str], code: str
) -> None:
    ledger.emit(ROOT, "agent/bob", AgentRemoved(agent="bob", reason="gone"))
    ledger.emit(ROOT, "agent/alice", KeyRevoked(key=ledger.keys["alice"].public.hex(), reason="lost"))
    with pytest.raises(Refused) as refusal:
        solve(ledger, PROBLEM, TaskOptions(bound=bound))
    assert refusal.value.code == code
