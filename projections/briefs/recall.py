"""How much of one key fact a text still says (DESIGN §9, R).

The fact's content words are looked for within a window of 1.2 × their number + 2 content words of the text, never
across the whole of it: a bag of all the right words must not count as the facts. Words weigh by how rare they are in
the graph, half of the weight is worth nothing and all of it everything (the ramp), and words out of order cost up to a
fifth. A run of exactly the fact's words is 1 whatever surrounds it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from projections.briefs.index import spelled
from projections.briefs.text import content_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projections.briefs.index import GraphIndex, KeyFact

WINDOW_FACTOR: Final = 1.2
WINDOW_SLACK_WORDS: Final = 2
RAMP_START: Final = 0.5
ORDER_FACTOR: Final = 0.2
NEIGHBOUR_MAX_STEPS: Final = 2


class ReadText(msgspec.Struct, frozen=True):
    """A text to be measured: its run of words, its content words, and where each of them stands."""

    spelled: str
    content: list[str]
    positions: dict[str, list[int]]


def read_text(text: str) -> ReadText:
    """Return a text tokenised for recall."""
    tokens = words(text)
    content = content_of(tokens)
    positions: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(content):
        positions[word].append(position)
    return ReadText(spelled=spelled(tokens), content=content, positions=dict(positions))


def recall_of(fact: KeyFact, text: ReadText, index: GraphIndex) -> float:
    """Return how much of a key fact the text keeps, 0 to 1."""
    if fact.spelled in text.spelled:
        return 1.0
    found = sorted({place for word in set(fact.content) for place in text.positions.get(word, ())})
    if not found:
        return 0.0
    wanted = Counter(fact.content)
    width = math.floor(WINDOW_FACTOR * len(fact.content)) + WINDOW_SLACK_WORDS
    total = sum(index.weight_of(word) * count for word, count in wanted.items())
    within_reach = sum(
        index.weight_of(word) * min(count, len(text.positions.get(word, ()))) for word, count in wanted.items()
    )
    if within_reach <= RAMP_START * total:
        return 0.0  # No window can hold more of the fact than the whole text does.
    best = RAMP_START * total
    scored: set[tuple[str, ...]] = set()
    for weight, start, end in _windows(found, width, wanted, text, index):
        if weight <= best:
            continue  # Disorder only ever takes away from it.
        window = tuple(text.content[place] for place in found[start:end])
        if window not in scored:  # A text of like sentences has the same window again and again.
            scored.add(window)
            best = max(best, _window_score(window, fact, index))
    return max(0.0, min(1.0, (best / total - RAMP_START) / (1 - RAMP_START)))


def _windows(
    found: list[int], width: int, wanted: Counter[str], text: ReadText, index: GraphIndex
) -> Iterator[tuple[float, int, int]]:
    """Yield the window that begins at each place: the weight of the fact's words in it, and its ends in ``found``."""
    held: Counter[str] = Counter()
    weight = 0.0
    end = 0
    for start, first in enumerate(found):
        while end < len(found) and found[end] < first + width:
            word = text.content[found[end]]
            held[word] += 1
            if held[word] <= wanted[word]:
                weight += index.weight_of(word)
            end += 1
        yield weight, start, end
        word = text.content[first]
        if held[word] <= wanted[word]:
            weight -= index.weight_of(word)
        held[word] -= 1


def _window_score(window: tuple[str, ...], fact: KeyFact, index: GraphIndex) -> float:
    """Return the weight of the fact's words in one window of the text, less what disorder costs."""
    left = Counter(fact.content)
    kept: list[str] = []
    weight = 0.0
    for word in window:
        if left[word] > 0:
            left[word] -= 1
            kept.append(word)
            weight += index.weight_of(word)
    return weight * (1 - ORDER_FACTOR * (1 - _order(kept, fact.content)))


def _order(kept: list[str], wanted: list[str]) -> float:
    """Return the share of neighbours that are neighbours in the fact, too (one word between them may be missing).

    Moving a whole phrase breaks two neighbourhoods, scrambling breaks nearly all: a longest rising run, the
    other candidate, punished the honest phrase as much as the scrambled one.
    """
    if len(kept) <= 1:
        return 1.0
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(wanted):
        places[word].append(place)
    following = pairwise([places[word].pop(0) for word in kept])
    return sum(1 <= after - before <= NEIGHBOUR_MAX_STEPS for before, after in following) / (len(kept) - 1)
