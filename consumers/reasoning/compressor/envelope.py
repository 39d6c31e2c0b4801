"""The parts of a brief that do not depend on what its prompt shows, and how chosen facts are put into it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from consumers.reasoning.compressor.labels import make_tags, summarize_blocks
from ledger.events.brief import Brief, Fact, Fidelity, Layout, Level, Remark, Sizes
from projections.briefs.critical import fact_text, is_open_assumption, own_conclusion
from projections.briefs.fidelity import MEDIUM_BAND, WEIGHTS, band_of
from projections.briefs.index import spelled
from projections.briefs.prompt import shown_conclusion
from projections.briefs.sentences import CHECK, choose_lead, counting_sentences, lead_sentences, lead_sentences_min
from projections.briefs.text import count_sentences, one_line, words
from projections.briefs.tokens import count_tokens, tokenizer
from projections.reasoning.memory import compute_reasoning_ref

if TYPE_CHECKING:
    from collections.abc import Collection

    from projections.briefs.index import GraphIndex
    from projections.reasoning.memory import ReasoningMemory, ReasoningStep

COMPRESSOR_NAME: Final = "baton-extractive"
COMPRESSOR_VERSION: Final = "1"

top_assumptions_max: Final = 3
top_evidence_max: Final = 3

_STATED: Final = "assumption_stated"
# Stands where the measured figure will: as long as any, so the prompt does not grow when it comes.
_UNMEASURED: Final = Fidelity(MEDIUM_BAND, band_of(MEDIUM_BAND), None, None, None, 1.0, [], WEIGHTS)


def whole_json(memory: ReasoningMemory) -> str:
    """Return the graph as one line of the seed's JSON, every field written out, with Chinese as Chinese."""
    return json.dumps(memory.to_dict() | {"reasoning_id": ""}, sort_keys=True, ensure_ascii=False)


def empty_brief(
    index: GraphIndex, level: Level, budget: int, *, context: str | None = None, domain: str | None = None
) -> Brief:
    """Return the envelope of a graph with no facts chosen yet; CONTEXT is the graph's task unless one is given."""
    memory = index.memory
    return Brief(
        reasoning_ref=compute_reasoning_ref(memory),
        level=level,
        budget=budget,
        context=memory.task if context is None else context,
        conclusion=memory.conclusion.strip(),
        reasoning_brief="",
        facts=[],
        remarks=[],
        tags=make_tags(memory, domain),
        top_assumptions=_top_assumptions(index),
        top_evidence_refs=_top_evidence(index),
        summaries=summarize_blocks(memory),
        sizes=Sizes(compressed=0, full=count_tokens(whole_json(memory))),
        fidelity=_UNMEASURED,
        dropped_steps=[],
        layout=Layout(),
        compressor_name=COMPRESSOR_NAME,
        compressor_version=COMPRESSOR_VERSION,
        tokenizer=tokenizer().name,
        exact=tokenizer().exact,
    )


def make_fact(step: ReasoningStep, memory: ReasoningMemory) -> Fact:
    """Return the fact of a step, byte-equal to its trimmed text."""
    return Fact(
        step=step.step_number,
        text=fact_text(step),
        evidence=list(step.evidence),
        conclusion=own_conclusion(step),
        assumed=is_open_assumption(step),
        check=step.validation_method.strip() if isinstance(step.validation_method, str) else "",
        rests_on=list(memory.dependencies.get(step.step_number, ())),
    )


def with_facts(brief: Brief, index: GraphIndex, kept: Collection[int], remarks: list[Remark], layout: Layout) -> Brief:
    """Return a brief that holds these steps and remarks, its sentences rendered as the layout says."""
    shown = {*kept, *layout.others}
    facts = [make_fact(step, index.memory) for step in index.memory.steps if step.step_number in shown]
    layout = replace(layout, lead=choose_lead(fact for fact in facts if fact.step not in layout.others))
    said = {index.step_spelled[step] for step in shown if step in index.step_spelled}
    concluded = spelled(words(shown_conclusion(brief)))
    dropped = [
        step.step_number
        for step in index.memory.steps
        if step.step_number not in shown and not _is_said(index.step_spelled.get(step.step_number), said, concluded)
    ]
    return replace(
        brief,
        facts=facts,
        remarks=remarks,
        layout=layout,
        dropped_steps=dropped,
        reasoning_brief=_reasoning_brief(facts, layout, index, dropped),
    )


def _is_said(run: str | None, said: Collection[str], concluded: str) -> bool:
    """Tell whether the words of a step stand in the prompt already, as a fact or within the conclusion."""
    return run is not None and (run in said or run in concluded)


def _reasoning_brief(facts: list[Fact], layout: Layout, index: GraphIndex, dropped: list[int]) -> str:
    """Return the seed's 3 to 6 sentences: facts, and where those are too few what can be said about the graph."""
    sentences = lead_sentences(facts, layout)
    missing = lead_sentences_min - sum(count_sentences(sentence) for sentence in sentences)
    left_out = sum(step in index.step_spelled for step in dropped)
    counts = counting_sentences(len(index.memory.steps), len(index.step_spelled), left_out)
    return " ".join([*sentences, *counts[: max(0, missing)]])


def _top_assumptions(index: GraphIndex) -> list[str]:
    """Return the first open assumptions with how to check each, as the seed writes them."""
    found: list[str] = []
    for step in index.memory.steps:
        if step.step_number in index.step_spelled and is_open_assumption(step):
            method = make_fact(step, index.memory).check
            found.append(f"{one_line(fact_text(step))} ({CHECK + one_line(method) if method else 'VERIFY'})")
    found += [f"{one_line(fact.unit.text)} (VERIFY)" for fact in index.key_facts if fact.unit.kind == _STATED]
    return found[:top_assumptions_max]


def _top_evidence(index: GraphIndex) -> list[str]:
    """Return the first references of critical steps, one a step before a second of any."""
    steps = [step for step in index.memory.steps if step.step_number in index.step_spelled and step.evidence]
    first = [step.evidence[0] for step in steps]
    further = [reference for step in steps for reference in step.evidence[1:]]
    return list(dict.fromkeys([*first, *further]))[:top_evidence_max]
