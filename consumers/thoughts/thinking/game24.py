"""The Game of 24 as a program: exact, deterministic, and honest about what it does not know.

It reads "4 9 10 13" and the seed's 用4、9、10、13得到24 alike, proposes steps in the seed's form, and judges a step by
whether the target can still be reached from what is left: exactly up to four numbers, beyond that it says that it does
not know. Of k proposals about half are steps it holds promising, the others come in canonical order, so that the
evaluator has something to judge. A solution is what claims to be one; whether its claims hold, the verification says.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.thoughts.thinking.arithmetic import ACTIONS, Claim, Numbers, Reach, exact_numbers_max, steps
from consumers.thoughts.thinking.expressions import expressions, replay
from consumers.thoughts.thinking.protocol import Path, invalid, proposed, ranked
from ledger.events.tot import (
    Decomposition,
    EvaluationContext,
    EvaluationStrategy,
    Failure,
    GeneratedPayload,
    GenerationContext,
    GenerationStrategy,
    NodeEvaluation,
    ResultsPayload,
    Solution,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

numbers_min: Final = 2
numbers_max: Final = 6
number_max: Final = 10_000
alternatives_max: Final = 3

_TARGET: Final = re.compile(
    r"(?:得到|得出|凑成|凑出|算出|等于|\bmake|\bget|\breach|\bobtain|\bequals?|->|→|=)\s*(\d{1,5})(?!\d)", re.IGNORECASE
)
_TITLE: Final = re.compile(r"24\s*点|游戏\s*24|\bgame of 24\b|\b24[ -]game\b", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[-+]?\d[\d./]*")
_NUMBER: Final = r"-?\d{1,12}(?:/\d{1,12})?"
_CLAIM: Final = re.compile(
    rf"\s*({_NUMBER})\s*([-−+×x*÷/])\s*({_NUMBER})\s*=\s*({_NUMBER})"
    rf"\s*[,，;]\s*(?:剩余|left|remaining)\s*[:：]\s*({_NUMBER}(?:\s*[,，、]\s*{_NUMBER})*)\s*"
)
_SPELLED: Final = {"−": "-", "x": "×", "*": "×", "/": "÷"}


class Game(NamedTuple):
    """The numbers, sorted, and what they shall make."""

    numbers: Numbers
    target: Fraction


def read_game(problem: str) -> Game | Failure:
    """Return the game that a problem's text states; 24 is the target unless it names another."""
    text = unicodedata.normalize("NFKC", problem)
    text = _TITLE.sub(" ", text)
    found = _TARGET.search(text)
    target = Fraction(int(found[1])) if found else Fraction(24)
    if found:
        text = text[: found.start()] + " " + text[found.end() :]
    tokens = _TOKEN.findall(text)
    wrong = [token for token in tokens if not token.isdecimal() or not token.isascii() or int(token) > number_max]
    if wrong:
        return invalid(f"the game is played with whole numbers up to {number_max}, not {wrong[0][:20]}")
    if not numbers_min <= len(tokens) <= numbers_max:
        return invalid(f"the game needs {numbers_min} to {numbers_max} numbers; here are {len(tokens)}")
    return Game(tuple(sorted(Fraction(int(token)) for token in tokens)), target)


def read_claim(content: str) -> Claim | None:
    """Return the step that a thought states; None when it states none."""
    found = _CLAIM.fullmatch(content)
    if found is None:
        return None
    try:
        left, right, result = (Fraction(found[place]) for place in (1, 3, 4))
        rest = tuple(sorted(Fraction(number) for number in re.findall(_NUMBER, found[5])))
    except ZeroDivisionError:
        return None
    return Claim(left, _SPELLED.get(found[2], found[2]), right, result, rest)


