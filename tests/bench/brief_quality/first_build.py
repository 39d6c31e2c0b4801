"""The brief of the first compressor, as a baseline: another selection, one layout, no shorthand.

This module builds only the content of that compressor's prompt, for a given budget. ``first_selection`` chooses facts
and remarks. Evidence, checks, tags and other steps use the rest of the budget. All sections have their full names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from deedbook.consumers.reasoning.compressor.compress import remarks_of
from deedbook.consumers.reasoning.compressor.envelope import empty_brief, make_fact, with_facts
from deedbook.ledger.events.brief import Layout
from deedbook.projections.briefs.anchors import anchors, evidence_location
from deedbook.projections.briefs.fidelity import BRIEF_MAX, measure_indexed
from deedbook.projections.briefs.index import index_graph, spelled
from deedbook.projections.briefs.prompt import TransferLevel, cut_to_tokens, prompt_conclusion, section_lines
from deedbook.projections.briefs.sentences import (
    CONCLUSION,
    CONTEXT,
    EVIDENCE,
    FIDELITY,
    OTHER_STEPS,
    REASONING_BRIEF,
    TAGS,
    TOP_ASSUMPTIONS,
    evidence_detail,
    fact_line,
    fact_sentence,
    own_line,
    remark_line,
)
from deedbook.projections.briefs.text import words
from deedbook.projections.briefs.tokens import count_tokens
from tests.bench.brief_quality.first_selection import Candidate, Tally, choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.events.brief import Brief, Fact
    from deedbook.projections.briefs.index import GraphIndex
    from deedbook.projections.reasoning.memory import ReasoningMemory

CONTEXT_TOKENS_MIN: Final = 16
CONTEXT_SHARE: Final = 0.25
CONCLUSION_SHARE: Final = 0.5
MARGIN_TOKENS: Final = 2
CHOICES_MAX: Final = 8
DROPPED_FIRST: Final = (TAGS, EVIDENCE, REASONING_BRIEF, TOP_ASSUMPTIONS, FIDELITY, CONTEXT, CONCLUSION)


def first_build(memory: ReasoningMemory, budget: int, level: TransferLevel) -> str:
    """Return the first compressor's prompt for a graph that is larger than the budget."""
    index = index_graph(memory)
    empty = empty_brief(index, level.value, budget)
    brief = _spend_rest(*_chosen(empty, index), index)
    brief = replace(brief, fidelity=measure_indexed(index, _prompt(brief)))
    return _prompt(brief)


def _chosen(empty: Brief, index: GraphIndex) -> tuple[Brief, Tally]:
    conclusion, remarks = prompt_conclusion(empty), remarks_of(index)
    candidates = list(_candidates(index, conclusion))
    limit = empty.budget - MARGIN_TOKENS
    room = limit - _unfitted(empty) - count_tokens(f"\n{REASONING_BRIEF}: ")
    for _ in range(CHOICES_MAX):
        tally = Tally(index)
        concluded = spelled(words(conclusion))
        tally.keep([fact.spelled for fact in index.key_facts if fact.spelled in concluded], anchors(conclusion))
        chosen = choose(candidates, tally, room, BRIEF_MAX)
        steps = {one.step for one in chosen.lines if one.step is not None}
        noted = sorted(one.remark for one in chosen.lines if one.remark is not None)
        layout = Layout(evidence=sorted(chosen.evidence))
        brief = with_facts(empty, index, steps, [remarks[place] for place in noted], layout)
        over = _unfitted(brief) - limit
        if over <= 0 or not chosen.lines:
            break
        room -= over
    return brief, tally


def _candidates(index: GraphIndex, conclusion: str) -> Iterator[Candidate]:
    concluded = spelled(words(conclusion))
    seen: set[str] = set()
    for step in index.memory.steps:
        run = index.step_spelled.get(step.step_number)
        if run is None or run in seen:
            continue
        seen.add(run)
        fact = make_fact(step, index)
        runs = [run, spelled(words(fact.conclusion))] if fact.conclusion else [run]
        if any(part not in concluded for part in runs):
            line = own_line(fact_sentence(fact, Layout()))
            yield Candidate(line, runs, step=step.step_number, evidence=evidence_detail(fact))
    for position, remark in enumerate(remarks_of(index)):
        run = spelled(words(remark.text))
        if run not in concluded:
            yield Candidate(remark_line(remark), [run], remark=position)


