"""The arithmetic of the Game of 24, exact: which steps a handful of numbers allows, and what can be reached from it.

Values are fractions, never negative: a solution with negative intermediate values can always be rewritten without
(take absolute values; each sum or difference of them is again a sum or difference). A state is a sorted tuple.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

Numbers: TypeAlias = tuple[Fraction, ...]

exact_numbers_max: Final = 4
states_known_max: Final = 200_000

ACTIONS: Final = {"+": "addition", "-": "subtraction", "×": "multiplication", "÷": "division"}


class Claim(NamedTuple):
    """One step: ``left operation right = result``; ``rest`` is what it says is left, the result included."""

    left: Fraction
    operation: str
    right: Fraction
    result: Fraction
    rest: Numbers

    def text(self) -> str:
        """Return the step in the seed's form."""
        rest = ", ".join(map(str, self.rest))
        return f"{self.left} {self.operation} {self.right} = {self.result}, 剩余: {rest}"


def compute(left: Fraction, operation: str, right: Fraction) -> Fraction | None:
    """Return the exact result; None for a division by zero."""
    match operation:
        case "+":
            return left + right
        case "-":
            return left - right
        case "×":
            return left * right
        case _:
            return left / right if right else None


def steps(numbers: Numbers) -> list[Claim]:
    """Return every step from a state in canonical order, larger operand first; of steps to one state, the first."""
    found: dict[Numbers, Claim] = {}
    ordered = sorted(numbers, reverse=True)
    for first, second in combinations(range(len(ordered)), 2):
        high, low = ordered[first], ordered[second]
        others = [value for place, value in enumerate(ordered) if place not in (first, second)]
        pairs = [(high, "-", low), (high, "+", low), (high, "×", low), (high, "÷", low), (low, "÷", high)]
        for left, operation, right in pairs:
            result = compute(left, operation, right)
            if result is not None:
                rest = tuple(sorted([*others, result]))
                found.setdefault(rest, Claim(left, operation, right, result, rest))
    return list(found.values())


class Reach:
    """Answers whether a target can be reached, and remembers what it found, up to ``states_known_max`` states."""

    def __init__(self, target: Fraction) -> None:
        """Look for ``target``."""
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
