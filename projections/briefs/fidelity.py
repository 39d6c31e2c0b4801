"""How much of a graph's reasoning a text keeps: measured, never asserted (DESIGN §9; seed 001, "Fidelity").

``measure(memory, text)`` takes the graph and what the receiver reads (a rendered prompt, or any text) and needs
nothing else, so a receiver who fetched the ref can repeat the sender's figure. Value:

    min(cap, .75 R + .15 A + .10 E), renormalised over the parts that the graph has

R is the recall of key facts, A of anchors, E of dependencies with both ends kept; the cap comes from the vetoes. 1.0
is said only where the text holds the whole graph (a JSON form whose ref is the graph's); a perfect brief that is not
the graph itself stops at .99. For a paraphrase the value is a lower bound: the comparison is lexical.

The weights were fitted on human proof trees with distractors (Spearman .96 with the share of gold steps kept); the
optimum is flat. Refused: matching over whole sentences (a bag of words got .94) and a plain hit threshold (biased by
+.2 on partial facts).
"""

from __future__ import annotations

import json
from typing import Final

from ledger.errors import Refused
from ledger.events.brief import Band, Fidelity
from projections.briefs.anchors import anchors
from projections.briefs.index import GraphIndex, index_graph
from projections.briefs.recall import read_text, recall_of
from projections.briefs.vetoes import NO_CAP, find_vetoes
from projections.briefs.wording import readable_text
from projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

METRIC_NAME: Final = "baton-lexical"
METRIC_VERSION: Final = "1"
WEIGHTS: Final = {"R": 0.75, "A": 0.15, "E": 0.10}
EDGE_HIT: Final = 0.8
LOSSLESS: Final = 1.0
BRIEF_MAX: Final = 0.99

HIGH_BAND: Final = 0.90
MEDIUM_BAND: Final = 0.75

value_digits: Final = 4


def band_of(value: float) -> Band:
    """Return the seed's name for a fidelity: lossless, high, medium or low."""
    if value >= LOSSLESS:
        return "lossless"
    if value >= HIGH_BAND:
        return "high"
    return "medium" if value >= MEDIUM_BAND else "low"


def combine(parts: dict[str, float | None], cap: float = NO_CAP) -> float:
    """Return the weighted value of the parts that exist, at most the cap."""
    existing = {name: part for name, part in parts.items() if part is not None}
    total = sum(WEIGHTS[name] for name in existing)
    value = sum(WEIGHTS[name] * part for name, part in existing.items()) / total if total else 0.0
    return round(min(cap, BRIEF_MAX, value), value_digits)


def measure(memory: ReasoningMemory, text: str) -> Fidelity:
    """Return the fidelity of a text that a receiver reads in place of the graph."""
    return measure_indexed(index_graph(memory), text)


def measure_indexed(index: GraphIndex, text: str) -> Fidelity:
    """Return the fidelity of a text against a graph that is indexed already."""
    if holds_whole_graph(text, index.memory):
        return lossless(index)
    readable = readable_text(text)
    parts = _parts(index, readable)
    vetoes = find_vetoes(readable, index) if readable.strip() else []
    cap = min((veto.cap for veto in vetoes), default=NO_CAP)
    value = combine(parts, cap)
    return Fidelity(value, band_of(value), parts["R"], parts["A"], parts["E"], cap, vetoes, dict(WEIGHTS))


def lossless(index: GraphIndex) -> Fidelity:
    """Return the fidelity of the graph itself."""
    return Fidelity(
        value=LOSSLESS,
        band=band_of(LOSSLESS),
        R=1.0,
        A=1.0 if index.critical_anchors else None,
        E=1.0 if index.edges else None,
        cap=NO_CAP,
        vetoes=[],
        weights=dict(WEIGHTS),
    )


def holds_whole_graph(text: str, memory: ReasoningMemory) -> bool:
    """Tell whether a line of the text is the graph's JSON, by its ref."""
    for line in text.split("\n"):
        opening = line.find("{")
        if opening < 0 or not line.rstrip().endswith("}"):
            continue
        try:
            graph, _ = memory_from_dict(json.loads(line[opening:]))
        except (ValueError, RecursionError, Refused):
            continue
        if compute_reasoning_ref(graph) == compute_reasoning_ref(memory):
            return True
    return False


def _parts(index: GraphIndex, readable: str) -> dict[str, float | None]:
    text = read_text(readable)
    hits = {fact.spelled: recall_of(fact, text, index) for fact in index.key_facts}
    weight = sum(fact.unit.weight for fact in index.key_facts)
    recalled = sum(fact.unit.weight * hits[fact.spelled] for fact in index.key_facts)
    kept = index.critical_anchors & anchors(readable)
    ends = {number: hits.get(run, 0.0) >= EDGE_HIT for number, run in index.step_spelled.items()}
    edges = [ends.get(premise, False) and ends.get(number, False) for premise, number in index.edges]
    return {
        "R": recalled / weight if weight else None,
        "A": len(kept) / len(index.critical_anchors) if index.critical_anchors else None,
        "E": sum(edges) / len(edges) if edges else None,
    }
