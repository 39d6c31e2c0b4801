"""The reasoning behind something, as whoever reads that gets it: a brief that holds, its fidelity, the latest verdict.

- A brief is compared with its graph before it is handed on, and made again where it does not hold (``receive_brief``);
  the decision beside it is that of `snapshot receive` (``act_on``). But nobody is asked here: to look is no act.
- What names no graph of this ledger, or one that cannot be read, is said in ``problem`` and never raised: who reads a
  handoff reads it, whatever became of its reasoning.
- Briefs are given within a budget of tokens, in the order of the refs: one that finds no room is left out, not cut.
  What is said of it stands there all the same. The task of a handoff is not held against the gate: that a reasoning is
  about it is why it goes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from consumers.reasoning.compressor.transfer import receive_brief
from consumers.reasoning.snapshots.act import Action, act_on
from consumers.reasoning.snapshots.take import assemble
from ledger.client import Ask
from ledger.errors import BatonError
from projections.briefs.certificate import Rejected
from projections.briefs.prompt import TransferLevel, short_ref
from projections.snapshots.snapshot import snapshot_of
from projections.validations.queries import LatestVerdict

shown_tokens_max: Final = 1_500
"""Tokens of all briefs that stand with one handoff."""

next_tokens_max: Final = 600
next_grounds_max: Final = 10
"""Of one page of what waits: tokens of all briefs, and reasonings that are looked at (20 ms each)."""

_MAY: Final[dict[Action, str]] = {
    "act": "act on the brief",
    "act_on_full": "act on the whole graph",
    "human_review_required": "ask a human before acting on it",
}


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a reasoning that something rests on.

    ``said`` is all that is told of it in one line, in words of ours. ``prompt`` (its brief) and ``conclusion`` are
    the author's words; ``newer`` counts the versions that were made of it since.
    """

    reasoning_ref: str
    said: str
    problem: str = ""
    author: str = ""
    at_ms: int = 0
    conclusion: str = ""
    level: str = ""
    fidelity: float | None = None
    prompt: str = ""
    tokens: int = 0
    action: Action | None = None
    reasons: list[str] = []
    verdict: LatestVerdict | None = None
    newer: int = 0
    is_imported: bool = False
    rejected: Rejected | None = None


def find_grounds(view: Ask, refs: Iterable[str], tokens: int = shown_tokens_max) -> list[Ground]:
    """Return what stands behind something by these refs, with as many briefs as ``tokens`` hold."""
    found = []
    for ref in refs:
        try:
            ground = _ground(view, ref)
        except BatonError as error:
            problem = f"{error.code}: it cannot be read here"
            if error.code == "NOT_FOUND":
                problem = "no reasoning of this ledger has it: it is of another ledger, or was never recorded here"
            ground = Ground(reasoning_ref=ref, said=f"{short_ref(ref)}: {problem}", problem=problem)
        if ground.tokens > tokens:
            ground = msgspec.structs.replace(ground, prompt="", tokens=0)
        tokens -= ground.tokens
        found.append(ground)
    return found


def tell_grounds(view: Ask, refs: Iterable[str]) -> list[dict[str, Any]]:
    """Return what is said of what stands behind something, as plain values and without briefs."""
    told: list[dict[str, Any]] = msgspec.to_builtins(find_grounds(view, refs, 0))
    return told


def with_grounds(view: Ask, handoff: Mapping[str, Any], tokens: int = shown_tokens_max) -> dict[str, Any]:
    """Return an answer of ``handoffs.show`` with ``result_reasoning`` and ``reasoning``, each a list of grounds."""
    results = find_grounds(view, handoff["result_refs"], tokens)
    own = [ref for ref in handoff["reasoning_refs"] if ref not in handoff["result_refs"]]
    given = find_grounds(view, own, tokens - sum(one.tokens for one in results))
    return {**handoff, "result_reasoning": msgspec.to_builtins(results), "reasoning": msgspec.to_builtins(given)}


def with_grounds_of_items(view: Ask, answer: Mapping[str, Any], tokens: int = next_tokens_max) -> dict[str, Any]:
    """Return an answer of ``handoffs.next`` whose first items have their ``reasoning``; no brief stands there twice."""
    seen: dict[str, Ground] = {}
    items = []
    for item in answer["items"]:
        grounds = []
        for ref in item["reasoning_refs"]:
            if ref in seen:
                grounds.append(msgspec.structs.replace(seen[ref], prompt="", tokens=0))
            elif len(seen) < next_grounds_max:
                (seen[ref],) = find_grounds(view, [ref], tokens)
                tokens -= seen[ref].tokens
                grounds.append(seen[ref])
        items.append({**item, "reasoning": msgspec.to_builtins(grounds)} if grounds else item)
    return {**answer, "items": items}


def _ground(view: Ask, ref: str) -> Ground:
    # Not by its name: a snapshot may bear any, also this one.
    data, _ = assemble(view, reasoning=ref)
    decision = act_on(view, snapshot_of(data, snapshot_id=""))
    received = receive_brief(view, ref, TransferLevel(decision.level), memory=decision.graph)
    fidelity, newer = received.brief.fidelity.value, received.newer
    said = [f"{short_ref(ref)} by {received.author}, fidelity {fidelity:.2f}", received.verdict.text]
    if newer:
        said.append(f"extended since: {newer} version{'s' * (newer > 1)} newer")
    if decision.is_imported:
        said.append("imported: nobody here vouches for it")
    if received.rejected is not None:
        said.append(f"its brief by {received.rejected.author} does not hold and was made again")
    return Ground(
        reasoning_ref=ref,
        said="; ".join([*said, _MAY[decision.action]]),
        author=received.author,
        at_ms=received.at_ms,
        conclusion=received.memory.conclusion,
        level=decision.level,
        fidelity=fidelity,
        prompt=received.prompt.prompt,
        tokens=received.prompt.tokens,
        action=decision.action,
        reasons=decision.reasons,
        verdict=received.verdict,
        newer=newer,
        is_imported=decision.is_imported,
        rejected=received.rejected,
    )
