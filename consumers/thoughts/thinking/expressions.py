"""From the steps of a path to one expression, checking every claim on the way (the Game of 24's verification).

A claim is believed by nobody: it takes its operands from what is really there, and its result and what it says is left
are recomputed. A wrong one is named, and the value that the expression really has stands in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.thoughts.thinking.arithmetic import Claim, Numbers, compute, steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from consumers.thoughts.thinking.arithmetic import Reach

_BINDING: Final = {"+": 1, "-": 1, "×": 2, "÷": 2}
_VERBS: Final = {"+": "加", "-": "减", "×": "乘以", "÷": "除以"}
_LATER_VERBS: Final = {"+": "加上", "-": "减去", "×": "乘以", "÷": "除以"}
_ATOM: Final = 3


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
            said = f"{claim.left} {claim.operation} {claim.right}"
            errors.append(f"step {position}: {said} = {computed if computed is not None else '∅'}, not {claim.result}")
        trace.append(_words(position, claim, taken[1]))
        terms.append(_joined(position, claim, taken[0], taken[1]))
        left = tuple(sorted(term.claimed for term in terms))
        if left != claim.rest:
            errors.append(f"step {position}: what is left is {_listed(left)}, not {_listed(claim.rest)}")
    return Replayed(terms, trace, errors)


def expressions(numbers: Numbers, reach: Reach, most: int) -> list[str]:
    """Return up to ``most`` different expressions that make the target, in canonical order."""
    found: dict[str, None] = {}
    waiting: list[tuple[Numbers, tuple[Claim, ...]]] = [(numbers, ())]
    while waiting and len(found) < most:
        state, claims = waiting.pop()
        if len(state) == 1:
            found.setdefault(replay(numbers, claims).terms[0].text)
            continue
        hopeful = [step for step in steps(state) if reach.is_reachable(step.rest)]
        waiting.extend((step.rest, (*claims, step)) for step in reversed(hopeful))
    return list(found)


def _take(terms: list[Term], value: Fraction) -> Term | None:
    """Take a term of that value away; of equal ones the latest, as the seed's example does."""
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
