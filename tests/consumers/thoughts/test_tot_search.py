"""The search as a pure function: restarts, budgets, bad thinkers, both strategies, all judged by the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tot_driver import TASK_ID, Solved, Spoken, prefixes, solve

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.search import next_step
from deedbook.consumers.thoughts.settings import Overrides, search_config
from deedbook.consumers.thoughts.task import Task
from deedbook.consumers.thoughts.thinkers.game24 import Game24
from deedbook.consumers.thoughts.transition import TotState, node_states, transition
from deedbook.ledger.events.body import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES = {
    "math-bfs": ("4 9 10 13", "math_reasoning", Game24, Overrides()),
    "math-dfs": ("1 3 4 6", "math_reasoning", Game24, Overrides(strategy="DFS")),
    "math-voting": ("3 3 8 8", "math_reasoning", Game24, Overrides(evaluation="vote", beam_width=3)),
    "unsolvable": ("1 1 1 1", "math_reasoning", Game24, Overrides()),
    "dfs-voting": ("3 3 8 8", "math_reasoning", Game24, Overrides(strategy="DFS", evaluation="对比投票")),
    "sampling": ("4 9 10 13", "math_reasoning", Game24, Overrides(generation="independent")),
}


def run(case: str, entries: Iterable[Spoken] = (), *, steps: int = 10_000, **overrides: Any) -> Solved:
    problem, task_type, thinker, asked = CASES[case]
    shape = thinker().decompose(problem, task_type)
    config = search_config(task_type, shape, msgspec.structs.replace(asked, **overrides))
    return solve(problem, config, thinker(), task_type=task_type, entries=list(entries), steps=steps)


def outcome(thinker: Any, **overrides: Any) -> Solved:
    config = search_config("math", None, Overrides(**({"depth": 3} | overrides)))
    return solve("4 9 10 13", config, thinker)


def actions_of(found: Solved, kind: type) -> list[Any]:
    return [entry.data for entry in found.entries if isinstance(entry.data, kind)]


def admit(found: Solved) -> TotState:
    """Let the gate's state machine judge every entry of a search, each signed by its role; return the final state."""
    keys = {role: f"{place:064x}" for place, role in enumerate(ROLES)}
    bindings = [kinds.RoleBinding(role=role, agent=f"tot-{role}", key=keys[role]) for role in ROLES]
    asked = found.entries[0].data.payload
    started = kinds.TotStarted(
        task_id=TASK_ID, problem=asked.problem, task_type=asked.task_type, roles=bindings, thinker="t"
    )
    state = None
    for index, entry in enumerate([Spoken("e0", "tot.started", started, []), *found.entries]):
        data: Any = msgspec.json.decode(msgspec.json.encode(entry.data), type=type(entry.data))
        role = "orchestrator" if index == 0 else getattr(data, "sender", "explorer")
        event = Event(
            index=index,
            id=entry.id,
            accepted_ms=0,
            key=keys[role],
            ledger="0" * 32,
            kind=entry.kind,
            stream=f"tot/{TASK_ID}",
            author=f"tot-{role}",
            at="",
            causes=entry.causes,
            data=data,
        )
        state = transition(state, event)
    assert state is not None
    assert not state.waiting or not found.state or state.is_paused
    return state


ROLES: tuple[kinds.Role, ...] = ("orchestrator", "decomposer", "generator", "evaluator", "explorer", "synthesizer")


@pytest.mark.parametrize("case", CASES)
def test_search_restarted_after_any_entry_says_the_same(case: str) -> None:
    whole = run(case)
    for beginning in prefixes(whole.entries):
        assert run(case, beginning, steps=1).entries == whole.entries[: len(beginning) + 1]


@pytest.mark.parametrize("case", CASES)
def test_gate_takes_every_entry_of_a_search_and_comes_to_the_explorers_tree(case: str) -> None:
    found = run(case)
    state = admit(found)
    assert (state.is_ended, state.waiting) == (True, {})
    assert found.state is not None
    assert state.nodes == node_states(found.state.nodes.values())


def test_depth_first_search_turns_back_from_what_looked_best() -> None:
    found = run("math-dfs")
    assert found.solution.verification.is_valid
    turns = actions_of(found, kinds.TotBacktracked)
    assert len(turns) == found.entries[-1].data.payload.stats.total_backtracks > 0


