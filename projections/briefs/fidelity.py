"""How much of a graph's reasoning a text keeps: measured, never asserted.

``measure(memory, text)`` takes the graph and the text that the receiver reads, and nothing else. So a receiver who
fetched the ref can repeat the sender's figure. Value:

    min(cap, .75 R + .15 A + .10 E), renormalised over the parts that the graph has

R is the recall of key facts, A of anchors, E of dependencies with both ends kept; the cap comes from the vetoes. Only a
text that contains the whole graph (a JSON form whose ref is the graph's) has 1.0; a perfect brief that is not the graph
itself stops at .99. For a paraphrase the value is a lower bound: the comparison is lexical.

A fact's content words are searched within a window of 1.2 × their number + 2 content words of the text: a bag of all
the right words must not count as the facts. Words weigh by their rarity in the graph. Half of the weight gives 0 and
all of it gives 1 (the ramp), and words out of order cost up to a fifth. A run of exactly the fact's words gives 1, in
any context.

The weights were fitted on human proof trees with distractors (Spearman .96 with the share of gold steps kept). Refused:
matching over whole sentences (a bag of words got .94) and a plain hit threshold (biased by +.2 on partial facts).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Final

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.brief import Band, Fidelity
from deedbook.projections.briefs.anchors import anchors
from deedbook.projections.briefs.index import GraphIndex, KeyFact, index_graph, spelled
from deedbook.projections.briefs.sentences import readable_text
from deedbook.projections.briefs.text import content_of, words
from deedbook.projections.briefs.vetoes import NO_CAP, find_vetoes
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

WEIGHTS: Final = {"R": 0.75, "A": 0.15, "E": 0.10}
EDGE_HIT: Final = 0.8
LOSSLESS: Final = 1.0
BRIEF_MAX: Final = 0.99

HIGH_BAND: Final = 0.90
MEDIUM_BAND: Final = 0.75

value_digits: Final = 4

WINDOW_FACTOR: Final = 1.2
WINDOW_SLACK_WORDS: Final = 2
RAMP_START: Final = 0.5
ORDER_FACTOR: Final = 0.2
NEIGHBOUR_MAX_STEPS: Final = 2


def band_of(value: float) -> Band:
    """Return the name of a fidelity's range."""
    if value >= LOSSLESS:
        return "lossless"
    if value >= HIGH_BAND:
        return "high"
    return "medium" if value >= MEDIUM_BAND else "low"


def combine(parts: dict[str, float | None], cap: float = NO_CAP) -> float:
    """Return the weighted value of the existing parts, at most the cap."""
    existing = {name: part for name, part in parts.items() if part is not None}
    total = sum(WEIGHTS[name] for name in existing)
    value = sum(WEIGHTS[name] * part for name, part in existing.items()) / total if total else 0.0
    return round(min(cap, BRIEF_MAX, value), value_digits)


def measure(memory: ReasoningMemory, text: str) -> Fidelity:
    """Return the fidelity of a text that a receiver reads in place of the graph."""
    return measure_indexed(index_graph(memory), text)


def measure_indexed(index: GraphIndex, text: str) -> Fidelity:
    """Return the fidelity of a text: how much of an indexed graph's reasoning it keeps, 0 to 1."""
    if holds_whole_graph(text, index.memory):
        anchors_kept, edges_kept = 1.0 if index.critical_anchors else None, 1.0 if index.edges else None
        return Fidelity(LOSSLESS, band_of(LOSSLESS), 1.0, anchors_kept, edges_kept, NO_CAP, [], dict(WEIGHTS))
    readable = readable_text(text)
    parts = _parts(index, readable)
    vetoes = find_vetoes(readable, index) if readable.strip() else []
    cap = min((veto.cap for veto in vetoes), default=NO_CAP)
    value = combine(parts, cap)
    return Fidelity(value, band_of(value), parts["R"], parts["A"], parts["E"], cap, vetoes, dict(WEIGHTS))


