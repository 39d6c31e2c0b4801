"""What to do with the tokens that the facts left over (DESIGN §9, the order of spending)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from consumers.reasoning.compressor.envelope import make_fact, with_facts
from consumers.sdk.tokens import Budget
from projections.briefs.anchors import anchors, evidence_place
from projections.briefs.prompt import TransferLevel, context_share_max, unfitted_tokens
from projections.briefs.sentences import EVIDENCE, OTHER_STEPS, TAGS, assumption_line, fact_sentence, own_line
from projections.briefs.text import one_line
from projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from consumers.reasoning.compressor.selection import Tally
    from ledger.events.brief import Brief, Fact, Layout
    from projections.briefs.index import GraphIndex

checks_max: Final = 3


class Offer(NamedTuple):
    """Something more that the prompt could show: which particular, and of which fact."""

    name: str
    fact: Fact | None


def spend_rest(brief: Brief, index: GraphIndex, tally: Tally, limit: int, enough: float | None) -> Brief:
    """Return the brief with what else its prompt shows; ``enough`` is None for a budget that is to be filled."""
    kept = [fact.step for fact in brief.facts]
    least, whole = (unfitted_tokens(brief, brief.budget, share) for share in (0.0, context_share_max))
    budget, context = Budget(limit - least), whole - least
    layouts = [brief.layout]
    for offer in _offers(brief, index, fill=enough is None):
        if offer.name != "evidence":
            # Only evidence is worth more than the sender's own summary.
            budget.left, context = budget.left - context, 0
        if offer.name == "evidence" and enough is not None and tally.value() >= enough:
            continue
        layout = _taken(layouts[-1], offer)
        if not budget.take(_cost(brief, layouts[-1], layout, offer)):
            continue
        layouts.append(layout)
        if offer.name == "evidence" and offer.fact is not None:
            tally.keep((), anchors(" ; ".join(evidence_place(text) for text in offer.fact.evidence)))
    while True:
        # Costs were counted line by line; where the lines together cost more, the last offers are given back.
        filled = with_facts(brief, index, kept, brief.remarks, layouts.pop())
        if not layouts or unfitted_tokens(filled, brief.budget) <= limit:
            return filled


def _offers(brief: Brief, index: GraphIndex, *, fill: bool) -> Iterator[Offer]:
    """Yield what may be shown, in the order of spending."""
    yield from (Offer("evidence", f) for f in brief.facts if f.evidence and f.step not in brief.layout.evidence)
    checkable = [fact for fact in brief.facts if fact.assumed and fact.check]
    yield from (Offer("checks", fact) for fact in (checkable if fill else checkable[:checks_max]))
    if brief.top_evidence_refs and brief.level != TransferLevel.MINIMAL.value:
        yield Offer("top_evidence", None)
    if fill:
        yield from (Offer("links", fact) for fact in brief.facts)
    if brief.tags:
        yield Offer("tags", None)
    if fill:
        dropped = set(brief.dropped_steps)
        rest = [step for step in index.memory.steps if step.step_number in dropped]
        yield from (Offer("others", make_fact(step, index.memory)) for step in rest)


def _taken(layout: Layout, offer: Offer) -> Layout:
    match offer.name, offer.fact:
        case "top_evidence", _:
            return replace(layout, top_evidence=True)
        case "evidence", fact if fact is not None:
            return replace(layout, evidence=[*layout.evidence, fact.step])
        case "checks", fact if fact is not None:
            return replace(layout, checks=[*layout.checks, fact.step])
        case "links", fact if fact is not None:
            return replace(layout, links=[*layout.links, fact.step])
        case "others", fact if fact is not None:
            return replace(layout, others=[*layout.others, fact.step])
        case _:
            return replace(layout, tags=True)


def _cost(brief: Brief, before: Layout, after: Layout, offer: Offer) -> int:
    match offer.name, offer.fact:
        case "top_evidence", _:
            return count_tokens(f"\n{EVIDENCE}: {'; '.join(one_line(ref) for ref in brief.top_evidence_refs)}")
        case "others", fact if fact is not None:
            heading = "" if before.others else f"\n{OTHER_STEPS}"
            return count_tokens(f"{heading}\n{own_line(fact_sentence(fact, after))}")
        case _, fact if fact is not None:
            return count_tokens(assumption_line(fact, after)) - count_tokens(assumption_line(fact, before))
        case _:
            return count_tokens(f"\n{TAGS}: {', '.join(tag.tag for tag in brief.tags)}")
