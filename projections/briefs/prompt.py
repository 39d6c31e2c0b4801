"""A brief as the text that the next agent reads, within a token budget.

A prompt never exceeds its budget, and has one of two forms:

- *roomy*, if everything fits: all sections by their names, in sentences;
- *tight*, if it does not: REFUTED, CONTEXT, CONCLUSION and the statements in ``shorthand``, without TAGS, EVIDENCE and
  FIDELITY, which are in the envelope. Statements that still do not fit are left out one by one, the least needed first.
  ``expand`` writes the shorthand out under the full headings: people read the result, and the metric measures it.

Facts are under REASONING BRIEF at every level, because a MINIMAL prompt of labels alone keeps too little to act on
(measured: .65 against .92 at 200 tokens). CONTEXT takes the tokens that the other sections leave, up to a quarter of
the budget and at least a line. The sender's summary must not displace facts (at 200 tokens a full quarter cost three
facts).

REFUTED comes first and is never left out: it names the refuted assumptions, and what rests on them.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import cache, lru_cache
from typing import Final

import msgspec

from deedbook.ledger.events.brief import Brief, RemarkType
from deedbook.projections.briefs import shorthand
from deedbook.projections.briefs.sentences import (
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
    REFUTED,
    TAGS,
    TOP_ASSUMPTIONS,
    VERIFY,
    evidence_detail,
    expand,
    fact_line,
    fact_sentence,
    is_concluded,
    own_line,
    refuted_line,
    remark_line,
    verify_detail,
)
from deedbook.projections.briefs.text import CJK_MARKS, is_between_signs, one_line
from deedbook.projections.briefs.tokens import count_tokens, greatest, tokenizer

REF_HEX_DIGITS: Final = 12
context_tokens_min: Final = 16
context_share_max: Final = 0.25
conclusion_share_max: Final = 0.5
refuted_share_max: Final = 0.4
_margin_tokens: Final = 2


class TransferLevel(Enum):
    """How much of the reasoning a snapshot sends."""

    MINIMAL = "minimal"
    STANDARD = "standard"
    FULL = "full"


LEVEL_TOKENS: Final[dict[TransferLevel, tuple[int, int]]] = {
    TransferLevel.MINIMAL: (60, 200),
    TransferLevel.STANDARD: (200, 700),
    TransferLevel.FULL: (200, 760),
}
"""FULL is STANDARD plus the lines of the pointer, unless the graph is inline."""

inline_budget_tokens: Final = 3_000

HEAD_OF: Final[dict[RemarkType, str]] = {
    "limitation": shorthand.LIMITS,
    "alternative": shorthand.ALTERNATIVES,
    "assumption_stated": shorthand.ASSUMED,
}


class Prompt(msgspec.Struct, frozen=True):
    """A rendered prompt: its text, its tokens, and the sections that did not fit into the budget. ``str`` is its text.

    ``expanded`` is the text with its shorthand written out under the full headings. ``exact`` is false if the tokens
    are estimated. ``dropped`` names the sections that are not complete in the text, ``shortened`` those that were
    cut.
    """

    prompt: str
    expanded: str
    tokens: int
    exact: bool
    tokenizer: str
    level: str
    budget: int
    dropped: list[str]
    shortened: list[str]

    def __str__(self) -> str:
        return self.prompt


def to_context_prompt(
    brief: Brief,
    level: TransferLevel | None = None,
    budget: int | None = None,
    *,
    inline: str | None = None,
    context_share: float = context_share_max,
) -> Prompt:
    """Return the prompt of a brief, by default at the level and budget it was made for.

    ``inline`` is the graph's JSON, shown at FULL in place of the pointer if it fits. CONTEXT takes at most
    ``context_share`` of the budget; a share above the usual quarter is reserved for it.
    """
    level = level or TransferLevel(brief.level)
    if budget is None:
        same_level = level.value == brief.level
        budget = brief.budget if same_level else LEVEL_TOKENS[level][1]
        if inline is not None:
            budget = max(budget, inline_budget_tokens)
    sections = _sections(brief, level, inline)
    is_kept = context_share > context_share_max
    shortened = _shorten(sections, budget, context_share, keep=is_kept)
    for heading in (TAGS, REASONING_BRIEF, TOP_ASSUMPTIONS) if brief.whole_graph else ():
        if count_tokens(_joined(sections)) > budget:
            sections.pop(heading, None)
    if count_tokens(_joined(sections)) <= budget:
        text, shown_headings = _joined(sections), {name for name, lines in sections.items() if any(lines)}
    else:
        sections = _frame(brief, level, inline)
        shortened = _shorten(sections, budget, context_share if is_kept else 0.0, keep=True)
        text, shown_headings = _tight(brief, sections, budget)
    dropped: list[str] = [
        heading for heading in HEADINGS if heading in _wanted(brief, level) and heading not in shown_headings
    ]
    return Prompt(
        prompt=text,
        expanded=expand(text),
        tokens=count_tokens(text),
        exact=tokenizer().exact,
        tokenizer=tokenizer().name,
        level=level.value,
        budget=budget,
        dropped=dropped,
        shortened=[name for name in shortened if name not in dropped],
    )


def unfitted_tokens(brief: Brief, budget: int) -> int:
    """Return the tokens of a brief's roomy form if only CONCLUSION, and CONTEXT down to its minimum, are cut."""
    sections = _sections(brief, TransferLevel(brief.level), None)
    _shorten(sections, budget, 0.0, keep=True)
    return count_tokens(_joined(sections))


