"""The questions to a model, the answers that are kept, and the requests that run at the same time."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from llm_stub import Reply, never
from thinking_model import data_of, text_of
from tot_asked import PATHS, PROBLEM, ROOT, evaluate, generate, mended, thinking, with_fields
from tot_driver import answer_to, judged_by, wanted

from deedbook.consumers.sdk.llm.model import prompt_digest
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.thinkers import ModelAnswer

if TYPE_CHECKING:
    from llm_stub import Received

SCORE = {"score": 8, "confidence": 0.9}


class Memory:
    """An agent's memory of the answers to one request."""

    def __init__(self) -> None:
        self.kept: dict[str, ModelAnswer] = {}

    def recall(self, prompt_sha256: str) -> ModelAnswer | None:
        return self.kept.get(prompt_sha256)

    def record(self, prompt_sha256: str, model: str, answered: ModelAnswer) -> None:
        assert (prompt_sha256 in self.kept, model) == (False, "stub-model")
        self.kept[prompt_sha256] = answered

    def may_ask_again(self) -> bool:
        return True


def test_fields_of_the_protocol_are_asked_for_and_kept() -> None:
    def detailed(received: Received, number: int, answer: Any) -> Any:
        extra = {
            "metadata": {"cost": number},
            "dimension_scores": {"correctness": "9/10", "progress": 7},
        }
        return with_fields(answer, temp_id=f"t{number % 2}", **extra)

    with thinking(detailed, parallel_max=1) as (model, thinker):
        candidates = generate(thinker).candidates
        scores = evaluate(thinker).evaluations
    assert [one.temp_id for one in candidates] == ["t1", "t0", "cand_3"]
    assert [one.metadata for one in candidates] == [{"cost": 1}, {"cost": 2}, {"cost": 3}]
    assert all(one.dimension_scores == {"correctness": 9, "progress": 7} for one in scores)
    asked = [text_of(received) for received in model.received]
    assert all(name in asked[0] for name in ("temp_id", "metadata"))
    assert all(name in asked[-1] for name in ("dimension_scores", '"correctness"', '"progress"', '"feasibility"'))


def test_question_says_how_deep_it_is_and_which_step_is_the_last() -> None:
    with thinking() as (model, thinker):
        generate(thinker, k=1, depth_max=2)
        generate(thinker, k=1, depth_max=1)
    early, late = (text_of(received) for received in model.received)
    assert "It is step 1 of at most 2. Answer" in early
    assert "step 1 of at most 1. It is the last one" in late


def test_each_question_holds_what_its_answer_is_held_against() -> None:
    context = kinds.ThoughtContext(PROBLEM, 1, 4, "it is open", ["under 5 h"], "move", ["pack it up"])
    about = {"problem": PROBLEM, "goal": "it is open", "constraints": ["under 5 h"]}
    with thinking() as (model, thinker):
        thinker.generate(ROOT, wanted(ROOT, "sequential_proposal", 2, context))
        thinker.evaluate(PATHS, judged_by(PATHS, "comparative_voting", ["fitness"], context))
        thinker.synthesize(kinds.SynthesizePayload(PROBLEM, "planning", list(PATHS[0]), "it is open", ["under 5 h"]))
    proposed, compared, concluded = map(data_of, model.received)
    assert all(about.items() <= data.items() for data in (proposed, compared, concluded))
    assert (proposed["intermediate_steps"], proposed["a_step_is"]) == (["pack it up"], "move")
    assert '"fitness": 0 to 10' in text_of(model.received[1])


def test_question_says_the_language_of_its_answer() -> None:
    with thinking() as (model, thinker):
        thinker.language = "zh"
        thinker.decompose(PROBLEM, "planning")
        thinker.language = "en"
        thinker.decompose(PROBLEM, "planning")
    first, second = (text_of(received) for received in model.received)
    assert ("Chinese" in first, "Chinese" in second) == (True, False)


