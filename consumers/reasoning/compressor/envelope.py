"""Makes the parts of a brief that do not depend on the chosen facts, and adds the chosen facts."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from deedbook.ledger.events.brief import (
    BlockSummaries,
    Brief,
    Fact,
    Fidelity,
    Layout,
    Level,
    Remark,
    Sizes,
)
from deedbook.projections.briefs.critical import (
    closing,
    critical_numbers,
    fact_text,
    is_open_assumption,
    own_conclusion,
    refutations,
)
from deedbook.projections.briefs.fidelity import MEDIUM_BAND, WEIGHTS, band_of
from deedbook.projections.briefs.index import GraphIndex, spelled
from deedbook.projections.briefs.prompt import prompt_conclusion
from deedbook.projections.briefs.sentences import (
    CHECK,
    VERIFY,
    choose_lead,
    counting_sentences,
    is_concluded,
    lead_sentences,
    lead_sentences_min,
)
from deedbook.projections.briefs.tags import tags_of
from deedbook.projections.briefs.text import count_sentences, one_line, words
from deedbook.projections.briefs.tokens import count_tokens, tokenizer
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, compute_reasoning_ref

COMPRESSOR_NAME: Final = "deedbook-extractive"
COMPRESSOR_VERSION: Final = "1"

top_assumptions_max: Final = 3
top_evidence_max: Final = 3
_summary_texts_max: Final = 3

_STATED: Final = "assumption_stated"
# A placeholder as long as any measured figure, so that the prompt does not grow when the figure is set.
_UNMEASURED: Final = Fidelity(MEDIUM_BAND, band_of(MEDIUM_BAND), None, None, None, 1.0, [], WEIGHTS)


def whole_json(memory: ReasoningMemory) -> str:
    """Return the graph as one line of JSON, every field written out, with Chinese as Chinese."""
    return json.dumps(memory.to_dict() | {"reasoning_id": ""}, sort_keys=True, ensure_ascii=False)


def empty_brief(
    index: GraphIndex, level: Level, budget: int, *, context: str | None = None, domain: str | None = None
) -> Brief:
    """Return the envelope of a graph without facts; CONTEXT is ``context``, else the graph's task."""
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
        tags=tags_of(memory, domain),
        top_assumptions=_top_assumptions(index),
        top_evidence_refs=_top_evidence(index),
        summaries=_summarize_blocks(memory),
        sizes=Sizes(compressed=0, full=count_tokens(whole_json(memory))),
        fidelity=_UNMEASURED,
        dropped_steps=[],
        layout=Layout(),
        compressor_name=COMPRESSOR_NAME,
        compressor_version=COMPRESSOR_VERSION,
        tokenizer=tokenizer().name,
        exact=tokenizer().exact,
        refuted=refutations(memory),
    )


def make_fact(step: ReasoningStep, index: GraphIndex) -> Fact:
    """Return the fact of a step, byte-equal to its trimmed text."""
    return Fact(
        step=step.step_number,
        text=fact_text(step),
        evidence=list(step.evidence),
        conclusion=closing(step),
        assumed=is_open_assumption(step),
        check=step.validation_method.strip() if isinstance(step.validation_method, str) else "",
        rests_on=list(index.memory.dependencies.get(step.step_number, ())),
        mark=index.marks.get(step.step_number, ""),
    )


def with_facts(brief: Brief, index: GraphIndex, steps: Collection[int], remarks: list[Remark], layout: Layout) -> Brief:
    """Return a brief with these steps and remarks, its sentences rendered according to the layout."""
    chosen = {*steps, *layout.others}
    facts = [make_fact(step, index) for step in index.memory.steps if step.step_number in chosen]
    concluding = (is_concluded(fact, brief.conclusion) or fact.step in layout.others for fact in facts)
    leading = [fact for fact, is_concluding in zip(facts, concluding, strict=True) if not is_concluding]
    layout = replace(layout, lead=choose_lead(leading))
    stated = {index.step_spelled[step] for step in chosen if step in index.step_spelled}
    concluded = spelled(words(prompt_conclusion(brief)))
    # A step that the prompt already contains, as another fact or within the conclusion, is not dropped.
    present = {step for step, run in index.step_spelled.items() if run in stated or run in concluded} | chosen
    dropped = [step.step_number for step in index.memory.steps if step.step_number not in present]
    return replace(
        brief,
        facts=facts,
        remarks=remarks,
        layout=layout,
        dropped_steps=dropped,
        reasoning_brief=_reasoning_brief(facts, layout, index, dropped),
    )


def _reasoning_brief(facts: list[Fact], layout: Layout, index: GraphIndex, dropped: list[int]) -> str:
    """Return the 3 to 6 sentences: facts, and if those are too few, counts of the graph."""
    sentences = lead_sentences(facts, layout)
    missing = lead_sentences_min - sum(count_sentences(sentence) for sentence in sentences)
    left_out = sum(step in index.step_spelled for step in dropped)
    counts = counting_sentences(len(index.memory.steps), len(index.step_spelled), left_out)
    return " ".join([*sentences, *counts[: max(0, missing)]])


def _top_assumptions(index: GraphIndex) -> list[str]:
    lines: list[str] = []
    for step in index.memory.steps:
        if step.step_number in index.step_spelled and is_open_assumption(step):
            method = make_fact(step, index).check
            lines.append(f"{one_line(fact_text(step))} ({CHECK + one_line(method) if method else VERIFY})")
    lines += [f"{one_line(fact.unit.text)} ({VERIFY})" for fact in index.key_facts if fact.unit.kind == _STATED]
    return lines[:top_assumptions_max]


def _top_evidence(index: GraphIndex) -> list[str]:
    """Return references of critical steps, at most ``top_evidence_max``: first one of each step, then the others."""
    steps = [step for step in index.memory.steps if step.step_number in index.step_spelled and step.evidence]
    first = [step.evidence[0] for step in steps]
    further = [reference for step in steps for reference in step.evidence[1:]]
    return list(dict.fromkeys([*first, *further]))[:top_evidence_max]


def _summarize_blocks(memory: ReasoningMemory) -> BlockSummaries:
    critical = critical_numbers(memory)
    ranked = sorted(memory.steps, key=lambda step: step.step_number not in critical)
    observed = [step for step in ranked if step.type == "observation"]
    inferred = [step for step in ranked if step.type in {"inference", "hypothesis", "assumption"}]
    concluded = [step for step in ranked if step.type == "conclusion"]
    stated = [memory.conclusion, *(fact_text(step) for step in concluded)]
    return BlockSummaries(
        observations_summary=_summary([fact_text(step) for step in observed]),
        inferences_summary=_summary([own_conclusion(step) or fact_text(step) for step in inferred]),
        conclusion_summary=_summary(stated),
        evidence_count=sum(len(step.evidence) for step in memory.steps),
        assumption_count=sum(is_open_assumption(step) + len(step.assumptions) for step in memory.steps),
    )


def _summary(texts: list[str]) -> str:
    distinct = list(dict.fromkeys(one_line(text) for text in texts if text.strip()))
    summary = "; ".join(distinct[:_summary_texts_max])
    more = len(distinct) - _summary_texts_max
    return f"{summary}; and {more} more" if more > 0 else summary