def holds_whole_graph(text: str, memory: ReasoningMemory) -> bool:
    """Return whether a line of the text is the graph's JSON, by its ref."""
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
    content = content_of(tokens := words(readable))
    text = _ReadText(spelled(tokens), content, _positions(content))
    hits = {fact.spelled: _recall_of(fact, text, index) for fact in index.key_facts}
    weight = sum(fact.unit.weight for fact in index.key_facts)
    recalled = sum(fact.unit.weight * hits[fact.spelled] for fact in index.key_facts)
    kept_anchors = index.critical_anchors & anchors(readable)
    ends = {number: hits.get(run, 0.0) >= EDGE_HIT for number, run in index.step_spelled.items()}
    edges = [ends.get(premise, False) and ends.get(number, False) for premise, number in index.edges]
    return {
        "R": recalled / weight if weight else None,
        "A": len(kept_anchors) / len(index.critical_anchors) if index.critical_anchors else None,
        "E": sum(edges) / len(edges) if edges else None,
    }


class _ReadText(msgspec.Struct, frozen=True):
    """A text to measure: its run of words, its content words, and the positions of each."""

    spelled: str
    content: list[str]
    positions: dict[str, list[int]]


def _positions(content: list[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(content):
        positions.setdefault(word, []).append(position)
    return positions


def _recall_of(fact: KeyFact, text: _ReadText, index: GraphIndex) -> float:
    """Return how much of a key fact the text keeps, 0 to 1."""
    if fact.spelled in text.spelled:
        return 1.0
    positions = sorted({position for word in set(fact.content) for position in text.positions.get(word, ())})
    if not positions:
        return 0.0
    needed = Counter(fact.content)
    width = math.floor(WINDOW_FACTOR * len(fact.content)) + WINDOW_SLACK_WORDS
    weights = {word: index.weight_of(word) for word in needed}
    total = sum(weights[word] * count for word, count in needed.items())
    within_reach = sum(weights[word] * min(count, len(text.positions.get(word, ()))) for word, count in needed.items())
    if within_reach <= RAMP_START * total:
        return 0.0  # No window can contain more of the fact than the whole text.
    best = RAMP_START * total
    scored: set[tuple[str, ...]] = set()
    in_fact = _positions(fact.content)
    found_words = [text.content[position] for position in positions]
    # The window that begins at each position, the words that it still lacks, and its weight.
    left, weight, end = dict(needed), 0.0, 0
    for start, first in enumerate(positions):
        while end < len(positions) and positions[end] < first + width:
            word = found_words[end]
            if left[word] > 0:
                weight += weights[word]
            left[word] -= 1
            end += 1
        if weight > best:  # a window with less weight cannot win: disorder only lowers its score
            window = tuple(found_words[start:end])
            if window not in scored:  # A text of similar sentences repeats the same window.
                scored.add(window)
                best = max(best, _window_score(window, in_fact, weights))
        word = found_words[start]
        left[word] += 1
        if left[word] > 0:
            weight -= weights[word]
    return max(0.0, min(1.0, (best / total - RAMP_START) / (1 - RAMP_START)))


def _window_score(window: tuple[str, ...], positions: dict[str, list[int]], weights: dict[str, float]) -> float:
    """Return the weight of a fact's words in one window of the text, minus the cost of disorder.

    Order is the share of neighbouring words that are also neighbours in the fact (one word between them may be
    missing). Moving a whole phrase breaks two pairs of neighbours, and scrambling breaks nearly all. Rejected: the
    longest rising run, which lowered an honest phrase as much as a scrambled one. ``positions`` are those of each word
    in the fact.
    """
    used = dict.fromkeys(positions, 0)
    weight, matched, near, before = 0.0, 0, 0, 0
    for word in window:
        if (count := used[word]) < len(positions[word]):
            used[word], position = count + 1, positions[word][count]
            weight += weights[word]
            near += matched > 0 and 1 <= position - before <= NEIGHBOUR_MAX_STEPS
            matched, before = matched + 1, position
    order = near / (matched - 1) if matched > 1 else 1.0
    return weight * (1 - ORDER_FACTOR * (1 - order))
