"""The Game of 24: games that are solved or exhausted, the texts that are parsed, and the results of wrong claims."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest
from tot_driver import answer_to, judged_by, solve, wanted

from deedbook.consumers.thoughts.events import Failure, ThoughtContext, ThoughtNode
from deedbook.consumers.thoughts.settings import Overrides, search_config
from deedbook.consumers.thoughts.thinkers import game24
from deedbook.consumers.thoughts.thinkers.game24 import ExhaustiveGame24, Game24, read_game

if TYPE_CHECKING:
    from collections.abc import Iterator

CHINESE = "用4、9、10、13得到24"
CONTEXT = ThoughtContext(problem=CHINESE, current_depth=1, max_depth=3)


def halves(numbers: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every way to distribute the numbers to two sides of one operator."""
    places = range(len(numbers))
    for size in range(1, len(numbers) // 2 + 1):
        for chosen in combinations(places, size):
            yield tuple(numbers[at] for at in chosen), tuple(numbers[at] for at in places if at not in chosen)


@cache
def reachable(numbers: tuple[int, ...]) -> frozenset[Fraction]:
    """Return all values of the numbers in any order, with any operators and bracketing."""
    if len(numbers) == 1:
        return frozenset({Fraction(numbers[0])})
    made = set[Fraction]()
    for left, right in halves(numbers):
        for a, b in product(reachable(left), reachable(right)):
            made |= {a + b, a - b, b - a, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
    return frozenset(made)


def can_make_24(numbers: tuple[int, ...]) -> bool:
    """Decide by every order, operator and bracketing, without the thinker's own code."""
    for left, right in halves(numbers):
        for a in reachable(left):
            wanted = {24 - a, a - 24, a + 24} | ({24 / a, a / 24, 24 * a} if a else set())
            if wanted & reachable(right):
                return True
    return False


def generated_inputs() -> list[tuple[int, ...]]:
    chance = random.Random(24)
    hands: dict[tuple[int, ...], None] = {(4, 9, 10, 13): None, (1, 5, 5, 5): None, (3, 3, 8, 8): None}
    while len(hands) < 50:
        hands[tuple(sorted(chance.randint(1, 13) for _ in range(4)))] = None
    return list(hands)


def generated_unsolvable() -> list[tuple[int, ...]]:
    chance = random.Random(42)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < 10:
        hand = tuple(sorted(chance.randint(1, 13) for _ in range(4)))
        if not can_make_24(hand):
            found[hand] = None
    return list(found)


def text_of(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def path_of(*contents: str) -> list[ThoughtNode]:
    path = [ThoughtNode(id="root", depth=0, content=CHINESE)]
    for depth, content in enumerate(contents, 1):
        path.append(ThoughtNode(id=f"node_{depth}_1", depth=depth, parent_id=path[-1].id, content=content))
    return path


SOLVING = path_of("13 - 9 = 4, 剩余: 4, 4, 10", "10 - 4 = 6, 剩余: 4, 6", "6 × 4 = 24, 剩余: 24")


@pytest.mark.parametrize("strategy", ["BFS", "DFS"])
def test_every_solvable_input_is_solved_and_every_other_is_exhausted(strategy: str) -> None:
    solvable = 0
    for numbers in generated_inputs():
        thinker, problem = Game24(), text_of(numbers)
        config = search_config("math", None, Overrides(strategy=strategy, depth=3, branching=5))
        found = solve(problem, config, thinker)
        if not can_make_24(numbers):
            assert found.solution is None
            continue
        solvable += 1
        assert found.solution is not None, numbers
        assert found.solution.verification.is_valid
        expression, _, value = found.solution.answer.partition(" = ")
        assert value == "24"
        spelled = expression.replace("×", "*").replace("÷", "/")
        assert eval("".join(f"Fraction({t})" if t.isdigit() else t for t in spelled_tokens(spelled))) == 24
        assert sorted(int(token) for token in spelled_tokens(spelled) if token.isdigit()) == sorted(numbers)
    assert solvable > 30


def spelled_tokens(text: str) -> list[str]:
    return text.replace("(", " ( ").replace(")", " ) ").split()


@pytest.mark.parametrize("numbers", generated_unsolvable(), ids=text_of)
def test_unsolvable_input_ends_exhausted_with_stats(numbers: tuple[int, ...]) -> None:
    found = solve(text_of(numbers), search_config("math", None, Overrides(depth=3, branching=5)), Game24())
    assert found.failure is not None
    assert (found.failure.code, found.failure.recoverable) == ("SEARCH_EXHAUSTED", False)
    stats = found.entries[-1].data.payload.stats
    assert stats.total_nodes > 1
    assert stats.nodes_pruned + stats.rounds == stats.total_nodes
    assert stats.llm_calls == 0


@pytest.mark.parametrize(
    "problem",
    [
        CHINESE,
        "4 9 10 13",
        "4, 9, 10, 13 = 24",
        "Make 24 from 13, 4, 10 and 9",
        "24点：４、９、10、13",
        "Game of 24: 4 9 10 13",
        "How can you use 4, 9, 10 and 13 exactly once each to get 24?",
        "请用四个数字 4 9 10 13 通过加减乘除算出24",
    ],
)
def test_spellings_of_one_game_give_one_tree(problem: str) -> None:
    told = [node.content for node in solve(problem, None, Game24()).state.nodes.values()][1:]
    assert told == [node.content for node in solve(CHINESE, None, Game24()).state.nodes.values()][1:]


@pytest.mark.parametrize(
    "problem",
    [
        "",
        "four nine ten",
        "4",
        "1 2 3 4 5 6 7",
        "1.5 2 3 4",
        "-4 9 10 13",
        "1 2 3 99999",
        "Solve x^2-5x+6=0",
        "3 * 5 + 2",
        "2026-11-22",
        "A train leaves at 4 and another at 9: when do 10 and 13 meet?",
        "我有3个苹果和5个梨",
        "Plan a trip of 4 days for 3 people",
        "4 9 10 13 " + "and " * 20_000 + "so",
    ],
)
def test_what_is_no_game_cannot_be_decomposed(problem: str) -> None:
    assert isinstance(read_game(problem), Failure)
    found = solve(problem, None, Game24())
    assert found.state is None
    assert (found.failure.code, found.failure.recoverable) == ("INVALID_FORMAT", False)


def test_default_searches_without_knowing_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*_: object) -> bool:
        raise AssertionError("it asked what only trying everything tells")

    config = search_config("math", None, Overrides(strategy="DFS", depth=3, branching=5))
    monkeypatch.setattr(game24, "reaches", tell)
    monkeypatch.setattr(game24.arithmetic, "expressions", lambda *_: [])
    found = solve("1 3 4 6", config, Game24())
    stats = found.entries[-1].data.payload.stats
    assert found.solution.answer == "6 ÷ (1 - 3 ÷ 4) = 24"
    assert stats.total_backtracks > 0 < stats.nodes_pruned


def test_chinese_task_is_told_in_the_seeds_own_words() -> None:
    thinker = Game24()
    thinker.language = "zh"
    assert thinker.decompose(CHINESE, "math_reasoning").intermediate_steps == [
        "Step 1: 选择两个数字进行运算",
        "Step 2: 用结果与第三个数字运算",
        "Step 3: 得到目标数字24",
    ]
    assert thinker.synthesize(answer_to(SOLVING, CHINESE)).reasoning_trace == [
        "步骤1: 用13减9得到4",
        "步骤2: 用10减去上一步的4得到6",
        "步骤3: 用6乘以剩余的4得到24",
    ]
    found = solve(CHINESE, None, thinker)
    told = [node.evaluation.reasoning for node in found.state.nodes.values() if node.evaluation]
    assert told
    assert all("剩余" in text or "得到" in text for text in told)
    assert all("剩余: " in node.content for node in list(found.state.nodes.values())[1:])


def test_path_that_solves_it_gives_one_expression() -> None:
    solution = Game24().synthesize(answer_to(SOLVING, CHINESE))
    assert solution.answer == "(10 - (13 - 9)) × 4 = 24"
    assert solution.reasoning_trace == [
        "step 1: 13 minus 9 gives 4",
        "step 2: 10 minus the previous step's 4 gives 6",
        "step 3: 6 times the remaining 4 gives 24",
    ]
    assert (solution.confidence, solution.verification.is_valid) == (1.0, True)
    assert solution.answer not in solution.alternative_solutions
    assert "(10 - 4) × (13 - 9) = 24" in solution.alternative_solutions


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (path_of("13 - 9 = 5, 剩余: 4, 5, 10", "10 - 4 = 6, 剩余: 5, 6", "6 × 5 = 24, 剩余: 24"), "13 - 9 = 4, not 5"),
        (path_of("13 - 9 = 4, 剩余: 4, 24"), "4, 4, 10 is left, not 4, 24"),
        (path_of("12 × 2 = 24, 剩余: 24"), "12 is not available"),
        (path_of("13 ÷ 0 = 24, 剩余: 24"), "13 ÷ 0 = ∅, not 24"),
        (path_of("it is obvious"), "it states no equation"),
        (SOLVING[:3], "2 numbers are left"),
    ],
)
def test_wrong_claim_is_named_by_the_verification(path: list[ThoughtNode], error: str) -> None:
    solution = Game24().synthesize(answer_to(path, CHINESE))
    assert not solution.verification.is_valid
    assert any(error in one for one in solution.verification.validation_errors)
    assert solution.confidence == 0.0


