"""How facts and remarks become the lines of a prompt (DESIGN §9: plain facts beat labels and lists).

A fact is its text, then, where there was room, its evidence as ``[path:line]`` and ``[#4<2,3]`` (step 4 rests on 2 and
3). Text of the graph is put on one line, and a line that would read as a heading is marked as a list item: no step can
forge a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.briefs.anchors import evidence_place
from projections.briefs.text import count_sentences, one_line
from projections.briefs.wording import ALTERNATIVE, CHECK, LIMITATION, link, looks_like_heading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.events.brief import Fact, Layout, Remark

lead_sentences_min: Final = 3
lead_sentences_max: Final = 6

_ENDS: Final = (".", "!", "?", "。", "！", "？", "…")


def fact_sentence(fact: Fact, layout: Layout) -> str:
    """Return a fact as one sentence with the particulars that the layout shows."""
    text = one_line(fact.text)
    if fact.conclusion:
        text += f" → {one_line(fact.conclusion)}"
    # The stop stands behind the details, so that a fact with them is still one sentence.
    stop = "" if text.endswith(_ENDS) else _full_stop(text)
    if text.endswith((".", "。")):
        text, stop = text[:-1], text[-1]
    details = evidence_detail(fact) if fact.step in layout.evidence else ""
    if fact.step in layout.links:
        details += f" {link(fact.step, fact.rests_on)}"
    return f"{text}{details}{stop}"


def evidence_detail(fact: Fact) -> str:
    """Return what showing its evidence adds to a fact."""
    places = dict.fromkeys(one_line(evidence_place(text)) for text in fact.evidence)
    return f" [{'; '.join(places)}]" if places else ""


def assumption_line(fact: Fact, layout: Layout) -> str:
    """Return an open assumption with how to check it, if the layout shows that."""
    # Each stands on a line of its own, which ends it as well as a full stop would.
    text = fact_sentence(fact, layout).removesuffix(".")
    if fact.step in layout.checks and fact.check:
        text += f" ({CHECK}{one_line(fact.check)})"
    return text


def remark_line(remark: Remark) -> str:
    """Return a remark with the label that says what it is; a stated assumption stands under its heading."""
    label = {"limitation": LIMITATION, "alternative": ALTERNATIVE}.get(remark.sort, "")
    return label + one_line(remark.text)


def own_line(line: str) -> str:
    """Return a line of graph text so that it cannot be read as a heading or label."""
    return f"- {line}" if looks_like_heading(line) else line


def choose_lead(facts: Iterable[Fact]) -> list[int]:
    """Return the steps whose facts make up the brief's 3 to 6 sentences: the first that fit, in reading order."""
    chosen: list[int] = []
    room = lead_sentences_max
    for fact in facts:
        # Neither evidence nor links end a sentence, so the bare fact has as many as the shown one.
        sentences = max(1, count_sentences(f"{one_line(fact.text)} {one_line(fact.conclusion)}"))
        if not fact.assumed and sentences <= room:
            chosen.append(fact.step)
            room -= sentences
    return chosen


def lead_sentences(facts: Iterable[Fact], layout: Layout) -> list[str]:
    """Return the sentences of the lead, one a fact."""
    return [fact_sentence(fact, layout) for fact in facts if fact.step in layout.lead]


def _full_stop(text: str) -> str:
    return "。" if text and "\u3400" <= text[-1] <= "\u9fff" else "."
