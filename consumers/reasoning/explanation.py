"""Explains a brief by its graph: which steps it keeps or drops, and why."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import ReceivedBrief, briefs_kept_max, read_graph
from deedbook.ledger.events.brief import Brief, Fidelity
from deedbook.projections.briefs.critical import critical_numbers, is_open_assumption, is_refuted, marks_of
from deedbook.projections.briefs.fidelity import measure
from deedbook.projections.briefs.sentences import (
    CONCLUSION,
    HEADINGS,
    REASONING_BRIEF,
    TOP_ASSUMPTIONS,
    fact_line,
    fact_statement,
)
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, canonical_json

_STARTS: Final = r"(?:^|(?<=^- )|(?<=[.!?…。！？] ))"
_NOTHING: Final = r"(?!)"


def explain_brief(received: ReceivedBrief) -> dict[str, Any]:
    """Return the brief beside its graph: the text in ``sections``, the fidelity, and each step with its fate.

    A step is ``kept`` if it is a fact, ``in_text`` if the text has it; its ``state`` is open, refuted, "rests on a
    refuted assumption", or empty.
    """
    brief, memory, prompt = received.brief, received.memory, received.prompt
    sections = sections_of(brief, memory, prompt.expanded)
    in_text = {piece["step"] for section in sections for line in section["lines"] for piece in line}
    facts, critical, marks = {fact.step for fact in brief.facts}, critical_numbers(memory), marks_of(memory)
    steps = []
    for step in memory.steps:
        number = step.step_number
        flags = {"kept": number in facts, "critical": number in critical, "in_text": number in in_text}
        steps.append(
            step.to_dict()
            | flags
            | {
                "step": number,
                "rests_on": memory.dependencies.get(number, []),
                "why": _why(step, memory, **flags),
                "state": _state(step, marks.get(number, "")),
            }
        )
    measured = _measured(canonical_json(memory), prompt.prompt)
    return {
        "reasoning_ref": brief.reasoning_ref,
        "level": prompt.level,
        "tokens": prompt.tokens,
        "budget": prompt.budget,
        "fidelity": msgspec.to_builtins(brief.fidelity),
        "measured_again": measured.value,
        "measured": msgspec.to_builtins(measured),
        "rejected": msgspec.to_builtins(received.rejected),
        "steps": steps,
        "sections": sections,
        "dropped_sections": [] if brief.whole_graph else prompt.dropped,
        "budget_needed_for_0.90": brief.budget_needed_for_090,
    }


@lru_cache(briefs_kept_max)
def _measured(canonical: bytes, text: str) -> Fidelity:
    return measure(read_graph(canonical), text)


def _state(step: ReasoningStep, mark: str) -> str:
    if mark or is_open_assumption(step):
        return mark.lower() or "open"
    return "refuted" if is_refuted(step) else ""


def _why(step: ReasoningStep, memory: ReasoningMemory, *, kept: bool, critical: bool, in_text: bool) -> str:
    if kept and in_text:
        return "the conclusion rests on it" if critical else "there was room"
    if step.content.strip() == memory.conclusion.strip():
        return "it is the conclusion"
    return "the budget had no room for it" if critical or kept else f"the conclusion does not rest on this {step.type}"


def sections_of(brief: Brief, memory: ReasoningMemory, text: str) -> list[dict[str, Any]]:
    """Return a brief's expanded ``text`` by headings: each line in pieces, and for each piece the number of its step.

    Joined, the pieces are exactly the text (``{"text", "step"}``; ``step`` is None between facts).
    """
    steps = {line: fact.step for fact in brief.facts for line in (fact_statement(fact), fact_line(fact, brief.layout))}
    longest_first = sorted(steps, key=len, reverse=True)  # longest first, else a part of a longer step would match
    pattern = re.compile(f"{_STARTS}({'|'.join(map(re.escape, longest_first)) or _NOTHING})")
    own = (step.step_number for step in memory.steps if step.content.strip() == brief.conclusion.strip())
    concluding = next(own, None)
    sections: list[dict[str, Any]] = []
    for line in text.split("\n"):
        heading = next((name for name in HEADINGS if line.startswith(f"{name}: ")), "")
        if heading or not sections:
            sections.append({"heading": heading, "lines": []})
        opened, rest = sections[-1]["heading"], line.removeprefix(f"{heading}: ") if heading else line
        parts = pattern.split(rest) if opened in {TOP_ASSUMPTIONS, REASONING_BRIEF} else [rest]
        other = concluding if opened == CONCLUSION else None
        pieces = [{"text": part, "step": steps[part] if position % 2 else other} for position, part in enumerate(parts)]
        sections[-1]["lines"].append([piece for piece in pieces if piece["text"]])
    return sections
