"""The Game of 24 as a program: exact, deterministic, and honest about what it does not know.

It reads "4 9 10 13" and 用4、9、10、13得到24 alike, nothing else, and proposes "13 - 9 = 4, left: 4, 4, 10".
Two scorers judge a step. ``value`` sees one step ahead, as people do: the steps from what is left that make a factor or
multiple of the target whose partner is there, or come near the target; so it errs, prunes what led to the target, and
turns back (of the 1,362 hands of 1 to 13 that can make 24, 1,319 are solved breadth first with five thoughts a node).
``exhaustive`` (the thinker ``game24-exhaustive``) tries everything up to four numbers and knows: with it a search
demonstrates the protocol, but nothing is searched. Of its k proposals about half are promising, the others come in
canonical order, so that the evaluator has something to judge.

A solution is what claims to be one; whether it holds, the verification says.

Values are fractions, never negative: a solution with negative intermediate values can always be rewritten without
(take absolute values; each sum or difference of them is again a sum or difference). Nothing that a claim says is
believed: all is recomputed, a wrong one is named, and the answer states the real value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations
from operator import add, mul, sub, truediv
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from consumers.thoughts.phrases import phrase
from consumers.thoughts.thinkers import Path, ProgramThinker, invalid, proven
from ledger.events import tot as kinds

Numbers: TypeAlias = tuple[Fraction, ...]
Say: TypeAlias = Callable[..., str]
PAIR: Final = 2
exact_numbers_max: Final = 4
states_known_max: Final = 200_000
ACTIONS: Final = {"+": "addition", "-": "subtraction", "×": "multiplication", "÷": "division"}
numbers_min: Final = 2
numbers_max: Final = 6
number_max: Final = 10_000
alternatives_max: Final = 3

_TARGET: Final = re.compile(
    r"(?:得到|得出|凑成|凑出|算出|等于|\bmake|\bget|\breach|\bobtain|\bequals?|->|→|=)\s*(\d{1,5})(?!\d)", re.IGNORECASE
)
_TITLE: Final = re.compile(r"24\s*点|游戏\s*24|\bgame of 24\b|\b24[ -]game\b", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[-+]?\d[\d./]*")
# All that may stand beside the numbers: with other words it is another problem, which somebody else thinks about.
_BESIDE: Final = re.compile(
    r"(?:\b(?:the|an?|numbers?|digits?|integers?|use|using|with|from|of|out|and|to|by|play|solve|please|how|can|you|i|game"
    r"|given|these|each|every|all|exactly|once|only|target)\b|使用|用|请|将|把|以|给定|通过|只能|这|几个|[二三四五六两]个|每个|各"
    r"|所有|数字|整数|数|的|和|与|恰好|一次|加减乘除|四则运算|运算|计算|如何|怎么|算"
    r"|[-\s,;:.()\[\]\"'?!+*/×÷−。、])*",
    re.IGNORECASE,
)
_EXPRESSION: Final = re.compile(r"\d\s*[-+*/×÷−^]\s*\d")
_NUMBER: Final = r"-?\d{1,12}(?:/\d{1,12})?"
_CLAIM: Final = re.compile(
    rf"\s*({_NUMBER})\s*([-−+×x*÷/])\s*({_NUMBER})\s*=\s*({_NUMBER})"
    rf"\s*[,，;]\s*(?:剩余|left|remaining)\s*[:：]\s*({_NUMBER}(?:\s*[,，、]\s*{_NUMBER})*)\s*"
)
_SPELLED: Final = {"−": "-", "x": "×", "*": "×", "/": "÷"}
_OPERATORS: Final[dict[str, Callable[[Fraction, Fraction], Fraction]]] = {"+": add, "-": sub, "×": mul, "÷": truediv}
_BINDING: Final = {"+": 1, "-": 1, "×": 2, "÷": 2}
_VERBS: Final = {"+": "game_add", "-": "game_subtract", "×": "game_multiply", "÷": "game_divide"}
_LATER_VERBS: Final = _VERBS | {"+": "game_add_later", "-": "game_subtract_later"}
_ATOM: Final = 3


class Claim(NamedTuple):
    """One step: ``left operation right = result``; ``rest`` is what it says is left, the result included."""

    left: Fraction
    operation: str
    right: Fraction
    result: Fraction
    rest: Numbers

    @property
    def equation(self) -> str:
        """What stands before the equals sign."""
        return f"{self.left} {self.operation} {self.right}"


def compute(left: Fraction, operation: str, right: Fraction) -> Fraction | None:
    """Return the exact result; None for a division by zero."""
    return None if operation == "÷" and not right else _OPERATORS[operation](left, right)


def steps(numbers: Numbers) -> list[Claim]:
    """Return every step from a state in canonical order, larger operand first; of steps to one state, the first."""
    claims: dict[Numbers, Claim] = {}
    ordered = sorted(numbers, reverse=True)
    for first, second in combinations(range(len(ordered)), 2):
        high, low = ordered[first], ordered[second]
        others = [value for place, value in enumerate(ordered) if place not in (first, second)]
        pairs = [(high, "-", low), (high, "+", low), (high, "×", low), (high, "÷", low), (low, "÷", high)]
        for left, operation, right in pairs:
            result = compute(left, operation, right)
            if result is not None:
                rest = tuple(sorted([*others, result]))
                claims.setdefault(rest, Claim(left, operation, right, result, rest))
    return list(claims.values())


@lru_cache(states_known_max)
def reaches(numbers: Numbers, target: Fraction) -> bool | None:
    """Return whether all the numbers together can make the target; None beyond ``exact_numbers_max``."""
    if len(numbers) > exact_numbers_max:
        return None
    return numbers == (target,) or any(reaches(step.rest, target) for step in steps(numbers))


class Game(NamedTuple):
    """The numbers, sorted, and what they shall make."""

    numbers: Numbers
    target: Fraction


def read_claim(content: str) -> Claim | None:
    """Return the step that a thought states; None when it states none."""
    stated = _CLAIM.fullmatch(content)
    if stated is None:
        return None
    try:
        left, right, result = (Fraction(stated[place]) for place in (1, 3, 4))
        rest = tuple(sorted(Fraction(number) for number in re.findall(_NUMBER, stated[5])))
    except ZeroDivisionError:
        return None
    return Claim(left, _SPELLED.get(stated[2], stated[2]), right, result, rest)


class Worth(NamedTuple):
    """A state's score, how sure it is, and why: a phrase and its values."""

    score: float
    confidence: float
    why: str
    values: Mapping[str, int] = MappingProxyType({})


