"""The selection of the first compressor, unchanged, as the baseline of ``consumers.reasoning.compressor.selection``.

It chooses facts by fidelity per token, and gives no credit for relations between facts.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from deedbook.projections.briefs.anchors import anchors
from deedbook.projections.briefs.fidelity import WEIGHTS, combine
from deedbook.projections.briefs.index import GraphIndex
from deedbook.projections.briefs.tokens import count_tokens

WHOLE_INFERENCE_WEIGHT: Final = 0.2
"""The value of having all inferences in full, where a fidelity of 1 has the value 1. Only the choice uses it."""


class Extent(IntEnum):
    """The parts of a line that can be kept. If two choices are equally good, the lower value is taken."""

    FACT = 0
    FACT_WITH_EVIDENCE = 1
    EVIDENCE = 2


class Candidate:
    """A line that may be kept: its key facts, and the cost and gain of each extent."""

    def __init__(
        self, line: str, facts: Iterable[str], *, step: int | None = None, remark: int | None = None, evidence: str = ""
    ) -> None:
        """Compute the cost and the anchors of each extent of a line. ``evidence`` is the text of its evidence."""
        self.facts = frozenset(facts)
        self.step = step
        self.remark = remark
        tokens, own = count_tokens(f"{line}\n"), anchors(line)
        more_tokens, more = (count_tokens(evidence), anchors(evidence)) if evidence else (0, frozenset[str]())
        self.tokens = {
            Extent.FACT: tokens,
            Extent.FACT_WITH_EVIDENCE: tokens + more_tokens,
            Extent.EVIDENCE: more_tokens,
        }
        self.anchors = {Extent.FACT: own, Extent.FACT_WITH_EVIDENCE: own | more, Extent.EVIDENCE: more}


class Tally:
    """The fidelity of the lines chosen so far. Facts are kept verbatim, so fidelity is a sum over the lines."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._weights = {fact.spelled: fact.unit.weight for fact in index.key_facts}
        self._weight = sum(self._weights.values())
        self._kept_weight = 0.0
        self._kept_facts: set[str] = set()
        self._kept_anchors: set[str] = set()
        self._kept_edges = 0
        self._neighbours: dict[str, list[str]] = defaultdict(list)
        self._inferences: dict[int, set[str]] = defaultdict(set)
        for premise, number in index.edges:
            one, other = index.step_spelled[premise], index.step_spelled[number]
            self._neighbours[one].append(other)
            self._neighbours[other].append(one)
            self._inferences[number] |= {one, other}
        self._held = dict.fromkeys(self._inferences, 0)
        self._inferences_of: dict[str, list[int]] = defaultdict(list)
        for number, runs in self._inferences.items():
            for run in runs:
                self._inferences_of[run].append(number)

    def gain(self, facts: Iterable[str], found: frozenset[str]) -> float:
        """Return how much a line would add: weighted fidelity, and completeness of inferences."""
        new = [fact for fact in facts if fact in self._weights and fact not in self._kept_facts]
        recall = sum(self._weights[fact] for fact in new) / self._weight if self._weight else 0.0
        gained = WEIGHTS["R"] * recall
        wanted = self._index.critical_anchors
        if wanted:
            gained += WEIGHTS["A"] * len((found & wanted) - self._kept_anchors) / len(wanted)
        if self._index.edges:
            gained += WEIGHTS["E"] * self._new_edges(new) / len(self._index.edges)
            gained += WHOLE_INFERENCE_WEIGHT * self._new_wholeness(new) / len(self._inferences)
        return gained

    def keep(self, facts: Iterable[str], found: frozenset[str]) -> set[str]:
        """Count a line as kept, and return the key facts that have become worth more."""
        touched: set[str] = set()
        for fact in facts:
            if fact in self._weights and fact not in self._kept_facts:
                self._kept_edges += self._new_edges([fact])
                self._kept_facts.add(fact)
                self._kept_weight += self._weights[fact]
                for number in self._inferences_of.get(fact, ()):
                    self._held[number] += 1
                    touched |= self._inferences[number]
        self._kept_anchors |= found & self._index.critical_anchors
        return touched - self._kept_facts

    def value(self) -> float:
        """Return the fidelity that the kept lines reach, without the vetoes."""
        edges, wanted = self._index.edges, self._index.critical_anchors
        return combine(
            {
                "R": self._kept_weight / self._weight if self._weight else None,
                "A": len(self._kept_anchors) / len(wanted) if wanted else None,
                "E": self._kept_edges / len(edges) if edges else None,
            }
        )

    def _new_edges(self, facts: list[str]) -> int:
        present = self._kept_facts
        return sum(other in present for fact in facts for other in self._neighbours.get(fact, ()))

    def _new_wholeness(self, facts: list[str]) -> float:
        """Return how much the facts add to the squared completeness of inferences: the last premise adds the most."""
        more = Counter(number for fact in facts for number in self._inferences_of.get(fact, ()))
        wholeness = 0.0
        for number, added in more.items():
            held, size = self._held[number], len(self._inferences[number])
            wholeness += ((held + added) ** 2 - held**2) / size**2
        return wholeness


