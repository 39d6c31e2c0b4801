"""Which key facts to keep under a token budget (DESIGN §9).

A greedy choice: again and again the fact that adds most fidelity a token. A fact gains when its neighbours in the
dependency graph are chosen (an edge with both ends kept counts), so the choice grows along the graph. Facts are kept
verbatim, so what the metric will say can be added up beforehand; the brief's figure is measured all the same.

The queue is lazy: gains change only around a chosen fact, and only those are queued again, which keeps the work near
linear (a 200-step graph may cost at most 20 times a 10-step one).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from projections.briefs.anchors import anchors
from projections.briefs.fidelity import WEIGHTS, combine
from projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projections.briefs.index import GraphIndex


class Candidate:
    """A line that may be kept: what it costs and which key facts, anchors and steps it brings."""

    def __init__(self, line: str, facts: Iterable[str], *, step: int | None = None, remark: int | None = None) -> None:
        """Take the line, the spellings of the key facts it holds, and the step or the remark (by place) it is of."""
        self.tokens = count_tokens(f"{line}\n")
        self.facts = frozenset(facts)
        self.anchors = anchors(line)
        self.step = step
        self.remark = remark


class Tally:
    """The fidelity that the lines chosen so far will reach, kept up to date line by line."""

    def __init__(self, index: GraphIndex) -> None:
        """Begin with nothing kept."""
        self._index = index
        self._weights = {fact.spelled: fact.unit.weight for fact in index.key_facts}
        self._weight = sum(self._weights.values())
        self._kept_weight = 0.0
        self._kept_facts: set[str] = set()
        self._kept_anchors: set[str] = set()
        self._kept_edges = 0
        self._neighbours: dict[str, list[str]] = defaultdict(list)
        for premise, number in index.edges:
            one, other = index.step_spelled[premise], index.step_spelled[number]
            self._neighbours[one].append(other)
            self._neighbours[other].append(one)

    def gain(self, facts: Iterable[str], found: frozenset[str]) -> float:
        """Return how much weighted fidelity a line would add."""
        new = [fact for fact in facts if fact in self._weights and fact not in self._kept_facts]
        recall = sum(self._weights[fact] for fact in new) / self._weight if self._weight else 0.0
        gained = WEIGHTS["R"] * recall
        wanted = self._index.critical_anchors
        if wanted:
            gained += WEIGHTS["A"] * len((found & wanted) - self._kept_anchors) / len(wanted)
        if self._index.edges:
            gained += WEIGHTS["E"] * self._new_edges(new) / len(self._index.edges)
        return gained

    def keep(self, facts: Iterable[str], found: frozenset[str]) -> list[str]:
        """Count a line as kept, and return the key facts whose gain has risen by it."""
        touched: list[str] = []
        for fact in facts:
            if fact in self._weights and fact not in self._kept_facts:
                self._kept_edges += self._new_edges([fact])
                self._kept_facts.add(fact)
                self._kept_weight += self._weights[fact]
                touched += self._neighbours.get(fact, ())
        self._kept_anchors |= found & self._index.critical_anchors
        return touched

    def value(self) -> float:
        """Return the fidelity that the kept lines reach, vetoes aside."""
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


def choose(candidates: list[Candidate], tally: Tally, room: float, enough: float) -> list[Candidate]:
    """Return the candidates to keep, in the order chosen, within ``room`` tokens and up to ``enough`` fidelity."""
    by_fact: dict[str, list[int]] = defaultdict(list)
    for position, candidate in enumerate(candidates):
        for fact in candidate.facts:
            by_fact[fact].append(position)
    queue = [_entry(candidates, position, tally) for position in range(len(candidates))]
    heapq.heapify(queue)
    chosen: list[Candidate] = []
    done: set[int] = set()
    while queue and tally.value() < enough:
        density, position = heapq.heappop(queue)
        candidate = candidates[position]
        if position in done or candidate.tokens > room:
            continue
        fresh = _entry(candidates, position, tally)
        if fresh[0] > density:  # Worth less than when it was queued: an anchor came in with another line.
            heapq.heappush(queue, fresh)
            continue
        if fresh[0] == 0:
            break
        done.add(position)
        chosen.append(candidate)
        room -= candidate.tokens
        for fact in tally.keep(candidate.facts, candidate.anchors):
            for neighbour in by_fact[fact]:
                if neighbour not in done:
                    heapq.heappush(queue, _entry(candidates, neighbour, tally))
    return chosen


def _entry(candidates: list[Candidate], position: int, tally: Tally) -> tuple[float, int]:
    candidate = candidates[position]
    return (-tally.gain(candidate.facts, candidate.anchors) / candidate.tokens, position)