def test_wrong_claim_is_worth_nothing() -> None:
    paths = [
        path_of("13 - 9 = 5, 剩余: 4, 5, 10"),
        path_of("13 - 9 = 4, 剩余: 4, 4, 10"),
        path_of("13 × 10 = 130, 剩余: 4, 9, 130"),
    ]
    context = ThoughtContext(problem=CHINESE, current_depth=1, max_depth=3)
    asked = judged_by(paths, "independent_scoring", [], context)
    assert [one.score > 3 for one in Game24().evaluate(paths, asked).evaluations] == [False, True, True]
    wrong, good, hopeless = ExhaustiveGame24().evaluate(paths, asked).evaluations
    assert (wrong.score, wrong.dimension_scores["correctness"]) == (0.0, 0.0)
    assert good.score > 5 > hopeless.score > 0


def test_candidates_are_deterministic_distinct_and_no_more_than_asked() -> None:
    root = SOLVING[:1]
    every = Game24().generate(root, wanted(root, "sequential_proposal", 64, CONTEXT))
    contents = [one.content for one in every.candidates]
    assert "13 - 9 = 4, left: 4, 4, 10" in contents
    assert len({content.partition("left")[2] for content in contents}) == len(contents)
    five = Game24().generate(root, wanted(root, "independent_sampling", 5, CONTEXT))
    assert five == Game24().generate(root, wanted(root, "independent_sampling", 5, CONTEXT))
    assert len(five.candidates) == 5


def test_what_is_beyond_exact_reach_is_said_to_be_unknown() -> None:
    thinker, problem = ExhaustiveGame24(), "1 2 3 4 5 6"
    root = ThoughtNode(id="root", depth=0, content=problem)
    [one] = thinker.generate([root], wanted([root], "sequential_proposal", 1, CONTEXT)).candidates
    node = ThoughtNode(id="a", depth=1, parent_id="root", content=one.content)
    context = ThoughtContext(problem=problem, current_depth=1, max_depth=5)
    [judged] = thinker.evaluate(
        [[root, node]], judged_by([[root, node]], "independent_scoring", [], context)
    ).evaluations
    assert (judged.score, judged.confidence) == (5.0, 0.3)