def prompt_conclusion(brief: Brief) -> str:
    """Return the part of the conclusion that a brief's own prompt shows."""
    return _cut_line(CONCLUSION, one_line(brief.conclusion), int(brief.budget * conclusion_share_max))


def tight_text(brief: Brief) -> str:
    """Return a brief's own prompt in its tight form, with everything in the brief."""
    sections = _frame(brief, TransferLevel(brief.level), None)
    _shorten(sections, brief.budget, 0.0, keep=True)
    return _around(sections, statements_of(brief))


def fidelity_text(value: float) -> str:
    """Return a fidelity with two digits, rounded down: .899 must not read as .90.

    >>> fidelity_text(0.7499), fidelity_text(0.29)
    ('0.74', '0.29')
    """
    return f"{math.floor(value * 100 + 1e-9) / 100 if math.isfinite(value) else value:.2f}"


def short_ref(ref: str) -> str:
    """Return the hex digits by which a prompt names a ref (the whole ref costs 40 tokens)."""
    return ref.partition(":")[2][:REF_HEX_DIGITS]


@lru_cache(maxsize=64)  # fitting a brief cuts the same context repeatedly
def cut_to_tokens(text: str, limit: int) -> str:
    """Return as much of a text as fits into a number of tokens, cut at a word and marked; nothing if none fits."""
    if count_tokens(text) <= limit:
        return text
    end = greatest(0, len(text), lambda chars: count_tokens(f"{text[:chars].rstrip()} {CUT}") <= limit)
    beginning = text[:end]
    if end < len(text) and beginning and _joins(beginning[-1], text[end]):
        beginning = beginning.removesuffix(beginning.rsplit(maxsplit=1)[-1])
    return f"{beginning.rstrip()} {CUT}" if beginning.strip() else ""


