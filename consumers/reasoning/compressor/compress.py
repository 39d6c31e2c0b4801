"""The default compressor: deterministic, without a model; every fact is a step's own words.

It orders critical statements, their evidence and checks by worth (``selection``) and keeps as many as fit, counted in
the form that is sent. Without a requested budget it stops at a fidelity of .95, but adds what was ruled out, because a
receiver may try it again: the alternatives of critical steps, and, while the full form fits, the branches that lead
nowhere (``dead_ends``). If all critical statements fit into a requested budget, steps that nothing rests on fill the
rest. A graph that fits whole is sent whole, lossless. A fact does not repeat what the CONCLUSION line already has word
for word.

Rejected: the best of three orders by fidelity (by cost in shorthand, by plain cost, or with more credit for side
remarks of a statement). It gained .003 of fidelity, lost .007 of verbatim text, and took three times as long. The
fidelity is measured on the prompt that the receiver reads, not on the envelope.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import Final, cast

from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.envelope import empty_brief, make_fact, whole_json, with_facts
from deedbook.consumers.reasoning.compressor.selection import Line, Order, Part, Pick
from deedbook.ledger.events.brief import Brief, Layout, Remark, RemarkType, Sizes
from deedbook.projections.briefs import sentences, shorthand
from deedbook.projections.briefs.critical import dead_ends
from deedbook.projections.briefs.embedding import best_embedder, embed_text, pack
from deedbook.projections.briefs.fidelity import HIGH_BAND, measure_indexed
from deedbook.projections.briefs.index import GraphIndex, index_graph, spelled
from deedbook.projections.briefs.prompt import (
    HEAD_OF,
    LEVEL_TOKENS,
    TransferLevel,
    conclusion_share_max,
    prompt_conclusion,
    tight_text,
    to_context_prompt,
    unfitted_tokens,
)
from deedbook.projections.briefs.text import one_line, words
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reasoning.delta import write_full
from deedbook.projections.reasoning.memory import ReasoningMemory

ENOUGH_FIDELITY: Final = 0.95

checks_max: Final = 3
_margin_tokens: Final = 2
_later_tries_max: Final = 12
_dead_ends_max: Final = 12
_joining_saves_max: Final = 8
_guesses_max: Final = 4
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
    whole, choice = replace(empty, whole_graph=write_full(memory)), _Choice(index, empty)
    # A graph that fits is sent whole. Without a requested budget, it must fit with every field written out: if a graph
    # fits into the level's 700 tokens only in its short form, a brief with fidelity .95 takes half of that.
    fitting = whole if budget is not None else replace(empty, whole_graph=whole_json(memory))
    if unfitted_tokens(fitting, limit) <= limit - _margin_tokens:
        everything = {step.step_number for step in memory.steps}
        layout = Layout(tags=bool(whole.tags), whole=True)
        brief = with_facts(whole, index, everything, remarks_of(index), layout)
    else:
        order = choice.order if budget is not None else choice.critical(ENOUGH_FIDELITY) + choice.alternatives()
        brief = _spend_rest(choice.fitting(empty, list(dict.fromkeys(order))), index)
        brief = _with_dead_ends(brief, index) if budget is None else brief
    return measured(replace(brief, budget_needed_for_090=budget_needed(index, empty, choice)), index)


class _Choice:
    """The lines of a graph that may be shown beside the conclusion of a brief, and their order."""

    def __init__(self, index: GraphIndex, empty: Brief) -> None:
        self.index = index
        self.conclusion = prompt_conclusion(empty)
        self._facts = {step.step_number: make_fact(step, index) for step in index.memory.steps}
        self._remarks = remarks_of(index)
        self._lines = list(self._all_lines())
        self.order = list(Order(index, self._lines, self.conclusion).picks())

    def _all_lines(self) -> Iterator[Line]:
        """Yield a line for each step and critical remark that the conclusion's own line does not already contain."""
        concluded = spelled(words(self.conclusion))
        seen: set[str] = set()
        for fact in self._facts.values():
            text, run = sentences.fact_statement(fact), self.index.step_spelled.get(fact.step)
            if run is None:
                if text:
                    yield Line(shorthand.OTHERS, text, (), step=fact.step)
                continue
            if sentences.is_concluded(fact, self.conclusion):
                yield Line("", "", (run,), step=fact.step, evidence=sentences.evidence_detail(fact))
            runs = (run, spelled(words(fact.conclusion))) if fact.conclusion else (run,)
            if text and run not in seen and any(part not in concluded for part in runs):
                head = shorthand.ASSUMED if fact.assumed else shorthand.BRIEF
                check = sentences.check_detail(fact) if fact.assumed else ""
                yield Line(head, text, runs, step=fact.step, evidence=sentences.evidence_detail(fact), check=check)
            seen.add(run)
        for position, remark in enumerate(self._remarks):
            run = spelled(words(remark.text))
            if run not in concluded:
                yield Line(HEAD_OF[remark.type], one_line(remark.text), (run,), remark=position)

    def critical(self, enough: float) -> list[Pick]:
        """Return the shortest prefix of the order that reaches a fidelity, without the steps that nothing rests on."""
        critical = [pick for pick in self.order if self._lines[pick.place].head != shorthand.OTHERS]
        end = next((count for count, pick in enumerate(critical, start=1) if pick.value >= enough), len(critical))
        return critical[:end]

    def alternatives(self) -> list[Pick]:
        """Return the alternatives of critical steps in their order."""
        return [pick for pick in self.order if self._lines[pick.place].head == shorthand.ALTERNATIVES]

    def holding(self, empty: Brief, picks: Iterable[Pick]) -> Brief:
        places: dict[Part, set[int]] = {part: set() for part in Part}
        for pick in picks:
            places[pick.part].add(pick.place)
        lines = [self._lines[place] for place in sorted(set().union(*places.values()))]
        steps = {part: [self._lines[place].step or 0 for place in sorted(own)] for part, own in places.items()}
        others = [line.step for line in lines if line.step is not None and line.head == shorthand.OTHERS]
        layout = Layout(evidence=sorted(steps[Part.EVIDENCE]), checks=sorted(steps[Part.CHECK]), others=sorted(others))
        facts = [self._facts[line.step] for line in lines if line.step is not None]
        remarks = [self._remarks[line.remark] for line in lines if line.remark is not None]
        return replace(empty, facts=facts, remarks=remarks, layout=layout)

    def fitting(self, empty: Brief, order: list[Pick]) -> Brief:
        """Return a brief with the longest prefix of an order that fits, and later picks that also fit."""

        @cache
        def prefix(count: int) -> tuple[Brief, int]:
            brief = self.holding(empty, order[:count])
            return brief, empty.budget - count_tokens(tight_text(brief))

        costs = list(accumulate(map(self._tokens, order), initial=0))
        count, beyond, middle = 0, len(order) + 1, bisect(costs, empty.budget)
        for tries in range(beyond):
            middle = min(max(middle, count + 1), beyond - 1)
            room = prefix(middle)[1]
            count, beyond = (middle, beyond) if room >= 0 else (count, middle)
            if beyond - count <= 1:
                break
            # Assume that shorthand saves the same share of a slightly different prefix; if that fails, bisect.
            frame = prefix(0)[1]
            fitting = costs[middle] * frame / max(1, frame - room)
            middle = bisect(costs, fitting) - 1 if tries < _guesses_max else (count + beyond) // 2
        (brief, room), picks = prefix(count), order[:count]
        picked = {pick.place for pick in picks}
        # If a statement is not shown, its evidence and checks say nothing.
        later = [pick for pick in order[count:] if pick.part is Part.STATEMENT or pick.place in picked]
        for pick in later[:_later_tries_max]:
            # Beside other statements, a statement may cost a little less than alone.
            if self._tokens(pick) <= room + _joining_saves_max:
                more = self.holding(empty, [*picks, pick])
                left = empty.budget - count_tokens(tight_text(more))
                if left >= 0:
                    picks, brief, room = [*picks, pick], more, left
        return brief

    def _tokens(self, pick: Pick) -> int:
        line = self._lines[pick.place]
        return count_tokens((line.text, line.evidence, line.check)[pick.part])