@lru_cache(states_known_max)
def outlook(numbers: Numbers, target: Fraction) -> Worth:
    """Return what three numbers or more look like, one step on: an estimate, which may be wrong either way."""
    partners = factors = near = 0
    following = steps(numbers)
    for step in following:
        if len(step.rest) == PAIR and _are_partners(*step.rest, target):
            partners += 1
        elif all(_is_factor(number, target) for number in step.rest):
            factors += 1
        near += abs(step.result - target) <= sum(step.rest) - step.result
    # The weights are those of a search over all hands of 1 to 13; most is worth a factor whose partner is there.
    hope = 2 * min(partners, 2) + 3 * (factors + near) / len(following)
    hope -= sum(0.5 * (number.denominator > 1) + 0.25 * (number > 2 * target) for number in numbers)
    hope += 0.5 * (len(set(numbers)) < len(numbers))
    counts = {"partners": partners, "factors": factors, "steps": len(following)}
    return Worth(round(min(max(3 + hope, 3.0), 9.5), 2), 0.5, "game_value", counts)


def _are_partners(first: Fraction, second: Fraction, target: Fraction) -> bool:
    return target in {first * second, *([first / second] if second else []), *([second / first] if first else [])}


def _is_factor(number: Fraction, target: Fraction) -> bool:
    return bool(number) and ((target / number).denominator == 1 or bool(target and (number / target).denominator == 1))


