"""The row of briefs: compressing a graph of 200 steps against one of 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.consumers.reasoning.compressor.compress import compress
from tests.bench.pairs import Bench, Budget, Row, ratios, seconds
from tests.graphs import chain

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the row of this group."""
    bench.say("briefs of 200 and of 10 steps")
    long, short = chain(199), chain(9)  # the conclusion is one more step
    found = bench.paired(lambda _: seconds(lambda: compress(long)), lambda _: _mean_of_ten(short))
    note = "default compressor, level standard; nothing in the graph can be dropped"
    yield Row("briefs: time for a graph of 200 steps", ratios(found), "a graph of 10 steps", Budget("≤", 20.0), note)


def _mean_of_ten(graph: object) -> float:
    return seconds(lambda: [compress(graph) for _ in range(10)]) / 10