def measured(brief: Brief, index: GraphIndex) -> Brief:
    """Return a brief with the fidelity, size and embedding of its rendered prompt."""
    prompt = to_context_prompt(brief)
    brief = replace(brief, fidelity=measure_indexed(index, prompt.prompt))
    # The figure is part of the prompt (the first line if a graph has no conclusion), so the size is known only now.
    if f"{sentences.FIDELITY}: " in prompt.prompt:
        prompt = to_context_prompt(brief)
    sizes = Sizes(compressed=prompt.tokens, full=brief.sizes.full)
    return replace(brief, sizes=sizes, embedding=pack(embed_text(brief.reasoning_brief, best_embedder())))


def remarks_of(index: GraphIndex) -> list[Remark]:
    """Return the critical texts of a graph that are not steps."""
    units = [fact.unit for fact in index.key_facts if fact.unit.kind in _remark_sorts]
    return [Remark(cast("RemarkType", unit.kind), unit.step, unit.text) for unit in units]


def budget_needed(index: GraphIndex, empty: Brief, choice: _Choice | None = None) -> int | None:
    """Return the smallest budget at which this compressor reaches .90, or None; ``choice`` may be one already made."""
    endless = replace(empty, budget=_no_limit)
    if choice is None or choice.conclusion != prompt_conclusion(endless):
        choice = _Choice(index, endless)
    order = choice.critical(HIGH_BAND)
    if order and order[-1].value < HIGH_BAND:
        return None
    conclusion = count_tokens(f"{sentences.CONCLUSION}: {one_line(empty.conclusion)}\n")
    needed = count_tokens(tight_text(choice.holding(endless, order)))
    return max(needed, math.ceil(conclusion / conclusion_share_max))


def _spend_rest(brief: Brief, index: GraphIndex) -> Brief:
    steps = {fact.step for fact in brief.facts}.difference(brief.layout.others)
    layouts = [brief.layout]
    checks = [fact.step for fact in brief.facts if fact.assumed and fact.check][:checks_max]
    layouts.append(replace(layouts[-1], checks=sorted({*checks, *brief.layout.checks})))
    if brief.level != TransferLevel.MINIMAL.value:
        layouts.append(replace(layouts[-1], top_evidence=bool(brief.top_evidence_refs)))
    layouts.append(replace(layouts[-1], tags=bool(brief.tags)))
    while True:
        spent = with_facts(brief, index, steps, brief.remarks, layouts.pop())
        if not layouts or unfitted_tokens(spent, brief.budget) <= brief.budget - _margin_tokens:
            return spent


def _with_dead_ends(brief: Brief, index: GraphIndex) -> Brief:
    """Return a brief with the steps of dead ends that its full form has room for, in the order of their branches."""
    for step in dead_ends(index.memory, set(index.step_spelled))[:_dead_ends_max]:
        layout = replace(brief.layout, others=sorted({*brief.layout.others, step}))
        steps = {fact.step for fact in brief.facts}.difference(brief.layout.others)
        more = with_facts(brief, index, steps, brief.remarks, layout)
        if unfitted_tokens(more, brief.budget) <= brief.budget - _margin_tokens:
            brief = more
    return brief
