"""Measuring by pairs: each row is a ratio to a named baseline, measured in the same round of the same run.

A machine is faster in one minute than in the next, so two separate times cannot be compared. Here each round measures
one side and at once the other, in alternating order, and only their ratio is kept. A row shows the median of its ratios
and their range: where the range is wide, the machine was busy.

No benchmark fails: one that misses its budget says so, and ends with exit code 0.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def scaled(full: int, smoke: int) -> int:
    """Return ``full``, or ``smoke`` in a run that only shows that every group still finishes."""
    return smoke if os.environ.get("DEEDBOOK_BENCH_SMOKE") else full


class Budget(NamedTuple):
    """The budget of a ratio: a minimum or a maximum."""

    sign: str
    value: float

    def is_met(self, ratio: float) -> bool:
        """Whether the ratio keeps the budget."""
        return ratio >= self.value if self.sign == "≥" else ratio <= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


class Row(NamedTuple):
    """One line of the table: the ratios of ``what`` to ``baseline``, one for each round, and the budget, if any."""

    what: str
    ratios: Sequence[float]
    baseline: str
    budget: Budget | None = None
    note: str = ""
    figures: Mapping[str, Any] | None = None
    """Further measurements, for programs."""

    @property
    def median(self) -> float:
        """The median of the ratios of all rounds."""
        return statistics.median(self.ratios)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "what": self.what,
            "ratio": round(self.median, 3),
            "min": round(min(self.ratios), 3),
            "max": round(max(self.ratios), 3),
            "rounds": len(self.ratios),
            "budget": None if self.budget is None else str(self.budget),
            "within_budget": None if self.budget is None else self.budget.is_met(self.median),
            "baseline": self.baseline,
            "note": self.note,
            "figures": self.figures,
        }


class Bench(NamedTuple):
    """The arguments of a group of rows: a folder of its own, and the requested number of rounds."""

    folder: Path
    rounds: int

    def say(self, text: str) -> None:
        """Print the current step to stderr, for the person who waits."""
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def paired(
        self,
        ours: Callable[[int], float],
        baseline: Callable[[int], float],
        *,
        rounds: int | None = None,
    ) -> list[tuple[float, float]]:
        """Call both functions with the number of each round; return the pairs (ours, baseline) of their results.

        The result of an extra first round is dropped: that round loads code and fills caches.
        """
        found: list[tuple[float, float]] = []
        for number in range((rounds or self.rounds) + 1):
            if number % 2:
                second, first = baseline(number), ours(number)
            else:
                first, second = ours(number), baseline(number)
            found.append((first, second))
        return found[1:]


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return ours over baseline for each round."""
    return [ours / baseline for ours, baseline in pairs]


def seconds(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` takes; the garbage of earlier work is collected first."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many of ``count`` things ``work`` did per second."""
    return count / seconds(work)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile for a share from 0 to 1: this share of the values is not above it."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
