"""The Game of 24 as a program: exact, deterministic, and explicit about what it does not know.

It reads problems such as "4 9 10 13" and 用4、9、10、13得到24, nothing else, and proposes "13 - 9 = 4, left: 4, 4, 10".
There are two scorers. ``value`` looks one step ahead, as people do, at the next steps that make a factor or multiple
of the target whose partner is left, or come near the target. So it errs, prunes nodes that led to the target, and
backtracks (of the 1,362 hands of 1 to 13 that can make 24, it solves 1,319 breadth first with five thoughts a node).
``exhaustive`` (the thinker ``game24-exhaustive``) tries everything up to four numbers and knows the answer: it
demonstrates the protocol without a real search. About half of its k proposals are promising, the others come in
canonical order, so that the evaluator has something to judge. A path that claims to be a solution ends the search; the
verification says whether it is right.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.thinkers import Path, arithmetic, candidates_max, ranked
from deedbook.consumers.thoughts.thinkers.arithmetic import (
    Claim,
    Numbers,
    listed,
    reaches,
    read_claim,
    replay,
    steps,
)
from deedbook.ledger.format.chinese import both_scripts

PAIR: Final = 2
ACTIONS: Final = {"+": "addition", "-": "subtraction", "×": "multiplication", "÷": "division"}
numbers_min: Final = 2
numbers_max: Final = 6
number_max: Final = 10_000
alternatives_max: Final = 3

_TARGET: Final = re.compile(
    both_scripts(r"(?:得到|得出|凑成|凑出|算出|等于|\bmake|\bget|\breach|\bobtain|\bequals?|->|→|=)\s*(\d{1,5})(?!\d)"),
    re.IGNORECASE,
)
_TITLE: Final = re.compile(both_scripts(r"24\s*点|游戏\s*24|\bgame of 24\b|\b24[ -]game\b"), re.IGNORECASE)
_TOKEN: Final = re.compile(r"[-+]?\d[\d./]*")
# The only words that may be beside the numbers. With other words it is a different problem, for another thinker.
_BESIDE: Final = re.compile(
    both_scripts(
        r"(?:\b(?:the|an?|numbers?|digits?|integers?|use|using|with|from|of|out|and|to|by|play|solve|please|how|can|you|i|game"
        r"|given|these|each|every|all|exactly|once|only|target)\b|使用|用|请|将|把|以|给定|通过|只能|这|几个|[二三四五六两]个|每个|各"
        r"|所有|数字|整数|数|的|和|与|恰好|一次|加减乘除|四则运算|运算|计算|如何|怎么|算"
        r"|[-\s,;:.()\[\]\"'?!+*/×÷−。、])*"
    ),
    re.IGNORECASE,
)
_EXPRESSION: Final = re.compile(r"\d\s*[-+*/×÷−^]\s*\d")


class Game(NamedTuple):
    """The numbers, sorted, and the target."""

    numbers: Numbers
    target: Fraction


def read_game(text: str) -> Game | kinds.Failure:
    """Return the game that a problem's text states; 24 is the target unless it names another."""
    text = _TITLE.sub(" ", unicodedata.normalize("NFKC", text))
    named = _TARGET.search(text)
    target = Fraction(int(named[1])) if named else Fraction(24)
    if named:
        text = text[: named.start()] + " " + text[named.end() :]
    tokens = _TOKEN.findall(text)
    other = "a formula" if _EXPRESSION.search(text) else _BESIDE.sub("", _TOKEN.sub(" ", text), count=1)
    if other:
        return _invalid(f"the game takes only numbers and a target, not {other[:20]!r}")
    wrong = [token for token in tokens if not token.isdecimal() or not token.isascii() or int(token) > number_max]
    if wrong:
        return _invalid(f"the game takes whole numbers up to {number_max}, not {wrong[0][:20]}")
    if not numbers_min <= len(tokens) <= numbers_max:
        return _invalid(f"the game takes {numbers_min} to {numbers_max} numbers, not {len(tokens)}")
    return Game(tuple(sorted(Fraction(int(token)) for token in tokens)), target)


class StateScore(NamedTuple):
    """A state's score, its confidence, and the reason: a phrase and its values."""

    score: float
    confidence: float
    why: str
    values: Mapping[str, int] = MappingProxyType({})


