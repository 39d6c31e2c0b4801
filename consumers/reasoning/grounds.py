"""The reasoning behind something, as whoever reads that gets it: a brief that holds, its fidelity, the latest verdict.

- A brief is compared with its graph before it is handed on, and made again where it does not hold (``receive_brief``);
  the decision beside it is that of `snapshot receive` (``act_on``). But nobody is asked here: to look is no act.
- What names no graph of this ledger, or one that cannot be read, is said and never raised: who reads a handoff reads
  it, whatever became of its reasoning.
- Briefs are given within a budget of tokens, in the order of the refs: one that finds no room, or stands there already,
  is left out, not cut. That a reasoning is about the handoff's task is why it goes along, and held against nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from consumers.reasoning.compressor.transfer import receive_brief
from consumers.reasoning.snapshots.act import Action, act_on
from ledger.client import Ask
from ledger.errors import BatonError
from projections.briefs.prompt import TransferLevel, short_ref
from projections.validations.queries import LatestVerdict

shown_tokens_max: Final = 1_500
"""Tokens of all briefs that stand with one handoff."""

next_tokens_max: Final = 600
looked_at_max: Final = 16
"""Of a page of what waits: tokens of all briefs, and reasonings that are looked at, 20 ms each."""

_ELSEWHERE: Final = "no reasoning of this ledger has it: it is of another ledger, or was never recorded here"
_MAY: Final[dict[Action, str]] = {
    "act": "act on the brief",
    "act_on_full": "act on the whole graph",
    "human_review_required": "ask a human before acting on it",
}


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a reasoning that something rests on: ``said`` is all that is told of it, in a line of our words.

    ``prompt`` (its brief) and ``conclusion`` are its author's; ``newer`` counts the versions that were made of it.
    """

    reasoning_ref: str
    said: str
    author: str = ""
    at_ms: int = 0
    conclusion: str = ""
    fidelity: float | None = None
    prompt: str = ""
    tokens: int = 0
    action: Action | None = None
    may_act: bool = False
    verdict: LatestVerdict | None = None
    newer: int = 0


class Grounds:
    """What stands behind things, each looked at once, with as many briefs as ``tokens`` hold."""

    def __init__(self, view: Ask, tokens: int = shown_tokens_max, asker: str | None = None) -> None:
        """Ask ``view``; what a human answered ``asker`` counts."""
        self._view, self._left, self._asker = view, tokens, asker
        self._seen: dict[str, Ground] = {}

    def of(self, refs: Iterable[str]) -> list[dict[str, Any]]:
        """Return what stands behind something by these refs, as plain values."""
        found: list[Ground] = []
        for ref in refs:
            if ref not in self._seen and len(self._seen) == looked_at_max:
                break
            ground = self._seen.get(ref) or _ground(self._view, ref, self._asker)
            if ref in self._seen or ground.tokens > self._left:
                ground = msgspec.structs.replace(ground, prompt="", tokens=0)
            self._left -= ground.tokens
            self._seen[ref] = ground
            found.append(ground)
        return [msgspec.to_builtins(ground) for ground in found]

    def shown(self, handoff: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.show`` with ``result_reasoning`` and ``reasoning``."""
        results = self.of(handoff["result_refs"])
        return {**handoff, "result_reasoning": results, "reasoning": self.of(handoff["reasoning_refs"])}

    def waiting(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.next`` whose items have their ``reasoning``."""
        return {**answer, "items": [{**item, "reasoning": self.of(item["reasoning_refs"])} for item in answer["items"]]}


def _ground(view: Ask, ref: str, asker: str | None) -> Ground:
    try:
        decision = act_on(view, ref, asker=asker)
        received = receive_brief(view, ref, TransferLevel(decision.level), memory=decision.graph)
    except BatonError as error:
        why = _ELSEWHERE if error.code == "NOT_FOUND" else f"it cannot be read here ({error.code})"
        return Ground(reasoning_ref=ref, said=f"{short_ref(ref)}: {why}")
    fidelity, newer, review = received.brief.fidelity.value, received.newer, decision.review
    said = [f"{short_ref(ref)} by {received.author}, fidelity {fidelity:.2f}", received.verdict.text]
    if newer:
        said.append(f"extended since: {newer} version{'s' * (newer > 1)} newer")
    if decision.is_imported:
        said.append("imported: nobody here vouches for it")
    if received.rejected is not None:
        said.append(f"its brief by {received.rejected.author} does not hold and was made again")
    answered = review is not None and review.verdict is not None
    said.append(f"{review.answered_by}, a human, {review.verdict} it" if review and answered else _MAY[decision.action])
    return Ground(
        reasoning_ref=ref,
        said="; ".join(said),
        author=received.author,
        at_ms=received.at_ms,
        conclusion=received.memory.conclusion,
        fidelity=fidelity,
        prompt=received.prompt.prompt,
        tokens=received.prompt.tokens,
        action=decision.action,
        may_act=decision.may_act,
        verdict=received.verdict,
        newer=newer,
    )
