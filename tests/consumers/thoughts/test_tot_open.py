"""Searches that prove nothing, that wait for an endpoint, or whose answers come in any order."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from test_tot_search import Costly, actions_of, admit
from tot_driver import TASK_ID, Solved, Spoken, prefixes, solve

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions, criteria_of, search_config
from deedbook.consumers.thoughts.transition import tree_digest
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.limits import data_size_max_bytes

BUSY = kinds.Failure(code="LLM_UNAVAILABLE", message="429", recoverable=True, retry_after_s=7)
UNREADABLE = kinds.Failure(code="GENERATION_FAILED", message="prose", recoverable=True)


class Modest(Costly):
    """Writes drafts that no program can check; ``scores`` are the scores of each level, 7 by default."""

    def __init__(self, scores: dict[int, list[float]] | None = None) -> None:
        super().__init__()
        self.scores = scores or {}

    def decompose(self, problem, task_type):
        return kinds.Decomposition(thought_granularity="part", intermediate_steps=["one"], depth_estimate=2)

    def generate(self, path, asked):
        texts = [f"{path[-1].content[-8:]} {len(path)}.{number}" for number in range(asked.num_candidates)]
        return kinds.GeneratedPayload(
            candidates=[kinds.Candidate(temp_id=f"c{at}", content=text) for at, text in enumerate(texts)]
        )

    def evaluate(self, paths, asked):
        scores = [*self.scores.get(len(paths[0]) - 1, ()), *([7.0] * len(paths))]
        judged = [
            kinds.NodeEvaluation(node_id=path[-1].id, score=score, confidence=0.5)
            for path, score in zip(paths, scores, strict=False)
        ]
        return kinds.ResultsPayload(evaluations=judged)

    def synthesize(self, asked):
        said = kinds.Verification(is_valid=True, by="model")
        trace = [node.content for node in asked.best_path]
        return kinds.Solution(answer=trace[-1], reasoning_trace=trace, confidence=0.9, verification=said)


def write(
    thinker: Any = None, task_type: str = "architecture_design", *, order: int = 0, entries: Any = (), **asked: Any
) -> Solved:
    """Return the search of the protocol's own example: BFS, 2 deep, 4 branches, threshold 6.5."""
    overrides = Overrides(**({"depth": 2, "branching": 4, "threshold": 6.5} | asked))
    config = search_config(task_type, None, overrides)
    problem = "微信小程序应该制作几个 Skills"
    found = solve(problem, config, thinker or Modest(), task_type=task_type, order=order, entries=entries)
    admit(found)
    return found


@pytest.mark.parametrize("task_type", ["architecture_design", "creative_writing", "planning", "debugging"])
def test_best_path_at_the_depth_limit_is_synthesized_and_said_to_be_checked_by_nobody(task_type: str) -> None:
    found = write(Modest({2: [6.5, 9.0]}), task_type)
    (ended,) = (mark for mark in actions_of(found, kinds.TotNodesMarked) if mark.status == "terminal")
    assert "depth limit of 2" in ended.reason
    best = found.entries[-1].data.payload.best_path
    assert [(node.depth, node.status) for node in best] == [(0, "expanded"), (1, "expanded"), (2, "terminal")]
    assert best[-1].evaluation.score == 9.0
    assert (found.solution.verification.by, found.solution.verification.is_valid) == ("nobody", False)
    assert found.failure is None


def test_model_that_claims_a_solution_is_taken_at_its_word() -> None:
    class Claiming(Modest):
        def is_solution(self, path):
            return len(path) == 2

    said = write(Claiming()).solution.verification
    assert (said.by, said.is_valid) == ("model", True)


def test_claim_that_is_judged_below_the_threshold_ends_no_search() -> None:
    class Hasty(Modest):
        def is_solution(self, path):
            return path[-1].id == "node_1_2"

    found = write(Hasty({1: [8.0, 6.0, 8.0, 8.0]}))
    assert [node.depth for node in found.entries[-1].data.payload.best_path] == [0, 1, 2]
    assert len(write(Hasty({1: [8.0, 6.5, 8.0, 8.0]})).entries[-1].data.payload.best_path) == 2