def section_lines(brief: Brief, level: TransferLevel) -> dict[str, list[str]]:
    """Return the lines of each section of a level, in order, without empty sections."""
    layout = brief.layout
    concluded = [fact.step for fact in brief.facts if is_concluded(fact, brief.conclusion)]
    hidden = {*layout.lead, *layout.others, *concluded}
    further = [fact for fact in brief.facts if fact.step not in hidden and (fact.assumed or not brief.whole_graph)]
    assumed = [fact for fact in further if fact.assumed]
    stated = [remark for remark in brief.remarks if remark.type == "assumption_stated"]
    others = [fact for fact in brief.facts if fact.step in layout.others]
    lines = {
        REFUTED: [refuted_line(brief.refuted)],
        CONTEXT: [one_line(brief.context)],
        CONCLUSION: [_conclusion_line(brief)],
        TAGS: [", ".join(tag.tag for tag in brief.tags)] if layout.tags else [],
        TOP_ASSUMPTIONS: [
            *(own_line(fact_line(fact, layout) + verify_detail(fact, layout)) for fact in assumed),
            *(own_line(f"{remark_line(remark)} ({VERIFY})") for remark in stated),
        ],
        REASONING_BRIEF: [
            brief.reasoning_brief,
            *(own_line(fact_sentence(fact, layout)) for fact in further if not fact.assumed),
            *(remark_line(remark) for remark in brief.remarks if remark.type != "assumption_stated"),
            *([OTHER_STEPS] if others else []),
            *(own_line(fact_sentence(fact, layout)) for fact in others),
        ],
    }
    if level is not TransferLevel.MINIMAL:
        evidence = "; ".join(one_line(ref) for ref in brief.top_evidence_refs)
        lines[EVIDENCE] = [evidence] if layout.top_evidence else []
        lines[FIDELITY] = [f"{fidelity_text(brief.fidelity.value)} ({brief.fidelity.band})"]
    return {heading: content for heading, content in lines.items() if any(content)}


def _sections(brief: Brief, level: TransferLevel, inline: str | None) -> dict[str, list[str]]:
    frame = _frame(brief, level, inline)
    return section_lines(brief, level) | ({FULL_REASONING: frame[FULL_REASONING]} if FULL_REASONING in frame else {})


def _frame(brief: Brief, level: TransferLevel, inline: str | None) -> dict[str, list[str]]:
    """Return the sections of both forms: those before the statements, and those after them."""
    lines = {REFUTED: refuted_line(brief.refuted), CONTEXT: one_line(brief.context)}
    lines[CONCLUSION] = _conclusion_line(brief)
    sections = {heading: [line] for heading, line in lines.items() if line}
    whole = inline if inline is not None and level is TransferLevel.FULL else brief.whole_graph
    if whole:
        sections[FULL_REASONING] = [whole]
    elif level is TransferLevel.FULL:
        sections[FULL_REASONING] = [POINTER + (ref := short_ref(brief.reasoning_ref)), CALL.format(ref=ref)]
    return sections


def _joined(sections: dict[str, list[str]]) -> str:
    return "\n".join(f"{heading}: " + "\n".join(lines) for heading, lines in sections.items() if lines)


def _shorten(sections: dict[str, list[str]], budget: int, context_share: float, *, keep: bool) -> list[str]:
    """Cut REFUTED, CONCLUSION and CONTEXT to their shares of the budget, and return the headings of those it cut.

    With ``keep``, CONTEXT may fill its whole share. Otherwise it may also not take more than the other sections leave.
    A minimum of it (``context_tokens_min``) remains in any case.
    """
    cut = {REFUTED: _cut_section(sections, REFUTED, int(budget * refuted_share_max))}
    cut |= {CONCLUSION: _cut_section(sections, CONCLUSION, int(budget * conclusion_share_max))}
    room = int(budget * context_share)
    if not keep and CONTEXT in sections:
        rest = {heading: lines for heading, lines in sections.items() if heading != CONTEXT}
        room = min(room, budget - count_tokens(_joined(rest)) - _margin_tokens)
    least = min(context_tokens_min, int(budget * context_share_max))
    cut[CONTEXT] = _cut_section(sections, CONTEXT, max(room, least))
    return [heading for heading in HEADINGS if cut.get(heading)]


def _cut_section(sections: dict[str, list[str]], heading: str, limit: int) -> bool:
    if heading not in sections:
        return False
    whole = sections[heading][0]
    sections[heading] = [_cut_line(heading, whole, limit)]
    return sections[heading] != [whole]


def _cut_line(heading: str, line: str, limit: int) -> str:
    return cut_to_tokens(line, max(0, limit - count_tokens(f"{heading}: \n")))


