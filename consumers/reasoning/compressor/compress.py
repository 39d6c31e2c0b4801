"""The default compressor: deterministic, without a model, every fact a step's own words.

It chooses critical steps and the evidence of them under a hard token budget (``selection``), then spends what is left
as ``_offers`` says. Without an asked budget it stops at a fidelity of .95 (links and other steps are then left out:
they add tokens, not critical reasoning); an asked budget is filled. A graph that fits whole is sent whole, lossless, in
the short form that ``fetch`` sends too. What the CONCLUSION line says word for word is not said again as a fact.

The brief's fidelity is measured on the prompt that the receiver reads at the brief's own level and budget, not on the
envelope. ``budget_needed_for_0.90`` comes from the same sums as the choice, taken without a budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never, cast

from msgspec.structs import replace

from consumers.reasoning.compressor.envelope import empty_brief, make_fact, whole_json, with_facts
from consumers.reasoning.compressor.selection import Candidate, Tally, choose
from consumers.sdk.tokens import Budget
from ledger.events.brief import Brief, Fact, Layout, Remark, RemarkSort, Sizes
from projections.briefs.anchors import anchors, evidence_place
from projections.briefs.embedding import best_embedder, embed_text, pack
from projections.briefs.fidelity import BRIEF_MAX, HIGH_BAND, measure_indexed
from projections.briefs.index import GraphIndex, index_graph, spelled
from projections.briefs.prompt import (
    LEVEL_TOKENS,
    TransferLevel,
    conclusion_share_max,
    context_share_max,
    context_tokens_min,
    shown_conclusion,
    to_context_prompt,
    unfitted_tokens,
)
from projections.briefs.sentences import (
    CONCLUSION,
    CONTEXT,
    EVIDENCE,
    OTHER_STEPS,
    REASONING_BRIEF,
    TAGS,
    TOP_ASSUMPTIONS,
    assumption_line,
    evidence_detail,
    fact_sentence,
    own_line,
    remark_line,
)
from projections.briefs.text import one_line, words
from projections.briefs.tokens import count_tokens
from projections.reasoning.delta import write_full
from projections.reasoning.memory import ReasoningMemory

ENOUGH_FIDELITY: Final = 0.95

checks_max: Final = 3
_margin_tokens: Final = 2
_choices_max: Final = 8
_remark_sorts: Final = frozenset({"limitation", "alternative", "assumption_stated"})
_no_limit: Final = 10**9

SectionOffer: TypeAlias = Literal["top_evidence", "tags"]
"""A section more that the prompt could show."""


class FactOffer(NamedTuple):
    """Something more that the prompt could show of a fact: in which list of the layout, and of which fact."""

    name: Literal["evidence", "checks", "links", "others"]
    fact: Fact


def compress(
    memory: ReasoningMemory,
    level: TransferLevel = TransferLevel.STANDARD,
    budget: int | None = None,
    *,
    context: str | None = None,
    domain: str | None = None,
) -> Brief:
    """Return the brief of a graph for a transfer level, its prompt within ``budget`` tokens (or the level's own)."""
    index = index_graph(memory)
    limit = LEVEL_TOKENS[level][1] if budget is None else budget
    empty = empty_brief(index, level.value, limit, context=context, domain=domain)
    whole = made_whole(empty, memory)
    # Sent whole is what fits; unasked, what fits with every field written out: a graph that only its short form brings
    # under the level's 700 tokens has a brief of .95 at half of that.
    fitting = whole if budget is not None else replace(empty, whole_graph=whole_json(memory))
    candidates = _candidates(index, shown_conclusion(empty))
    if unfitted_tokens(fitting, limit) <= limit - _margin_tokens:
        everything = {step.step_number for step in memory.steps}
        layout = Layout(tags=bool(whole.tags), whole=True)
        brief = with_facts(whole, index, everything, remarks_of(index), layout)
    else:
        brief = _with_chosen(empty, index, candidates, None if budget is not None else ENOUGH_FIDELITY)
    return measured(replace(brief, budget_needed_for_090=budget_needed(index, empty)), index)


def _with_chosen(empty: Brief, index: GraphIndex, candidates: list[Candidate], enough: float | None) -> Brief:
    """Choose facts for the room that the fixed sections leave, then spend the rest."""
    remarks = remarks_of(index)
    limit = empty.budget - _margin_tokens
    room = limit - unfitted_tokens(empty, empty.budget) - count_tokens(f"\n{REASONING_BRIEF}: ")
    for _ in range(_choices_max):
        tally = _tally(index, shown_conclusion(empty))
        chosen = choose(candidates, tally, room, enough or BRIEF_MAX)
        steps = {candidate.step for candidate in chosen.lines if candidate.step is not None}
        noted = sorted(candidate.remark for candidate in chosen.lines if candidate.remark is not None)
        layout = Layout(evidence=sorted(chosen.evidence))
        brief = with_facts(empty, index, steps, [remarks[position] for position in noted], layout)
        over = unfitted_tokens(brief, brief.budget) - limit
        if over <= 0 or not chosen.lines:
            break
        # Lines are counted one by one; together they may cost a little more, assumptions bring a heading of their own,
        # and too few facts bring stock sentences.
        room -= over
    return _spend_rest(brief, index, tally, limit, enough)


def made_whole(empty: Brief, memory: ReasoningMemory) -> Brief:
    """Return a brief that carries its graph whole, in the short form that ``fetch`` sends too."""
    return replace(empty, whole_graph=write_full(memory))


def measured(brief: Brief, index: GraphIndex) -> Brief:
    """Return a brief with the fidelity, the size and the embedding of the prompt that it renders to."""
    prompt = to_context_prompt(brief)
    brief = replace(brief, fidelity=measure_indexed(index, prompt.prompt))
    # The figure is part of the prompt, so the prompt's size is known only now.
    sizes = Sizes(compressed=to_context_prompt(brief).tokens, full=brief.sizes.full)
    return replace(brief, sizes=sizes, embedding=pack(embed_text(brief.reasoning_brief, best_embedder())))


def _candidates(index: GraphIndex, conclusion: str) -> list[Candidate]:
    """Return a line for each critical step and remark that the conclusion's own line does not say already."""
    candidates: list[Candidate] = []
    concluded = spelled(words(conclusion))
    seen: set[str] = set()
    for step in index.memory.steps:
        run = index.step_spelled.get(step.step_number)
        if run is None or run in seen:
            continue
        seen.add(run)
        fact = make_fact(step, index.memory)
        runs = [run, spelled(words(fact.conclusion))] if fact.conclusion else [run]
        if any(part not in concluded for part in runs):
            line = own_line(fact_sentence(fact, Layout()))
            candidates.append(Candidate(line, runs, step=step.step_number, evidence=evidence_detail(fact)))
    for position, remark in enumerate(remarks_of(index)):
        runs = [spelled(words(remark.text))]
        if runs[0] not in concluded:
            candidates.append(Candidate(remark_line(remark), runs, remark=position))
    return candidates


def remarks_of(index: GraphIndex) -> list[Remark]:
    """Return the critical texts of a graph that are no steps."""
    units = [fact.unit for fact in index.key_facts if fact.unit.kind in _remark_sorts]
    return [Remark(cast("RemarkSort", unit.kind), unit.step, unit.text) for unit in units]


def _tally(index: GraphIndex, conclusion: str) -> Tally:
    """Return a tally with what the conclusion's own line says kept, because that line always stands."""
    tally = Tally(index)
    concluded = spelled(words(conclusion))
    tally.keep([fact.spelled for fact in index.key_facts if fact.spelled in concluded], anchors(conclusion))
    return tally


def budget_needed(index: GraphIndex, empty: Brief) -> int | None:
    """Return the smallest budget at which this compressor reaches .90, or None if no budget does."""
    tally = _tally(index, index.memory.conclusion)
    chosen = choose(_candidates(index, index.memory.conclusion), tally, _no_limit, HIGH_BAND)
    if tally.value() < HIGH_BAND:
        return None
    bare = replace(empty, context="", conclusion="")
    assumed = any(fact.unit.kind.startswith("assumption") for fact in index.key_facts)
    headings = count_tokens(f"\n{REASONING_BRIEF}: ") + (count_tokens(f"\n{TOP_ASSUMPTIONS}: ") if assumed else 0)
    fixed = unfitted_tokens(bare, _no_limit) + headings + _margin_tokens + 1
    conclusion = count_tokens(f"{CONCLUSION}: {one_line(empty.conclusion)}\n")
    context = count_tokens(f"{CONTEXT}: {one_line(empty.context)}\n")
    without_context = max(fixed + chosen.tokens + conclusion, math.ceil(conclusion / conclusion_share_max))
    # Where facts are short of room CONTEXT has no more than its least.
    return without_context + min(context, context_tokens_min)


def _spend_rest(brief: Brief, index: GraphIndex, tally: Tally, limit: int, enough: float | None) -> Brief:
    """Return the brief with what else its prompt shows; ``enough`` is None for a budget that is to be filled."""
    kept = [fact.step for fact in brief.facts]
    least, whole = (unfitted_tokens(brief, brief.budget, share) for share in (0.0, context_share_max))
    budget, context = Budget(limit - least), whole - least
    layouts = [brief.layout]
    for offer in _offers(brief, index, fill=enough is None):
        is_evidence = isinstance(offer, FactOffer) and offer.name == "evidence"
        if not is_evidence:
            # Only evidence is worth more than the sender's own summary.
            budget.left, context = budget.left - context, 0
        if is_evidence and enough is not None and tally.value() >= enough:
            continue
        layout = _taken(layouts[-1], offer)
        if not budget.take(_cost(brief, layouts[-1], layout, offer)):
            continue
        layouts.append(layout)
        if isinstance(offer, FactOffer) and offer.name == "evidence":
            tally.keep((), anchors(" ; ".join(evidence_place(text) for text in offer.fact.evidence)))
    while True:
        # Costs were counted line by line; where the lines together cost more, the last offers are given back.
        filled = with_facts(brief, index, kept, brief.remarks, layouts.pop())
        if not layouts or unfitted_tokens(filled, brief.budget) <= limit:
            return filled


def _offers(brief: Brief, index: GraphIndex, *, fill: bool) -> Iterator[FactOffer | SectionOffer]:
    """Yield what may be shown, in the order of spending."""
    yield from (FactOffer("evidence", f) for f in brief.facts if f.evidence and f.step not in brief.layout.evidence)
    checkable = [fact for fact in brief.facts if fact.assumed and fact.check]
    yield from (FactOffer("checks", fact) for fact in (checkable if fill else checkable[:checks_max]))
    if brief.top_evidence_refs and brief.level != TransferLevel.MINIMAL.value:
        yield "top_evidence"
    if fill:
        yield from (FactOffer("links", fact) for fact in brief.facts)
    if brief.tags:
        yield "tags"
    if fill:
        dropped = set(brief.dropped_steps)
        rest = [step for step in index.memory.steps if step.step_number in dropped]
        yield from (FactOffer("others", make_fact(step, index.memory)) for step in rest)


def _taken(layout: Layout, offer: FactOffer | SectionOffer) -> Layout:
    if isinstance(offer, FactOffer):
        return replace(layout, **{offer.name: [*getattr(layout, offer.name), offer.fact.step]})
    return replace(layout, **{offer: True})


def _cost(brief: Brief, before: Layout, after: Layout, offer: FactOffer | SectionOffer) -> int:
    match offer:
        case FactOffer("others", fact):
            heading = "" if before.others else f"\n{OTHER_STEPS}"
            return count_tokens(f"{heading}\n{own_line(fact_sentence(fact, after))}")
        case FactOffer(_, fact):
            return count_tokens(assumption_line(fact, after)) - count_tokens(assumption_line(fact, before))
        case "top_evidence":
            return count_tokens(f"\n{EVIDENCE}: {'; '.join(one_line(ref) for ref in brief.top_evidence_refs)}")
        case "tags":
            return count_tokens(f"\n{TAGS}: {', '.join(tag.tag for tag in brief.tags)}")
        case _:
            assert_never(offer)