class Game24(ProgramThinker[Game]):
    """The program that searches: its scorer looks one step ahead."""

    name, task_type = "game24", "math_reasoning"
    problems = "whole numbers that are to make 24 or another one, as '4 9 10 13'"

    def _read(self, text: str) -> Game | kinds.Failure:
        """Return the game that a problem's text states; 24 is the target unless it names another."""
        text = _TITLE.sub(" ", unicodedata.normalize("NFKC", text))
        named = _TARGET.search(text)
        target = Fraction(int(named[1])) if named else Fraction(24)
        if named:
            text = text[: named.start()] + " " + text[named.end() :]
        tokens = _TOKEN.findall(text)
        other = "a formula" if _EXPRESSION.search(text) else _BESIDE.sub("", _TOKEN.sub(" ", text), count=1)
        if other:
            return invalid(f"the game is numbers and what they shall make, and no more: not {other[:20]!r}")
        wrong = [token for token in tokens if not token.isdecimal() or not token.isascii() or int(token) > number_max]
        if wrong:
            return invalid(f"the game is played with whole numbers up to {number_max}, not {wrong[0][:20]}")
        if not numbers_min <= len(tokens) <= numbers_max:
            return invalid(f"the game needs {numbers_min} to {numbers_max} numbers; here are {len(tokens)}")
        return Game(tuple(sorted(Fraction(int(token)) for token in tokens)), target)

    def _shape(self, problem: Game) -> kinds.Decomposition:
        depth, say = len(problem.numbers) - 1, self._say
        joins = [
            say("game_join" if step == 1 else "game_join_next", step=step, ordinal="三四五六"[step - 2])
            for step in range(1, depth)
        ]
        steps_to = [*joins, say("game_reach", step=depth, target=problem.target)]
        constraints, goal = [say("game_once"), say("game_operations")], say("game_goal", target=problem.target)
        return kinds.Decomposition("single_equation", steps_to, depth, constraints, goal)

    def _proposals(self, path: Path, problem: Game, k: int) -> Iterable[tuple[str, str]] | kinds.Failure:
        """Return the steps from what the path says is left, the best first."""
        left = _left(path, problem)
        if left is None:
            return invalid(f"node {path[-1].id} states no step of the game")
        return ((self._step(step), ACTIONS[step.operation]) for step in self._ordered(steps(left), problem.target, k))

    def _ordered(self, following: list[Claim], target: Fraction, k: int) -> list[Claim]:
        """Return steps, those first that look best; ``k`` are asked for."""
        return sorted(following, key=lambda step: self._worth(step.rest, target)[0], reverse=True)

    def _step(self, step: Claim) -> str:
        return self._say("game_step", equation=step.equation, result=step.result, rest=_listed(step.rest))

    def _judged(
        self, paths: Sequence[Path], problem: Game, strategy: kinds.EvaluationStrategy
    ) -> list[kinds.NodeEvaluation]:
        """Return each step's score by what is left after it; a vote ranks by the same."""
        return [self._judge(path, problem) for path in paths]

    def _solves(self, path: Path, problem: Game) -> bool:
        return len(path) > 1 and _left(path, problem) == (problem.target,)

    def _solution(self, path: Path, problem: Game) -> kinds.Solution:
        """Return one expression for the path, verified by exact arithmetic from the problem's own numbers."""
        (numbers, target), say = problem, self._say
        claims = [read_claim(node.content) for node in path[1:]]
        done = replay(numbers, [claim for claim in claims if claim is not None], say)
        errors = [say("game_no_equation", step=place) for place, claim in enumerate(claims, 1) if claim is None]
        errors += done.errors
        if len(done.terms) != 1:
            errors.append(say("game_not_all", count=len(done.terms)))
        last = done.terms[-1]
        if last.actual != target:
            value = say("game_undefined") if last.actual is None else last.actual
            errors.append(say("game_not_target", text=last.text, value=value, target=target))
        known = exact_numbers_max >= len(numbers)
        others = expressions(numbers, target, alternatives_max + 1) if known else []
        answer = last.text if last.actual is None else f"{last.text} = {last.actual}"
        others = [f"{text} = {target}" for text in others if text != last.text][:alternatives_max]
        return proven(answer, done.trace or [last.text], errors, others)

    def _judge(self, path: Path, game: Game) -> kinds.NodeEvaluation:
        claim = read_claim(path[-1].content)
        before = _left(path[:-1], game)
        if claim is None or before is None:
            return _evaluation(path, 0.0, 1.0, self._say("game_no_step"), correct=False)
        checked = replay(before, [claim], self._say)
        if checked.errors:
            return _evaluation(path, 0.0, 1.0, checked.errors[0], correct=False)
        score, confidence, name, values = self._worth(claim.rest, game.target)
        why = self._say(name, rest=_listed(claim.rest), target=game.target, **values)
        return _evaluation(path, score, confidence, why)

    def _worth(self, rest: Numbers, target: Fraction) -> Worth:
        """Return what a state is worth: of one or two numbers it is known, of more estimated."""
        if len(rest) > PAIR:
            return outlook(rest, target)
        if rest == (target,):
            return Worth(10.0, 1.0, "game_reached")
        if any(step.rest == (target,) for step in steps(rest)):
            return Worth(9.5, 1.0, "game_joins")
        return Worth(0.5, 1.0, "game_missed")