@lru_cache(arithmetic.states_known_max)
def outlook(numbers: Numbers, target: Fraction) -> StateScore:
    """Return the score of three or more numbers by looking one step ahead: an estimate, which may be wrong."""
    partners = factors = near = 0
    following = steps(numbers)
    for step in following:
        if len(step.rest) == PAIR and _are_partners(*step.rest, target):
            partners += 1
        elif all(_is_factor(number, target) for number in step.rest):
            factors += 1
        near += abs(step.result - target) <= sum(step.rest) - step.result
    # The weights come from a search over all hands of 1 to 13; a factor whose partner is left has the highest.
    hope = 2 * min(partners, 2) + 3 * (factors + near) / len(following)
    hope -= sum(0.5 * (number.denominator > 1) + 0.25 * (number > 2 * target) for number in numbers)
    hope += 0.5 * (len(set(numbers)) < len(numbers))
    counts = {"partners": partners, "factors": factors, "steps": len(following)}
    return StateScore(round(min(max(3 + hope, 3.0), 9.5), 2), 0.5, "game_value", counts)


def _are_partners(first: Fraction, second: Fraction, target: Fraction) -> bool:
    return target in {first * second, *([first / second] if second else []), *([second / first] if first else [])}


def _is_factor(number: Fraction, target: Fraction) -> bool:
    return bool(number) and ((target / number).denominator == 1 or bool(target and (number / target).denominator == 1))


class Game24:
    """The searching program: its scorer looks one step ahead."""

    name = "game24"
    problems = "whole numbers that make 24 or another target, such as '4 9 10 13'"
    checks = True
    language: kinds.Language = "en"

    def _say(self, name: str, **values: Any) -> str:
        return phrase(self.language, name, **values)

    def reads(self, problem: str, task_type: str) -> bool:
        return task_type == "math_reasoning" and isinstance(read_game(problem), Game)

    def decompose(self, problem: str, task_type: str) -> kinds.Decomposition | kinds.Failure:
        if isinstance(game := read_game(problem), kinds.Failure):
            return game
        depth, say = len(game.numbers) - 1, self._say
        joins = [
            say("game_join" if step == 1 else "game_join_next", step=step, ordinal="三四五六"[step - 2])
            for step in range(1, depth)
        ]
        steps_to = [*joins, say("game_reach", step=depth, target=game.target)]
        constraints, goal = [say("game_once"), say("game_operations")], say("game_goal", target=game.target)
        return kinds.Decomposition("single_equation", steps_to, depth, constraints, goal)

    def generate(self, path: Path, request: kinds.GeneratePayload) -> kinds.GeneratedPayload | kinds.Failure:
        game, k = read_game(path[0].content), request.num_candidates
        if isinstance(game, kinds.Failure):
            return game
        if (left := _left(path, game)) is None:
            return _invalid(f"node {path[-1].id} does not state a step of the game")
        best = islice(self._ordered(steps(left), game.target, k), min(k, candidates_max))
        candidates = [
            kinds.Candidate(temp_id=f"cand_{number}", content=self._step(step), action_type=ACTIONS[step.operation])
            for number, step in enumerate(best, 1)
        ]
        return kinds.GeneratedPayload(candidates=candidates)

    def evaluate(self, paths: Sequence[Path], request: kinds.EvaluatePayload) -> kinds.ResultsPayload | kinds.Failure:
        game = read_game(paths[0][0].content)
        return game if isinstance(game, kinds.Failure) else ranked([self._judge(path, game) for path in paths])

    def is_solution(self, path: Path) -> bool:
        game = read_game(path[0].content)
        return isinstance(game, Game) and len(path) > 1 and _left(path, game) == (game.target,)

    def synthesize(self, request: kinds.SynthesizePayload) -> kinds.Solution | kinds.Failure:
        """Return one expression for the path, verified by exact arithmetic from the problem's own numbers."""
        game, say = read_game(request.problem), self._say
        if isinstance(game, kinds.Failure):
            return game
        claims = [read_claim(node.content) for node in request.best_path[1:]]
        done = replay(game.numbers, [claim for claim in claims if claim is not None], say)
        errors = [say("game_no_equation", step=place) for place, claim in enumerate(claims, 1) if claim is None]
        errors += done.errors
        if len(done.terms) != 1:
            errors.append(say("game_not_all", count=len(done.terms)))
        last = done.terms[-1]
        if last.actual != game.target:
            value = say("game_undefined") if last.actual is None else last.actual
            errors.append(say("game_not_target", text=last.text, value=value, target=game.target))
        known = arithmetic.exact_numbers_max >= len(game.numbers)
        others = arithmetic.expressions(*game, alternatives_max + 1) if known else []
        answer = last.text if last.actual is None else f"{last.text} = {last.actual}"
        others = [f"{text} = {game.target}" for text in others if text != last.text][:alternatives_max]
        verification = kinds.Verification(by="program", is_valid=not errors, validation_errors=errors)
        trace, confidence = done.trace or [last.text], 0.0 if errors else 1.0
        return kinds.Solution(answer, trace, confidence, verification, others)

    def _ordered(self, following: list[Claim], target: Fraction, k: int) -> list[Claim]:
        return sorted(following, key=lambda step: self._worth(step.rest, target)[0], reverse=True)

    def _step(self, step: Claim) -> str:
        return self._say("game_step", equation=step.equation, result=step.result, rest=listed(step.rest))

    def _judge(self, path: Path, game: Game) -> kinds.NodeEvaluation:
        claim = read_claim(path[-1].content)
        before = _left(path[:-1], game)
        if claim is None or before is None:
            return _evaluation(path, 0.0, 1.0, self._say("game_no_step"), correct=False)
        checked = replay(before, [claim], self._say)
        if checked.errors:
            return _evaluation(path, 0.0, 1.0, checked.errors[0], correct=False)
        score, confidence, name, values = self._worth(claim.rest, game.target)
        why = self._say(name, rest=listed(claim.rest), target=game.target, **values)
        return _evaluation(path, score, confidence, why)

    def _worth(self, rest: Numbers, target: Fraction) -> StateScore:
        """Return the score of a state: exact for one or two numbers, estimated for more."""
        if len(rest) > PAIR:
            return outlook(rest, target)
        if rest == (target,):
            return StateScore(10.0, 1.0, "game_reached")
        if any(step.rest == (target,) for step in steps(rest)):
            return StateScore(9.5, 1.0, "game_joins")
        return StateScore(0.5, 1.0, "game_missed")


