"""The critical set of a graph, which a brief must keep: four kinds of key facts, each a ``Unit``.

- The steps that the conclusion rests on, and the conclusion itself.
- Unvalidated and refuted assumptions: steps, and the ``assumptions`` that a critical step states.
- Known limitations, except one that only repeats an assumption ("Assumption unvalidated: …"), settled or not.
- Refuted alternatives: those that a critical step considered and did not choose.

If a graph has no dependencies, every step is critical, because no step can be called unnecessary. If only the
conclusion has none, every inference is critical, with the steps that it rests on. If no step states the conclusion, it
is assumed to rest on the last steps of the dependencies. If these lead to fewer than half of the steps, every step is
critical. A bare heading states nothing and is never critical, unless nothing else is: it is short, so a brief of a
structured text would otherwise consist of headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from deedbook.ledger.events.brief import FactMark, RefutedAssumption
from deedbook.ledger.format.chinese import simplified
from deedbook.projections.briefs.text import NOT, content_of, plain, stem, words
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep
from deedbook.projections.reasoning.outcomes import (
    is_refuted_assumption,
    outcome_of,
    outcome_text,
    refutations_in,
)

STEP_WEIGHT: Final = 1.0
REMARK_WEIGHT: Final = 0.5
"""A limitation, alternative or stated assumption weighs half a step, because it only qualifies a step."""

_repeat_share: Final = 0.8
_weak_confidence: Final = 0.5
_HEADING: Final = re.compile(r"#{1,6}[ \t][^\n]*|[|:\- ]+")


class Unit(msgspec.Struct, frozen=True):
    """One key fact: its kind, its step (if any), its text, and its weight in recall."""

    kind: str
    step: int | None
    text: str
    weight: float


def fact_text(step: ReasoningStep) -> str:
    """Return the text that a brief's fact of this step must equal byte for byte."""
    return step.content.strip()


def own_conclusion(step: ReasoningStep) -> str:
    """Return a step's own conclusion, trimmed; empty if it adds nothing to the step's content."""
    conclusion = step.conclusion.strip() if isinstance(step.conclusion, str) else ""
    return "" if conclusion == fact_text(step) else conclusion


def closing(step: ReasoningStep) -> str:
    """Return a step's own conclusion and the outcome of its assumption; empty if it has neither."""
    return "; ".join(filter(None, [own_conclusion(step), outcome_text(step)]))


def is_assumption(step: ReasoningStep) -> bool:
    """Return whether a step is an assumption that its author calls unvalidated (the default of an assumption)."""
    return step.needs_validation is True or (step.type == "assumption" and step.needs_validation is not False)


def is_open_assumption(step: ReasoningStep) -> bool:
    """Return whether a step is an assumption that still needs validation: nobody settled it."""
    return is_assumption(step) and outcome_of(step) is None


def refutations(memory: ReasoningMemory) -> list[RefutedAssumption]:
    """Return the refuted assumptions of a graph, each with the steps that rest on it."""
    if not any(map(is_refuted_assumption, memory.steps)):
        return []
    concluding = [step.step_number for step in concluding_steps(memory)]
    return [
        RefutedAssumption(
            found.step.step_number,
            fact_text(found.step),
            found.settlement.by,
            found.settlement.how,
            found.rests,
            found.is_concluded_from,
        )
        for found in refutations_in(memory, concluding)
    ]


def marks_of(memory: ReasoningMemory) -> dict[int, FactMark]:
    """Return the marks of the steps of a graph that are refuted, or rest on a refuted assumption."""
    refuted = refutations(memory)
    resting: dict[int, FactMark] = {
        number: "RESTS ON A REFUTED ASSUMPTION" for each in refuted for number in each.rests
    }
    return resting | {each.step: "REFUTED" for each in refuted}


def is_refuted(step: ReasoningStep) -> bool:
    """Return whether a step is an alternative that was considered and rejected."""
    return step.type == "hypothesis" and step.confidence < _weak_confidence


def concluding_steps(memory: ReasoningMemory) -> list[ReasoningStep]:
    """Return the steps that state the graph's conclusion: by their words, else by type, else by position."""
    if stating := _stating_steps(memory):
        return stating
    used = {number for rests_on in memory.dependencies.values() for number in rests_on}
    ends = memory.dependencies.keys() - used
    sinks = [step for step in memory.steps if step.step_number in ends]
    # An assumption is often recorded last, and is no conclusion.
    return sinks or [step for step in memory.steps if step.type != "assumption"][-1:] or memory.steps[-1:]


def _stating_steps(memory: ReasoningMemory) -> list[ReasoningStep]:
    target = plain(memory.conclusion)
    stated = [step for step in memory.steps if target in {plain(step.content), plain(own_conclusion(step))}]
    typed = [step for step in memory.steps if step.type == "conclusion"]
    return [step for step in stated if step.type == "conclusion"] or typed or stated


def is_heading(step: ReasoningStep) -> bool:
    """Return whether a step is only a Markdown heading or the rule of a table, as in imported texts."""
    return _HEADING.fullmatch(fact_text(step)) is not None


