"""The default compressor: deterministic, without a model, every fact a step's own words (DESIGN §9).

It chooses critical steps along the dependency graph and the evidence of them under a hard token budget (``selection``),
then spends what is left in this order: evidence, CONTEXT up to its share, how to check the first assumptions, the
EVIDENCE section, links, tags, other steps. Without an asked budget it stops at a fidelity of .95 (links and other steps
are then left out: they add tokens, not critical reasoning); an asked budget is filled. A graph that fits whole is sent
whole, lossless, in the short form that ``fetch`` sends too. What the CONCLUSION line says word for word is not said
again as a fact.

The brief's fidelity is measured on the prompt that the receiver reads at the brief's own level and budget, not on the
envelope. ``budget_needed_for_0.90`` comes from the same sums as the choice, taken without a budget.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from consumers.reasoning.compressor.envelope import (
    COMPRESSOR_NAME,
    COMPRESSOR_VERSION,
    empty_brief,
    make_fact,
    whole_json,
    with_facts,
)
from consumers.reasoning.compressor.selection import Candidate, Tally, choose
from consumers.reasoning.compressor.spending import spend_rest
from ledger.events.brief import Layout, Remark, Sizes
from projections.briefs.anchors import anchors
from projections.briefs.embedding import embed_text, pack
from projections.briefs.fidelity import BRIEF_MAX, HIGH_BAND, measure_indexed
from projections.briefs.index import index_graph, spelled
from projections.briefs.prompt import (
    LEVEL_TOKENS,
    TransferLevel,
    conclusion_share_max,
    context_tokens_min,
    shown_conclusion,
    to_context_prompt,
    unfitted_tokens,
)
from projections.briefs.sentences import (
    CONCLUSION,
    CONTEXT,
    REASONING_BRIEF,
    TOP_ASSUMPTIONS,
    evidence_detail,
    fact_sentence,
    own_line,
    remark_line,
)
from projections.briefs.text import one_line, words
from projections.briefs.tokens import count_tokens
from projections.reasoning.delta import write_full

if TYPE_CHECKING:
    from ledger.events.brief import Brief, RemarkSort
    from projections.briefs.index import GraphIndex
    from projections.reasoning.memory import ReasoningMemory

__all__ = ["COMPRESSOR_NAME", "COMPRESSOR_VERSION", "ENOUGH_FIDELITY", "compress"]

ENOUGH_FIDELITY: Final = 0.95

_margin_tokens: Final = 2
_choices_max: Final = 8
_remark_sorts: Final = frozenset({"limitation", "alternative", "assumption_stated"})
_no_limit: Final = 10**9


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
    whole = replace(empty, whole_graph=write_full(memory))
    # Sent whole is what fits; unasked, what fits with every field written out: a graph that only its short form brings
    # under the level's 700 tokens has a brief of .95 at half of that.
    fitting = whole if budget is not None else replace(empty, whole_graph=whole_json(memory))
    candidates = _candidates(index, shown_conclusion(empty))
    needed = _budget_needed(index, empty)
    if unfitted_tokens(fitting, limit) <= limit - _margin_tokens:
        brief = _with_everything(whole, index)
    else:
        brief = _with_chosen(empty, index, candidates, None if budget is not None else ENOUGH_FIDELITY)
    return _measured(replace(brief, budget_needed_for_090=needed), index)


def _with_everything(whole: Brief, index: GraphIndex) -> Brief:
    remarks = _remarks(index)
    everything = {step.step_number for step in index.memory.steps}
    layout = Layout(tags=bool(whole.tags), whole=True)
    return with_facts(whole, index, everything, remarks, layout)


def _with_chosen(empty: Brief, index: GraphIndex, candidates: list[Candidate], enough: float | None) -> Brief:
    """Choose facts for the room that the fixed sections leave, then spend the rest."""
    remarks = _remarks(index)
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
    return spend_rest(brief, index, tally, limit, enough)


def _measured(brief: Brief, index: GraphIndex) -> Brief:
    prompt = to_context_prompt(brief)
    brief = replace(brief, fidelity=measure_indexed(index, prompt.prompt))
    # The figure is part of the prompt, so the prompt's size is known only now.
    sizes = Sizes(compressed=to_context_prompt(brief).tokens, full=brief.sizes.full)
    return replace(brief, sizes=sizes, embedding=pack(embed_text(brief.reasoning_brief)))


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
    for position, remark in enumerate(_remarks(index)):
        runs = [spelled(words(remark.text))]
        if runs[0] not in concluded:
            candidates.append(Candidate(remark_line(remark), runs, remark=position))
    return candidates


def _remarks(index: GraphIndex) -> list[Remark]:
    units = [fact.unit for fact in index.key_facts if fact.unit.kind in _remark_sorts]
    return [Remark(cast("RemarkSort", unit.kind), unit.step, unit.text) for unit in units]


def _tally(index: GraphIndex, conclusion: str) -> Tally:
    """Return a tally with what the conclusion's own line says kept, because that line always stands."""
    tally = Tally(index)
    concluded = spelled(words(conclusion))
    tally.keep([fact.spelled for fact in index.key_facts if fact.spelled in concluded], anchors(conclusion))
    return tally


def _heading_tokens(index: GraphIndex) -> int:
    assumed = any(fact.unit.kind.startswith("assumption") for fact in index.key_facts)
    return count_tokens(f"\n{REASONING_BRIEF}: ") + (count_tokens(f"\n{TOP_ASSUMPTIONS}: ") if assumed else 0)


def _budget_needed(index: GraphIndex, empty: Brief) -> int | None:
    """Return the smallest budget at which this compressor reaches .90, or None if no budget does."""
    tally = _tally(index, index.memory.conclusion)
    chosen = choose(_candidates(index, index.memory.conclusion), tally, _no_limit, HIGH_BAND)
    if tally.value() < HIGH_BAND:
        return None
    bare = replace(empty, context="", conclusion="")
    fixed = unfitted_tokens(bare, _no_limit) + _heading_tokens(index) + _margin_tokens + 1
    conclusion = count_tokens(f"{CONCLUSION}: {one_line(empty.conclusion)}\n")
    context = count_tokens(f"{CONTEXT}: {one_line(empty.context)}\n")
    without_context = max(fixed + chosen.tokens + conclusion, math.ceil(conclusion / conclusion_share_max))
    # Where facts are short of room CONTEXT has no more than its least.
    return without_context + min(context, context_tokens_min)
