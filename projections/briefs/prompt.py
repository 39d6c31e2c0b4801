"""A brief as the text that the next agent reads, within a token budget.

Facts stand under REASONING BRIEF at every level, because a MINIMAL prompt of labels alone keeps too little to act on
(measured: .65 against .92 at 200 tokens). A prompt never exceeds its budget. What does not fit is left out section by
section, the least needed first, and named in ``dropped``; CONTEXT and CONCLUSION are shortened first, at a word.

CONTEXT takes what the other sections leave, up to a quarter of the budget and at least a line: the sender's summary
must not cost facts (at 200 tokens a full quarter cost three of them), and what no fact needs it may have.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

import msgspec

from ledger.events.brief import Brief
from projections.briefs.sentences import (
    CALL,
    CONCLUSION,
    CONTEXT,
    CUT,
    EVIDENCE,
    FIDELITY,
    FULL_REASONING,
    HEADINGS,
    OTHER_STEPS,
    POINTER,
    REASONING_BRIEF,
    TAGS,
    TOP_ASSUMPTIONS,
    assumption_line,
    fact_sentence,
    own_line,
    remark_line,
)
from projections.briefs.text import CJK_MARKS, is_between_signs, one_line
from projections.briefs.tokens import count_tokens, greatest, tokenizer

REF_HEX_DIGITS: Final = 12
context_tokens_min: Final = 16
context_share_max: Final = 0.25
conclusion_share_max: Final = 0.5
_margin_tokens: Final = 2


class TransferLevel(Enum):
    """How much travels with a snapshot."""

    MINIMAL = "minimal"
    STANDARD = "standard"
    FULL = "full"


LEVEL_TOKENS: Final[dict[TransferLevel, tuple[int, int]]] = {
    TransferLevel.MINIMAL: (60, 200),
    TransferLevel.STANDARD: (200, 700),
    TransferLevel.FULL: (200, 760),
}
"""FULL is STANDARD and the pointer's own lines, unless the graph is asked for inline."""

inline_budget_tokens: Final = 3_000


class Prompt(msgspec.Struct, frozen=True):
    """A rendered prompt: its text, its tokens (and whether exactly counted), and what it had no room for."""

    prompt: str
    tokens: int
    exact: bool
    tokenizer: str
    level: str
    budget: int
    dropped: list[str]
    shortened: list[str]


def to_context_prompt(
    brief: Brief,
    level: TransferLevel | None = None,
    budget: int | None = None,
    *,
    inline: str | None = None,
    context_share: float = context_share_max,
) -> Prompt:
    """Return the prompt of a brief, by default at the level and budget it was made for.

    ``inline`` is the graph's JSON, shown at FULL in place of the pointer when it fits. Facts that a smaller budget
    cuts off make the stated fidelity an upper bound, and the prompt says so. CONTEXT takes at most ``context_share``
    of the budget; a share above the usual quarter is kept free for it.
    """
    level = level or TransferLevel(brief.level)
    if budget is None:
        same_level = level.value == brief.level
        budget = brief.budget if same_level else LEVEL_TOKENS[level][1]
        if inline is not None:
            budget = max(budget, inline_budget_tokens)
    sections = _sections(brief, level, inline)
    shortened = _shorten(sections, budget, context_share, keep=context_share > context_share_max)
    dropped = _fit(sections, budget, brief, level)
    text = _joined(sections)
    return Prompt(
        prompt=text,
        tokens=count_tokens(text),
        exact=tokenizer().exact,
        tokenizer=tokenizer().name,
        level=level.value,
        budget=budget,
        dropped=dropped,
        shortened=[name for name in shortened if name not in dropped],
    )


def unfitted_tokens(brief: Brief, budget: int, context_share: float = 0.0) -> int:
    """Return what a brief's prompt costs at its own level, only CONTEXT (to a share or least) and CONCLUSION cut."""
    sections = _sections(brief, TransferLevel(brief.level), None)
    _shorten(sections, budget, context_share, keep=True)
    return count_tokens(_joined(sections))


def shown_conclusion(brief: Brief) -> str:
    """Return as much of the conclusion as a brief's own prompt shows."""
    sections = {CONCLUSION: [one_line(brief.conclusion)]}
    _cut_section(sections, CONCLUSION, int(brief.budget * conclusion_share_max))
    return sections[CONCLUSION][0]


def short_ref(ref: str) -> str:
    """Return the hex digits by which a prompt names a ref (the whole ref costs 40 tokens)."""
    return ref.partition(":")[2][:REF_HEX_DIGITS]


def cut_to_tokens(text: str, limit: int) -> str:
    """Return as much of a text as a number of tokens allows, ended at a word and marked; nothing if none fits."""
    if count_tokens(text) <= limit:
        return text
    end = greatest(0, len(text), lambda chars: count_tokens(f"{text[:chars].rstrip()} {CUT}") <= limit)
    kept = text[:end]
    if end < len(text) and kept and _joins(kept[-1], text[end]):
        kept = kept.removesuffix(kept.rsplit(maxsplit=1)[-1])
    return f"{kept.rstrip()} {CUT}" if kept.strip() else ""