def test_vote_of_a_breadth_first_search_compares_a_whole_level() -> None:
    found = run("math-voting")
    per_level = [{n.depth for n in one.payload.candidates} for one in actions_of(found, kinds.EvaluateThoughts)]
    assert per_level == [{1}, {2}, {3}]
    assert found.solution.verification.is_valid


def test_breadth_first_keeps_the_beam_of_each_level() -> None:
    found = run("math-bfs", beam_width=1)
    expanded = [one.payload.parent_node.depth for one in actions_of(found, kinds.GenerateThoughts)]
    assert expanded == [0, 1, 2]


def test_nothing_below_the_threshold_is_expanded() -> None:
    found = run("math-bfs")
    for asked in actions_of(found, kinds.GenerateThoughts):
        judged = asked.payload.parent_node.evaluation
        assert judged is None or judged.score >= 3.0


class Costly(Game24):
    """The Game of 24 as if every question cost a request and 100 tokens; none of its thoughts is proved."""

    checks = False

    def is_solution(self, path):
        return False


def costly(**overrides: Any) -> Solved:
    """Return a search in which every answer reports a cost of one request for each call, and 100 tokens."""
    config = search_config("math", None, Overrides(**({"depth": 3} | overrides)))
    return solve("4 9 10 13", config, Costly(), usage=kinds.Usage(requests=1, tokens_in=90, tokens_out=10))


def test_what_every_answer_cost_is_counted_also_before_the_search() -> None:
    found = costly()
    replies = actions_of(found, kinds.Reply)
    stats = found.entries[-1].data.payload.stats
    assert stats.llm_calls == sum(reply.usage.requests for reply in replies) == len(replies) - 1
    assert (stats.tokens_in, stats.tokens_out) == (90 * stats.llm_calls, 10 * stats.llm_calls)


def test_programs_cost_nothing_and_no_budget_of_calls_ends_them() -> None:
    found = run("math-bfs", calls_max=1, tokens_max=1)
    assert found.solution.verification == kinds.Verification(is_valid=True, by="program")
    assert found.entries[-1].data.payload.stats.llm_calls == 0


def test_budget_of_nodes_ends_a_search_that_has_to_be_proved() -> None:
    found = run("math-bfs", nodes_max=4)
    assert (found.solution, found.failure.code) == (None, "SEARCH_EXHAUSTED")
    assert "budget" in found.failure.message
    assert found.entries[-1].data.payload.stats.total_nodes == 4
    admit(found)


@pytest.mark.parametrize("overrides", [{"nodes_max": 8}, {"calls_max": 8}, {"tokens_max": 400}])
@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_budget_never_cuts_off_what_was_found(strategy: str, overrides: dict[str, int]) -> None:
    found = costly(strategy=strategy, **overrides)
    (ended,) = (mark for mark in actions_of(found, kinds.TotNodesMarked) if mark.status == "terminal")
    stats = found.entries[-1].data.payload.stats
    assert "budget" in ended.reason
    assert (found.solution.verification.by, found.solution.verification.is_valid) == ("nobody", False)
    assert stats.total_nodes <= overrides.get("nodes_max", 500)
    assert stats.llm_calls <= overrides.get("calls_max", 1_000) + 1  # the synthesis is one call more
    assert stats.tokens_in + stats.tokens_out <= overrides.get("tokens_max", 10**6) + 5 * 100 + 100
    admit(found)


def test_deadline_in_the_middle_of_a_level_waits_for_what_was_asked_and_ends() -> None:
    def until(deadline_ms: int) -> Solved:
        at = f"1970-01-01T00:00:{deadline_ms // 1000:02}.{deadline_ms % 1000:03}Z"
        config = search_config("math", None, Overrides(depth=3, deadline=at))
        ticks = iter(range(100_000))
        return solve("4 9 10 13", config, Costly(), clock=lambda: next(ticks))

    whole = until(50_000)
    places = [at for at, one in enumerate(whole.entries) if isinstance(one.data, kinds.GenerateThoughts)]
    found = until(places[2])  # the second of the second level's requests
    asked = actions_of(found, kinds.GenerateThoughts)
    assert 2 <= len(asked) < len(actions_of(whole, kinds.GenerateThoughts))
    assert len(actions_of(found, kinds.GeneratedThoughts)) == len(asked)
    assert found.solution.verification.by == "nobody"
    admit(found)


def test_explorer_waits_for_what_it_asked() -> None:
    found = run("math-bfs")
    asked = next(place for place, one in enumerate(found.entries) if isinstance(one.data, kinds.GenerateThoughts))
    task = Task(TASK_ID)
    for entry in found.entries[: asked + 1]:
        task.apply(entry)
    assert task.requests
    assert next_step(task, Game24()) is None


