"""Chains that can feed each other: what a check warns of, and what no file may ask for.

One chain feeds another when a handoff that it makes could meet the other's conditions. Conditions on what only the
event will tell (an id, a title with a placeholder) count as met, so a loop may be named that never comes about, and
none is left unnamed. Hops bound every loop in depth. In breadth they do not: chains that react to ``handoff.created``
react to the router's own events, with nobody's approval in between, and eight steps of eight hops would be millions.
So a file whose chains could make more than ``handoffs_at_once_max`` handoffs of one event by themselves is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.handoffs.router.chains import fits
from consumers.handoffs.router.templates import one_line
from ledger.errors import Refused

if TYPE_CHECKING:
    from consumers.handoffs.router.chains import Chain, Chains, Step
    from consumers.handoffs.router.templates import Template

handoffs_at_once_max: Final = 1000
OWN_KIND: Final = "handoff.created"
"""What the router signs that a chain may react to at once; ``handoff.ready`` needs an approval first."""


def feeds(maker: Chain, step: Step, taker: Chain, *, router: str = "router", kind: str | None = None) -> bool:
    """Return whether a handoff that ``step`` of ``maker`` makes could fire ``taker`` (with an event of ``kind``)."""
    if kind is not None and kind not in taker.kinds:
        return False
    known: dict[str, str | None] = {
        "from": router,
        "to": step.to.literal,
        "reviewer": None if step.reviewer is None else step.reviewer.literal,
        "chain": maker.name,
        "kind": kind,
        "author": router if kind == OWN_KIND else None,
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


def find_loops(chains: Chains, *, router: str = "router") -> list[tuple[str, ...]]:
    """Return the loops of chains that can feed themselves, each once, as names from a chain back to itself."""
    after = {
        maker.name: [
            taker.name
            for taker in chains.chains
            if any(feeds(maker, step, taker, router=router) for step in maker.steps)
        ]
        for maker in chains.chains
    }
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for name in after:
        loop = _way_back(name, after)
        if loop is not None:
            found.setdefault(frozenset(loop), loop)
    return list(found.values())


def check_breadth(chains: Chains, *, router: str = "router") -> None:
    """Refuse chains that could make too many handoffs of one event without anybody's act in between.

    Raises:
        Refused: ``TOO_LARGE`` with the ``count`` that was reached.
    """
    # How many handoffs each step makes of one event that fires every chain, then of those handoffs, and so on.
    making = {(chain.name, number): 1 for chain in chains.chains for number in range(len(chain.steps))}
    own = {chain.name: chain for chain in chains.chains}
    fed = {
        (maker, number): [
            taker
            for taker in chains.chains
            if feeds(own[maker], own[maker].steps[number], taker, router=router, kind=OWN_KIND)
        ]
        for maker, number in making
    }
    count, hop = 0, 1
    while making:
        count += sum(making.values())
        if count > handoffs_at_once_max:
            raise Refused(
                "TOO_LARGE",
                f"these chains react to {OWN_KIND}, which the router itself signs, and could make more than "
                f"{handoffs_at_once_max} handoffs of one event: lower hops_max, or name in `where` whose they are",
                count=count,
            )
        hop += 1
        following: dict[tuple[str, int], int] = {}
        for made, number_of in making.items():
            for taker in fed[made]:
                if hop <= taker.hops_max:
                    for number in range(len(taker.steps)):
                        key = (taker.name, number)
                        following[key] = following.get(key, 0) + number_of
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
