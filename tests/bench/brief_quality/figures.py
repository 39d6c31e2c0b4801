"""The figures of the table of brief quality, each a function of the graphs.

Each row requests a budget, which the brief fills. Only the rows on STANDARD transfers request none: there the
compressor stops as soon as the brief is good enough. Everything is deterministic: the graph's id seeds random choices.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from statistics import mean
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from deedbook.consumers.reasoning.compressor.certificate import check_certificate
from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.ledger.events.brief import Brief
from deedbook.projections.briefs.fidelity import measure, measure_indexed
from deedbook.projections.briefs.index import index_graph, spelled
from deedbook.projections.briefs.prompt import TransferLevel, to_context_prompt
from deedbook.projections.briefs.text import words
from deedbook.projections.briefs.vetoes import CONTRADICTION_CAP
from tests.bench.brief_quality.attacks import (
    changed_line,
    corrupted_briefs,
    free_text,
    gamed,
    honest_changes,
    key_texts,
)
from tests.bench.brief_quality.baselines import (
    first_n,
    first_n_bare,
    lexrank,
    lines_of,
    random_lines,
    rouge_1,
    spearman,
)
from tests.bench.brief_quality.first_build import first_build
from tests.bench.brief_quality.probes import EVERY, FITTED, kind_accuracy, probe_accuracy, verifiable_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deedbook.projections.reasoning.memory import ReasoningMemory
    from tests.bench.brief_quality.cases import Case

MINIMAL, STANDARD, _ = TransferLevel
TRANSFERS: Final = 100
MIXED_BUDGETS: Final = (120, 250, 400)
VERIFIABLE_MIN: Final = 0.8
PASSING: Final = 0.90
FREE_TEXT_SORTS: Final = ("path", "number", "negation")


class Side(NamedTuple):
    """The mean figures of one way to make briefs: fidelity, three probes, the share of critical units kept verbatim."""

    fidelity: float
    probes: float
    kinds: float
    fitted: float
    strict: float


def at_budget(memories: Sequence[ReasoningMemory], budget: int, level: TransferLevel) -> dict[str, Side]:
    """Return the figures of our briefs, then of the baselines, at a budget. Our shorthand is expanded before measuring.

    Raises:
        ValueError: When one of our prompts exceeds the budget.
    """
    made = [to_context_prompt(compress(memory, level, budget)) for memory in memories]
    if any(prompt.tokens > budget for prompt in made):
        raise ValueError(f"a prompt has more than {budget} tokens")
    prompts = {
        "ours": [prompt.expanded for prompt in made],
        "first build": [first_build(memory, budget, level) for memory in memories],
        "LexRank": [lexrank(memory, budget) for memory in memories],
        "first-N": [first_n(memory, budget) for memory in memories],
        "first-N of bare text": [first_n_bare(memory, budget) for memory in memories],
    }
    return {
        name: Side(
            mean(measure(memory, text).value for memory, text in zip(memories, texts, strict=True)),
            mean(probe_accuracy(memory, text) for memory, text in zip(memories, texts, strict=True)),
            mean(kind_accuracy(memory, text, EVERY) for memory, text in zip(memories, texts, strict=True)),
            mean(kind_accuracy(memory, text, FITTED) for memory, text in zip(memories, texts, strict=True)),
            mean(strict_share(memory, text) for memory, text in zip(memories, texts, strict=True)),
        )
        for name, texts in prompts.items()
    }


def strict_share(memory: ReasoningMemory, text: str) -> float:
    """Return the share of critical units that occur word for word in a text; fidelity also credits similar words."""
    run = spelled(words(text))
    return mean(spelled(words(unit)) in run for unit in key_texts(memory))


class Transfers(NamedTuple):
    """The cost of default STANDARD transfers, and the share of the content that they keep."""

    tokens: float
    tokens_max: int
    full: float
    verifiable: float
    fidelity_min: float


def transfers(cases: Sequence[Case]) -> Transfers:
    """Return the figures of at most ``TRANSFERS`` transfers, of graphs drawn from the cases."""
    drawn = random.Random(1).sample(list(cases), min(TRANSFERS, len(cases)))
    briefs = [compress(case.memory) for case in drawn]
    shares = [
        verifiable_share(case.memory, to_context_prompt(brief).expanded)
        for case, brief in zip(drawn, briefs, strict=True)
    ]
    return Transfers(
        tokens=mean(brief.sizes.compressed for brief in briefs),
        tokens_max=max(brief.sizes.compressed for brief in briefs),
        full=mean(case.tokens for case in drawn),
        verifiable=mean(share >= VERIFIABLE_MIN for share in shares),
        fidelity_min=min(brief.fidelity.value for brief in briefs),
    )


def minimal_share(memories: Sequence[ReasoningMemory], budget: int) -> float:
    """Return the share of graphs whose MINIMAL brief reaches .90 within a budget."""
    return mean(compress(memory, MINIMAL, budget).fidelity.value >= PASSING for memory in memories)


class Agreement(NamedTuple):
    """How well a metric agrees with the recall of gold steps: rank correlation and mean absolute error."""

    spearman: float
    error: float


def agreement(cases: Sequence[Case]) -> dict[str, Agreement]:
    """Return how well our metric and ROUGE-1 agree with gold recall, over briefs of all methods and sizes."""
    gold: list[float] = []
    values: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        index = index_graph(case.memory)
        for budget in MIXED_BUDGETS:
            brief = to_context_prompt(compress(case.memory, MINIMAL, budget)).expanded
            for text in (brief, *(make(case.memory, budget) for make in (first_n, lexrank, random_lines))):
                gold.append(gold_recall(case, text))
                values["ours"].append(measure_indexed(index, text).value)
                values["ROUGE-1"].append(rouge_1(lines_of(case.memory), text))
                values["ROUGE-1 of critical text"].append(rouge_1(key_texts(case.memory), text))
    return {name: _agreement(found, gold) for name, found in values.items()}


def gold_recall(case: Case, text: str) -> float:
    """Return the share of the steps that the source calls critical and that occur word for word in a text."""
    run = spelled(words(text))
    wanted = [step for step in case.memory.steps if case.gold is not None and step.step_number in case.gold]
    return mean(spelled(words(step.content)) in run for step in wanted)


def _agreement(values: Sequence[float], gold: Sequence[float]) -> Agreement:
    return Agreement(spearman(values, gold), mean(abs(one - other) for one, other in zip(values, gold, strict=True)))


def gaming(groups: Iterable[Sequence[ReasoningMemory]]) -> dict[str, float]:
    """Return the mean fidelity that each attack reaches in a group of graphs, for the group where it is highest."""
    highest: dict[str, float] = {}
    for memories in groups:
        values: dict[str, list[float]] = defaultdict(list)
        for place, memory in enumerate(memories):
            for attack, text in gamed(memory, memories[(place + 1) % len(memories)]).items():
                values[attack].append(measure(memory, text).value)
        for attack, found in values.items():
            highest[attack] = max(highest.get(attack, 0.0), mean(found))
    return highest


class Found(NamedTuple):
    """The number of changed texts that were detected, and of honest texts that were rejected."""

    caught: int
    changed: int
    accused: int
    honest: int


def certificate(memories: Sequence[ReasoningMemory]) -> Found:
    """Return how often the certificate detects a single changed fact in briefs as a receiver gets them, as JSON."""
    counts: Counter[str] = Counter()
    for memory in memories:
        brief = msgspec.json.decode(msgspec.json.encode(compress(memory, STANDARD, 400)), type=Brief)
        counts["honest"] += 1
        counts["accused"] += bool(check_certificate(brief, memory))
        for _, corrupted in corrupted_briefs(brief, random.Random(memory.reasoning_id)):
            counts["changed"] += 1
            counts["caught"] += bool(check_certificate(corrupted, memory))
    return Found(counts["caught"], counts["changed"], counts["accused"], counts["honest"])


def in_free_text(memories: Sequence[ReasoningMemory]) -> dict[str, Found]:
    """Return how often the vetoes detect a single changed line of free text, by type of change."""
    counts: Counter[tuple[str, str]] = Counter()
    for memory in memories:
        index, lines = index_graph(memory), free_text(memory)
        chance = random.Random(memory.reasoning_id)
        for text in honest_changes(lines, chance):
            counts["", "honest"] += 1
            counts["", "accused"] += bool(measure_indexed(index, "\n".join(text)).vetoes)
        for sort in FREE_TEXT_SORTS:
            for place, line in enumerate(lines):
                changed = changed_line(sort, line, chance)
                if changed is not None and changed != line:
                    text = "\n".join([*lines[:place], changed, *lines[place + 1 :]])
                    counts[sort, "changed"] += 1
                    counts[sort, "caught"] += measure_indexed(index, text).cap <= CONTRADICTION_CAP
    accused, honest = counts["", "accused"], counts["", "honest"]
    return {sort: Found(counts[sort, "caught"], counts[sort, "changed"], accused, honest) for sort in FREE_TEXT_SORTS}


def delta_versions(memory: ReasoningMemory, count: int) -> list[ReasoningMemory]:
    """Return ``count`` versions of a graph, each with one more step than the version before."""
    versions = []
    for size in range(len(memory.steps) - count + 1, len(memory.steps) + 1):
        steps = memory.steps[:size]
        present = {step.step_number for step in steps}
        kept = {
            number: [one for one in rests_on if one in present]
            for number, rests_on in memory.dependencies.items()
            if number in present
        }
        versions.append(msgspec.structs.replace(memory, steps=steps, dependencies=kept))
    return versions