def statements_of(brief: Brief) -> shorthand.Statements:
    """Return the statements of a brief by the heads of the tight form, the most needed first."""
    layout = brief.layout
    statements: dict[str, list[str]] = {head: [] for head in shorthand.HEADS}
    for fact in brief.facts:
        if not is_concluded(fact, brief.conclusion):
            head = shorthand.ASSUMED if fact.assumed else shorthand.BRIEF
            head = shorthand.OTHERS if fact.step in layout.others else head
            statements[head].append(own_line(fact_line(fact, layout)))
    for remark in brief.remarks:
        statements[HEAD_OF[remark.type]].append(own_line(one_line(remark.text)))
    if not brief.facts and brief.reasoning_brief:
        statements[shorthand.BRIEF].append(brief.reasoning_brief)  # a snapshot with sentences and no facts
    return statements


def _tight(brief: Brief, sections: dict[str, list[str]], budget: int) -> tuple[str, set[str]]:
    """Return the tight form with as much of a brief as fits, and the headings that are complete."""
    if brief.whole_graph:
        sections.pop(FULL_REASONING, None)
    for heading in (FULL_REASONING, CONTEXT, CONCLUSION):
        if count_tokens(_around(sections, {})) > budget:
            sections.pop(heading, None)
    statements = statements_of(brief)
    listed = [(head, item) for head in shorthand.HEADS for item in statements[head]]

    @cache
    def text(count: int) -> str:
        fitting = {head: [item for own, item in listed[:count] if own == head] for head in shorthand.HEADS}
        return _around(sections, fitting)

    count = greatest(0, len(listed), lambda count: count_tokens(text(count)) <= budget)
    headings = {head: expand(f"{head}: x").partition(":")[0] for head in shorthand.HEADS}
    shown_headings = {headings[head] for head, _ in listed[:count]} - {headings[head] for head, _ in listed[count:]}
    framing = (REFUTED, CONTEXT, CONCLUSION, FULL_REASONING)
    return text(count), shown_headings | {name for name in framing if any(sections.get(name, ()))}


def _around(sections: dict[str, list[str]], statements: shorthand.Statements) -> str:
    before = _joined({name: lines for name, lines in sections.items() if name in {REFUTED, CONTEXT, CONCLUSION}})
    behind = _joined({name: lines for name, lines in sections.items() if name == FULL_REASONING})
    return "\n".join(filter(None, [before, shorthand.shorten(statements, before), behind]))


def _wanted(brief: Brief, level: TransferLevel) -> set[str]:
    """Return the headings for which a brief has content, whether or not its prompt has space for it."""
    has_content = {
        REFUTED: bool(brief.refuted),
        CONTEXT: bool(brief.context),
        CONCLUSION: bool(brief.conclusion),
        TAGS: bool(brief.tags),
    }
    has_content[REASONING_BRIEF] = bool(brief.reasoning_brief)
    # A whole graph contains these.
    has_content[TOP_ASSUMPTIONS] = bool(brief.top_assumptions) and not brief.whole_graph
    has_content[EVIDENCE] = (
        bool(brief.top_evidence_refs) and level is not TransferLevel.MINIMAL and not brief.whole_graph
    )
    has_content[FIDELITY] = level is not TransferLevel.MINIMAL
    has_content[FULL_REASONING] = level is TransferLevel.FULL or bool(brief.whole_graph)
    return {heading for heading, is_there in has_content.items() if is_there}


def _conclusion_line(brief: Brief) -> str:
    """Return the conclusion with the evidence of the steps that have the same words."""
    cited = [fact for fact in brief.facts if fact.step in brief.layout.evidence]
    evidence = (evidence_detail(fact) for fact in cited if is_concluded(fact, brief.conclusion))
    return one_line(brief.conclusion) + "".join(evidence)


def _joins(before: str, after: str) -> bool:
    """Return whether a cut between two characters would split a word (Chinese may be cut anywhere)."""
    return not (before.isspace() or after.isspace() or before in CJK_MARKS or is_between_signs(before, after))
