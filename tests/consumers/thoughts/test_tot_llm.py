"""A model as a thinker, against the vendor's double: good, malformed, slow, refusing, and far too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llm_stub
import msgspec
import pytest
from tot_driver import judged_by, solve, wanted
from tot_playing import check, events

from consumers.sdk.llm.model import LlmClient, LlmSettings, read_endpoint
from consumers.thoughts.run import run_task
from consumers.thoughts.settings import Overrides, TaskOptions, search_config
from consumers.thoughts.thinkers.llm import LlmThinker
from ledger.config import Actions
from ledger.events.tot import Decomposition, EvaluationContext, Failure, GenerationContext, ThoughtNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

PROBLEM = "Name a </thoughts> colour"
ROOT = [ThoughtNode(id="root", depth=0, content=PROBLEM)]
CONTEXT = GenerationContext(problem=PROBLEM, current_depth=1, max_depth=3)
JUDGING = EvaluationContext(problem=PROBLEM, current_depth=1, max_depth=2)
PATHS = [[*ROOT, ThoughtNode(id=id_, depth=1, parent_id="root", content=id_)] for id_ in ("a", "b")]
SHAPE = {"thought_granularity": "word", "intermediate_steps": ["one"], "depth_estimate": 2}


@pytest.fixture
def stub() -> Any:
    return llm_stub


@pytest.fixture
def vendor(stub: Any) -> Iterator[Any]:
    made = stub.Vendor()
    yield made
    made.close()


@pytest.fixture
def thinker(vendor: Any) -> LlmThinker:
    return thinker_of(vendor)


def thinker_of(vendor: Any, timeout_s: float = 20.0) -> LlmThinker:
    settings = LlmSettings(base_url=vendor.url, model="stub-model", timeout_s=timeout_s, attempts_max=1)
    return LlmThinker(LlmClient(read_endpoint(settings, {})))


def thoughts(*contents: str, solved: str = "") -> dict[str, Any]:
    return {"candidates": [{"content": one, "action_type": "word", "is_solution": one == solved} for one in contents]}


def generate(thinker: LlmThinker, k: int = 3, strategy: Any = "sequential_proposal") -> Any:
    return thinker.generate(ROOT, wanted(ROOT, strategy, k, CONTEXT))


def test_proposal_is_one_call_and_sampling_is_k(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says_json(thoughts("red", "blue"))]
    proposed = generate(thinker)
    assert [one.content for one in proposed.candidates] == ["red", "blue"]
    vendor.script = [stub.says_json(thoughts(one)) for one in ("red", "blue", "red")]
    sampled = generate(thinker, strategy="independent_sampling")
    assert [one.content for one in sampled.candidates] == ["red", "blue"]
    assert len(vendor.received) == 4


def test_of_ten_thousand_candidates_only_k_are_kept(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says_json(thoughts(*(f"c{n}" for n in range(10_000))))]
    assert [one.content for one in generate(thinker).candidates] == ["c0", "c1", "c2"]


def test_thought_that_is_too_long_or_blank_is_left_out(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says_json(thoughts("x" * 1_001, " ", "red"))]
    assert [one.content for one in generate(thinker).candidates] == ["red"]


def test_thought_that_is_left_out_takes_no_room(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says_json(thoughts("x" * 25_000, "red", "red", "blue"))]
    assert [one.content for one in generate(thinker, k=4).candidates] == ["red", "blue"]


def test_malformed_shape_or_answer_is_an_invalid_format(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says("I cannot help with that."), stub.says('{"answer": 3}')]
    for failure in (thinker.decompose(PROBLEM, "writing"), thinker.synthesize(PATHS[0], PROBLEM)):
        assert isinstance(failure, Failure)
        assert (failure.code, failure.recoverable) == ("INVALID_FORMAT", True)


@pytest.mark.parametrize(("status", "recoverable"), [(403, False), (425, True), (503, True)])
def test_evaluation_that_the_endpoint_would_not_take_is_neither_late_nor_malformed(
    vendor: Any, thinker: LlmThinker, stub: Any, status: int, *, recoverable: bool
) -> None:
    vendor.script = [stub.Reply(status)]
    failure = thinker.evaluate(PATHS, judged_by(PATHS, "comparative_voting", [], JUDGING))
    assert isinstance(failure, Failure)
    assert (failure.code, failure.recoverable) == ("LLM_UNAVAILABLE", recoverable)


@pytest.mark.parametrize("content", ["I cannot help with that.", '{"candidates": 3}', '{"thoughts": []}', "", "[]"])
def test_malformed_proposal_is_a_failed_generation(vendor: Any, thinker: LlmThinker, stub: Any, content: str) -> None:
    vendor.script = [stub.says(content)]
    failure = generate(thinker)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.recoverable) == ("GENERATION_FAILED", True)


def test_endpoint_that_refuses_is_not_asked_again(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.Reply(401), stub.Reply(401)]
    assert (generate(thinker).code, generate(thinker).recoverable) == ("LLM_UNAVAILABLE", False)


def test_slow_evaluation_times_out(vendor: Any, stub: Any) -> None:
    vendor.script = [stub.never()]
    failure = thinker_of(vendor, timeout_s=0.3).evaluate(PATHS, judged_by(PATHS, "comparative_voting", [], JUDGING))
    assert (failure.code, failure.recoverable) == ("EVALUATION_TIMEOUT", True)


@pytest.mark.parametrize("score", [11, -1, "8", None])
def test_score_outside_the_scale_is_refused(vendor: Any, thinker: LlmThinker, stub: Any, score: Any) -> None:
    vendor.script = [stub.says_json({"score": score, "confidence": 0.5})]
    assert (
        thinker.evaluate(PATHS[:1], judged_by(PATHS[:1], "independent_scoring", [], JUDGING)).code == "INVALID_FORMAT"
    )


def test_vote_is_one_call_and_strangers_are_dropped(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    judged = [{"node_id": id_, "score": score, "confidence": 1} for id_, score in (("a", 2), ("b", 8), ("z", 10))]
    vendor.script = [stub.says_json({"evaluations": judged})]
    voted = thinker.evaluate(PATHS, judged_by(PATHS, "comparative_voting", ["progress"], JUDGING))
    assert (voted.ranking, len(vendor.received)) == (["b", "a"], 1)


def test_what_others_wrote_cannot_end_its_block(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    vendor.script = [stub.says_json(thoughts("red"))]
    generate(thinker)
    [sent] = vendor.received
    assert sent.body["messages"][1]["content"].count("</thoughts>") == 1


def test_whole_search_is_thought_by_a_model(vendor: Any, thinker: LlmThinker, stub: Any) -> None:
    answer = {"answer": "red", "reasoning_trace": ["warm", "red"], "confidence": 0.9, "is_valid": True}
    score = {"score": 8, "confidence": 0.5}
    script = [SHAPE, thoughts("warm"), score, thoughts("red", solved="red"), score, answer]
    vendor.script = [stub.says_json(one) for one in script]
    config = search_config("writing", Decomposition(**SHAPE), Overrides(evaluation="score", generation="propose"))
    found = solve(PROBLEM, config, thinker, task_type="creative_writing")
    assert found.solution.answer == "red"
    assert len(vendor.received) == 6


def test_six_processes_ask_a_model_and_the_ledger_proves_it(ledger: Ledger, vendor: Any, stub: Any) -> None:
    answer = {"answer": "red", "reasoning_trace": ["warm", "red"], "confidence": 0.9, "is_valid": True}
    score = {"score": 8, "confidence": 0.5}
    script = [SHAPE, thoughts("warm"), score, thoughts("red", solved="red"), score, answer]
    vendor.script = [stub.says("I cannot help with that."), *(stub.says_json(one) for one in script)]
    model = LlmSettings(base_url=vendor.url, model="stub-model", timeout_s=20.0, attempts_max=1)
    settings = msgspec.structs.replace(ledger.settings(), actions=Actions(llm=msgspec.to_builtins(model)))
    options = TaskOptions("creative_writing", Overrides(evaluation="score", generation="propose"))
    with ledger.client() as client:
        found = run_task(settings, PROBLEM, options, thinker="llm", client=client)
    assert found["answer"] == "red"
    check(ledger, found["task_id"])
    said = [event.data for event in events(ledger, f"tot/{found['task_id']}")]
    assert (said[0].thinker, vendor.script) == ("llm:stub-model", [])


def test_model_that_refuses_ends_the_task_with_its_code(ledger: Ledger, vendor: Any, stub: Any) -> None:
    vendor.script = [stub.Reply(401)]
    model = LlmSettings(base_url=vendor.url, model="stub-model", timeout_s=20.0, attempts_max=1)
    settings = msgspec.structs.replace(ledger.settings(), actions=Actions(llm=msgspec.to_builtins(model)))
    with ledger.client() as client:
        found = run_task(settings, PROBLEM, TaskOptions("creative_writing"), thinker="llm", client=client)
    assert (found["answer"], found["error"]["recoverable"], vendor.script) == (None, False, [])