def test_type_of_a_task_says_by_what_its_thoughts_are_judged() -> None:
    asked = {
        type_: actions_of(write(task_type=type_), kinds.EvaluateThoughts)[0].payload.evaluation_criteria
        for type_ in ("planning", "creative_writing")
    }
    assert asked["planning"] == ["correctness", "progress", "feasibility"]
    assert asked["creative_writing"] == ["relevance", "coherence", "originality"]


def test_path_above_a_last_level_that_was_all_pruned_is_the_best_that_is_left() -> None:
    found = write(Modest({1: [7.0, 8.0], 2: [1.0] * 16}))
    best = found.entries[-1].data.payload.best_path
    assert [(node.depth, node.evaluation and node.evaluation.score) for node in best] == [(0, None), (1, 8.0)]


def test_best_that_was_proposed_is_synthesized_where_the_budget_ends_before_anybody_judged_it() -> None:
    config = search_config("architecture_design", None, Overrides(branching=4, calls_max=2, generation="sequential"))
    found = solve("what to build", config, Modest(), usage=kinds.Usage(requests=1))
    admit(found)
    assert actions_of(found, kinds.EvaluateThoughts) == []
    best = found.entries[-1].data.payload.best_path
    assert (best[-1].id, found.solution.answer, found.solution.verification.by) == (
        "node_1_1",
        best[-1].content,
        "nobody",
    )


def test_search_of_which_nothing_is_left_names_the_best_path_that_it_had() -> None:
    found = write(Modest({1: [3.0] * 4}))
    assert (found.failure.code, found.solution) == ("SEARCH_EXHAUSTED", None)
    threshold = found.state.config.pruning_threshold
    assert found.failure.message.endswith(f"; the best score, 3, is below the threshold {threshold:g}")

    class Proving(Modest):
        checks = True

    exhausted = write(Proving({1: [7.0, 8.0, 1.0, 1.0]}))
    assert exhausted.failure.code == "SEARCH_EXHAUSTED"
    assert exhausted.failure.message.endswith("; the best path is root → node_1_2 (score 8)")


class Mute(Modest):
    """Writes no answer; ``failure`` says how it fails."""

    def __init__(self, failure: kinds.Failure) -> None:
        super().__init__()
        self.failure = failure

    def synthesize(self, asked):
        return self.failure


SPOILED = kinds.Failure(code="LLM_INVALID", message="it was cut off", recoverable=True)


def going_on(found: Solved, **fields: Any) -> list[Spoken]:
    """Return the entries of a paused search, and its resumption."""
    resumed = kinds.TotResumed(sender="orchestrator", task_id=TASK_ID, thinker="nobody", **fields)
    return [*found.entries, Spoken(f"e{len(found.entries) + 1}", KIND_OF[kinds.TotResumed], resumed, [])]


def test_answer_that_cannot_be_used_pauses_the_search_and_is_all_that_is_asked_again() -> None:
    paused = write(Mute(SPOILED))
    assert (paused.state.paused is not None, paused.failure) == (True, SPOILED)
    found = write(Modest(), entries=going_on(paused))
    assert found.solution is not None
    later = [entry.kind for entry in found.entries[len(paused.entries) + 1 :]]
    assert later == ["tot.synthesize_solution", "tot.final_solution", "tot.nodes_marked", "tot.search_complete"]


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_best_path_itself_is_the_answer_when_the_user_takes_it(strategy: str) -> None:
    paused = write(Mute(SPOILED), strategy=strategy)
    found = write(Mute(SPOILED), entries=going_on(paused, best_path=True), strategy=strategy)
    steps = [node.content for node in found.entries[-1].data.payload.best_path[1:]]
    assert found.solution.answer == "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    assert found.solution.reasoning_trace == steps
    assert (found.solution.verification.by, found.solution.verification.is_valid) == ("nobody", False)
    assert "the best path itself" in found.solution.verification.validation_errors[0]
    assert (found.failure, found.solution.confidence) == (None, 0.5)


