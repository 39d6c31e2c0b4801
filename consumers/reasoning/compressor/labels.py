"""Tags and block summaries of a graph, drawn from its own words (seed 001, "Compression Strategies" 2 and 3)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ledger.events.brief import BlockSummaries, Tag, TagSort
from projections.briefs.critical import (
    concluding_steps,
    critical_numbers,
    fact_text,
    is_open_assumption,
    own_conclusion,
)
from projections.briefs.text import clauses, one_line

if TYPE_CHECKING:
    from projections.reasoning.memory import ReasoningMemory, ReasoningStep

tags_max: Final = 8
tag_words_max: Final = 5
_findings_max: Final = 3
_tag_cjk_max_chars: Final = 8
_summary_texts_max: Final = 3

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\w+")
_FILLERS: Final = frozenset(
    {"a", "an", "the", "is", "are", "was", "were", "be", "been", "our", "we", "this", "that", "should", "must", "so"}
)
_URGENT: Final = re.compile(
    r"\b(immediately|urgent(?:ly)?|now|at once|asap|critical)\b|立即|立刻|马上|紧急", re.IGNORECASE
)
_PATIENT: Final = re.compile(r"\b(eventually|later|some day|low priority|can wait)\b|以后|稍后|不急", re.IGNORECASE)


def make_tags(memory: ReasoningMemory, domain: str | None) -> list[Tag]:
    """Return at most eight tags in the seed's four sorts, each with the step it stands for."""
    concluding = concluding_steps(memory)
    final = concluding[-1].step_number if concluding else None
    found: list[tuple[str, TagSort, int | None]] = [
        (snake_case(_finding(step)), "finding", step.step_number) for step in _findings(memory, concluding)
    ]
    action = _URGENT.sub(" ", _PATIENT.sub(" ", memory.conclusion))
    wanted: list[tuple[str, TagSort, int | None]] = [*found, (snake_case(action), "action", final)]
    if _URGENT.search(memory.conclusion):
        wanted.append(("high_urgency", "urgency", final))
    elif _PATIENT.search(memory.conclusion):
        wanted.append(("low_urgency", "urgency", final))
    if domain and domain.strip():
        wanted.append((f"{snake_case(domain)}_domain", "domain", None))
    tags: dict[str, Tag] = {}
    for tag, sort, step in wanted:
        if tag:
            tags.setdefault(tag, Tag(tag, sort, step))
    return list(tags.values())[:tags_max]


def snake_case(text: str) -> str:
    """Return the first telling words of a text as one label."""
    kept = [word for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _FILLERS]
    shortened = [word if word.isascii() else word[:_tag_cjk_max_chars] for word in kept]
    return "_".join(shortened[:tag_words_max])


def summarize_blocks(memory: ReasoningMemory) -> BlockSummaries:
    """Return the seed's three summaries, of critical steps first, and its two counts."""
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


def _findings(memory: ReasoningMemory, concluding: list[ReasoningStep]) -> list[ReasoningStep]:
    """Return what the conclusion rests on directly, inferences before observations."""
    premises = {number for step in concluding for number in memory.dependencies.get(step.step_number, ())}
    direct = [step for step in memory.steps if step.step_number in premises]
    candidates = direct or [step for step in memory.steps if step.type != "conclusion"]
    return sorted(candidates, key=lambda step: step.type != "inference")[:_findings_max]


def _finding(step: ReasoningStep) -> str:
    said = (clauses(own_conclusion(step) or fact_text(step)) or [""])[0]
    return re.split(r"[:,：，]", said, maxsplit=1)[0]


def _summary(texts: list[str]) -> str:
    distinct = list(dict.fromkeys(one_line(text) for text in texts if text.strip()))
    summary = "; ".join(distinct[:_summary_texts_max])
    more = len(distinct) - _summary_texts_max
    return f"{summary}; and {more} more" if more > 0 else summary
