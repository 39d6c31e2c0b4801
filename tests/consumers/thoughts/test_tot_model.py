"""A thinking model in every mood of models and their servers: the task is solved, or fails and can be resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from llm_stub import API_KEY, USAGE, Reply, drip, flood, never, says, says_json
from thinking_model import data_of, text_of
from tot_asked import PATHS, PROBLEM, evaluate, generate, mended, thinking, with_fields
from tot_driver import answer_to

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_stub import Received
    from thinking_model import Behaviour


def think(thinker: LlmThinker) -> kinds.Failure | None:
    """Ask every question of a search; return the first failure."""
    steps: list[Callable[[], Any]] = [
        lambda: thinker.decompose(PROBLEM, "planning"),
        lambda: generate(thinker, strategy="sequential_proposal"),
        lambda: generate(thinker),
        lambda: evaluate(thinker),
        lambda: evaluate(thinker, "comparative_voting"),
        lambda: thinker.synthesize(answer_to(PATHS[0], PROBLEM)),
    ]
    for step in steps:
        if isinstance(answer := step(), kinds.Failure):
            return answer
        if isinstance(answer, kinds.GeneratedPayload):
            assert len(answer.candidates) == 3
        if isinstance(answer, kinds.ResultsPayload):
            assert {one.node_id for one in answer.evaluations} == {"a", "b", "c"}
    return None


def fenced(answer: dict[str, Any]) -> str:
    return f"```json\n{json.dumps(answer)}\n```"


def in_pieces(answer: dict[str, Any]) -> Reply:
    """Return the reply of a slow server that sends its answer in pieces."""
    body = says_json(answer).body
    return Reply(parts=lambda _: iter([body[:40], body[40:]]), headers={"content-length": str(len(body))})


def sometimes(number: int, bad: Any, answer: Any, every: int) -> Any:
    return answer if number % every == 0 else bad


SOLVED: dict[str, Behaviour] = {
    "good": lambda r, n, a: a,
    "a fence": lambda r, n, a: fenced(a),
    "thinking before": lambda r, n, a: f"<think>Perhaps {{}}?</think>{json.dumps(a)}",
    "a sentence before": lambda r, n, a: f"Sure! Here is the JSON: {json.dumps(a)}",
    "a sentence before a fence": lambda r, n, a: f"Sure! Here is the JSON:\n{fenced(a)}\nTell me more.",
    "another key": lambda r, n, a: with_fields(a, rationale="because"),
    "temporary ids and metadata": lambda r, n, a: with_fields(a, temp_id="cand_1", metadata={"cost": 2}),
    "dimensions": lambda r, n, a: with_fields(a, dimension_scores={"progress": 7, "tone": "9/10"}),
    "a dimension in words until told why": lambda r, n, a: mended(
        r, with_fields(a, dimension_scores={"tone": "good"}), a
    ),
    "numbers as text": lambda r, n, a: with_fields(a, score="8.5", confidence="80%", depth_estimate="4"),
    "out of ten": lambda r, n, a: with_fields(a, score="8/10", confidence="8/10"),
    "null for what may be missing": lambda r, n, a: with_fields(a, metadata=None, reasoning=None, temp_id=None),
    "only what must be there": lambda r, n, a: {k: v for k, v in a.items() if k not in ("confidence", "reasoning")},
    "bit by bit": lambda r, n, a: in_pieces(a),
    "two of three malformed": lambda r, n, a: sometimes(n, "I cannot help with that.", a, 3),
    "malformed until told why": lambda r, n, a: mended(r, "I cannot help with that.", a),
    "cut off until told why": lambda r, n, a: mended(r, says('{"scor', finish_reason="length"), a),
    "a megabyte until told why": lambda r, n, a: mended(r, flood(2), a),
    "score 11 until told why": lambda r, n, a: mended(
        r, with_fields(a, score=11, depth_estimate=0, candidates=3, answer=""), a
    ),
    "another task's nodes until told why": lambda r, n, a: (
        mended(r, with_fields(a, node_id="z"), a) if "evaluations" in a else a
    ),
    "ten thousand candidates": lambda r, n, a: (
        a | ({"candidates": a["candidates"] * (10_000 // len(a["candidates"]))} if "candidates" in a else {})
    ),
    "a megabyte of reasons": lambda r, n, a: with_fields(a, reasoning="x" * 250_000),
}
UNUSABLE: dict[str, Behaviour] = {
    "prose": lambda r, n, a: "I cannot help with that.",
    "an empty answer": lambda r, n, a: "",
    "a list": lambda r, n, a: "[]",
    "always cut off": lambda r, n, a: says('{"depth', finish_reason="length"),
    "refused by the model": lambda r, n, a: says("", finish_reason="content_filter"),
    "always a megabyte": lambda r, n, a: flood(2),
    "always score 11": lambda r, n, a: with_fields(a, score=11, depth_estimate=100),
    "a key that looks like a secret": lambda r, n, a: a | {"success_criteria": f"AKIA{'Q7Z4' * 4}"},
}
AWAY: dict[str, tuple[Behaviour, dict[str, Any]]] = {
    "429": (lambda r, n, a: Reply(429), {}),
    "429 for an hour": (lambda r, n, a: Reply(429, headers={"Retry-After": "3600"}), {"retry_after_s": 3_600}),
    "500": (lambda r, n, a: Reply(500), {}),
    "key refused": (lambda r, n, a: Reply(401, API_KEY.encode()), {}),
    "field refused": (lambda r, n, a: Reply(400, b'{"error": {"message": "no seed", "param": "seed"}}'), {}),
    "a page": (lambda r, n, a: Reply(200, b"<html>Sign in</html>"), {}),
    "a redirect": (lambda r, n, a: Reply(307, headers={"Location": "http://127.0.0.1:1/"}), {}),
    "an error as an answer": (lambda r, n, a: Reply(200, b'{"error": {"message": "no provider"}}'), {}),
}


@pytest.mark.parametrize("behaviour", SOLVED.values(), ids=SOLVED)
def test_answer_that_can_be_read_is_used(behaviour: Behaviour) -> None:
    with thinking(behaviour, parallel_max=1) as (model, thinker):
        assert think(thinker) is None
    assert thinker.usage.requests == len(model.received)


@pytest.mark.parametrize("behaviour", UNUSABLE.values(), ids=UNUSABLE)
def test_answer_that_cannot_be_read_is_asked_for_again_and_then_fails_alone(behaviour: Behaviour) -> None:
    with thinking(behaviour) as (model, thinker):
        failure = thinker.decompose(PROBLEM, "planning")
    assert isinstance(failure, kinds.Failure)
    assert (failure.code, failure.recoverable) == ("LLM_INVALID", True)
    assert (len(model.received), thinker.usage.requests) == (3, 3)
    assert len({text_of(received) for received in model.received}) == 3  # no question is paid for twice
    faults = [data_of(received, "fault") for received in model.received]
    assert faults[0] is None
    assert faults[1]
    assert faults[1] in failure.message


@pytest.mark.parametrize(("behaviour", "details"), AWAY.values(), ids=AWAY)
def test_endpoint_that_cannot_be_asked_is_a_failure_to_be_resumed(
    behaviour: Behaviour, details: dict[str, Any]
) -> None:
    with thinking(behaviour, api_key_variable="KEY") as (model, thinker):
        failures: list[Any] = [thinker.decompose(PROBLEM, "planning"), generate(thinker), evaluate(thinker)]
    for failure in failures:
        assert (failure.code, failure.recoverable) == ("LLM_UNAVAILABLE", True)
        assert failure.retry_after_s == details.get("retry_after_s")
        assert API_KEY not in failure.message
        assert not failure.message.startswith("LLM_")
    assert thinker.usage == kinds.Usage(requests=len(model.received))


@pytest.mark.parametrize("reply", [never(), drip()], ids=["silent", "byte by byte"])
def test_late_judge_is_an_evaluation_that_timed_out(reply: Reply) -> None:
    with thinking(lambda r, n, a: reply, timeout_s=0.3) as (_, thinker):
        assert (evaluate(thinker).code, generate(thinker).code) == ("EVALUATION_TIMEOUT", "LLM_UNAVAILABLE")


def test_endpoint_that_is_not_there_or_has_no_key_sends_nothing() -> None:
    with thinking(api_key_variable="OTHER") as (model, thinker):
        failure = thinker.decompose(PROBLEM, "planning")
        assert isinstance(failure, kinds.Failure)
        assert (failure.code, "OTHER" in failure.message) == ("LLM_UNAVAILABLE", True)
    with thinking() as (model, thinker):
        model.close()
        assert generate(thinker).code == "LLM_UNAVAILABLE"
    assert thinker.usage == kinds.Usage()


def test_every_other_request_refused_is_counted_and_solved() -> None:
    def busy(received: Received, number: int, answer: Any) -> Any:
        if received in seen:
            return answer
        seen.append(received)
        return Reply(429, headers={"Retry-After": "0"})

    seen: list[Received] = []
    with thinking(busy, attempts_max=2) as (model, thinker):
        assert think(thinker) is None
    asked = len(model.received) // 2
    tokens = kinds.Usage(
        requests=2 * asked, tokens_in=asked * USAGE["prompt_tokens"], tokens_out=asked * USAGE["completion_tokens"]
    )
    assert thinker.usage == tokens