def _spend_rest(brief: Brief, tally: Tally, index: GraphIndex) -> Brief:
    kept, limit = [fact.step for fact in brief.facts], brief.budget - MARGIN_TOKENS
    least, whole = (_unfitted(brief, share) for share in (0.0, CONTEXT_SHARE))
    left, context = limit - least, whole - least
    layouts = [brief.layout]
    for name, fact in _offers(brief, index):
        if name != "evidence":
            left, context = left - context, 0
        layout = _taken(layouts[-1], name, fact)
        cost = _cost(brief, layouts[-1], layout, name, fact)
        if cost > left:
            continue
        left -= cost
        layouts.append(layout)
        if name == "evidence" and fact is not None:
            tally.keep((), anchors(" ; ".join(map(evidence_location, fact.evidence))))
    while True:
        filled = with_facts(brief, index, kept, brief.remarks, layouts.pop())
        if not layouts or _unfitted(filled) <= limit:
            return filled


def _offers(brief: Brief, index: GraphIndex) -> Iterator[tuple[str, Fact | None]]:
    yield from (("evidence", one) for one in brief.facts if one.evidence and one.step not in brief.layout.evidence)
    yield from (("checks", one) for one in brief.facts if one.assumed and one.check)
    if brief.top_evidence_refs and brief.level != TransferLevel.MINIMAL.value:
        yield "top_evidence", None
    if brief.tags:
        yield "tags", None
    dropped = set(brief.dropped_steps)
    rest = (step for step in index.memory.steps if step.step_number in dropped)
    yield from (("others", make_fact(step, index)) for step in rest)


def _taken(layout: Layout, name: str, fact: Fact | None) -> Layout:
    return replace(layout, **{name: True if fact is None else [*getattr(layout, name), fact.step]})


def _cost(brief: Brief, before: Layout, after: Layout, name: str, fact: Fact | None) -> int:
    if fact is None:
        shown = brief.top_evidence_refs if name == "top_evidence" else [tag.tag for tag in brief.tags]
        return count_tokens(f"\n{EVIDENCE if name == 'top_evidence' else TAGS}: {', '.join(shown)}")
    if name == "others":
        heading = "" if before.others else f"\n{OTHER_STEPS}"
        return count_tokens(f"{heading}\n{own_line(fact_sentence(fact, after))}")
    return count_tokens(fact_line(fact, after)) - count_tokens(fact_line(fact, before))


def _prompt(brief: Brief) -> str:
    sections = section_lines(brief, TransferLevel(brief.level))
    _shorten(sections, brief.budget, CONTEXT_SHARE, keep=False)
    for heading in DROPPED_FIRST:
        while heading in sections and count_tokens(_joined(sections)) > brief.budget:
            sections[heading].pop()
            if not sections[heading]:
                del sections[heading]
    return _joined(sections)


def _unfitted(brief: Brief, share: float = 0.0) -> int:
    sections = section_lines(brief, TransferLevel(brief.level))
    _shorten(sections, brief.budget, share, keep=True)
    return count_tokens(_joined(sections))


def _shorten(sections: dict[str, list[str]], budget: int, share: float, *, keep: bool) -> None:
    limits = {CONCLUSION: int(budget * CONCLUSION_SHARE)}
    room = int(budget * share)
    if not keep:
        rest = {heading: lines for heading, lines in sections.items() if heading != CONTEXT}
        room = min(room, budget - count_tokens(_joined(rest)) - MARGIN_TOKENS)
    limits[CONTEXT] = max(room, min(CONTEXT_TOKENS_MIN, int(budget * CONTEXT_SHARE)))
    for heading, limit in limits.items():
        if heading in sections:
            cut = cut_to_tokens(sections[heading][0], max(0, limit - count_tokens(f"{heading}: \n")))
            sections[heading] = [cut]


def _joined(sections: dict[str, list[str]]) -> str:
    return "\n".join(f"{heading}: " + "\n".join(lines) for heading, lines in sections.items() if lines)
