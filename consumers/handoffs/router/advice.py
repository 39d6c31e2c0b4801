"""What a check of chains says beyond refusing: chains in plain values, loops, and agents that will not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumers.handoffs.router.loops import find_loops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from consumers.handoffs.router.chains import Chain, Chains, Step

_SINGLE = ("to", "reviewer", "title", "id", "task", "context", "proposal", "answers")
_LISTS = ("tasks", "criteria", "depends_on")


def described(chain: Chain) -> dict[str, Any]:
    """Return a chain in plain values, as its file says it."""
    return {
        "name": chain.name,
        "when": sorted(chain.kinds),
        "where": {condition.name: list(condition.patterns) for condition in chain.where},
        "hops_max": chain.hops_max,
        "then": [_described(step) for step in chain.steps],
    }


def advise(chains: Chains, agents: Mapping[str, frozenset[str]] | None, default_reviewer: str | None) -> list[str]:
    """Return warnings: loops, and, where the roles of the registered ``agents`` are known, who is missing."""
    hops = {chain.name: chain.hops_max for chain in chains.chains}
    warnings = [
        f"loop: {' → '.join(loop)} can go on by itself; it stops after {max(hops[name] for name in loop)} hops"
        for loop in find_loops(chains)
    ]
    for chain in chains.chains:
        for number, step in enumerate(chain.steps, 1):
            warnings += [
                f"chain {chain.name}, step {number}: {text}" for text in _missing(step, agents, default_reviewer)
            ]
    return warnings


def _missing(step: Step, agents: Mapping[str, frozenset[str]] | None, default_reviewer: str | None) -> Iterator[str]:
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


def _described(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {name: one.source for name in _SINGLE if (one := getattr(step, name)) is not None}
    shown |= {name: [one.source for one in lines] for name in _LISTS if (lines := getattr(step, name))}
    return shown | ({"unlock_at": step.unlock_at} if step.unlock_at != "completed" else {})
