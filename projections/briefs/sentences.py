"""The lines of a prompt: facts and remarks as sentences, and the marks that separate Deedbook's words from the graph's.

Text of the graph is put on one line, and a line that would read as a heading becomes a list item: no step can forge a
section.

``expand`` writes a prompt in shorthand out, and ``readable_text`` returns only the parts that convey the graph. So
anybody can measure a prompt's fidelity from the prompt and the ref. Some sections do not count as kept reasoning:
CONTEXT (the sender's own summary), TAGS (routing labels), and REFUTED, FIDELITY and FULL REASONING, which are about the
reasoning or the brief.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from deedbook.ledger.events.brief import Fact, FactMark, Layout, RefutedAssumption, Remark
from deedbook.projections.briefs import shorthand
from deedbook.projections.briefs.anchors import evidence_location
from deedbook.projections.briefs.text import count_sentences, one_line

REFUTED: Final = "REFUTED"
CONTEXT: Final = "CONTEXT"
CONCLUSION: Final = "CONCLUSION"
TAGS: Final = "TAGS"
TOP_ASSUMPTIONS: Final = "TOP ASSUMPTIONS"
REASONING_BRIEF: Final = "REASONING BRIEF"
EVIDENCE: Final = "EVIDENCE"
FIDELITY: Final = "FIDELITY"
FULL_REASONING: Final = "FULL REASONING"
HEADINGS: Final = (
    REFUTED,
    CONTEXT,
    CONCLUSION,
    TAGS,
    TOP_ASSUMPTIONS,
    REASONING_BRIEF,
    EVIDENCE,
    FIDELITY,
    FULL_REASONING,
)

LIMITATION: Final = "Limitation: "
ALTERNATIVE: Final = "Alternative considered: "
OTHER_STEPS: Final = "Other steps:"
CHECK: Final = "CHECK: "
VERIFY: Final = "VERIFY"
POINTER: Final = "Available via reasoning_ref="
CALL: Final = "Call: deed reasoning fetch {ref} (or the tool fetch_reasoning, level full)"
CUT: Final = "…"

_WRITTEN_OUT: Final = {
    shorthand.ASSUMED: (TOP_ASSUMPTIONS, ""),
    shorthand.LIMITS: (REASONING_BRIEF, LIMITATION),
    shorthand.ALTERNATIVES: (REASONING_BRIEF, ALTERNATIVE),
    shorthand.BRIEF: (REASONING_BRIEF, ""),
    shorthand.OTHERS: (REASONING_BRIEF, ""),
}
"""The heading and the label that each head of the shorthand abbreviates."""

_UNCOUNTED: Final = frozenset({REFUTED, CONTEXT, TAGS, FIDELITY, FULL_REASONING})
_MARKS: Final = "|".join(filter(None, get_args(FactMark)))
_HEADING: Final = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]?", re.MULTILINE)
_COUNTS: Final = r"The graph has \d+ steps?\.|Of these, \d+ (?:is|are) critical\.|This brief leaves out \d+ of them\."
_LABELS: Final = re.compile(
    rf"^(?:- )?(?:{LIMITATION}|{ALTERNATIVE}|{OTHER_STEPS})|\({CHECK}|\((?:{VERIFY}|{_MARKS})\)|{_COUNTS}|{CUT}",
    re.MULTILINE,
)

refuted_shown_max: Final = 3
refuted_max_chars: Final = 120
lead_sentences_min: Final = 3
lead_sentences_max: Final = 6

ENDS: Final = (".", "!", "?", "。", "！", "？", "…")


def fact_sentence(fact: Fact, layout: Layout) -> str:
    """Return a fact as one sentence with the details that the layout shows."""
    text = fact_statement(fact)
    # The stop follows the details, so that a fact with details is still one sentence.
    stop = "" if text.endswith(ENDS) else "。" if "\u3400" <= text[-1:] <= "\u9fff" else "."
    return fact_line(fact, layout) + stop


def fact_line(fact: Fact, layout: Layout) -> str:
    """Return a fact as one line without a full stop, with its mark and the evidence and check that the layout shows."""
    evidence = evidence_detail(fact) if fact.step in layout.evidence else ""
    check = check_detail(fact) if fact.step in layout.checks else ""
    return fact_statement(fact) + evidence + check + (f" ({fact.mark})" if fact.mark else "")


def fact_statement(fact: Fact) -> str:
    """Return the text of a fact without a full stop at its end."""
    text = one_line(fact.text)
    if fact.conclusion:
        text += f" → {one_line(fact.conclusion)}"
    return (text[:-1] if text.endswith((".", "。")) else text) or text


def is_concluded(fact: Fact, conclusion: str) -> bool:
    """Return whether the text of a fact equals the conclusion."""
    line = one_line(conclusion)
    return fact_statement(fact) == ((line[:-1] if line.endswith((".", "。")) else line) or line)


def evidence_detail(fact: Fact) -> str:
    """Return the references of a fact's evidence in brackets, to be added to its text; empty if it has none."""
    references = dict.fromkeys(one_line(evidence_location(text)) for text in fact.evidence)
    return f" [{', '.join(references)}]" if references else ""


