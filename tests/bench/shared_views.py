"""Rows of PostgreSQL: queries of its views, against the same queries of the SQLite file; and folding."""

from __future__ import annotations

import gc
import os
import statistics
import time
from typing import TYPE_CHECKING, Final

import psycopg

from deedbook.projections.answers.reader import Reader
from tests.bench.folding import grow
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.pasts import QUESTIONS as OF_LISTS
from tests.bench.pasts import Question
from tests.bench.workload import open_ledger
from tests.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS: Final = scaled(int(os.environ.get("DEEDBOOK_BENCH_LARGE", "100000")), 2_048)
REPEATS: Final = scaled(20, 2)
QUESTIONS: Final[tuple[Question, ...]] = (
    *OF_LISTS,
    ("handoffs.why", {"id": "work-0-3"}),
    ("handoffs.graph", {}),
    ("reports.list", {}),
    ("knowledge.graph", {"id": "session/day-0-3"}),
    ("search.find", {"text": "login token"}),
    ("search.find", {"text": "step 3"}),
    ("search.related", {"task": "Why do tokens expire?"}),
)
BASELINE: Final = "the same in SQLite's file"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    server = Postgres(shared_buffers="128MB")  # PostgreSQL's own default
    try:
        with open_ledger(bench.folder / "ledger") as ledger, ledger.client() as client:
            bench.say(f"filling a log up to {EVENTS:,} entries")
            grow(ledger, EVENTS)
            settings = ledger.settings()
            database = server.make_database()
            with Reader(client, settings) as ours, Reader(client, settings, store=database) as theirs:
                bench.say("folding it")
                folded_s, shared_s = seconds(ours.catch_up), seconds(theirs.catch_up)
                bench.say("asking")
                with psycopg.connect(database, autocommit=True) as connection:
                    connection.execute("VACUUM ANALYZE")  # the server would do this by itself a minute later
                yield from _questions(bench, ours, theirs, client.head().size)
                note = f"{EVENTS / shared_s:,.0f} events a second, beside {EVENTS / folded_s:,.0f}; with search"
                yield Row("postgres: fold the log", [shared_s / folded_s], BASELINE, None, note)
    finally:
        server.remove()


def _questions(bench: Bench, ours: Reader, theirs: Reader, size: int) -> Iterator[Row]:
    def ask(question: Question) -> tuple[float, float]:
        """Return the median time of PostgreSQL's answers and of SQLite's, asked in turn under the same load."""
        times: dict[Reader, list[float]] = {theirs: [], ours: []}
        gc.collect()  # only here, not between the questions: in real use, too, one question follows another
        for number in range(REPEATS):
            for reader in (theirs, ours) if number % 2 else (ours, theirs):
                start = time.perf_counter()
                reader.answer(*question)
                times[reader].append(time.perf_counter() - start)
        return statistics.median(times[theirs]), statistics.median(times[ours])

    for question in QUESTIONS:
        assert theirs.answer(*question) == ours.answer(*question), question
        found = [ask(question) for _ in range(bench.rounds + 1)][1:]
        p50_ms = sorted(1000 * shared for shared, _ in found)[len(found) // 2]
        note = f"p50 {p50_ms:.1f} ms; {size:,} events"
        asked = " ".join((question[0], *map(str, question[1].values())))
        yield Row(f"postgres: {asked}", ratios(found), BASELINE, Budget("≤", 3.0), note)