class ExhaustiveGame24(Game24):
    """The exhaustive program: its scorer tries everything."""

    name = "game24-exhaustive"

    def _ordered(self, following: list[Claim], target: Fraction, k: int) -> list[Claim]:
        """Return about half of ``k`` steps that lead to the target, then the others in canonical order."""
        first = [step for step in following if reaches(step.rest, target)][: (k + 1) // 2]
        return [*first, *(step for step in following if step not in first)]

    def _worth(self, rest: Numbers, target: Fraction) -> StateScore:
        if len(rest) > arithmetic.exact_numbers_max:
            return StateScore(5.0, 0.3, "game_unknown")
        ways = sum(reaches(step.rest, target) is True for step in steps(rest))
        if len(rest) <= PAIR or not ways:
            return super()._worth(rest, target) if len(rest) <= PAIR else StateScore(0.5, 1.0, "game_missed")
        return StateScore(7.0 + min(2.5, ways / 2), 1.0, "game_ways", {"ways": ways})


def _invalid(message: str) -> kinds.Failure:
    """Return the failure for a problem or path that is not a game; asking again does not help."""
    return kinds.Failure(code="INVALID_FORMAT", message=message, recoverable=False)


def _left(path: Path, game: Game) -> Numbers | None:
    if len(path) == 1:
        return game.numbers
    claim = read_claim(path[-1].content)
    return None if claim is None else claim.rest


def _evaluation(path: Path, score: float, confidence: float, why: str, *, correct: bool = True) -> kinds.NodeEvaluation:
    dimensions = {"correctness": 10.0 if correct else 0.0, "progress": score, "feasibility": score}
    return kinds.NodeEvaluation(
        node_id=path[-1].id, score=score, confidence=confidence, reasoning=why, dimension_scores=dimensions
    )
