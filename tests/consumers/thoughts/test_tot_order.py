"""The order in which a search enters, prunes and leaves nodes, on a tree of fixed thoughts and scores."""

from __future__ import annotations

import msgspec
import pytest
from tot_driver import TASK_ID, Solved, Spoken, prefixes, solve

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.search import next_step
from deedbook.consumers.thoughts.settings import Overrides, search_config
from deedbook.consumers.thoughts.task import Task

# Thought → (thought, score) …; the solution is the one called "goal".
TREE = {
    "start": (("a", 4.0), ("b", 9.0), ("c", 6.0)),
    "b": (("b1", 5.0), ("b2", 7.0)),
    "b2": (("b21", 2.9),),
    "b1": (("b11", 3.0),),
    "c": (("c1", 8.0),),
    "c1": (("goal", 9.0),),
}


class Written:
    """A thinker that answers from ``TREE``, and suggests nothing."""

    name = "written"
    checks = True

    def decompose(self, problem, task_type):
        return kinds.Decomposition(thought_granularity="letter", intermediate_steps=[], depth_estimate=3)

    def generate(self, path, asked):
        told = [
            kinds.Candidate(temp_id=f"t_{content}", content=content) for content, _ in TREE.get(path[-1].content, ())
        ]
        return kinds.GeneratedPayload(candidates=told[: asked.num_candidates])

    def evaluate(self, paths, asked):
        scores = {content: score for children in TREE.values() for content, score in children}
        judged = [
            kinds.NodeEvaluation(node_id=path[-1].id, score=scores[path[-1].content], confidence=1.0) for path in paths
        ]
        return kinds.ResultsPayload(evaluations=judged)

    def is_solution(self, path):
        return path[-1].content == "goal"

    def synthesize(self, asked):
        trace = [node.content for node in asked.best_path]
        return kinds.Solution(
            answer=trace[-1],
            reasoning_trace=trace,
            confidence=1.0,
            verification=kinds.Verification(is_valid=True, by="program"),
        )


def run(strategy: str, entries: list[Spoken] | None = None, **asked: int) -> Solved:
    config = search_config("math", None, Overrides(**({"strategy": strategy, "depth": 3, "branching": 3} | asked)))
    return solve("start", config, Written(), entries=entries or [])


def expanded(found: Solved) -> list[str]:
    asked = (one.data for one in found.entries if isinstance(one.data, kinds.GenerateThoughts))
    return [one.payload.parent_node.content for one in asked]


def turns(found: Solved) -> list[tuple[str, str]]:
    names = {id_: node.content for id_, node in found.state.nodes.items()}
    made = (one.data for one in found.entries if isinstance(one.data, kinds.TotBacktracked))
    return [(names[one.node_id], names[one.to_node_id]) for one in made]


def test_depth_first_enters_the_best_child_and_turns_back_at_dead_ends() -> None:
    found = run("DFS")
    assert expanded(found) == ["start", "b", "b2", "b1", "c", "c1"]
    assert turns(found) == [("b2", "b"), ("b1", "start")]
    assert found.solution.reasoning_trace == ["start", "c", "c1", "goal"]


def test_breadth_first_takes_a_level_after_the_other_best_first() -> None:
    found = run("BFS")
    assert expanded(found) == ["start", "b", "c", "a", "c1", "b2", "b1"]
    assert turns(found) == []
    assert found.solution.reasoning_trace == ["start", "c", "c1", "goal"]


def test_beam_keeps_the_best_of_a_level_over_all_parents() -> None:
    found = run("BFS", beam_width=1)
    assert expanded(found) == ["start", "b", "b2"]
    assert found.failure.code == "SEARCH_EXHAUSTED"


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_what_is_below_the_threshold_is_pruned_and_what_is_at_it_is_not(strategy: str) -> None:
    reasons = {}
    found = run(strategy)
    for entry in found.entries:
        if isinstance(entry.data, kinds.TotNodesMarked):
            reasons |= {found.state.nodes[id_].content: entry.data.reason for id_ in entry.data.node_ids}
    assert reasons["b21"] in ("its score is below 3", "the search already has its answer")
    assert "below" not in reasons.get("b11", "")
    assert run("DFS", depth=4, threshold=6).state.nodes["node_1_1"].status == "pruned"


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_search_restarted_after_any_entry_says_the_same_on_a_written_tree(strategy: str) -> None:
    whole = run(strategy)
    for beginning in prefixes(whole.entries):
        again = run(strategy, list(beginning))
        assert again.entries == whole.entries
        assert vars(again.state) == vars(whole.state)


def test_generator_that_answers_more_than_asked_gives_no_more_nodes() -> None:
    found = run("BFS", branching=2)
    task = Task(TASK_ID)
    for entry in found.entries:
        if isinstance(entry.data, kinds.GeneratedThoughts):
            many = [kinds.Candidate(temp_id=f"t{n}", content=f"thought {n}") for n in range(9)]
            payload = kinds.GeneratedPayload(candidates=many)
            task.apply(entry._replace(data=msgspec.structs.replace(entry.data, payload=payload)))
            break
        task.apply(entry)
    step = next_step(task, Written())
    assert isinstance(step.data, kinds.TotNodesAdded)
    assert step.data.temp_ids == ["t0", "t1"]