def test_best_path_of_a_search_that_was_paused_in_its_middle_is_its_best_thought() -> None:
    class Failing(Modest):
        def generate(self, path, asked):
            return SPOILED if len(path) == 2 else super().generate(path, asked)

    paused = write(Failing({1: [7.0, 9.0]}))
    assert paused.state.paused is not None
    found = write(Failing(), entries=going_on(paused, best_path=True))
    assert [node.evaluation and node.evaluation.score for node in found.entries[-1].data.payload.best_path] == [
        None,
        9.0,
    ]
    assert found.solution.answer == found.entries[-1].data.payload.best_path[-1].content


def test_best_path_is_the_answer_where_the_thinker_can_write_none() -> None:
    found = write(Mute(kinds.Failure(code="INVALID_FORMAT", message="no words", recoverable=False)))
    assert (found.failure, found.solution.verification.by) == (None, "nobody")


def test_nodes_that_the_answer_did_not_need_are_not_taken_and_the_rejected_are_pruned() -> None:
    found = write(Modest({1: [9.0, 8.0, 7.0, 1.0]}), strategy="DFS")
    nodes = found.entries[-1].data.payload.tree.nodes.values()
    first = {node.evaluation.score: node.status for node in nodes if node.depth == 1}
    assert first == {9.0: "expanded", 8.0: "not_taken", 7.0: "not_taken", 1.0: "pruned"}


def test_criteria_of_ones_own_replace_those_of_the_type() -> None:
    options = TaskOptions("planning", criteria=("cost", "time to repair")).to_strings()
    assert criteria_of("planning", options) == ["cost", "time to repair"]
    for wrong in (("cost", "cost"), ('a"b',), ("",), ("x" * 61,), tuple("abcdefghi")):
        with pytest.raises(Refused, match="different criteria"):
            TaskOptions(criteria=wrong).to_strings()


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_finished_search_leaves_no_node_pending_and_is_as_deep_as_its_deepest(strategy: str) -> None:
    payload = write(strategy=strategy, depth=3).entries[-1].data.payload
    assert "pending" not in {node.status for node in payload.tree.nodes.values()}
    assert payload.tree.search_state.current_depth == payload.stats.max_depth_reached == 3
    assert payload.tree.search_state.frontier == []


def test_request_says_how_deep_its_thoughts_are_and_how_deep_they_may_be() -> None:
    contexts = [asked.payload.context for asked in actions_of(write(), kinds.GenerateThoughts)]
    assert [(context.current_depth, context.max_depth) for context in contexts] == [(1, 2)] + [(2, 2)] * 4


@pytest.mark.parametrize("evaluation", ["scoring", "voting"])
def test_level_is_asked_whole_and_the_tree_does_not_depend_on_who_answers_first(evaluation: str) -> None:
    first, last = (write(order=order, evaluation=evaluation) for order in (0, -1))
    waiting = most = 0
    for entry in last.entries:
        waiting += isinstance(entry.data, kinds.GenerateThoughts) - isinstance(entry.data, kinds.GeneratedThoughts)
        most = max(most, waiting)
    assert most == 4
    assert [entry.kind for entry in first.entries] == [entry.kind for entry in last.entries]
    assert first.entries[-1].data.payload.tree == last.entries[-1].data.payload.tree


class Failing(Modest):
    """Fails now and then: because its endpoint is busy, or with a malformed answer and half an evaluation."""

    def __init__(self, seed: int, *failures: kinds.Failure) -> None:
        super().__init__()
        self.random, self.failures = random.Random(seed), failures

    def generate(self, path, asked):
        return self.random.choice([super().generate(path, asked), *self.failures])

    def evaluate(self, paths, asked):
        judged = super().evaluate(paths, asked)
        if BUSY in self.failures:
            return self.random.choice([judged, BUSY])
        return msgspec.structs.replace(judged, evaluations=judged.evaluations[: self.random.randint(1, len(paths))])