# Bad thinkers


class Bad(Game24):
    """A thinker that does one thing wrong; otherwise it plays the Game of 24."""


class Flood(Bad):
    def generate(self, path, asked):
        many = [kinds.Candidate(temp_id=f"c{n}", content=f"thought {n}") for n in range(10_000)]
        return kinds.GeneratedPayload(candidates=many)


class Silent(Bad):
    def generate(self, path, asked):
        return kinds.GeneratedPayload(candidates=[])


class Failing(Bad):
    asked = 0

    def generate(self, path, asked):
        self.asked += 1
        return kinds.Failure(code="GENERATION_FAILED", message="no", recoverable=True)


class Recovering(Failing):
    def generate(self, path, asked):
        failure = super().generate(path, asked)
        return failure if self.asked % 3 else Game24.generate(self, path, asked)


class Excited(Bad):
    def evaluate(self, paths, asked):
        said = super().evaluate(paths, asked)
        return msgspec.structs.replace(
            said, evaluations=[msgspec.structs.replace(one, score=11.0) for one in said.evaluations]
        )


class Mute(Bad):
    def evaluate(self, paths, asked):
        return kinds.ResultsPayload(evaluations=[kinds.NodeEvaluation(node_id="stranger", score=9, confidence=1)])


class Late(Bad):
    def evaluate(self, paths, asked):
        return kinds.Failure(code="EVALUATION_TIMEOUT", message="late", recoverable=True)


class Twins(Bad):
    def generate(self, path, asked):
        twin = kinds.Candidate(temp_id="same", content="a")
        return kinds.GeneratedPayload(candidates=[twin, msgspec.structs.replace(twin, content="b")])


class Credulous(Bad):
    """Proposes 13 - 9 = 5 and finds it splendid."""

    _TOLD = ("13 - 9 = 5, 剩余: 4, 5, 10", "10 - 4 = 6, 剩余: 5, 6", "6 × 5 = 24, 剩余: 24")

    def generate(self, path, asked):
        told = kinds.Candidate(temp_id="c1", content=self._TOLD[len(path) - 1])
        return kinds.GeneratedPayload(candidates=[told])

    def evaluate(self, paths, asked):
        judged = [kinds.NodeEvaluation(node_id=path[-1].id, score=10.0, confidence=1.0) for path in paths]
        return kinds.ResultsPayload(evaluations=judged)


def test_of_ten_thousand_candidates_only_those_asked_for_are_kept() -> None:
    found = outcome(Flood(), branching=4)
    assert [len(one.payload.candidates) for one in actions_of(found, kinds.GeneratedThoughts)] == [4]
    assert found.failure.code == "SEARCH_EXHAUSTED"
    admit(found)


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_thinker_with_no_thoughts_exhausts_the_search(strategy: str) -> None:
    found = outcome(Silent(), strategy=strategy)
    assert (found.failure.code, len(found.state.nodes)) == ("SEARCH_EXHAUSTED", 1)
    admit(found)


@pytest.mark.parametrize("bad", [Failing(), Twins()], ids=["failing", "twins"])
def test_generation_that_always_fails_is_tried_three_times(bad: Bad) -> None:
    found = outcome(bad)
    assert found.failure.code == "GENERATION_FAILED"
    assert len(actions_of(found, kinds.GenerateThoughts)) == 3
    admit(found)


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_generation_that_recovers_is_asked_again(strategy: str) -> None:
    found = outcome(Recovering(), strategy=strategy)
    assert found.solution.verification.is_valid
    admit(found)


@pytest.mark.parametrize(
    ("bad", "code"),
    [(Excited(), "INVALID_FORMAT"), (Mute(), "SEARCH_EXHAUSTED")],
    ids=["excited", "mute"],
)
def test_nodes_that_nobody_can_judge_are_given_up(bad: Bad, code: str) -> None:
    found = outcome(bad)
    assert found.solution is None
    assert found.failure.code == code
    assert len(actions_of(found, kinds.EvaluateThoughts)) == 3
    assert all(node.status == "pruned" for node in found.state.nodes.values() if node.depth)
    admit(found)


def test_wrong_claim_that_everybody_believed_is_named_in_the_end() -> None:
    found = outcome(Credulous())
    assert not found.solution.verification.is_valid
    assert "step 1: 13 - 9 = 4, not 5" in found.solution.verification.validation_errors
    admit(found)