def check_detail(fact: Fact) -> str:
    """Return the check of an assumption in parentheses, to be added to its text; empty if it has none."""
    return f" ({CHECK}{one_line(fact.check)})" if fact.check else ""


def verify_detail(fact: Fact, layout: Layout) -> str:
    """Return a mark for an assumption whose check is not shown; empty if it is, or if the assumption is refuted."""
    is_marked = fact.mark or (fact.check and fact.step in layout.checks)
    return "" if is_marked else f" ({VERIFY})"


def refuted_line(refuted: Sequence[RefutedAssumption]) -> str:
    """Return in one line which assumptions were refuted, by whom and how, and what rests on them."""
    lines = []
    for each in refuted[:refuted_shown_max]:
        marked = ["the conclusion"] * each.is_ground
        marked += [f"step{'s' * (len(each.rests) > 1)} {', '.join(map(str, each.rests))}"] * bool(each.rests)
        begins = f"An assumption was refuted by {each.by}, and no step rests on it"
        if marked:
            verb = "rest" if len(marked) > 1 or len(each.rests) > 1 else "rests"
            grounds = " and ".join(marked)
            begins = f"{grounds[0].upper()}{grounds[1:]} {verb} on an assumption that {each.by} refuted"
        text, how = (_shortened(one_line(text)) for text in (each.text, each.how))
        stop = "" if how.endswith(ENDS) else "."
        lines.append(f'{begins}: "{text}" (step {each.step}). {how}{stop}')
    more = len(refuted) - refuted_shown_max
    return " ".join([*lines, *([f"And {more} more."] if more > 0 else [])])


def _shortened(text: str) -> str:
    return text if len(text) <= refuted_max_chars else text[: refuted_max_chars - 1] + CUT


def remark_line(remark: Remark) -> str:
    """Return a remark with the label of its type; a stated assumption has only its heading."""
    label = {"limitation": LIMITATION, "alternative": ALTERNATIVE}.get(remark.type, "")
    return label + one_line(remark.text)


def own_line(line: str) -> str:
    """Return a line of graph text in a form that cannot be read as a heading or label."""
    return f"- {line}" if looks_like_heading(line) else line


def choose_lead(facts: Iterable[Fact]) -> list[int]:
    """Return the steps whose facts form the brief's 3 to 6 sentences: the first that fit, in reading order."""
    chosen: list[int] = []
    room = lead_sentences_max
    for fact in facts:
        # Evidence does not end a sentence, so a bare fact has as many sentences as one with evidence.
        sentences = max(1, count_sentences(f"{one_line(fact.text)} {one_line(fact.conclusion)}"))
        if not fact.assumed and sentences <= room:
            chosen.append(fact.step)
            room -= sentences
    return chosen


def lead_sentences(facts: Iterable[Fact], layout: Layout) -> list[str]:
    """Return the sentences of the lead, one a fact."""
    return [fact_sentence(fact, layout) for fact in facts if fact.step in layout.lead]


def counting_sentences(steps: int, critical: int, left_out: int) -> list[str]:
    """Return the sentences that fill a brief up to three if the graph has too few facts."""
    return [
        f"The graph has {steps} step{'' if steps == 1 else 's'}.",
        f"Of these, {critical} {'is' if critical == 1 else 'are'} critical.",
        f"This brief leaves out {left_out} of them.",
    ]


def expand(prompt: str) -> str:
    """Return a prompt with its shorthand, if any, written out under the full headings."""
    lines: list[str] = []
    opened = ""
    for head, items in shorthand.read_statements(prompt.split("\n")):
        heading, label = _WRITTEN_OUT.get(head, ("", ""))
        labelled = [*([OTHER_STEPS] if head == shorthand.OTHERS else []), *(label + item for item in items)]
        if heading and heading != opened:
            labelled[0] = f"{heading}: {labelled[0]}"
        opened = heading
        lines += labelled
    return "\n".join(lines)


def readable_text(prompt: str) -> str:
    """Return the lines of a prompt that convey the graph, without headings and labels; plain text stays as it is."""
    before, *parts = _HEADING.split(expand(prompt))
    sections = zip(parts[::2], parts[1::2], strict=True)
    conveying = [before, *(text for heading, text in sections if heading not in _UNCOUNTED)]
    return _LABELS.sub("\n", "\n".join(conveying))


def looks_like_heading(line: str) -> bool:
    """Return whether a line of the graph's own text would read as a heading or label."""
    return bool(_HEADING.match(line)) or bool(_LABELS.match(line)) or shorthand.is_head(line)
