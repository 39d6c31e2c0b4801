"""The baselines for briefs: LexRank, the first N tokens, random sentences, and ROUGE-1 as a metric.

All baselines read the same lines: first each step with its type and its evidence in brackets, then the limitations.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from deedbook.projections.briefs.anchors import evidence_location
from deedbook.projections.briefs.text import content_words, words
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.projections.reasoning.memory import ReasoningMemory

ALIKE_MIN: Final = 0.1
DAMPING: Final = 0.85
ROUNDS: Final = 50


def lines_of(memory: ReasoningMemory) -> list[str]:
    """Return the lines that every baseline chooses from."""
    steps = [
        f"[{step.type}] {step.content}" + "".join(f" [{evidence_location(one)}]" for one in step.evidence)
        for step in memory.steps
    ]
    return [*steps, *memory.known_limitations]


def first_n(memory: ReasoningMemory, budget: int) -> str:
    """Return the first lines that fit."""
    return _fitting(lines_of(memory), range(len(lines_of(memory))), budget, stop=True)


def first_n_bare(memory: ReasoningMemory, budget: int) -> str:
    """Return the first lines that fit, without the types of steps, so that the whole budget is for text."""
    lines = [line.removeprefix(f"[{line[1:].partition(']')[0]}] ") for line in lines_of(memory)]
    return _fitting(lines, range(len(lines)), budget, stop=True)


def lexrank(memory: ReasoningMemory, budget: int) -> str:
    """Return the lines that are most similar to all others (LexRank, Erkan and Radev 2004), in reading order."""
    lines = lines_of(memory)
    scores = centrality([Counter(content_words(line)) for line in lines])
    return _fitting(lines, sorted(range(len(lines)), key=lambda place: (-scores[place], place)), budget)


def random_lines(memory: ReasoningMemory, budget: int) -> str:
    """Return random lines; the graph's id is the seed."""
    lines = lines_of(memory)
    return _fitting(lines, random.Random(memory.reasoning_id).sample(range(len(lines)), len(lines)), budget)


def centrality(bags: Sequence[Counter[str]]) -> list[float]:
    """Return the stationary weight of each sentence in the graph of similar sentences."""
    count = len(bags)
    frequency = Counter(word for bag in bags for word in bag)
    vectors = [{word: many * math.log(count / frequency[word]) for word, many in bag.items()} for bag in bags]
    norms = [math.sqrt(sum(weight * weight for weight in vector.values())) or 1.0 for vector in vectors]
    alike = [
        [
            place
            for place, other in enumerate(vectors)
            if sum(weight * other.get(word, 0.0) for word, weight in vector.items()) / norm / norms[place] > ALIKE_MIN
        ]
        for vector, norm in zip(vectors, norms, strict=True)
    ]
    scores = [1 / count] * count
    for _ in range(ROUNDS):
        given = [score / (len(near) or 1) for score, near in zip(scores, alike, strict=True)]
        scores = [(1 - DAMPING) / count + DAMPING * sum(given[other] for other in near) for near in alike]
    return scores


def rouge_1(texts: Sequence[str], text: str) -> float:
    """Return the share of the words of ``texts`` that also occur in ``text``; a repeated word counts each time."""
    wanted = Counter(word for one in texts for word in words(one))
    return (wanted & Counter(words(text))).total() / max(1, wanted.total())


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the correlation of the ranks of two series; equal values have the same rank."""
    return _correlation(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    mean_one, mean_other = sum(one) / len(one), sum(other) / len(other)
    both = sum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    spread = math.sqrt(sum((a - mean_one) ** 2 for a in one) * sum((b - mean_other) ** 2 for b in other))
    return both / spread if spread else 0.0


def _fitting(lines: Sequence[str], order: Sequence[int], budget: int, *, stop: bool = False) -> str:
    kept: set[int] = set()
    left = budget
    for place in order:
        cost = count_tokens(lines[place] + "\n")
        if cost <= left:
            kept.add(place)
            left -= cost
        elif stop:
            break
    return "\n".join(lines[place] for place in sorted(kept))
