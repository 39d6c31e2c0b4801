"""A whole search with a model: in one process and in six, with faults in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from llm_stub import Reply
from thinking_model import ThinkingModel, data_of
from tot_driver import solve
from tot_playing import check, events

from deedbook.consumers.sdk.llm.model import LlmClient, read_endpoint
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.consumers.thoughts.events import Decomposition
from deedbook.consumers.thoughts.run import run_task
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions, search_config
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker
from deedbook.ledger.home.config import Actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

PROBLEM = "Name a </thoughts> colour"
SHAPE = Decomposition(thought_granularity="word", intermediate_steps=["one"], depth_estimate=2)


@pytest.fixture
def model() -> Iterator[ThinkingModel]:
    made = ThinkingModel(depth=2)
    yield made
    made.close()


def settings_of(model: ThinkingModel) -> LlmSettings:
    return LlmSettings(base_url=model.url, model="stub-model", timeout_s=20.0, attempts_max=1)


def searched(model: ThinkingModel, **asked: Any) -> Any:
    """Return the search of one process, with two thoughts for each node."""
    config = search_config("planning", SHAPE, Overrides(strategy="BFS", branching=2, **asked))
    return solve(
        PROBLEM, config, LlmThinker(LlmClient(read_endpoint(settings_of(model), {}.get))), task_type="planning"
    )


@pytest.mark.parametrize("evaluation", ["scoring", "voting"])
@pytest.mark.parametrize("generation", ["sampling", "proposal"])
def test_whole_search_is_thought_by_a_model(model: ThinkingModel, generation: str, evaluation: str) -> None:
    solved = searched(model, generation=generation, evaluation=evaluation)
    assert solved.solution is not None
    assert solved.solution.answer == "step 1, way 1 → step 2, way 1"
    assert solved.solution.verification.by == "model"


def test_what_others_wrote_cannot_end_its_block(model: ThinkingModel) -> None:
    searched(model)
    assert all(sent.body["messages"][1]["content"].count("</thoughts>") == 1 for sent in model.received)


def test_judge_whose_answers_cannot_be_read_pauses_the_search_and_no_other_score_is_lost(model: ThinkingModel) -> None:
    def bad(received: Any, number: int, answer: Any) -> Any:
        return "I cannot help with that." if data_of(received).get("steps") == ["step 1, way 1"] else answer

    model.behaviour = bad
    solved = searched(model, evaluation="scoring")
    assert (solved.failure.code, solved.failure.recoverable) == ("LLM_INVALID", True)
    assert solved.state.paused is not None
    scores = {node.content: node.evaluation and node.evaluation.score for node in solved.state.nodes.values()}
    assert scores == {PROBLEM: None, "step 1, way 1": None, "step 1, way 2": 8}


def task(ledger: Ledger, model: ThinkingModel) -> dict[str, Any]:
    """Return the final task of six processes."""
    settings = msgspec.structs.replace(ledger.settings(), actions=Actions(llm=msgspec.to_builtins(settings_of(model))))
    options = TaskOptions("creative_writing", Overrides(evaluation="score", generation="propose", branching=2))
    with ledger.client() as client:
        return run_task(settings, PROBLEM, options._replace(thinker="llm"), client=client)


def test_six_processes_ask_a_model_and_the_ledger_proves_it(ledger: Ledger, model: ThinkingModel) -> None:
    model.behaviour = lambda r, n, a: "I cannot help with that." if n == 1 else a
    found = task(ledger, model)
    assert found["answer"] == "step 1, way 1 → step 2, way 1"
    check(ledger, found["task_id"])
    assert events(ledger, f"tot/{found['task_id']}")[0].data.thinker == "llm:stub-model"
    assert events(ledger, found["reasoning"])[-1].data.known_limitations == ["only the model's own claim"]


def test_model_that_refuses_its_key_leaves_a_task_that_can_be_resumed(ledger: Ledger, model: ThinkingModel) -> None:
    model.behaviour = lambda r, n, a: Reply(401)
    found = task(ledger, model)
    assert (found["answer"], found["error"]["code"]) == (None, "LLM_UNAVAILABLE")
    assert found["error"]["recoverable"]
