"""Blocks and faulty programs: what is read, what is refused, and what no path can talk its way around."""

from __future__ import annotations

import pytest
from tot_driver import answer_to, judged_by, solve, wanted

from consumers.thoughts.phrases import language_of
from consumers.thoughts.thinkers.debugging import Debugging, run
from consumers.thoughts.thinkers.planning import Planning, moves
from ledger.events.tot import Failure, ThoughtContext, ThoughtNode

SUSSMAN = "blocks: C on A, A on table, B on table; goal: A on B, B on C"
FAULTY = "debug: f(x) = x * 2 + 3; 0 -> 4; 1 -> 6; 2 -> 8"


def path_of(problem: str, *contents: str) -> list[ThoughtNode]:
    path = [ThoughtNode(id="root", depth=0, content=problem)]
    for depth, content in enumerate(contents, 1):
        path.append(ThoughtNode(id=f"n{depth}", depth=depth, parent_id=path[-1].id, content=content))
    return path


def test_only_clear_blocks_move_and_only_onto_clear_places() -> None:
    assert moves({"C": "A", "A": "table", "B": "table"}) == [("B", "C"), ("C", "B"), ("C", "table")]


@pytest.mark.parametrize(
    "problem",
    [
        "",
        "blocks: A on table, B on A",
        "blocks: A on table; goal: A on table",
        "blocks: A on B, B on A; goal: A on table",
        "blocks: A on C, B on C, C on table; goal: A on B",
        "blocks: A on table, B on table; goal: A on Z",
        "put A on table and B on table for the photo; goal: A on B",
        "blocks: A on table, B on table; goal: A on B, but only on weekdays",
    ],
)
def test_what_is_no_task_of_blocks_is_refused(problem: str) -> None:
    assert isinstance(Planning()._read(problem), Failure)
    assert solve(problem, None, Planning(), task_type="planning").failure.code == "INVALID_FORMAT"


def test_state_that_the_path_has_seen_is_not_proposed_again() -> None:
    path = path_of(SUSSMAN, "move C from A to table")
    told = Planning().generate(
        path, wanted(path, "sequential_proposal", 64, ThoughtContext(problem=SUSSMAN, current_depth=1, max_depth=3))
    )
    contents = [one.content for one in told.candidates]
    assert "move B from table to C" in contents
    assert "move C from table to A" not in contents


@pytest.mark.parametrize(
    "move", ["move A from table to B", "move B from A to C", "move B from table to B", "move Z from table to A", "fly"]
)
def test_move_that_cannot_be_made_is_worth_nothing_and_named(move: str) -> None:
    path = path_of(SUSSMAN, move)
    context = ThoughtContext(problem=SUSSMAN, current_depth=1, max_depth=6)
    [judged] = Planning().evaluate([path], judged_by([path], "independent_scoring", [], context)).evaluations
    assert judged.score == 0.0
    assert not Planning().is_solution(path)
    verification = Planning().synthesize(answer_to(path, SUSSMAN)).verification
    assert not verification.is_valid
    assert f"cannot be made: {move}" in verification.validation_errors[0]


def test_products_bind_before_sums() -> None:
    assert [run(("x", "+", "2", "*", "3"), 1), run(("2", "*", "x", "-", "3"), 5), run(("x",), 7)] == [7, 7, 7]


@pytest.mark.parametrize(
    "problem",
    [
        "",
        "f(x) = x + 1",
        "f(x) = x +; 0 -> 1",
        "my f(x) = x + 1; 0 -> 2",
        "f(x) = x + 1; 0 -> 2 on Tuesdays only",
        "f(x) = __import__('os'); 0 -> 1",
        "f(x) = 2 ** x; 0 -> 1",
        "f(x) = x" + " + 1" * 20 + "; 0 -> 1",
    ],
)
def test_what_is_no_program_is_refused(problem: str) -> None:
    assert isinstance(Debugging()._read(problem), Failure)
    assert isinstance(Debugging().decompose(problem, "debugging"), Failure)


def test_one_fault_is_found_and_every_row_is_run() -> None:
    found = solve(FAULTY, None, Debugging(), task_type="debugging")
    assert found.solution.answer == "f(x) = x * 2 + 4"
    assert found.solution.verification.is_valid


def test_change_that_does_not_help_is_no_solution() -> None:
    path = path_of(FAULTY, "token 4 `3` should be `2`")
    assert not Debugging().is_solution(path)
    assert Debugging().synthesize(answer_to(path, FAULTY)).verification.validation_errors[0] == "f(0) is 2, not 4"


def test_votes_go_to_what_comes_nearest() -> None:
    near, far = "token 4 `3` should be `4`", "token 4 `3` should be `1`"
    paths = [[*path_of(FAULTY), ThoughtNode(id=id_, depth=1, content=said)] for id_, said in (("a", far), ("b", near))]
    context = ThoughtContext(problem=FAULTY, current_depth=1, max_depth=3)
    voted = Debugging().evaluate(paths, judged_by(paths, "comparative_voting", [], context))
    assert voted.ranking == ["b", "a"]
    assert "0 votes" in voted.evaluations[0].reasoning


@pytest.mark.parametrize(
    ("thinker", "problem", "answer"),
    [
        (Planning(), SUSSMAN.replace("blocks", "积木").replace("goal", "目标"), "move C from A to table"),
        (Debugging(), FAULTY.replace("debug", "调试"), "f(x) = x * 2 + 4"),
    ],
    ids=["planning", "debugging"],
)
def test_chinese_task_is_thought_about_in_chinese(thinker: Planning | Debugging, problem: str, answer: str) -> None:
    thinker.language = "zh"
    found = solve(problem, None, thinker, task_type=thinker.task_type)
    assert found.solution.answer.startswith(answer)
    told = [node.evaluation.reasoning for node in found.state.nodes.values() if node.evaluation]
    told += found.state.decomposition.constraints
    assert told
    assert [text for text in told if language_of(text) != "zh"] == []