class ExhaustiveGame24(Game24):
    """The program that knows: its scorer tries everything."""

    name = "game24-exhaustive"

    def _ordered(self, following: list[Claim], target: Fraction, k: int) -> list[Claim]:
        """Return about half of ``k`` steps that lead to the target, then the others in canonical order."""
        first = [step for step in following if reaches(step.rest, target)][: (k + 1) // 2]
        return [*first, *(step for step in following if step not in first)]

    def _worth(self, rest: Numbers, target: Fraction) -> Worth:
        if len(rest) > exact_numbers_max:
            return Worth(5.0, 0.3, "game_unknown")
        ways = sum(reaches(step.rest, target) is True for step in steps(rest))
        if len(rest) <= PAIR or not ways:
            return super()._worth(rest, target) if len(rest) <= PAIR else Worth(0.5, 1.0, "game_missed")
        return Worth(7.0 + min(2.5, ways / 2), 1.0, "game_ways", {"ways": ways})


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


class Term(NamedTuple):
    """A value that is claimed, the value that its expression really has (None: none), and since which step it is."""

    claimed: Fraction
    actual: Fraction | None
    text: str
    binding: int = _ATOM
    step: int = 0


class Replayed(NamedTuple):
    """What the steps came to: what is left, the trace in words, and what is wrong."""

    terms: list[Term]
    trace: list[str]
    errors: list[str]


def replay(numbers: Numbers, claims: Sequence[Claim], say: Say) -> Replayed:
    """Return what ``claims`` make of ``numbers``; every wrong claim is named in ``errors``."""
    terms = [Term(value, value, str(value)) for value in numbers]
    trace: list[str] = []
    errors: list[str] = []
    for position, claim in enumerate(claims, 1):
        taken: list[Term] = []
        for operand in (claim.left, claim.right):
            term = _take(terms, operand)
            if term is None:
                errors.append(say("game_absent", step=position, operand=operand))
                term = Term(operand, operand, str(operand))
            taken.append(term)
        computed = compute(claim.left, claim.operation, claim.right)
        if computed != claim.result:
            about = {"equation": claim.equation, "computed": "∅" if computed is None else computed}
            errors.append(say("game_wrong", step=position, result=claim.result, **about))
        trace.append(_words(position, claim, taken[1], say))
        terms.append(_joined(position, claim, taken[0], taken[1]))
        left = tuple(sorted(term.claimed for term in terms))
        if left != claim.rest:
            errors.append(say("game_wrong_rest", step=position, left=_listed(left), rest=_listed(claim.rest)))
    return Replayed(terms, trace, errors)


def expressions(numbers: Numbers, target: Fraction, most: int) -> list[str]:
    """Return up to ``most`` different expressions that make the target, in canonical order."""
    texts: dict[str, None] = {}
    waiting: list[tuple[Numbers, tuple[Claim, ...]]] = [(numbers, ())]
    while waiting and len(texts) < most:
        state, claims = waiting.pop()
        if len(state) == 1:
            texts.setdefault(replay(numbers, claims, partial(phrase, "en")).terms[0].text)
            continue
        hopeful = [step for step in steps(state) if reaches(step.rest, target)]
        waiting.extend((step.rest, (*claims, step)) for step in reversed(hopeful))
    return list(texts)


def _take(terms: list[Term], value: Fraction) -> Term | None:
    """Take a term of that value away; of equal ones the latest."""
    fitting = [place for place, term in enumerate(terms) if term.claimed == value]
    return terms.pop(max(fitting, key=lambda place: terms[place].step)) if fitting else None


def _joined(position: int, claim: Claim, left: Term, right: Term) -> Term:
    binding = _BINDING[claim.operation]
    is_strict = claim.operation in "-÷"
    first = f"({left.text})" if left.binding < binding else left.text
    needs = right.binding < binding or (is_strict and right.binding == binding)
    second = f"({right.text})" if needs else right.text
    known = left.actual is not None and right.actual is not None
    actual = compute(left.actual, claim.operation, right.actual) if known else None  # type: ignore[arg-type]  # known
    return Term(claim.result, actual, f"{first} {claim.operation} {second}", binding, position)


def _words(position: int, claim: Claim, right: Term, say: Say) -> str:
    about = {"step": position, "left": claim.left, "right": claim.right, "result": claim.result}
    if position == 1:
        return say("game_first", operation=say(_VERBS[claim.operation]), **about)
    whose = {0: "game_of_rest", position - 1: "game_of_last"}.get(right.step, "game_of_earlier")
    return say("game_next", operation=say(_LATER_VERBS[claim.operation]), whose=say(whose), **about)


def _listed(numbers: Numbers) -> str:
    return ", ".join(map(str, numbers))
