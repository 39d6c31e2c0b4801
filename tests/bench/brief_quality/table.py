"""The rows of brief quality: the quantity, the baseline in the same run, our figure, and the target.

The targets come from the proposal of reasoning memory. They were set on other graphs of the same kinds.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Final

from tests.bench.brief_quality.cases import Case, Cases, load_cases
from tests.bench.brief_quality.figures import (
    MINIMAL,
    STANDARD,
    Found,
    Side,
    agreement,
    at_budget,
    certificate,
    delta_versions,
    gaming,
    in_free_text,
    minimal_share,
    transfers,
)
from tests.bench.brief_quality.incidents import incidents
from tests.bench.pairs import Bench, Budget, Row, scaled
from tests.graphs import measure_chain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deedbook.projections.reasoning.memory import ReasoningMemory

VERSIONS: Final = 30
STANDARD_BUDGET: Final = 400
SAMPLE: Final = scaled(40, 4)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    cases = load_cases()
    bench.say(f"briefs of {cases.source}")
    distracted, dense = _memories(cases.distracted), _memories(cases.dense)
    yield from _budgets(cases)
    bench.say("transfers")
    yield from _transfers(cases)
    bench.say("the metric")
    yield from _metric(cases)
    bench.say("gamed and corrupted briefs")
    hand = incidents()
    sums = _memories(cases.sums)
    yield from _gamed([hand, dense[:SAMPLE], distracted[:SAMPLE]])
    yield from _corrupted([*hand, *dense[:SAMPLE], *sums])
    yield _deltas([memory for memory in dense if len(memory.steps) >= VERSIONS] or distracted[:SAMPLE])


def _memories(cases: Sequence[Case]) -> list[ReasoningMemory]:
    return [case.memory for case in cases]


def _budgets(cases: Cases) -> Iterator[Row]:
    """Yield the share that briefs keep at a budget; a row has a target only if the proposal gives one."""
    groups = {"distractors": cases.distracted, "nothing to drop": cases.dense, "chains": cases.chains}
    reach = {
        ("distractors", 400): (0.95, 0.93, 0.95),
        ("nothing to drop", 400): (0.92, 0.89, 0.90),
        ("nothing to drop", 200): (0.64, 0.53, 0.54),
        ("chains", 400): (0.96, 0.95, 0.95),
        ("chains", 200): (0.77, 0.66, 0.60),
    }
    for (name, budget), (fidelity, probes, strict) in reach.items():
        memories = _memories(groups[name])
        sides = at_budget(memories, budget, STANDARD if budget == STANDARD_BUDGET else MINIMAL)
        at, count = f"at {budget} tokens, {name}", len(memories)
        yield _row(f"fidelity {at}", sides, "fidelity", fidelity, count)
        yield _row(f"probe accuracy {at}", sides, "probes", probes, count)
        yield _row(f"probe accuracy {at}, every kind alike", sides, "kinds", probes, count)
        yield _row(f"probe accuracy {at}, kinds that fit the figures", sides, "fitted", probes, count)
        yield _row(f"strict, word for word {at}", sides, "strict", strict, count)


def _row(what: str, sides: dict[str, Side], name: str, reach: float, count: int) -> Row:
    ours, *others = ((side, getattr(found, name)) for side, found in sides.items())
    baselines = ", ".join(f"{side} {value:.2f}" for side, value in others)
    return Row(f"briefs: {what}", [ours[1]], baselines, Budget("≥", reach), f"{count} graphs")


def _transfers(cases: Cases) -> Iterator[Row]:
    found = transfers([*cases.distracted, *cases.dense])
    note = f"up to {found.tokens_max}, lowest fidelity {found.fidelity_min:.2f}"
    yield Row("briefs: STANDARD, mean tokens", [found.tokens], f"full {found.full:.0f}", Budget("≤", 450), note)
    what = "briefs: STANDARD, graphs with ≥ 80 % of critical inferences verifiable"
    yield Row(what, [found.verifiable], "–", Budget("≥", 0.95), "every premise stands in the prompt")
    hand = incidents()
    for budget, share in ((200, 0.75), (240, 1.0)):
        what = f"briefs: MINIMAL ≥ .90 at {budget} tokens, ≤ 12 facts"
        yield Row(
            what, [minimal_share(hand, budget)], "–", Budget("≥", share), f"{len(hand)} graphs, English and Chinese"
        )


def _metric(cases: Cases) -> Iterator[Row]:
    found = agreement([*cases.distracted[:SAMPLE], *cases.dense[:SAMPLE]])
    ours = found.pop("ours")
    ranks = ", ".join(f"{name} {one.spearman:.3f}" for name, one in found.items())
    errors = ", ".join(f"{name} {one.error:.3f}" for name, one in found.items())
    yield Row("metric: Spearman with gold recall", [ours.spearman], ranks, Budget("≥", 0.95))
    yield Row("metric: mean absolute error", [ours.error], errors, Budget("≤", 0.07))


def _gamed(groups: Sequence[Sequence[ReasoningMemory]]) -> Iterator[Row]:
    for attack, value in gaming(groups).items():
        yield Row(f"gamed: {attack}", [value], "–", Budget("≤", 0.40), "highest mean of three kinds of graphs")


def _corrupted(memories: Sequence[ReasoningMemory]) -> Iterator[Row]:
    found = certificate(memories)
    yield _caught("corrupted: one fact of an extractive brief, caught", found, 1.0)
    yield _accused("corrupted: extractive briefs, false alarms", found, 0.0)
    text = in_free_text(memories)
    for sort, reach in (("path", 1.0), ("number", 0.92), ("negation", 0.92)):
        yield _caught(f"corrupted: free text, {sort}, caught", text[sort], reach)
    yield _accused("corrupted: free text, false alarms", text["path"], 0.01)


def _caught(what: str, found: Found, reach: float) -> Row:
    return Row(what, [found.caught / found.changed], "–", Budget("≥", reach), f"{found.caught} of {found.changed}")


def _accused(what: str, found: Found, reach: float) -> Row:
    return Row(what, [found.accused / found.honest], "–", Budget("≤", reach), f"{found.accused} of {found.honest}")


def _deltas(memories: Sequence[ReasoningMemory]) -> Row:
    costs = [measure_chain(delta_versions(memory, VERSIONS)) for memory in memories]
    messages = mean(cost.messages / cost.resent for cost in costs)
    note = f"{len(costs)} graphs of {VERSIONS} versions; as messages with both refs {messages:.3f}"
    return Row(
        "deltas: chain, tokens",
        [mean(cost.ratio for cost in costs)],
        "sending each version again",
        Budget("≤", 0.10),
        note,
    )
