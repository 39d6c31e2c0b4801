"""Rows of appending: batches, events submitted one by one, single events, and many callers at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final

from deedbook.ledger.admission.committer import Committer
from tests.bench.pairs import Bench, Budget, Row, percentile, rate, ratios, scaled
from tests.bench.rivals import CORES, aggregate_of, open_lmdb, open_rival, put, signed_of, verify_all
from tests.bench.workload import BATCH, MIX, batches, open_ledger, session_bodies, singles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deedbook.ledger.format.envelope import Submission
    from tests.building import Ledger

BATCHES_A_ROUND: Final = 16
SINGLES_A_ROUND: Final = scaled(200, 20)
CALLERS: Final = 64
ES_BATCH: Final = "eventsourcing on SQLite, saving batches of 256 of the same content"
LMDB: Final = "LMDB committing an entry of the same bytes, synced"
ES_SINGLE: Final = "eventsourcing on SQLite, saving one event"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with open_ledger(bench.folder / "ledger") as ledger:
        yield from _batches(bench, ledger)
        yield _in_threads(bench, ledger)
        yield from _single(bench, ledger)
        yield from _callers(bench, ledger)


def _batches(bench: Bench, ledger: Ledger) -> Iterator[Row]:
    bench.say(f"batches of {BATCH} with one signature")
    rival = open_rival(bench.folder / "batches.db")
    count = BATCHES_A_ROUND * BATCH

    def ours(number: int) -> float:
        signed = batches(ledger, f"batch-{number}", BATCHES_A_ROUND)
        return rate(count, lambda: [ledger.gate.submit(one) for one in signed])

    def theirs(number: int) -> float:
        names = [f"rival-{number}-{n}" for n in range(BATCHES_A_ROUND)]
        made = [aggregate_of(session_bodies(ledger, name, BATCH)) for name in names]
        return rate(count, lambda: [rival.save(one) for one in made])

    def in_flight(number: int) -> float:
        signed = batches(ledger, f"flight-{number}", BATCHES_A_ROUND)
        with Committer(ledger.gate) as committer:
            return rate(count, lambda: [answer.result() for answer in [committer.submit(one) for one in signed]])

    found = bench.paired(ours, theirs)
    yield Row("append: batches, one signature", ratios(found), ES_BATCH, Budget("≥", 1.0), f"local streams; {MIX}")
    found = bench.paired(in_flight, theirs)
    note = f"{BATCHES_A_ROUND} batches waiting for the committer, which groups commits"
    yield Row("append: batches, one signature, in flight", ratios(found), ES_BATCH, None, note)
    rival.close()


def _in_threads(bench: Bench, ledger: Ledger) -> Row:
    bench.say("events submitted one by one")
    count = BATCHES_A_ROUND * BATCH

    def signed(name: str) -> list[Submission]:
        return batches(ledger, name, BATCHES_A_ROUND, alone=True)

    def ours(number: int) -> float:
        ready = signed(f"threads-{number}")
        with Committer(ledger.gate) as committer:
            return rate(count, lambda: [answer.result() for answer in [committer.submit(one) for one in ready]])

    samples = [signed_of(one) for one in signed("sample")[: 8 * BATCH]]
    found = bench.paired(ours, rate_of_sodium(samples, CORES))
    what = "append: events submitted one by one, verified in threads"
    return Row(what, ratios(found), f"libsodium verifying in {CORES} threads", None, "through the committer")


def _single(bench: Bench, ledger: Ledger) -> Iterator[Row]:
    bench.say("single events, one caller")
    rival = open_rival(bench.folder / "single.db")
    environment = open_lmdb(bench.folder / "single.lmdb")

    def ours(name: str) -> float:
        ready = singles(ledger, name, SINGLES_A_ROUND)
        return rate(SINGLES_A_ROUND, lambda: [ledger.gate.submit(one) for one in ready])

    def of_lmdb(number: int) -> float:
        # LMDB gets entries of the same kind: the last ones of the log.
        with ledger.log.snapshot() as snapshot:
            entries = snapshot.entries(snapshot.size - SINGLES_A_ROUND, limit=SINGLES_A_ROUND, size_max_bytes=2**30)
        return rate(SINGLES_A_ROUND, lambda: [put(environment, number, at, one) for at, one in enumerate(entries)])

    def theirs(number: int) -> float:
        bodies = session_bodies(ledger, f"single-{number}", SINGLES_A_ROUND)
        made = [aggregate_of([body]) for body in bodies]
        return rate(SINGLES_A_ROUND, lambda: [rival.save(one) for one in made])

    what = "append: one event, one caller, synced"
    found = bench.paired(lambda number: ours(f"beside-lmdb-{number}"), of_lmdb)
    yield Row(what, ratios(found), LMDB, Budget("≥", 0.7))
    found = bench.paired(lambda number: ours(f"beside-sqlite-{number}"), theirs)
    yield Row(what, ratios(found), ES_SINGLE, None)
    environment.close()
    rival.close()


def _callers(bench: Bench, ledger: Ledger) -> Iterator[Row]:
    bench.say(f"{CALLERS} callers with group commit")
    waits: dict[int, list[float]] = {}

    def many(number: int) -> float:
        shares = [singles(ledger, f"many-{number}-{caller}", 24) for caller in range(CALLERS)]
        speed, waits[number] = call_at_once(ledger, shares)
        return speed

    def one(number: int) -> float:
        speed, alone = call_at_once(ledger, [singles(ledger, f"one-{number}", SINGLES_A_ROUND)])
        waits[-number] = alone
        return speed

    found = bench.paired(many, one)
    rounds = range(1, bench.rounds + 1)
    tails = [percentile(waits[number], 0.99) / statistics.median(waits[-number]) for number in rounds]
    yield Row(f"append: {CALLERS} callers, group commit", ratios(found), "one caller", Budget("≥", 4.5))
    yield Row(f"append: p99 of {CALLERS} callers", tails, "median of one caller", Budget("≤", 25.0))


def call_at_once(ledger: Ledger, shares: Sequence[Sequence[Submission]]) -> tuple[float, list[float]]:
    """Let each caller submit its share one by one; return events a second, and how long each event waited."""
    waits: list[float] = []

    async def call(committer: Committer, share: Sequence[Submission]) -> None:
        for one in share:
            start = time.perf_counter()
            await committer.submit_from_loop(one)
            waits.append(time.perf_counter() - start)

    async def all_of_them(committer: Committer) -> None:
        await asyncio.gather(*(call(committer, share) for share in shares))

    with Committer(ledger.gate) as committer:
        speed = rate(sum(map(len, shares)), lambda: asyncio.run(all_of_them(committer)))
    return speed, waits


def rate_of_sodium(signed: Sequence[tuple[bytes, bytes]], threads: int) -> Callable[[int], float]:
    """Return a measurement of how many of these signatures libsodium verifies a second."""
    return lambda _number: rate(len(signed), lambda: verify_all(signed, threads))
