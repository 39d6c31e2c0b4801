"""Rows of disk: the pages of ``data.mdb`` in use, against the bytes of the entries alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.bench.pairs import Bench, Budget, Row, scaled
from tests.bench.workload import MIX, fill, open_ledger, singles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.building import Ledger

BATCHED: Final = scaled(20_000, 1_024)
ALONE: Final = scaled(2_000, 100)
BUDGET: Final = Budget("≤", 2.0)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    bench.say("bytes on disk")
    with open_ledger(bench.folder / "batched") as ledger:
        fill(ledger, BATCHED)
        yield disk_row("disk: bytes per event, appended in batches", ledger)
    with open_ledger(bench.folder / "alone") as ledger:
        for one in singles(ledger, "alone", ALONE):
            ledger.submit(one)
        yield disk_row("disk: bytes per event, appended one by one", ledger)


def disk_row(what: str, ledger: Ledger) -> Row:
    """Return the row of one log."""
    with ledger.log.snapshot() as snapshot:
        size = snapshot.size
        entries = sum(len(snapshot.entry(index)) for index in range(size))
    used = ledger.log.tables.used_ratio() * ledger.log.tables.env.info()["map_size"]
    note = f"{size:,} events of {entries / size:.0f} bytes on average ({MIX}); pages up to the last one used"
    return Row(what, [used / entries], "the bytes of its entry", BUDGET, note)
