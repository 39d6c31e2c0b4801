"""The arithmetic of the game: steps from numbers to numbers, the claims of texts, and their real results.

Values are fractions, never negative: a solution with negative intermediate values can always be rewritten without
(take absolute values; each sum or difference of them is again a sum or difference). No claim is trusted:
every value is recomputed, wrong claims are reported, and the answer states the real value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations
from operator import add, mul, sub, truediv
from typing import Final, NamedTuple, TypeAlias

from deedbook.consumers.thoughts.phrases import phrase
from deedbook.ledger.format.chinese import both_scripts

Numbers: TypeAlias = tuple[Fraction, ...]
Say: TypeAlias = Callable[..., str]
exact_numbers_max: Final = 4
states_known_max: Final = 200_000

_NUMBER: Final = r"-?\d{1,12}(?:/\d{1,12})?"
_CLAIM: Final = re.compile(
    both_scripts(
        rf"\s*({_NUMBER})\s*([-−+×x*÷/])\s*({_NUMBER})\s*=\s*({_NUMBER})"
        rf"\s*[,，;]\s*(?:剩余|left|remaining)\s*[:：]\s*({_NUMBER}(?:\s*[,，、]\s*{_NUMBER})*)\s*"
    )
)
_SPELLED: Final = {"−": "-", "x": "×", "*": "×", "/": "÷"}
_OPERATORS: Final[dict[str, Callable[[Fraction, Fraction], Fraction]]] = {"+": add, "-": sub, "×": mul, "÷": truediv}
_BINDING: Final = {"+": 1, "-": 1, "×": 2, "÷": 2}
_VERBS: Final = {"+": "game_add", "-": "game_subtract", "×": "game_multiply", "÷": "game_divide"}
_LATER_VERBS: Final = _VERBS | {"+": "game_add_later", "-": "game_subtract_later"}
_ATOM: Final = 3


class Claim(NamedTuple):
    """One step: ``left operation right = result``; ``rest`` are the numbers that it claims are left afterwards."""

    left: Fraction
    operation: str
    right: Fraction
    result: Fraction
    rest: Numbers

    @property
    def equation(self) -> str:
        """The text before the equals sign."""
        return f"{self.left} {self.operation} {self.right}"


def compute(left: Fraction, operation: str, right: Fraction) -> Fraction | None:
    """Return the exact result; None for a division by zero."""
    return None if operation == "÷" and not right else _OPERATORS[operation](left, right)


def steps(numbers: Numbers) -> list[Claim]:
    """Return every step from a state in canonical order, larger operand first; only the first step to each state."""
    claims: dict[Numbers, Claim] = {}
    ordered = sorted(numbers, reverse=True)
    for first, second in combinations(range(len(ordered)), 2):
        high, low = ordered[first], ordered[second]
        others = [value for position, value in enumerate(ordered) if position not in (first, second)]
        pairs = [(high, "-", low), (high, "+", low), (high, "×", low), (high, "÷", low), (low, "÷", high)]
        for left, operation, right in pairs:
            result = compute(left, operation, right)
            if result is not None:
                rest = tuple(sorted([*others, result]))
                claims.setdefault(rest, Claim(left, operation, right, result, rest))
    return list(claims.values())


@lru_cache(states_known_max)
def reaches(numbers: Numbers, target: Fraction) -> bool | None:
    """Return whether all numbers together can make the target; None beyond ``exact_numbers_max``."""
    if len(numbers) > exact_numbers_max:
        return None
    return numbers == (target,) or any(reaches(step.rest, target) for step in steps(numbers))


def read_claim(content: str) -> Claim | None:
    """Return the step that a thought states; None if it states none."""
    stated = _CLAIM.fullmatch(content)
    if stated is None:
        return None
    try:
        left, right, result = (Fraction(stated[group]) for group in (1, 3, 4))
        rest = tuple(sorted(Fraction(number) for number in re.findall(_NUMBER, stated[5])))
    except ZeroDivisionError:
        return None
    return Claim(left, _SPELLED.get(stated[2], stated[2]), right, result, rest)


class Term(NamedTuple):
    """A claimed value, the real value of its expression (None: undefined), and the step that made it."""

    claimed: Fraction
    actual: Fraction | None
    text: str
    binding: int = _ATOM
    step: int = 0


class ReplayedSteps(NamedTuple):
    """The result of the steps: the remaining terms, the trace in words, and the errors."""

    terms: list[Term]
    trace: list[str]
    errors: list[str]


def replay(numbers: Numbers, claims: Sequence[Claim], say: Say) -> ReplayedSteps:
    """Return the result of ``claims`` on ``numbers``; every wrong claim is in ``errors``."""
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
            errors.append(say("game_wrong_rest", step=position, left=listed(left), rest=listed(claim.rest)))
    return ReplayedSteps(terms, trace, errors)


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
    """Remove and return a term with this value; if several have it, the latest."""
    fitting = [position for position, term in enumerate(terms) if term.claimed == value]
    return terms.pop(max(fitting, key=lambda position: terms[position].step)) if fitting else None


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


def listed(numbers: Numbers) -> str:
    """Return numbers as text, as in a step."""
    return ", ".join(map(str, numbers))