class Choice(NamedTuple):
    """The chosen candidates, in the order in which they were chosen, and the steps whose evidence is shown."""

    lines: list[Candidate]
    evidence: set[int]

    @property
    def tokens(self) -> int:
        """The cost of all its lines, in tokens."""
        with_evidence, alone = Extent.FACT_WITH_EVIDENCE, Extent.FACT
        return sum(line.tokens[with_evidence if line.step in self.evidence else alone] for line in self.lines)

    def add(self, candidate: Candidate, extent: Extent) -> None:
        """Add a line, its evidence, or both."""
        if extent is not Extent.EVIDENCE:
            self.lines.append(candidate)
        if extent is not Extent.FACT and candidate.step is not None:
            self.evidence.add(candidate.step)


def choose(candidates: list[Candidate], tally: Tally, room: float, enough: float) -> Choice:
    """Return the lines to keep within ``room`` tokens and up to ``enough`` fidelity."""
    by_fact: dict[str, list[int]] = defaultdict(list)
    for position, candidate in enumerate(candidates):
        for fact in candidate.facts:
            by_fact[fact].append(position)
    queue = [entry for position in range(len(candidates)) for entry in _entries(candidates, position, tally)]
    heapq.heapify(queue)
    choice = Choice([], set())
    kept: set[int] = set()
    while queue and tally.value() < enough:
        density, position, extent = heapq.heappop(queue)
        candidate = candidates[position]
        # If a fact was chosen, alone or with its evidence, its other entries in the queue are obsolete.
        is_done = candidate.step in choice.evidence or (position in kept) is not (extent is Extent.EVIDENCE)
        if is_done or candidate.tokens[extent] > room:
            continue
        fresh = _entry(candidates, position, extent, tally)
        if fresh[0] > density:  # its value has fallen since it was queued, because a chosen line has one of its anchors
            heapq.heappush(queue, fresh)
            continue
        if fresh[0] == 0:
            break
        room -= candidate.tokens[extent]
        kept.add(position)
        choice.add(candidate, extent)
        touched = tally.keep(candidate.facts, candidate.anchors[extent])
        risen = [entry for fact in touched for place in by_fact[fact] for entry in _entries(candidates, place, tally)]
        if extent is Extent.FACT and candidate.tokens[Extent.EVIDENCE]:
            risen.append(_entry(candidates, position, Extent.EVIDENCE, tally))
        for entry in risen:
            heapq.heappush(queue, entry)
    return choice


def _entries(candidates: list[Candidate], position: int, tally: Tally) -> list[tuple[float, int, Extent]]:
    extents = (
        (Extent.FACT, Extent.FACT_WITH_EVIDENCE) if candidates[position].tokens[Extent.EVIDENCE] else (Extent.FACT,)
    )
    return [_entry(candidates, position, extent, tally) for extent in extents]


def _entry(candidates: list[Candidate], position: int, extent: Extent, tally: Tally) -> tuple[float, int, Extent]:
    candidate = candidates[position]
    gain = tally.gain(candidate.facts, candidate.anchors[extent])
    return (-gain / candidate.tokens[extent], position, extent)