def critical_numbers(memory: ReasoningMemory) -> set[int]:
    """Return the numbers of the critical steps (see the module docstring)."""
    headings = {step.step_number for step in memory.steps if is_heading(step)}
    critical = _critical_numbers(memory)
    return critical - headings or critical


def _critical_numbers(memory: ReasoningMemory) -> set[int]:
    everything = {step.step_number for step in memory.steps}
    if not any(memory.dependencies.values()):
        return everything
    targets = {step.step_number for step in concluding_steps(memory)}
    if not any(memory.dependencies.get(number) for number in targets):
        targets |= {step.step_number for step in memory.steps if step.type != "observation"}
    open_assumptions = {
        step.step_number for step in memory.steps if is_open_assumption(step) or is_refuted_assumption(step)
    }
    reached = ancestors(memory.dependencies, targets)
    if 2 * len(reached) < len(everything) and not _stating_steps(memory):
        return everything
    refuted = {step.step_number for step in memory.steps if is_refuted(step)}
    return reached | open_assumptions | refuted


def dead_ends(memory: ReasoningMemory, critical: set[int]) -> list[int]:
    """Return the steps of the branches that lead nowhere: each inference, then the steps that only it rests on.

    An inference, hypothesis or settled assumption is a dead end if it is not critical: it was tried and left.
    """
    headings = {step.step_number for step in memory.steps if is_heading(step)}
    left = [step.step_number for step in memory.steps if step.type != "observation"]
    branches = ([number, *sorted(ancestors(memory.dependencies, {number}))] for number in left)
    return [
        number
        for number in dict.fromkeys(number for branch in branches if branch[0] not in critical for number in branch)
        if number not in critical | headings
    ]


def critical_units(memory: ReasoningMemory, critical: set[int]) -> list[Unit]:
    """Return the key facts of a graph with these critical steps, in reading order, each once."""
    units = [Unit("conclusion", None, memory.conclusion.strip(), STEP_WEIGHT)]
    remarks: list[Unit] = []
    for step in memory.steps:
        if step.step_number not in critical:
            continue
        number = step.step_number
        kind = "assumption" if is_open_assumption(step) else "step"
        units.append(Unit(kind, number, fact_text(step), STEP_WEIGHT))
        units.append(Unit("step_conclusion", number, closing(step), REMARK_WEIGHT))
        remarks += [Unit("assumption_stated", number, text.strip(), REMARK_WEIGHT) for text in step.assumptions]
        remarks += [Unit("alternative", number, text.strip(), REMARK_WEIGHT) for text in step.alternatives_considered]
    limits = [Unit("limitation", None, text.strip(), REMARK_WEIGHT) for text in memory.known_limitations]
    settled = [fact_text(step) for step in memory.steps if is_assumption(step) and not is_open_assumption(step)]
    return _without_repeats((unit for unit in (*units, *remarks, *limits) if unit.text), settled)


def critical_edges(memory: ReasoningMemory, critical: set[int]) -> list[tuple[int, int]]:
    """Return the dependencies among critical steps as (premise, step)."""
    return [
        (premise, number)
        for number, rests_on in memory.dependencies.items()
        for premise in dict.fromkeys(rests_on)
        if number in critical and premise in critical
    ]


def ancestors(dependencies: Mapping[int, Iterable[int]], starts: Iterable[int]) -> set[int]:
    """Return the steps that can be reached going back from ``starts``, those included; a cycle ends the walk."""
    reached = set(starts)
    waiting = list(reached)
    while waiting:
        for premise in dependencies.get(waiting.pop(), ()):
            if premise not in reached:
                reached.add(premise)
                waiting.append(premise)
    return reached


def _without_repeats(units: Iterable[Unit], settled: Iterable[str]) -> list[Unit]:
    """Drop a unit with the same words as an earlier one, and remarks that repeat an assumption, open or ``settled``."""
    distinct: list[Unit] = []
    seen: set[tuple[str, ...]] = set()
    assumed = [_meaning(text) for text in settled]
    for unit in units:
        spelled = tuple(words(unit.text))
        meaning = _meaning(unit.text)
        remark = unit.kind in {"limitation", "assumption_stated"}
        if spelled in seen or (remark and any(_repeats(meaning, other) for other in assumed)):
            continue
        distinct.append(unit)
        seen.add(spelled)
        if unit.kind in {"assumption", "assumption_stated"}:
            assumed.append(meaning)
    return distinct


def _meaning(text: str) -> frozenset[str]:
    """Return the content words of a text without a label such as "Assumption unvalidated:" before them."""
    label, colon, rest = text.partition(":")
    if colon and ("assumption" in label.lower() or "假设" in simplified(label)):
        text = rest
    return frozenset(content_of(words(simplified(text)))) - {stem("assumption"), "假设"}


def _repeats(first: frozenset[str], other: frozenset[str]) -> bool:
    shorter = min(len(first), len(other))
    return shorter > 1 and (NOT in first) == (NOT in other) and len(first & other) / shorter >= _repeat_share
