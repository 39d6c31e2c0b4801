"""The reasonings that a handoff cites, for its readers: a checked brief, its fidelity, and the latest verdict of each.

The brief and the decision are those of `snapshot receive` (``act_on``), but no human is asked, because the reader only
reads. A ref that is not in this ledger, or a graph that cannot be read, is reported and never raised. Briefs share a
budget of tokens, in the order of the refs: a brief that does not fit, or was already given, is left out, not cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import evidence_missing, evidence_missing_text, fetch, published
from deedbook.consumers.reasoning.snapshots.act import Action, act_on, describe
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import DeedbookError
from deedbook.projections.briefs.prompt import TransferLevel, fidelity_text, short_ref
from deedbook.projections.briefs.text import one_line
from deedbook.projections.reasoning.memory import ReasoningMemory
from deedbook.projections.redactions.marks import sentence

shown_tokens_max: Final = 1_500
"""Tokens of all briefs beside one handoff."""

next_tokens_max: Final = 600
looked_at_max: Final = 16
"""Limits of a page of `next`: the tokens of all briefs, and the number of reasonings read, 20 ms each."""

_ELSEWHERE: Final = "this ledger has no such reasoning: it belongs to another ledger, or was never recorded"
_MAY: Final[dict[Action, str]] = {
    "act": "act on the brief",
    "act_on_full": "act on the whole graph",
    "human_review_required": "check it, or ask a human, before you rely on it",
}


# The fields of a decision (``describe``) in a citation, and the values for a ref without a reasoning.
_FIELDS: Final = ("level", "tokens", "fidelity", "dropped", "action", "may_act", "verdict", "prompt", "expanded")
_ADVICE: Final = "advice"
_NO_BRIEF: Final[dict[str, Any]] = {"tokens": 0, "prompt": "", "expanded": ""}
_NOTHING: Final = {"author": "", "at_ms": 0, "conclusion": "", "newer": 0} | dict.fromkeys(("measured", *_FIELDS))


class Citations:
    """The citations of handoffs; each reasoning is read once, and the briefs have ``tokens`` tokens together."""

    def __init__(self, view: Ask, tokens: int = shown_tokens_max, asker: str | None = None) -> None:
        """Query ``view``; answers that a human gave to ``asker`` count."""
        self._view, self._left, self._asker = view, tokens, asker
        self._seen: dict[str, dict[str, Any]] = {}

    def of(self, refs: Iterable[str], *, is_question: bool = False) -> list[dict[str, Any]]:
        """Return the citations of these refs; ``said`` is a summary line in our words.

        ``prompt`` (the brief; ``expanded`` for people) and ``conclusion`` are the author's words; ``newer`` counts
        newer versions, ``measured`` is the fidelity with its parts. ``said`` does not mention that a human is asked
        whether to act, because it does not know what the asker knows.
        """
        citations: list[dict[str, Any]] = []
        for ref in refs:
            if ref not in self._seen and len(self._seen) == looked_at_max:
                break
            citation = self._seen.get(ref) or _citation(self._view, ref, self._asker)
            if ref in self._seen or citation["tokens"] > self._left:
                citation = citation | _NO_BRIEF  # no room, or the brief was already given
            self._left -= citation["tokens"]
            self._seen[ref] = citation
            citations.append({name: value for name, value in citation.items() if name != _ADVICE})
            if not is_question and citation[_ADVICE]:
                citations[-1]["said"] += f"; {citation[_ADVICE]}"
        return citations

    def shown(self, handoff: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.show`` with ``result_reasoning`` and ``reasoning``."""
        results = self.of(handoff["result_refs"])
        return {**handoff, "result_reasoning": results, "reasoning": self.of(handoff["reasoning_refs"])}

    def waiting(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer of ``handoffs.next`` with the ``reasoning`` of each item."""
        items = [
            {**item, "reasoning": self.of(item["reasoning_refs"], is_question=item["kind"] == "review")}
            for item in answer["items"]
        ]
        return {**answer, "items": items}


def _citation(view: Ask, ref: str, asker: str | None) -> dict[str, Any]:
    try:
        decision, reasoning = act_on(view, ref, asker=asker), view("reasoning.show", {"id": ref})
        memory = decision.graph or fetch(view, ref).memory
        # The brief is the decision's own, made here. The published one is checked to name the author of a wrong brief.
        _, rejected = published(view, TransferLevel(decision.level), memory, reasoning["domain"])
    except DeedbookError as error:
        why = _ELSEWHERE if error.code == "NOT_FOUND" else f"it cannot be read ({error.code})"
        if redacted := error.details.get("redacted"):
            why = _redacted(view, redacted[0])
        return {"reasoning_ref": ref, "said": f"{short_ref(ref)}: {why}", _ADVICE: "", **_NOTHING, **_NO_BRIEF}
    fields, review, author = describe(decision), decision.review, reasoning["author"]
    newer = reasoning["version"] - reasoning["asked_version"]
    parts = [f"{short_ref(ref)} by {author}, fidelity {fidelity_text(fields['fidelity'])}", fields["verdict"]["text"]]
    if missing := evidence_missing(memory):
        parts.append(evidence_missing_text(missing))
    if newer:
        parts.append(f"changed since: {newer} newer version{'s' * (newer > 1)}")
        parts += _retracted(view, reasoning["id"], memory)
    if decision.is_imported:
        parts.append("imported: nobody here vouches for it")
    if rejected is not None:
        parts.append(f"the brief by {rejected.author} was wrong and was made again")
    is_answered = review is not None and review.verdict is not None
    advice = [
        f"{review.answered_by}, a human, {review.verdict} it" if review and is_answered else _MAY[decision.action]
    ]
    if asker is not None and decision.action == "human_review_required":
        advice += _answers_for_tasks(view, decision.snapshot.reasoning_ref, asker)
    own = {"author": author, "at_ms": reasoning["updated_ms"], "conclusion": memory.conclusion, "newer": newer}
    own["measured"] = msgspec.to_builtins(decision.snapshot.brief_at(TransferLevel(decision.level)).fidelity)
    said = {"said": "; ".join(parts), _ADVICE: "; ".join(advice)}
    return {"reasoning_ref": ref, **said, **own, **{name: fields[name] for name in _FIELDS}}


def _redacted(view: Ask, entry: int) -> str:
    """Return a remark on a cited version that lost texts by a redaction: its hash cannot be checked any more."""
    for redaction in view("redactions.list", {"entry": entry})["items"]:
        return f"{sentence(redaction | {'entry': entry})}. Nobody can check it any more: do not rely on it"
    return "it was redacted: do not rely on it"


def _retracted(view: Ask, id_: str, cited: ReasoningMemory) -> list[str]:
    """Return a remark if its author has retracted steps of the cited version, which its brief may still have."""
    present = {step["step_number"]: step["content"] for step in view("reasoning.show", {"id": id_})["memory"]["steps"]}
    gone = [step.step_number for step in cited.steps if present.get(step.step_number) != step.content]
    if not gone:
        return []
    return [f"its author has retracted step{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}: do not rely on it"]


def _answers_for_tasks(view: Ask, ref: str | None, asker: str) -> list[str]:
    """Return, in words, the newest answer that a human gave for one task. It counts only for that task."""
    reviews = view("reviews.list", {"reasoning_ref": ref, "author": asker, "status": "answered"})["items"]
    answers = (review for review in reversed(reviews) if review["task"] and "compromised" not in review)
    text = "{answered_by}, a human, {verdict} it for the task {task!r} (name your task: `snapshot receive --task`)"
    return [text.format_map(review | {"task": cut(one_line(review["task"]), 80)}) for review in answers][:1]
