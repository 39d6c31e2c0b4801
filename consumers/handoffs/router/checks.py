"""What a check of chains says beyond their form: which can feed each other, and which agents will not do.

Conditions on what only the event will tell (an id, a title with a placeholder) count as met, so a loop may be named
that never comes about, and none is left unnamed. Hops bound every loop in depth. In breadth they do not: chains that
react to ``handoff.created`` react to the router's own events, with nobody's approval in between, and eight steps of
eight hops would be millions. So a file whose chains could make more than ``handoffs_at_once_max`` handoffs of one event
by themselves is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from consumers.handoffs.router.chains import Chain, Step, Template, fits, one_line
from ledger.errors import Refused

Roles: TypeAlias = Mapping[str, frozenset[str]]

handoffs_at_once_max: Final = 1000
_ROUTER: Final = "router"
OWN_KIND: Final = "handoff.created"
"""What the router signs that a chain may react to at once; ``handoff.ready`` needs an approval first."""


def feeds(maker: Chain, step: Step[Template], taker: Chain, *, kind: str | None = None) -> bool:
    """Return whether a handoff that ``step`` of ``maker`` makes could fire ``taker`` (with an event of ``kind``)."""
    if kind is not None and kind not in taker.kinds:
        return False
    known: dict[str, str | None] = {
        "from": _ROUTER,
        "to": step.to.literal,
        "reviewer": None if step.reviewer is None else step.reviewer.literal,
        "chain": maker.name,
        "kind": kind,
        "author": _ROUTER if kind == OWN_KIND else None,
    }
    for condition in taker.where:
        value = known.get(condition.name)
        if value is not None and not condition.is_met_by(value):
            return False
        if condition.name == "title" and not any(_could_give(step.title, pattern) for pattern in condition.patterns):
            return False
    return True


def _could_give(template: Template, pattern: str) -> bool:
    """Return whether a template could give what fits a pattern, as far as their beginnings tell."""
    if template.literal is not None:
        return fits(pattern, one_line(template.literal))
    begun, wanted = one_line(template.parts[0][0]), pattern.partition("*")[0]
    return begun.startswith(wanted) or wanted.startswith(begun)


def find_loops(chains: Sequence[Chain]) -> list[tuple[str, ...]]:
    """Return the loops of chains that can feed themselves, each once, as names from a chain back to itself."""
    after = {
        maker.name: [taker.name for taker in chains if any(feeds(maker, step, taker) for step in maker.steps)]
        for maker in chains
    }
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for name in after:
        loop = _way_back(name, after)
        if loop is not None:
            found.setdefault(frozenset(loop), loop)
    return list(found.values())


def check_breadth(chains: Sequence[Chain]) -> None:
    """Refuse chains that could make too many handoffs of one event without anybody's act in between.

    Raises:
        Refused: ``TOO_LARGE`` with the ``count`` that was reached.
    """
    # How many handoffs each step makes of one event that fires every chain, then of those handoffs, and so on.
    fed = {
        (maker.name, number): [taker for taker in chains if feeds(maker, step, taker, kind=OWN_KIND)]
        for maker in chains
        for number, step in enumerate(maker.steps)
    }
    making = Counter(dict.fromkeys(fed, 1))
    count, hop = 0, 1
    while making:
        count += making.total()
        if count > handoffs_at_once_max:
            message = f"these chains react to {OWN_KIND}, which the router itself signs, and could make more than "
            message += (
                f"{handoffs_at_once_max} handoffs of one event: lower hops_max, or name in `where` whose they are"
            )
            raise Refused("TOO_LARGE", message, count=count)
        hop += 1
        following = Counter[tuple[str, int]]()
        for made, number_of in making.items():
            for taker in fed[made]:
                if hop <= taker.hops_max:
                    following.update({(taker.name, number): number_of for number in range(len(taker.steps))})
        making = following


def _way_back(name: str, after: dict[str, list[str]]) -> tuple[str, ...] | None:
    """Return the shortest way from a chain back to itself."""
    ways: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    for way in ways:
        for following in after[way[-1]]:
            if following == name:
                return (*way, name)
            if following not in seen:
                seen.add(following)
                ways.append((*way, following))
    return None


def described(chain: Chain) -> dict[str, Any]:
    """Return a chain in plain values, as its file says it."""
    return {
        "name": chain.name,
        "when": sorted(chain.kinds),
        "where": {condition.name: list(condition.patterns) for condition in chain.where},
        "hops_max": chain.hops_max,
        "then": [_described(step) for step in chain.steps],
    }


def advise(chains: Sequence[Chain], agents: Roles | None, default_reviewer: str | None) -> list[str]:
    """Return warnings: loops, and, where the roles of the registered ``agents`` are known, who is missing."""
    hops = {chain.name: chain.hops_max for chain in chains}
    warnings = [
        f"loop: {' → '.join(loop)} can go on by itself; it stops after {max(hops[name] for name in loop)} hops"
        for loop in find_loops(chains)
    ]
    for chain in chains:
        for number, step in enumerate(chain.steps, 1):
            missing = _missing(step, agents, default_reviewer)
            warnings += [f"chain {chain.name}, step {number}: {text}" for text in missing]
    return warnings


def _missing(step: Step[Template], agents: Roles | None, default_reviewer: str | None) -> Iterator[str]:
    reviewer = default_reviewer if step.reviewer is None else step.reviewer.literal
    if step.reviewer is None and default_reviewer is None:
        yield "names no reviewer, and there is no default_reviewer in config.toml: the gate will refuse it"
    if reviewer is not None and reviewer == step.to.literal:
        yield f"{reviewer} would review his own work: the gate will refuse it"
    if agents is None:
        return
    if step.to.literal is not None and step.to.literal not in agents:
        yield f"there is no agent {step.to.literal}"
    if reviewer is not None and reviewer not in agents:
        yield f"there is no agent {reviewer}"
    elif reviewer is not None and not agents[reviewer] & {"reviewer", "human"}:
        yield f"{reviewer} is neither reviewer nor human"


def _described(step: Step[Template]) -> dict[str, Any]:
    return {
        name: value.source if isinstance(value, Template) else [one.source for one in value]
        for name, value in msgspec.structs.asdict(step).items()
        if value and name != "unlock_at"
    } | ({"unlock_at": step.unlock_at} if step.unlock_at != "completed" else {})