def section_lines(brief: Brief, level: TransferLevel) -> dict[str, list[str]]:
    """Return the lines of each section that a level has, in their order, empty sections left out."""
    layout = brief.layout
    hidden = {*layout.lead, *layout.others}
    further = [fact for fact in brief.facts if fact.step not in hidden and (fact.assumed or not brief.whole_graph)]
    assumed = [fact for fact in further if fact.assumed]
    stated = [remark for remark in brief.remarks if remark.sort == "assumption_stated"]
    others = [fact for fact in brief.facts if fact.step in layout.others]
    lines = {
        CONTEXT: [one_line(brief.context)],
        CONCLUSION: [one_line(brief.conclusion)],
        TAGS: [", ".join(tag.tag for tag in brief.tags)] if layout.tags else [],
        TOP_ASSUMPTIONS: [
            *(own_line(assumption_line(fact, layout)) for fact in assumed),
            *(own_line(remark_line(remark)) for remark in stated),
        ],
        REASONING_BRIEF: [
            brief.reasoning_brief,
            *(own_line(fact_sentence(fact, layout)) for fact in further if not fact.assumed),
            *(remark_line(remark) for remark in brief.remarks if remark.sort != "assumption_stated"),
            *([OTHER_STEPS] if others else []),
            *(own_line(fact_sentence(fact, layout)) for fact in others),
        ],
    }
    if level is not TransferLevel.MINIMAL:
        evidence = "; ".join(one_line(ref) for ref in brief.top_evidence_refs)
        lines[EVIDENCE] = [evidence] if layout.top_evidence else []
        lines[FIDELITY] = [f"{_rounded_down(brief.fidelity.value)} ({brief.fidelity.band})"]
    return {heading: content for heading, content in lines.items() if any(content)}


def _sections(brief: Brief, level: TransferLevel, inline: str | None) -> dict[str, list[str]]:
    sections = section_lines(brief, level)
    whole = inline if inline is not None and level is TransferLevel.FULL else brief.whole_graph
    if whole:
        sections[FULL_REASONING] = [whole]
    elif level is TransferLevel.FULL:
        sections[FULL_REASONING] = [POINTER + short_ref(brief.reasoning_ref), CALL]
    return sections


def _joined(sections: dict[str, list[str]]) -> str:
    return "\n".join(f"{heading}: " + "\n".join(lines) for heading, lines in sections.items() if lines)


def _shorten(sections: dict[str, list[str]], budget: int, context_share: float, *, keep: bool) -> list[str]:
    """Cut CONCLUSION to half of the budget, and CONTEXT to its share, or if that is not kept for it to what is left."""
    cut = {CONCLUSION: _cut_section(sections, CONCLUSION, int(budget * conclusion_share_max))}
    room = int(budget * context_share)
    if not keep and CONTEXT in sections:
        rest = {heading: lines for heading, lines in sections.items() if heading != CONTEXT}
        room = min(room, budget - count_tokens(_joined(rest)) - _margin_tokens)
    least = min(context_tokens_min, int(budget * context_share_max))
    cut[CONTEXT] = _cut_section(sections, CONTEXT, max(room, least))
    return [heading for heading in HEADINGS if cut.get(heading)]


def _cut_section(sections: dict[str, list[str]], heading: str, limit: int) -> bool:
    """Cut a section of one line to so many tokens, its heading counted in, and tell whether that changed it."""
    if heading not in sections:
        return False
    whole = sections[heading][0]
    sections[heading] = [cut_to_tokens(whole, max(0, limit - count_tokens(f"{heading}: \n")))]
    return sections[heading] != [whole]


def _held_back(brief: Brief, level: TransferLevel) -> list[str]:
    """Return the headings that the envelope has something for, whether or not the layout shows it."""
    evidence = brief.top_evidence_refs if level is not TransferLevel.MINIMAL else []
    stands = {TAGS: brief.tags, TOP_ASSUMPTIONS: brief.top_assumptions, EVIDENCE: evidence}
    return [heading for heading, content in stands.items() if content]


def _fit(sections: dict[str, list[str]], budget: int, brief: Brief, level: TransferLevel) -> list[str]:
    """Leave out what does not fit, the least needed first; return the headings left out or cut."""
    order = [TAGS, EVIDENCE, REASONING_BRIEF, TOP_ASSUMPTIONS, FULL_REASONING, FIDELITY, CONTEXT, CONCLUSION]
    if brief.whole_graph:
        order.remove(FULL_REASONING)
        order.insert(order.index(CONTEXT), FULL_REASONING)
    dropped = [heading for heading, lines in sections.items() if not any(lines)]
    dropped += [heading for heading in _held_back(brief, level) if heading not in sections]
    for heading in dropped:
        sections.pop(heading, None)
    for heading in order:
        if count_tokens(_joined(sections)) <= budget:
            break
        if heading in sections:
            dropped.append(heading)
            while sections[heading] and count_tokens(_joined(sections)) > budget:
                sections[heading].pop()  # Only its last lines, if that is enough.
            if not sections[heading]:
                del sections[heading]
            if heading in {REASONING_BRIEF, TOP_ASSUMPTIONS} and FIDELITY in sections:
                sections[FIDELITY] = [f"below {_rounded_down(brief.fidelity.value)} (cut)"]
    return [heading for heading in HEADINGS if heading in dropped]


def _rounded_down(value: float) -> str:
    """Return a fidelity with two digits, so that .899 does not read as having reached .90."""
    return f"{math.floor(value * 100 + 1e-9) / 100:.2f}"


def _joins(before: str, after: str) -> bool:
    """Tell whether a cut between two characters would split a word (Chinese may be cut anywhere)."""
    return not (before.isspace() or after.isspace() or before in CJK_MARKS or is_between_signs(before, after))
