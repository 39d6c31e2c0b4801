"""The reasoning behind something, as whoever reads that gets it: a brief that holds, its fidelity, the latest verdict.

The brief and the decision beside it are those of `snapshot receive` (``act_on``), but nobody is asked: to look is no
act. What names no graph of this ledger, or one that cannot be read, is said and never raised. Briefs are given within a
budget of tokens, in the order of the refs: one that finds no room, or stands there already, is left out, not cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import fetch, published
from deedbook.consumers.reasoning.snapshots.act import Action, act_on, describe
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError
from deedbook.projections.briefs.prompt import TransferLevel, short_ref
from deedbook.projections.briefs.text import one_line

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


# Of a decision, as ``describe`` tells it; and what is told of a ref where there is none.
_TOLD: Final = ("level", "tokens", "fidelity", "dropped", "action", "may_act", "verdict", "prompt", "expanded")
_NO_BRIEF: Final[dict[str, Any]] = {"tokens": 0, "prompt": "", "expanded": ""}
_NOTHING: Final = {"author": "", "at_ms": 0, "conclusion": "", "newer": 0} | dict.fromkeys(("measured", *_TOLD))


class Citations:
    """What stands behind things, each looked at once, with as many briefs as ``tokens`` hold."""

    def __init__(self, view: Ask, tokens: int = shown_tokens_max, asker: str | None = None) -> None:
        """Ask ``view``; what a human answered ``asker`` counts."""
        self._view, self._left, self._asker = view, tokens, asker
        self._seen: dict[str, dict[str, Any]] = {}

    def of(self, refs: Iterable[str]) -> list[dict[str, Any]]:
        """Return what stands behind something by these refs; ``said`` tells all of one in a line of our words.

        ``prompt`` (its brief; ``expanded`` for people) and ``conclusion`` are its author's; ``newer`` counts versions,
        ``measured`` is the fidelity with its parts.
        """
        found: list[dict[str, Any]] = []
        for ref in refs:
            if ref not in self._seen and len(self._seen) == looked_at_max:
                break
            ground = self._seen.get(ref) or _ground(self._view, ref, self._asker)
            if ref in self._seen or ground["tokens"] > self._left:
                ground = ground | _NO_BRIEF  # not in its place: it is told already
            self._left -= ground["tokens"]
            self._seen[ref] = ground
            found.append(ground)
        return found

    def shown(self, handoff: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.show`` with ``result_reasoning`` and ``reasoning``."""
        results = self.of(handoff["result_refs"])
        return {**handoff, "result_reasoning": results, "reasoning": self.of(handoff["reasoning_refs"])}

    def waiting(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.next`` whose items have their ``reasoning``."""
        return {**answer, "items": [{**item, "reasoning": self.of(item["reasoning_refs"])} for item in answer["items"]]}


def _ground(view: Ask, ref: str, asker: str | None) -> dict[str, Any]:
    try:
        decision, reasoning = act_on(view, ref, asker=asker), view("reasoning.show", {"id": ref})
        memory = decision.graph or fetch(view, ref).memory
        # The brief is the decision's own, made here; a published one is looked at for who signed what does not hold.
        _, rejected = published(view, TransferLevel(decision.level), memory, reasoning["domain"])
    except DeedbookError as error:
        why = _ELSEWHERE if error.code == "NOT_FOUND" else f"it cannot be read here ({error.code})"
        return {"reasoning_ref": ref, "said": f"{short_ref(ref)}: {why}", **_NOTHING, **_NO_BRIEF}
    told, review, author = describe(decision), decision.review, reasoning["author"]
    newer = reasoning["version"] - reasoning["asked_version"]
    said = [f"{short_ref(ref)} by {author}, fidelity {told['fidelity']:.2f}", told["verdict"]["text"]]
    if newer:
        said.append(f"extended since: {newer} version{'s' * (newer > 1)} newer")
    if decision.is_imported:
        said.append("imported: nobody here vouches for it")
    if rejected is not None:
        said.append(f"its brief by {rejected.author} does not hold and was made again")
    answered = review is not None and review.verdict is not None
    said.append(f"{review.answered_by}, a human, {review.verdict} it" if review and answered else _MAY[decision.action])
    if asker is not None and decision.action == "human_review_required":
        said += _answers_for_tasks(view, decision.snapshot.reasoning_ref, asker)
    own = {"author": author, "at_ms": reasoning["updated_ms"], "conclusion": memory.conclusion, "newer": newer}
    own["measured"] = msgspec.to_builtins(decision.snapshot.brief_at(TransferLevel(decision.level)).fidelity)
    return {"reasoning_ref": ref, "said": "; ".join(said), **own, **{name: told[name] for name in _TOLD}}


def _answers_for_tasks(view: Ask, ref: str | None, asker: str) -> list[str]:
    """Return the last of what humans answered for one task: it holds for no other, and nobody says here what his is."""
    asked = view("reviews.list", {"reasoning_ref": ref, "author": asker, "status": "answered"})["reviews"]
    answers = (one for one in reversed(asked) if one["task"] and "compromised" not in one)
    said = "{answered_by}, a human, {verdict} it for the task {task!r} (`snapshot receive --task` names it)"
    return [said.format_map(one | {"task": cut(one_line(one["task"]), 80)}) for one in answers][:1]
