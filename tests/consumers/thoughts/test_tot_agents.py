"""Six agents solve a task together: each with its own key, whatever its thinker does, even if two play each role."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from building import Ledger
from thinking_model import ThinkingModel, text_of
from tot_playing import ANSWER, PROBLEM, check, events, play, read, resume, solve

from deedbook.consumers.sdk.llm.model import LlmClient, read_endpoint
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.processes import author_of
from deedbook.consumers.thoughts.run import prepare
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions, read_overrides
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.consumers.thoughts.thinkers.llm import LlmThinker
from deedbook.consumers.thoughts.transition import node_states, tree_digest
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.projections.answers.reader import Reader

LATE = kinds.Failure(code="GENERATION_FAILED", message="Not this time.", recoverable=True)
NOT = kinds.Failure(code="GENERATION_FAILED", message="I cannot.", recoverable=False)


class Sick(Game24):
    """A double of a thinker that fails as the test asks, then thinks."""

    def __init__(self, **failures: list[kinds.Failure]) -> None:
        super().__init__()
        self.failures = failures

    def _or(self, method: str, *arguments: Any) -> Any:
        left = self.failures.get(method, [])
        return left.pop(0) if left else getattr(Game24, method)(self, *arguments)

    def decompose(self, *arguments: Any) -> Any:
        return self._or("decompose", *arguments)

    def generate(self, *arguments: Any) -> Any:
        return self._or("generate", *arguments)

    def evaluate(self, *arguments: Any) -> Any:
        return self._or("evaluate", *arguments)


class Wordy(Game24):
    """A double of a thinker whose evaluations exceed the limit of a tree or an event."""

    def __init__(self, reasoning_chars: int) -> None:
        super().__init__()
        self.chars = reasoning_chars

    def evaluate(self, *arguments: Any) -> Any:
        said = super().evaluate(*arguments)
        longer = [msgspec.structs.replace(one, reasoning="x" * self.chars) for one in said.evaluations]
        return msgspec.structs.replace(said, evaluations=longer)


@pytest.mark.usefixtures("started_children")
def test_six_processes_solve_a_game_and_the_ledger_proves_that_they_did(ledger: Ledger) -> None:
    seen: list[str] = []
    found = solve(ledger, PROBLEM, progress=lambda event: seen.append(event.id))
    assert (found["answer"], found["verification"]) == (
        ANSWER,
        {"is_valid": True, "by": "program", "validation_errors": []},
    )
    assert found["error"] is None
    assert found["stats"]["total_nodes"] == 51
    assert len(set(found["pids"].values())) == len(set(found["keys"].values())) == 6
    assert list(found["pids"]) == list(found["keys"]) == list(AGENTS)
    assert seen == [event.id for event in events(ledger, f"tot/{found['task_id']}")]
    proof = check(ledger, found["task_id"])
    assert {answer["key"] for answer in proof["answers"]} < set(found["keys"].values())
    size = ledger.head()[0]
    assert resume(ledger, found["task_id"]) == found | {"pids": {}}
    assert ledger.head()[0] == size


def test_best_path_becomes_a_reasoning_that_follows_from_the_search(ledger: Ledger) -> None:
    found = play(ledger, Game24())
    said = events(ledger, found["reasoning"])
    assert [event.kind for event in said] == ["reasoning.started", *["reasoning.extended"] * 5, "reasoning.concluded"]
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        shown = reader.answer("reasoning.show", {"id": found["task_id"]})
    ids = {event.id for event in events(ledger, f"tot/{found['task_id']}")}
    assert all(event.causes and set(event.causes) <= ids for event in said)
    assert said[-1].data.conclusion == found["answer"]
    assert found["answer"] in str(shown)


def test_two_agents_of_each_role_say_what_one_would_have_said(ledger: Ledger) -> None:
    found = play(ledger, Game24(), copies=2)
    assert found["answer"] == ANSWER
    check(ledger, found["task_id"])


def test_unsolvable_game_ends_exhausted_with_its_stats(ledger: Ledger) -> None:
    found = play(ledger, Game24(), "1 1 1 1")
    check(ledger, found["task_id"], agents=5)
    assert (found["error"]["code"], found["error"]["recoverable"]) == ("SEARCH_EXHAUSTED", False)
    assert found["stats"]["total_nodes"] > 1
    assert (found["answer"], found["reasoning"]) == (None, None)


def test_failures_that_pass_are_asked_again(ledger: Ledger) -> None:
    sick = Sick(decompose=[LATE, LATE], generate=[LATE], evaluate=[LATE, LATE])
    found = play(ledger, sick)
    assert found["answer"] == ANSWER
    check(ledger, found["task_id"])
    errors = [event.data.error for event in events(ledger, f"tot/{found['task_id']}") if _has_error(event.data)]
    assert errors == [LATE] * 5


def test_decomposition_that_fails_three_times_ends_the_task(ledger: Ledger) -> None:
    found = play(ledger, Sick(decompose=[LATE] * 3))
    assert (found["error"]["code"], found["stats"], found["answer"]) == ("GENERATION_FAILED", None, None)
    assert read(ledger, found["task_id"]).failure == msgspec.structs.replace(LATE, recoverable=False)
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        shown = reader.answer("tot.show", {"id": found["task_id"]})
    assert (shown["status"], shown["failure"]["code"]) == ("failed", "GENERATION_FAILED")


def test_generation_that_cannot_be_ends_the_search(ledger: Ledger) -> None:
    found = play(ledger, Sick(generate=[NOT]))
    assert (found["error"]["code"], found["stats"]["total_nodes"]) == ("GENERATION_FAILED", 1)
    check(ledger, found["task_id"], agents=4)


def test_large_tree_is_a_blob_that_stands_for_the_tree_that_was_searched(ledger: Ledger) -> None:
    found = play(ledger, Wordy(1_500))
    complete = read(ledger, found["task_id"]).complete
    assert complete is not None
    payload = complete.data.payload
    assert payload.tree is None
    tree = msgspec.json.decode(ledger.log.blobs.get(payload.tree_ref), type=kinds.ThoughtTree)
    assert tree_digest(node_states(tree.nodes.values())) == payload.tree_digest
    assert found["answer"] == ANSWER


def test_thought_that_no_event_holds_is_answered_with_an_error(ledger: Ledger) -> None:
    found = play(ledger, Wordy(30_000))
    said = [event.data for event in events(ledger, f"tot/{found['task_id']}")]
    assert {data.error.code for data in said if _has_error(data)} >= {"INVALID_FORMAT"}
    assert found["error"] is not None


def test_reason_that_is_longer_than_the_protocol_takes_is_no_evaluation(ledger: Ledger) -> None:
    found = play(ledger, Wordy(20_000), options=TaskOptions(overrides=Overrides(branching=1)))
    assert (found["error"]["code"], found["answer"], found["stats"]["total_nodes"]) == ("INVALID_FORMAT", None, 2)


def test_options_survive_the_opening_of_a_task(ledger: Ledger) -> None:
    asked = Overrides(strategy="depth first", depth=3, threshold=2.5, branching=4, evaluation="voting")
    assert read_overrides(TaskOptions("math", asked).to_strings()) == asked
    found = play(ledger, Game24(), options=TaskOptions("math", asked))
    tree = read(ledger, found["task_id"])
    assert tree is not None
    assert (tree.config.strategy, tree.config.branching_factor, tree.config.pruning_threshold) == ("DFS", 4, 2.5)
    assert tree.config.evaluation_strategy == "comparative_voting"
    assert found["verification"]["is_valid"]


def test_what_cannot_be_searched_is_refused_before_anybody_starts(ledger: Ledger) -> None:
    size = ledger.head()[0]
    for arguments, options, code in (
        ((" ",), {}, "INVALID_FIELD"),
        ((PROBLEM, TaskOptions("poetry")), {}, "INVALID_FIELD"),
        ((PROBLEM, TaskOptions(overrides=Overrides(depth=0))), {}, "INVALID_FIELD"),
    ):
        with pytest.raises(Refused) as refusal:
            solve(ledger, *arguments, **options)
        assert refusal.value.code == code
    assert ledger.head()[0] == size
    with pytest.raises(Refused, match="no thinker"):
        solve(ledger, PROBLEM, TaskOptions(thinker="oracle"))
    with pytest.raises(Refused, match="no task"):
        resume(ledger, "tot-20260101-000000-aaaaaa")


def test_task_id_is_used_once(ledger: Ledger) -> None:
    with ledger.client() as client:
        part = prepare(ledger.settings(), client, PROBLEM, TaskOptions(thinker="game24"))
        task_id = part.opening.task_id
        author_of("orchestrator", ledger.settings(), client).emit(Draft(stream=f"tot/{task_id}", data=part.opening))
    with pytest.raises(Refused, match="already exists"):
        solve(ledger, PROBLEM, task_id=task_id)


def test_task_of_other_keys_is_not_resumed(ledger: Ledger) -> None:
    with ledger.client() as client:
        part = prepare(ledger.settings(), client, PROBLEM, TaskOptions(thinker="game24"))
    assert part.opening is not None
    roles = [*part.opening.roles[:-1], msgspec.structs.replace(part.opening.roles[-1], key="0" * 64)]
    with ledger.client() as client:
        opening = msgspec.structs.replace(part.opening, roles=roles)
        author_of("orchestrator", ledger.settings(), client).emit(
            Draft(stream=f"tot/{part.opening.task_id}", data=opening)
        )
    with pytest.raises(Refused) as refusal:
        resume(ledger, part.opening.task_id)
    assert refusal.value.code == "NOT_AUTHORIZED"


def _has_error(data: Any) -> bool:
    return isinstance(data, kinds.Answer) and data.error is not None


@pytest.mark.parametrize("calls_max", [1, 5, 8])
def test_model_that_judges_badly_is_asked_again_only_within_the_calls_that_are_left(
    ledger: Ledger, calls_max: int
) -> None:
    def bad(received: Any, number: int, answer: Any) -> Any:
        return f"No {number}." if "Judge" in text_of(received) else answer

    model = ThinkingModel(bad)
    settings = LlmSettings(base_url=model.url, model="stub", attempts_max=1)
    options = TaskOptions(overrides=Overrides(depth=2, branching=3, calls_max=calls_max, evaluation="scoring"))
    found = play(ledger, LlmThinker(LlmClient(read_endpoint(settings, {}.get))), options=options)
    model.close()
    assert len(model.received) == read(ledger, found["task_id"]).costs.total.requests
    assert len(model.received) <= calls_max + (found["answer"] is not None)
