"""The Game of 24 as a program: exact, deterministic, and honest about what it does not know.

It reads "4 9 10 13" and 用4、9、10、13得到24 alike, proposes steps such as "13 - 10 = 3, 剩余: 3, 4, 9", and judges a
step by whether the target can still be reached from what is left: exactly up to four numbers, beyond that it says that
it does not know. Of k proposals about half are steps it holds promising, the others come in canonical order, so that
the evaluator has something to judge. A solution is what claims to be one; whether it holds, the verification says.

Values are fractions, never negative: a solution with negative intermediate values can always be rewritten without
(take absolute values; each sum or difference of them is again a sum or difference). Nothing that a claim says is
believed: all is recomputed, a wrong one is named, and the answer states the real value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from operator import add, mul, sub, truediv
from typing import Final, NamedTuple, TypeAlias

from consumers.thoughts.thinkers import Path, ProgramThinker, invalid
from ledger.events import tot as kinds

Numbers: TypeAlias = tuple[Fraction, ...]
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
_NUMBER: Final = r"-?\d{1,12}(?:/\d{1,12})?"
_CLAIM: Final = re.compile(
    rf"\s*({_NUMBER})\s*([-−+×x*÷/])\s*({_NUMBER})\s*=\s*({_NUMBER})"
    rf"\s*[,，;]\s*(?:剩余|left|remaining)\s*[:：]\s*({_NUMBER}(?:\s*[,，、]\s*{_NUMBER})*)\s*"
)
_SPELLED: Final = {"−": "-", "x": "×", "*": "×", "/": "÷"}
_OPERATORS: Final[dict[str, Callable[[Fraction, Fraction], Fraction]]] = {"+": add, "-": sub, "×": mul, "÷": truediv}
_BINDING: Final = {"+": 1, "-": 1, "×": 2, "÷": 2}
_VERBS: Final = {"+": "加", "-": "减", "×": "乘以", "÷": "除以"}
_LATER_VERBS: Final = {"+": "加上", "-": "减去", "×": "乘以", "÷": "除以"}
_ATOM: Final = 3


class Claim(NamedTuple):
    """One step: ``left operation right = result``; ``rest`` is what it says is left, the result included."""

    left: Fraction
    operation: str
    right: Fraction
    result: Fraction
    rest: Numbers

    def text(self) -> str:
        """Return the step as a thought states it."""
        rest = ", ".join(map(str, self.rest))
        return f"{self.left} {self.operation} {self.right} = {self.result}, 剩余: {rest}"


def compute(left: Fraction, operation: str, right: Fraction) -> Fraction | None:
    """Return the exact result; None for a division by zero."""
    if operation == "÷" and not right:
        return None
    return _OPERATORS[operation](left, right)


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


class Reach:
    """Answers whether a target can be reached, and remembers what it found, up to ``states_known_max`` states."""

    def __init__(self, target: Fraction) -> None:
        self.target = target
        self._known: dict[Numbers, bool] = {}

    def is_reachable(self, numbers: Numbers) -> bool | None:
        """Return whether all the numbers together can make the target; None beyond ``exact_numbers_max``."""
        if len(numbers) > exact_numbers_max:
            return None
        if len(numbers) == 1:
            return numbers[0] == self.target
        known = self._known.get(numbers)
        if known is None:
            known = any(self.is_reachable(step.rest) for step in steps(numbers))
            if len(self._known) < states_known_max:
                self._known[numbers] = known
        return known

    def ways(self, numbers: Numbers) -> int:
        """Return how many next steps keep the target within reach."""
        return sum(self.is_reachable(step.rest) is True for step in steps(numbers))


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


class Game24(ProgramThinker[Game]):
    """The program; what it finds out about a target is remembered."""

    name, task_type = "game24", "math_reasoning"
    problems = "whole numbers that are to make 24 or another one, as '4 9 10 13'"

    def __init__(self) -> None:
        self._reach = Reach(Fraction(24))

    def _read(self, text: str) -> Game | kinds.Failure:
        """Return the game that a problem's text states; 24 is the target unless it names another."""
        text = _TITLE.sub(" ", unicodedata.normalize("NFKC", text))
        named = _TARGET.search(text)
        target = Fraction(int(named[1])) if named else Fraction(24)
        if named:
            text = text[: named.start()] + " " + text[named.end() :]
        tokens = _TOKEN.findall(text)
        wrong = [token for token in tokens if not token.isdecimal() or not token.isascii() or int(token) > number_max]
        if wrong:
            return invalid(f"the game is played with whole numbers up to {number_max}, not {wrong[0][:20]}")
        if not numbers_min <= len(tokens) <= numbers_max:
            return invalid(f"the game needs {numbers_min} to {numbers_max} numbers; here are {len(tokens)}")
        return Game(tuple(sorted(Fraction(int(token)) for token in tokens)), target)

    def _shape(self, problem: Game) -> kinds.Decomposition:
        depth = len(problem.numbers) - 1
        return kinds.Decomposition(
            thought_granularity="single_equation",
            intermediate_steps=[f"Step {step}: 选择两个数字进行运算" for step in range(1, depth)]
            + [f"Step {depth}: 得到目标数字{problem.target}"],
            depth_estimate=depth,
            constraints=["必须使用所有数字各一次", "只能用+-×÷"],
            success_criteria=f"最终结果等于{problem.target}",
        )

    def _proposals(self, path: Path, problem: Game, k: int) -> Iterable[tuple[str, str]] | kinds.Failure:
        """Return the steps from what the path says is left: about half of ``k`` promising ones first."""
        left = _left(path, problem)
        if left is None:
            return invalid(f"node {path[-1].id} states no step of the game")
        reach = self._reach_of(problem.target)
        every = steps(left)
        hopeful = [step for step in every if reach.is_reachable(step.rest)]
        first = hopeful[: (k + 1) // 2]
        chosen = [*first, *(step for step in every if step not in first)]
        return ((step.text(), ACTIONS[step.operation]) for step in chosen)

    def _judged(
        self, paths: Sequence[Path], problem: Game, strategy: kinds.EvaluationStrategy
    ) -> list[kinds.NodeEvaluation]:
        """Return each step's score by what can be reached after it; a vote ranks by the same knowledge."""
        return [self._judge(path, problem) for path in paths]

    def _solves(self, path: Path, problem: Game) -> bool:
        return len(path) > 1 and _left(path, problem) == (problem.target,)

    def _solution(self, path: Path, problem: Game) -> kinds.Solution:
        """Return one expression for the path, verified by exact arithmetic from the problem's own numbers."""
        numbers, target = problem
        claims = [read_claim(node.content) for node in path[1:]]
        done = replay(numbers, [claim for claim in claims if claim is not None])
        errors = [f"step {place}: it states no equation" for place, claim in enumerate(claims, 1) if claim is None]
        errors += done.errors
        if len(done.terms) != 1:
            errors.append(f"{len(done.terms)} numbers are left: every number is used exactly once")
        last = done.terms[-1]
        if last.actual != target:
            errors.append(f"{last.text} is {'undefined' if last.actual is None else last.actual}, not {target}")
        known = exact_numbers_max >= len(numbers)
        others = expressions(numbers, self._reach_of(target), alternatives_max + 1) if known else []
        return kinds.Solution(
            answer=f"{last.text} = {last.actual}" if last.actual is not None else last.text,
            reasoning_trace=done.trace or [f"步骤0: {last.text}"],
            confidence=0.0 if errors else 1.0,
            verification=kinds.Verification(is_valid=not errors, validation_errors=errors),
            alternative_solutions=[f"{text} = {target}" for text in others if text != last.text][:alternatives_max],
        )

    def _judge(self, path: Path, game: Game) -> kinds.NodeEvaluation:
        claim = read_claim(path[-1].content)
        before = _left(path[:-1], game)
        if claim is None or before is None:
            return _evaluation(path, 0.0, 1.0, "这不是一步运算", correct=False)
        checked = replay(before, [claim])
        if checked.errors:
            return _evaluation(path, 0.0, 1.0, checked.errors[0], correct=False)
        reach, rest = self._reach_of(game.target), claim.rest
        within = reach.is_reachable(rest)
        numbers = _listed(rest)
        if rest == (game.target,):
            return _evaluation(path, 10.0, 1.0, f"得到目标{game.target}")
        if within is None:
            return _evaluation(path, 5.0, 0.3, f"剩余 {numbers}: 数字太多, 未能穷尽")
        if not within:
            return _evaluation(path, 0.5, 1.0, f"剩余 {numbers}: 无法得到{game.target}")
        ways = reach.ways(rest)
        return _evaluation(path, 7.0 + min(2.5, ways / 2), 1.0, f"剩余 {numbers}: {ways}种下一步可通向{game.target}")

    def _reach_of(self, target: Fraction) -> Reach:
        if self._reach.target != target:
            self._reach = Reach(target)
        return self._reach


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


def replay(numbers: Numbers, claims: Sequence[Claim]) -> Replayed:
    """Return what ``claims`` make of ``numbers``; every wrong claim is named in ``errors``."""
    terms = [Term(value, value, str(value)) for value in numbers]
    trace: list[str] = []
    errors: list[str] = []
    for position, claim in enumerate(claims, 1):
        taken: list[Term] = []
        for operand in (claim.left, claim.right):
            term = _take(terms, operand)
            if term is None:
                errors.append(f"step {position}: there is no {operand} to use")
                term = Term(operand, operand, str(operand))
            taken.append(term)
        computed = compute(claim.left, claim.operation, claim.right)
        if computed != claim.result:
            sum_ = f"{claim.left} {claim.operation} {claim.right}"
            errors.append(f"step {position}: {sum_} = {computed if computed is not None else '∅'}, not {claim.result}")
        trace.append(_words(position, claim, taken[1]))
        terms.append(_joined(position, claim, taken[0], taken[1]))
        left = tuple(sorted(term.claimed for term in terms))
        if left != claim.rest:
            errors.append(f"step {position}: what is left is {_listed(left)}, not {_listed(claim.rest)}")
    return Replayed(terms, trace, errors)


def expressions(numbers: Numbers, reach: Reach, most: int) -> list[str]:
    """Return up to ``most`` different expressions that make the target, in canonical order."""
    texts: dict[str, None] = {}
    waiting: list[tuple[Numbers, tuple[Claim, ...]]] = [(numbers, ())]
    while waiting and len(texts) < most:
        state, claims = waiting.pop()
        if len(state) == 1:
            texts.setdefault(replay(numbers, claims).terms[0].text)
            continue
        hopeful = [step for step in steps(state) if reach.is_reachable(step.rest)]
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


def _words(position: int, claim: Claim, right: Term) -> str:
    if position == 1:
        return f"步骤1: 用{claim.left}{_VERBS[claim.operation]}{claim.right}得到{claim.result}"
    whose = {0: "剩余的", position - 1: "上一步的"}.get(right.step, "之前的")
    return f"步骤{position}: 用{claim.left}{_LATER_VERBS[claim.operation]}{whose}{claim.right}得到{claim.result}"


def _listed(numbers: Numbers) -> str:
    return ", ".join(map(str, numbers))