class Game24:
    """The program; see ``consumers.thoughts.thinking.Thinker``."""

    name = "game24"

    def __init__(self) -> None:
        """Begin knowing nothing; what is found about a target is remembered."""
        self._reach = Reach(Fraction(24))

    def decompose(self, problem: str, task_type: str) -> Decomposition | Failure:
        """Return the steps: one fewer than numbers."""
        game = read_game(problem)
        if isinstance(game, Failure):
            return game
        depth = len(game.numbers) - 1
        return Decomposition(
            thought_granularity="single_equation",
            intermediate_steps=[f"Step {step}: 选择两个数字进行运算" for step in range(1, depth)]
            + [f"Step {depth}: 得到目标数字{game.target}"],
            depth_estimate=depth,
            constraints=["必须使用所有数字各一次", "只能用+-×÷"],
            success_criteria=f"最终结果等于{game.target}",
        )

    def generate(
        self, path: Path, strategy: GenerationStrategy, k: int, context: GenerationContext
    ) -> GeneratedPayload | Failure:
        """Return up to ``k`` steps from what the path says is left."""
        game = read_game(path[0].content)
        if isinstance(game, Failure):
            return game
        left = _left(path, game)
        if left is None:
            return invalid(f"node {path[-1].id} states no step of the game")
        reach = self._reach_of(game.target)
        every = steps(left)
        hopeful = [step for step in every if reach.is_reachable(step.rest)]
        first = hopeful[: (k + 1) // 2]
        chosen = [*first, *(step for step in every if step not in first)]
        return proposed(((step.text(), ACTIONS[step.operation]) for step in chosen), strategy, k)

    def evaluate(
        self, paths: Sequence[Path], strategy: EvaluationStrategy, criteria: Sequence[str], context: EvaluationContext
    ) -> ResultsPayload | Failure:
        """Return each step's score by what can be reached after it; a vote ranks by the same knowledge."""
        game = read_game(paths[0][0].content)
        if isinstance(game, Failure):
            return game
        return ranked([self._judge(path, game) for path in paths], strategy)

    def is_solution(self, path: Path) -> bool:
        """Return whether the path claims that the target alone is left."""
        game = read_game(path[0].content)
        return not isinstance(game, Failure) and len(path) > 1 and _left(path, game) == (game.target,)

    def synthesize(self, path: Path, problem: str) -> Solution | Failure:
        """Return one expression for the path, verified by exact arithmetic from the problem's own numbers."""
        game = read_game(problem)
        if isinstance(game, Failure):
            return game
        claims = [read_claim(node.content) for node in path[1:]]
        done = replay(game.numbers, [claim for claim in claims if claim is not None])
        errors = [f"step {place}: it states no equation" for place, claim in enumerate(claims, 1) if claim is None]
        errors += done.errors
        if len(done.terms) != 1:
            errors.append(f"{len(done.terms)} numbers are left: every number is used exactly once")
        last = done.terms[-1]
        if last.actual != game.target:
            errors.append(f"{last.text} is {'undefined' if last.actual is None else last.actual}, not {game.target}")
        known = exact_numbers_max >= len(game.numbers)
        others = expressions(game.numbers, self._reach_of(game.target), alternatives_max + 1) if known else []
        return Solution(
            answer=f"{last.text} = {last.actual}" if last.actual is not None else last.text,
            reasoning_trace=done.trace or [f"步骤0: {last.text}"],
            confidence=0.0 if errors else 1.0,
            verification=Verification(is_valid=not errors, validation_errors=errors),
            alternative_solutions=[f"{one} = {game.target}" for one in others if one != last.text][:alternatives_max],
        )

    def _judge(self, path: Path, game: Game) -> NodeEvaluation:
        claim = read_claim(path[-1].content)
        before = _left(path[:-1], game)
        if claim is None or before is None:
            return _evaluation(path, 0.0, 1.0, "这不是一步运算", correct=False)
        checked = replay(before, [claim])
        if checked.errors:
            return _evaluation(path, 0.0, 1.0, checked.errors[0], correct=False)
        reach, rest = self._reach_of(game.target), claim.rest
        within = reach.is_reachable(rest)
        shown = ", ".join(map(str, rest))
        if rest == (game.target,):
            return _evaluation(path, 10.0, 1.0, f"得到目标{game.target}")
        if within is None:
            return _evaluation(path, 5.0, 0.3, f"剩余 {shown}: 数字太多, 未能穷尽")
        if not within:
            return _evaluation(path, 0.5, 1.0, f"剩余 {shown}: 无法得到{game.target}")
        ways = reach.ways(rest)
        return _evaluation(path, 7.0 + min(2.5, ways / 2), 1.0, f"剩余 {shown}: {ways}种下一步可通向{game.target}")

    def _reach_of(self, target: Fraction) -> Reach:
        if self._reach.target != target:
            self._reach = Reach(target)
        return self._reach


def _left(path: Path, game: Game) -> Numbers | None:
    """Return what the last node of a path says is left."""
    if len(path) == 1:
        return game.numbers
    claim = read_claim(path[-1].content)
    return None if claim is None else claim.rest


def _evaluation(path: Path, score: float, confidence: float, why: str, *, correct: bool = True) -> NodeEvaluation:
    dimensions = {"correctness": 10.0 if correct else 0.0, "progress": score, "feasibility": score}
    return NodeEvaluation(
        node_id=path[-1].id, score=score, confidence=confidence, reasoning=why, dimension_scores=dimensions
    )