def resumed(thinker: Any, **asked: Any) -> Solved:
    """Return a search that is resumed after every pause."""
    found = write(thinker, **asked)
    for _ in range(200):
        if found.state.complete:
            return found
        assert found.state.paused
        going = kinds.TotResumed(sender="orchestrator", task_id=TASK_ID, thinker="llm")
        entry = Spoken(f"e{len(found.entries) + 1}", KIND_OF[kinds.TotResumed], going, [])
        found = write(thinker, entries=[*found.entries, entry], **asked)
    raise AssertionError("it is paused again and again")


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
@pytest.mark.parametrize("seed", range(6))
def test_endpoint_that_comes_and_goes_pauses_a_search_that_comes_to_the_same_tree(strategy: str, seed: int) -> None:
    calm = write(strategy=strategy)
    found = resumed(Failing(seed, BUSY), strategy=strategy, order=-(seed % 2))
    pauses = [entry for entry in found.entries if isinstance(entry.data, kinds.TotPaused)]
    failed = {entry.id for entry in found.entries if getattr(entry.data, "error", None) == BUSY} - {
        entry.id for entry in pauses
    }
    assert pauses
    assert all(entry.causes[0] in failed and entry.data.error.retry_after_s == 7 for entry in pauses)
    digests = {tree_digest(admit(one).nodes) for one in (calm, found)} if strategy == "BFS" else {""}
    assert len(digests) == 1
    assert found.solution is not None


@pytest.mark.parametrize("seed", range(6))
def test_bad_forms_count_against_their_own_node_only(seed: int) -> None:
    found = write(Failing(seed, UNREADABLE, UNREADABLE))
    asked = actions_of(found, kinds.EvaluateThoughts)
    answers = actions_of(found, kinds.EvaluationResults)
    judged = [one.node_id for answer in answers for one in answer.payload.evaluations]
    assert len(judged) == len(set(judged))  # no judged candidate is judged again
    assert sum(len(one.payload.candidates) for one in asked) >= len(judged)
    assert (found.solution is not None) != (found.failure is not None)


def test_partial_answer_with_an_error_keeps_what_was_got() -> None:
    whole = write()
    at = next(place for place, one in enumerate(whole.entries) if isinstance(one.data, kinds.EvaluationResults))
    entry = whole.entries[at]
    payload = msgspec.structs.replace(entry.data.payload, evaluations=entry.data.payload.evaluations[:1])
    partial = entry._replace(data=msgspec.structs.replace(entry.data, payload=payload, error=BUSY))
    paused = write(entries=[*whole.entries[:at], partial])
    assert (paused.state.paused is not None, paused.failure) == (True, BUSY)
    assert [node.evaluation is None for node in paused.state.nodes.values() if node.depth] == [False, True, True, True]


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_open_search_restarted_after_any_entry_says_the_same(strategy: str) -> None:
    whole = write(strategy=strategy, task_type="planning")
    begun = (whole.state.asked.problem, whole.state.config, Modest())
    for beginning in prefixes(whole.entries):
        said = solve(*begun, task_type="planning", entries=beginning, steps=1).entries
        assert said == whole.entries[: len(beginning) + 1]


@pytest.mark.parametrize("asked", [{"strategy": "DFS", "depth": 20, "branching": 2}, {"branching": 20}])
def test_long_thoughts_end_their_path_before_no_event_would_hold_it(asked: dict[str, Any]) -> None:
    class Verbose(Modest):
        def generate(self, path, asked):
            short = super().generate(path, asked).candidates
            long = [msgspec.structs.replace(one, content="长" * 990 + one.content[-9:]) for one in short]
            return kinds.GeneratedPayload(candidates=long)

    found = write(Verbose(), **asked)
    assert found.solution is not None
    said = [entry.data for entry in found.entries]
    said[-1] = msgspec.structs.replace(said[-1], payload=msgspec.structs.replace(said[-1].payload, tree=None))
    assert max(len(msgspec.json.encode(data)) for data in said) < data_size_max_bytes
    assert len(said) < 100