def test_samples_differ_in_temperature_seed_and_number() -> None:
    with thinking() as (model, thinker):
        generate(thinker)
        generate(thinker, strategy="sequential_proposal")
    *samples, proposal = model.received
    assert sorted(one.body["seed"] for one in samples) == [1, 2, 3]
    assert {one.body["temperature"] for one in samples} == {0.8}
    assert len({text_of(one) for one in samples}) == 3
    assert (proposal.body["temperature"], "seed" in proposal.body) == (0, False)


@pytest.mark.parametrize(
    ("settings", "temperature", "seed"),
    [
        ({"family": "openai"}, None, None),
        ({"family": "anthropic"}, None, None),
        ({"temperature": "none"}, None, 1),
        ({"temperature": 1.2, "seed": False}, 1.2, None),
        ({"family": "openai", "temperature": 0, "seed": True}, 0.8, 1),
        ({"fields": {"seed": 7, "temperature": 0.3}}, 0.3, 7),
    ],
)
def test_sample_is_asked_as_its_family_takes_it(settings: dict[str, Any], temperature: Any, seed: Any) -> None:
    with thinking(**settings) as (model, thinker):
        generate(thinker, k=1)
    [sent] = model.received
    assert (sent.body.get("temperature"), sent.body.get("seed")) == (temperature, seed)


def test_equal_samples_are_one_thought() -> None:
    with thinking(lambda r, n, a: {"candidates": [{"content": "red"}]}) as (_, thinker):
        assert [one.content for one in generate(thinker).candidates] == ["red"]


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [({"text": "x" * 40_000}, "more than 32768 bytes"), (json.loads('{"a":' * 20 + "1" + "}" * 20), "nested deeper")],
    ids=["large", "deep"],
)
def test_metadata_that_no_event_holds_is_a_fault(metadata: dict[str, Any], fault: str) -> None:
    with thinking(lambda r, n, a: mended(r, with_fields(a, metadata=metadata), a)) as (model, thinker):
        assert len(generate(thinker, k=1).candidates) == 1
    assert fault in data_of(model.received[1], "fault")


def test_secret_in_an_answer_is_repeated_to_nobody() -> None:
    key = f"AKIA{'Q7Z4' * 4}"
    with thinking(lambda r, n, a: f"My key is {key}") as (model, thinker):
        failure = thinker.decompose(PROBLEM, "planning")
    assert isinstance(failure, kinds.Failure)
    assert key not in failure.message
    assert not any(key in text_of(received) for received in model.received)


# Good answers are kept, and requested once


def test_bad_judge_spoils_no_other() -> None:
    def bad(received: Received, number: int, answer: Any) -> Any:
        return "No." if data_of(received)["steps"] == ["way b"] else answer

    with thinking(bad) as (model, thinker):
        scores = evaluate(thinker)
    assert [one.node_id for one in scores.evaluations] == ["a", "c"]
    assert len(model.received) == 2 + 3


def test_bad_sample_spoils_no_other() -> None:
    with thinking(lambda r, n, a: "No." if "propose only number 2" in text_of(r) else a) as (_, thinker):
        assert [one.content for one in generate(thinker).candidates] == ["step 1, way 1", "step 1, way 3"]


def test_votes_that_came_are_kept_and_strangers_passed_over() -> None:
    some = {"evaluations": [SCORE | {"node_id": id_} for id_ in ("c", "z", "a", "c")]}
    with thinking(lambda r, n, a: some) as (model, thinker):
        votes = evaluate(thinker, "comparative_voting")
    assert [one.node_id for one in votes.evaluations] == ["a", "c"]
    assert len(model.received) == 1


