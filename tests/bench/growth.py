"""Rows of growth: the cost of an append to a large log, against one to a log of ten thousand entries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.bench.auditing import GIB, anonymous_bytes
from tests.bench.disk import disk_row
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import BATCH, batches, fill, open_ledger, singles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.building import Ledger

SMALL: Final = scaled(10_000, 512)
LARGE: Final = scaled(int(os.environ.get("DEEDBOOK_BENCH_LARGE", "200000")), 2_048)
BATCHES_A_ROUND: Final = 4
SINGLES_A_ROUND: Final = scaled(200, 20)
BUDGET: Final = Budget("≤", 1.2)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with open_ledger(bench.folder / "small") as small, open_ledger(bench.folder / "large") as large:
        fill(small, SMALL)
        bench.say(f"filling a log up to {LARGE:,} entries")
        fill(large, LARGE)
        size = large.head()[0]
        bench.say(f"appending at {size:,} and at {SMALL:,}")
        baseline = f"the same in a log of {SMALL:,}"
        note = f"at {size:,} entries, local streams"
        found = bench.paired(lambda n: _batches(large, n), lambda n: _batches(small, n))
        yield Row(f"growth: time of a batch of {BATCH}", ratios(found), baseline, BUDGET, note)
        found = bench.paired(lambda n: _singles(large, n), lambda n: _singles(small, n))
        yield Row("growth: time of one event", ratios(found), baseline, BUDGET, note)
        memory = anonymous_bytes()
        note = f"{memory / 1024**2:.0f} MiB at {size:,} entries"
        yield Row("growth: RssAnon of the process that appends", [memory / GIB], "1 GiB", Budget("≤", 1.0), note)
        yield disk_row("growth: bytes on disk per event", large)


def _batches(ledger: Ledger, number: int) -> float:
    signed = batches(ledger, f"grown-{number}", BATCHES_A_ROUND)
    return seconds(lambda: [ledger.gate.submit(one) for one in signed])


def _singles(ledger: Ledger, number: int) -> float:
    signed = singles(ledger, f"grown-alone-{number}", SINGLES_A_ROUND)
    return seconds(lambda: [ledger.gate.submit(one) for one in signed])
