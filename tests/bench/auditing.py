"""Rows of the audit: all signatures, the tree, the rules and the views of a log, against libsodium verifying alone.

The baseline verifies one signature an event on all cores. In a log with one signature for each batch, the audit has
fewer signatures to verify. That is the purpose of such a log, so the baseline stays one signature for each event.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.format.envelope import entry_leaf
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.home.config import Config, Settings
from deedbook.projections.answers.reader import Reader
from tests.bench.appending import rate_of_sodium
from tests.bench.pairs import Bench, Budget, Row, rate, ratios, scaled
from tests.bench.rivals import CORES, signed_of
from tests.bench.workload import MAP_SIZE, batches, fill, open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

EVENTS: Final = scaled(int(os.environ.get("DEEDBOOK_BENCH_LARGE", "98304")), 1_024)
ROUNDS_MAX: Final = 3
GIB: Final = 1024**3
HASHED: Final = "entries read and hashed to the root of their tree"
SODIUM: Final = f"libsodium verifying a signature an event in {CORES} threads"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    for name, alone, budget in (("single-signed", True, 0.5), ("batch-signed", False, 1.0)):
        bench.say(f"audit of a {name} log")
        folder = bench.folder / name
        with open_ledger(folder) as ledger:
            fill(ledger, EVENTS, alone=alone)
            sample = [signed_of(one) for one in batches(ledger, "sample", 8, alone=True)]
        settings = Settings(home=folder, config=Config(map_size_bytes=MAP_SIZE))
        with LocalClient(settings) as client, Reader(client, settings) as reader:
            reader.answer("catalog.find", {})
        sodium = rate_of_sodium(sample, CORES)
        rounds = min(bench.rounds, ROUNDS_MAX)
        note = f"{EVENTS:,} events"
        found = bench.paired(lambda _, at=settings: _audit(at, views=False), sodium, rounds=rounds)
        yield Row(f"audit: {name} log, without views", ratios(found), SODIUM, None, note)
        found = bench.paired(lambda _, at=settings: _audit(at, views=True), sodium, rounds=rounds)
        yield Row(f"audit: {name} log, with views", ratios(found), SODIUM, Budget("≥", budget), note)
        kept = bench.folder / f"{name}.audit"
        found = bench.paired(lambda _, at=settings, to=kept: _resume(at, to), lambda _, at=settings: _hash(at))
        note = f"{kept.stat().st_size / 1024**2:.0f} MiB kept"
        yield Row(f"audit: {name} log, resumed with nothing new", ratios(found), HASHED, None, note)
        if alone:
            yield _memory(folder)


def _audit(settings: Settings, *, views: bool) -> float:
    with LocalClient(settings) as client:
        size = client.head().size
        return rate(size, lambda: _check(client, settings if views else None))


def _resume(settings: Settings, kept: Path) -> float:
    with LocalClient(settings) as client:
        if not kept.exists():
            _check(client, None, kept)
        return rate(client.head().size, lambda: _check(client, None, kept))


def _hash(settings: Settings) -> float:
    """Return how many entries per second can be read and hashed into their tree: the least work of any audit."""
    with LocalClient(settings) as client:
        size = client.head().size

        def whole() -> None:
            frontier = Frontier.empty()
            while frontier.size < size:
                frontier = frontier.extend(entry_leaf(data) for _, data in client.entries(frontier.size).entries)

        return rate(size, whole)


def _check(client: LocalClient, views: Settings | None, kept: Path | None = None) -> None:
    report = verify_log(client, views=views, cache=kept)
    if report.problems:
        raise RuntimeError(f"the audit found what is not there: {report.problems[0].message}")


def _memory(folder: Path) -> Row:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=audit_in_process, args=(str(folder), sending))
    child.start()
    peak, size = receiving.recv()
    child.join()
    note = f"with views; of the audit's process and its workers, {peak / 1024**2:.0f} MiB at {size:,} events"
    return Row("audit: peak of RssAnon", [peak / GIB], "1 GiB, the budget at a million events", Budget("≤", 1.0), note)


def audit_in_process(folder: str, answer: Connection) -> None:
    """Audit a log in this process; send its peak of anonymous memory, in bytes, and the number of events."""
    settings = Settings(home=Path(folder), config=Config(map_size_bytes=MAP_SIZE))
    done = threading.Event()
    peaks = [0]

    def watch() -> None:
        while not done.wait(0.02):
            peaks.append(anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with LocalClient(settings) as client:
        size = client.head().size
        _check(client, settings)
    done.set()
    watcher.join()
    answer.send((max(peaks), size))


def _children() -> list[str]:
    pids: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            pids += (task / "children").read_text("ascii").split()
    return pids


def anonymous_bytes() -> int:
    """Return RssAnon of this process and of those it started, in bytes (Linux)."""
    total = 0
    for process in ("self", *_children()):
        try:
            lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
        except FileNotFoundError:
            continue  # the process has ended meanwhile
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    return total
