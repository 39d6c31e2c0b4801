"""Questions that a receiver may have about a graph, answered from the prompt by exact look-up (no model reads here).

A question asks for one of these: the conclusion; a premise of a step; the evidence of a step; a number of a step, with
the words beside it; all steps that support a step; the statement of a step; an assumption; a limitation. An answer
counts only if its subject is in the prompt, too: a premise without its step does not count. Questions are asked about
critical steps only.

``probe_accuracy`` gives every question of ``OF_STEPS`` the same weight, so the most frequent kind, premises, outweighs
the rest. ``kind_accuracy`` gives every kind the same weight. ``EVERY`` also has assumptions and limitations: a reader
without a brief can guess premises and wording, but not these.

The targets were set with other questions, on other graphs; we have neither. With those questions, briefs scored higher
when the selection gave assumptions more weight; with ``OF_STEPS`` they score lower. So we searched all sets of four to
six kinds, weighted by question or by kind, for the set that behaves most like the original questions. ``FITTED`` is the
best: it predicts the published shares of three baselines, and the effects of three changes of the selection, with a
mean error of .03. The mean error of ``OF_STEPS``, the 195th of 308 sets, is .05. Only the benchmark uses these sets;
the selection of a brief does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING, Final

from deedbook.projections.briefs.anchors import evidence_location
from deedbook.projections.briefs.critical import critical_numbers, critical_units, fact_text
from deedbook.projections.briefs.index import spelled
from deedbook.projections.briefs.text import one_line, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.projections.reasoning.memory import ReasoningMemory

OF_STEPS: Final = frozenset({"conclusion", "premise", "evidence", "number", "support"})
EVERY: Final = OF_STEPS | {"assumption", "assumption_stated", "limitation"}
FITTED: Final = frozenset({"premise", "support", "evidence", "step", "assumption", "assumption_stated"})
_NUMBER: Final = re.compile(r"\S*\s*\S*\d[\d.,]*\S*\s*\S*")


def probe_accuracy(memory: ReasoningMemory, prompt: str) -> float:
    """Return the share of questions about a graph that its prompt answers."""
    answers = [answer for kind, answer in answered(memory, prompt) if kind in OF_STEPS]
    return sum(answers) / len(answers) if answers else 1.0


def kind_accuracy(memory: ReasoningMemory, prompt: str, asked: frozenset[str]) -> float:
    """Return the share of questions answered of each kind in ``asked``, averaged over the kinds that the graph has."""
    kinds: defaultdict[str, list[bool]] = defaultdict(list)
    for kind, answer in answered(memory, prompt):
        if kind in asked:
            kinds[kind].append(answer)
    return mean(mean(answers) for answers in kinds.values())


def answered(memory: ReasoningMemory, prompt: str) -> Iterator[tuple[str, bool]]:
    """Yield each question's kind and whether the prompt answers it."""
    run = spelled(words(prompt))
    texts = {step.step_number: fact_text(step) for step in memory.steps}
    said = {number for number, text in texts.items() if spelled(words(text)) in run}
    lines = [one_line(line) for line in prompt.splitlines()]
    yield "conclusion", spelled(words(memory.conclusion)) in run
    for number in sorted(critical_numbers(memory)):
        step = next(step for step in memory.steps if step.step_number == number)
        rests_on = memory.dependencies.get(number, [])
        if rests_on:
            yield "premise", number in said and rests_on[0] in said
            yield "support", number in said and said.issuperset(rests_on)
        if step.evidence:
            place = evidence_location(step.evidence[0])
            text = one_line(texts[number]).rstrip(".。 ")
            yield "evidence", any(place in line and text in line for line in lines)
        found = _NUMBER.search(texts[number])
        if found:
            yield "number", spelled(words(found[0])) in run
    for unit in critical_units(memory, critical_numbers(memory)):
        if unit.kind != "conclusion":
            yield unit.kind, spelled(words(unit.text)) in run


def verifiable_share(memory: ReasoningMemory, prompt: str) -> float:
    """Return the share of critical inferences that the prompt contains together with all of their premises."""
    checks = [answer for kind, answer in answered(memory, prompt) if kind == "support"]
    return sum(checks) / len(checks) if checks else 1.0