def test_what_was_answered_is_never_asked_again() -> None:
    memory, away = Memory(), threading.Event()

    def failing(received: Received, number: int, answer: Any) -> Any:
        if away.is_set():
            return answer
        return Reply(503) if data_of(received)["steps"] == ["way c"] else mended(received, "No.", answer)

    with thinking(failing) as (model, thinker):
        assert evaluate(thinker.at_work(recorder=memory)).code == "LLM_UNAVAILABLE"
        first, kept = len(model.received), dict(memory.kept)
        away.set()
        again = thinker.at_work(recorder=memory)
        assert len(evaluate(again).evaluations) == 3
    # Two of three questions got a bad answer and then a good one; only the third is asked again.
    assert (first, len(kept), len(model.received)) == (5, 4, 6)
    assert {prompt_digest(messages_of(one)) for one in model.received} == set(memory.kept)
    # The cost of a remembered answer belongs to its first request, and the recorder names that request.
    assert again.usage.requests == 5


def messages_of(received: Received) -> Any:
    return cast("Any", received.body["messages"])


def test_recorded_answer_is_cut_to_what_is_used() -> None:
    memory = Memory()
    with thinking(lambda r, n, a: a | {"candidates": a["candidates"] * 10_000}) as (_, thinker):
        generate(thinker.at_work(recorder=memory), k=1)
    [answered] = memory.kept.values()
    assert [one["content"] for one in answered.answer["candidates"]] == ["step 1, way 1"]


# At the same time


def test_independent_questions_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(6)

    def wait(received: Received, number: int, answer: Any) -> Any:
        together.wait(60)
        return answer

    with thinking(wait) as (model, thinker):
        assert len(generate(thinker, k=6).candidates) == 6
        together.reset()
        model.behaviour = lambda r, n, a: a
        assert len(evaluate(thinker).evaluations) == 3


def test_no_more_are_under_way_than_the_settings_allow() -> None:
    pairs = threading.Barrier(2)

    def wait(received: Received, number: int, answer: Any) -> Any:
        pairs.wait(60)
        return answer

    with thinking(wait, parallel_max=2) as (model, thinker):
        workers = [threading.Thread(target=generate, args=(thinker.at_work(), 4)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert (len(model.received), model.most_under_way) == (8, 2)


def test_call_ends_at_the_deadline_and_blames_no_endpoint() -> None:
    with thinking(lambda r, n, a: never()) as (model, thinker):
        late = thinker.at_work(deadline="2000-01-01T00:00:00Z")
        failure = generate(late)
        assert (failure.code, len(model.received)) == ("SEARCH_EXHAUSTED", 0)
        model.behaviour = lambda r, n, a: a
        assert isinstance(late.synthesize(answer_to(PATHS[0], PROBLEM)), kinds.Solution)


def test_what_came_before_the_deadline_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = threading.Event()
    monkeypatch.setattr("deedbook.consumers.thoughts.thinkers.llm.time.time", lambda: 2e9 if passed.is_set() else 0.0)

    def late(received: Received, number: int, answer: Any) -> Any:
        if data_of(received)["steps"] != ["way c"]:
            return answer
        passed.set()
        return Reply(503)

    with thinking(late, parallel_max=1) as (_, thinker):
        scores = evaluate(thinker.at_work(deadline="2000-01-01T00:00:00Z"))
    assert [one.node_id for one in scores.evaluations] == ["a", "b"]


def test_model_that_says_nothing_of_its_check_was_checked_by_nobody() -> None:
    with thinking(lambda r, n, a: {k: v for k, v in a.items() if k != "verification"}) as (_, thinker):
        solution = thinker.synthesize(answer_to(PATHS[0], PROBLEM))
    assert isinstance(solution, kinds.Solution)
    assert solution.verification == kinds.Verification(is_valid=False, by="nobody")


def test_model_is_nobody_else_in_the_verification() -> None:
    with thinking(lambda r, n, a: a | {"verification": {"is_valid": True, "by": "program"}}) as (_, thinker):
        solution = thinker.synthesize(answer_to(PATHS[0], PROBLEM))
    assert isinstance(solution, kinds.Solution)
    assert solution.verification == kinds.Verification(is_valid=True, by="model")
