"""Orders the statements of a graph by their worth per token: key facts, their evidence, and how to check them.

The order is greedy and independent of a budget: the next pick is always the one that adds most per token. A statement
adds

- recall: its own key facts, and the parts of other key facts that it contains (``REACH`` of their words; up to half of
  a fact's words count nothing), minus what the brief already has. Without this credit a graph of similar facts lost .11
  of fidelity;
- its anchors, its edges (an edge whose other end is missing is worth ``LOOSE_EDGE``), and a little for every inference
  that it helps to complete: an inference without its premises is kept, but nobody can check it.

In this choice the conclusion and the steps that it rests on directly weigh twice as much as in the published fidelity.
At the same fidelity, briefs of 200 tokens then have .83 of these steps word for word (else .55), and .49 of the
evidence (else .52). Assumptions and limitations weigh four times as much, the first of each four times more, and a
statement counts with its evidence: a language model that answered questions from briefs could guess premises and
wording, but not assumptions, limitations and evidence. Rejected: a second order for roomy budgets (it gained .015 of
verbatim text at 400 tokens, lost .12 of the evidence, and small briefs had no limitation), costs in shorthand (no brief
changed), and twice the weight for alternatives (chains lost .01 of their answers at 400 tokens). For graphs of 25
statements, 200 tokens can answer at most half of the test questions (computed by integer programming), or .43 of them
with .78 of the evidence. These weights reach .45 and .79.

The queue is lazy. After each choice, only statements near the chosen one gain worth, and only these are queued again.
So the work is nearly linear (a 200-step graph may cost at most 20 times a 10-step one).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from deedbook.projections.briefs import shorthand
from deedbook.projections.briefs.anchors import anchors
from deedbook.projections.briefs.critical import concluding_steps
from deedbook.projections.briefs.fidelity import RAMP_START, WEIGHTS, combine
from deedbook.projections.briefs.index import GraphIndex
from deedbook.projections.briefs.text import content_words
from deedbook.projections.briefs.tokens import count_tokens

REACH: Final = 0.85
"""The credit for a part of another key fact, as a factor of the share of its words."""
CONCLUSION_REACH: Final = 0.8
LOOSE_EDGE: Final = 0.4
WHOLE_INFERENCE_WEIGHT: Final = 0.4
"""The worth of all complete inferences together, where a fidelity of 1 is worth 1."""
FIRST_FACTOR: Final = 4.0
"""How much more the first assumption and the first limitation are worth than those after it."""
CITED_FACTOR: Final = 3.5
"""The worth of all evidence, as a factor of the worth of all anchors: with less, complete inferences displace it."""
EVIDENCE_FACTOR: Final = 3.0
"""How much more evidence is worth once its statement is taken."""
CHECK_FACTOR: Final = 0.42
LATER_CHECK_FACTOR: Final = 0.4
GROUND_FACTOR: Final = 2.0
"""How much more a step is worth if the conclusion rests on it directly: a receiver asks for that first."""
_least_loss: Final = 1e-12
_FACTORS: Final = {"assumption": 4.0, "assumption_stated": 4.0, "limitation": 4.0, "conclusion": 2.0}
_UNGUESSED: Final = frozenset({shorthand.ASSUMED, shorthand.LIMITS})


class Part(IntEnum):
    """A part of a line; at equal worth the first part goes first."""

    STATEMENT = 0
    EVIDENCE = 1
    CHECK = 2


class Line(NamedTuple):
    """A statement that may be kept: its head, its text ("" if the conclusion has it), and its key facts."""

    head: str
    text: str
    facts: tuple[str, ...]
    step: int | None = None
    remark: int | None = None
    evidence: str = ""
    check: str = ""


class Pick(NamedTuple):
    """A part of a line (``place`` is its index), and the fidelity of all picks so far, counting only verbatim text."""

    place: int
    part: Part
    value: float


_Entry: TypeAlias = tuple[float, int, Part]


class Order:
    """The order of the lines: the parts taken so far, and the gain of each line."""

    def __init__(self, index: GraphIndex, lines: list[Line], conclusion: str) -> None:
        """Take the lines, and the part of the conclusion that is shown beside them."""
        self._index, self._lines = index, lines
        grounds = {
            number
            for step in concluding_steps(index.memory)
            for number in index.memory.dependencies.get(step.step_number, ())
        }
        self._weights = [
            fact.unit.weight * _FACTORS.get(fact.unit.kind, GROUND_FACTOR if fact.unit.step in grounds else 1.0)
            for fact in index.key_facts
        ]
        self._weight = sum(self._weights) or 1.0
        self._published_weight = sum(fact.unit.weight for fact in index.key_facts)
        at = {fact.spelled: place for place, fact in enumerate(index.key_facts)}
        self._own = [[at[fact] for fact in line.facts if fact in at] for line in lines]
        self._anchors = [anchors(line.text) & index.critical_anchors for line in lines]
        self._anchor_count = len(index.critical_anchors) or 1
        self._reference_worth = CITED_FACTOR * WEIGHTS["A"] / (sum(bool(line.evidence) for line in lines) or 1)
        shares, (concluded,) = self._shares([line.text for line in lines]), self._shares([conclusion])
        self._covers = [
            {place: _worth(REACH * share) for place, share in of_line.items()} | dict.fromkeys(own, 1.0)
            for of_line, own in zip(shares, self._own, strict=True)
        ]
        self._covered = {place: _worth(CONCLUSION_REACH * share) for place, share in concluded.items()}
        self._kept_anchors = set(anchors(conclusion) & index.critical_anchors)
        self._kept: set[int] = set()
        self._kept_weight, self._kept_edges = 0.0, 0
        self._is_checked = False
        self._heads: set[str] = set()
        self._lines_of: defaultdict[int, list[int]] = defaultdict(list)
        for position, own in enumerate(self._own):
            for place in own if lines[position].text else ():
                self._lines_of[place].append(position)
        self._neighbours: defaultdict[int, list[int]] = defaultdict(list)
        self._inferences: defaultdict[int, set[int]] = defaultdict(set)
        for premise, step in index.edges:
            ends = [at[run] for run in (index.step_spelled[premise], index.step_spelled[step]) if run in at]
            if len(ends) > 1:  # A step without words is no key fact.
                self._inferences[step].update(ends)
                for near, far in (ends, ends[::-1]):
                    self._neighbours[near].append(far)
        self._inferences_of: defaultdict[int, list[int]] = defaultdict(list)
        for step, places in self._inferences.items():
            for place in places:
                self._inferences_of[place].append(step)
        self._tokens = [count_tokens(f"{line.text}; ") for line in lines]
        self._held = dict.fromkeys(self._inferences, 0)

    def picks(self) -> Iterator[Pick]:
        """Yield every part of every line once, in the order of their worth."""
        queue = [self._entry(position, Part.STATEMENT) for position, line in enumerate(self._lines) if line.text]
        queue += [entry for position, line in enumerate(self._lines) if not line.text for entry in self._take(position)]
        heapq.heapify(queue)
        taken: set[tuple[int, Part]] = set()
        while queue:
            worth, position, part = heapq.heappop(queue)
            fresh = self._entry(position, part)
            if (position, part) in taken:
                continue
            # it is worth less than when it was queued: another line has the same words
            if fresh[0] > worth + _least_loss:
                heapq.heappush(queue, fresh)
                continue
            taken.add((position, part))
            match part:
                case Part.STATEMENT:
                    for entry in self._take(position):
                        heapq.heappush(queue, entry)
                case Part.EVIDENCE:
                    self._kept_anchors |= anchors(self._lines[position].evidence) & self._index.critical_anchors
                case Part.CHECK:
                    self._is_checked = True
            yield Pick(position, part, self._value())

    def _entry(self, position: int, part: Part) -> _Entry:
        """Return the queue entry of a part of a line: the smallest entry is taken first."""
        line = self._lines[position]
        match part:
            case Part.STATEMENT:
                gain, tokens = self._gain(position), self._tokens[position]
                worth = gain / tokens
                if line.evidence:
                    worth = max(worth, (gain + self._reference_worth) / (tokens + count_tokens(line.evidence) + 1))
                if line.head in _UNGUESSED - self._heads:
                    worth *= FIRST_FACTOR
            case Part.EVIDENCE:
                worth = EVIDENCE_FACTOR * self._reference_worth / (count_tokens(line.evidence) + 1)
            case Part.CHECK:
                gain = CHECK_FACTOR * WEIGHTS["R"] / self._weight * (LATER_CHECK_FACTOR if self._is_checked else 1.0)
                worth = gain / (count_tokens(line.check) + 2)
        return (-worth, position, part)

    def _gain(self, position: int) -> float:
        """Return the weighted fidelity and the completeness of inferences that a line would add."""
        covered = self._covered
        covers = self._covers[position].items()
        news = (self._weights[place] * max(0.0, worth - covered.get(place, 0.0)) for place, worth in covers)
        gain = WEIGHTS["R"] * sum(news) / self._weight
        gain += WEIGHTS["A"] * len(self._anchors[position] - self._kept_anchors) / self._anchor_count
        for place in self._own[position]:
            if place not in self._kept and self._inferences:
                ends = sum(1.0 if other in self._kept else LOOSE_EDGE for other in self._neighbours[place])
                gain += WEIGHTS["E"] * ends / len(self._index.edges)
                # Squares, so that completing the last premise counts most.
                parts = (
                    (2 * self._held[step] + 1) / len(self._inferences[step]) ** 2 for step in self._inferences_of[place]
                )
                gain += WHOLE_INFERENCE_WEIGHT * sum(parts) / len(self._inferences)
        return gain

    def _take(self, position: int) -> Iterator[_Entry]:
        """Count a line as kept, and yield the entries to queue: its evidence and check, and lines that gained by it."""
        line = self._lines[position]
        self._heads.add(line.head)
        for place, worth in self._covers[position].items():
            self._covered[place] = max(self._covered.get(place, 0.0), worth)
        near: set[int] = set()
        for place in self._own[position]:
            if place not in self._kept:
                self._kept.add(place)
                self._kept_weight += self._index.key_facts[place].unit.weight
                self._kept_edges += sum(other in self._kept for other in self._neighbours[place])
                for step in self._inferences_of[place]:
                    self._held[step] += 1
                    near.update(other for each in self._inferences[step] - self._kept for other in self._lines_of[each])
        self._kept_anchors |= self._anchors[position]
        yield from (self._entry(other, Part.STATEMENT) for other in sorted(near))
        if line.evidence:
            yield self._entry(position, Part.EVIDENCE)
        if line.check:
            yield self._entry(position, Part.CHECK)

    def _value(self) -> float:
        index, weight = self._index, self._published_weight
        wanted = (("R", self._kept_weight, weight), ("A", len(self._kept_anchors), len(index.critical_anchors)))
        parts = (*wanted, ("E", self._kept_edges, len(index.edges)))
        return combine({name: part / whole if whole else None for name, part, whole in parts})

    def _shares(self, texts: Iterable[str]) -> list[dict[int, float]]:
        """Return for each text its share of the words of each key fact, without shares that are too small to count.

        A text with such a share of a fact contains one of its rarest words, so only texts with these words are
        compared. Otherwise every pair of statements of a long graph would be compared.
        """
        weigh = self._index.weight_of
        facts = [frozenset(fact.content) for fact in self._index.key_facts]
        totals = [sum(map(weigh, words)) for words in facts]
        rare: defaultdict[str, list[int]] = defaultdict(list)
        for place, own in enumerate(facts):
            room = (1 - RAMP_START) * totals[place]
            for word in sorted(own, key=lambda word: (-weigh(word), word)):
                rare[word].append(place)
                room -= weigh(word)
                if room < 0:
                    break
        significant: list[dict[int, float]] = []
        for text in texts:
            words = frozenset(content_words(text)) if text else frozenset[str]()
            near = sorted({place for word in words for place in rare.get(word, ())})
            shares = {place: sum(map(weigh, words & facts[place])) / totals[place] for place in near}
            significant.append({place: share for place, share in shares.items() if share > RAMP_START})
        return significant


def _worth(share: float) -> float:
    return max(0.0, (share - RAMP_START) / (1 - RAMP_START))
