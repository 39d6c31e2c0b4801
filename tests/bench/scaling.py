"""Rows of scaling: what ``deploy/scaling.py`` simulates, divided by what a node on this machine really does.

A node runs in one process, one agent submits from here: one at a time, which gives the costs of a submission, then as
many as it may at once, which gives the most a node takes; from these two alone the simulation is made. It is held
against the same arrivals, really sent: a million events a day, and a quarter of the most, with bursts. Latency counts
from when a submission was due, so a sender that falls behind hides nothing. The costs are printed with ``--json``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from deedbook.ledger.bus.connection import AsyncConnection
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.home import Home
from tests.bench import replicas
from tests.bench.delivery import DEEDBOOK, served
from tests.bench.pairs import Bench, Row, percentile, scaled
from tests.bench.workload import MIX, text_of

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))
import scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AUTHOR: Final = "alice"
ALONE: Final = scaled(200, 20)
AT_ONCE: Final = 64
PAUSE_S: Final = 0.02
MOST: Final = scaled(3000, 100)
SECONDS: Final = scaled(15, 2)
MILLION_A_DAY: Final = 1e6 / 86_400
PEAK: Final = 2.0
QUANTILES: Final = 100


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    for arguments in (("init", "--unprotected"), ("agent", "add", AUTHOR)):
        subprocess.run((DEEDBOOK, "--home", home, *arguments), check=True, stdout=subprocess.DEVNULL)
    with served(home) as url:
        before = sizes(home)
        found, costs, events = asyncio.run(_measured(bench, home, url))
        memory = memory_bytes(home)
    bench.say("three servers beside one, and a follower")
    replicated = replicas.measured(bench.folder / "replicas")
    grown = {name: (size - before[name]) / events for name, size in sizes(home).items()}
    costs = costs._replace(
        node_memory_bytes=memory, replicated_s=replicated.more_s, followed_s=replicated.followed_s, **grown
    )
    note = f"one agent; findings, {MIX}; at most {1 / costs.checked_s:.0f} a second"
    yield found[0]._replace(note=f"{found[0].note}; {note}", figures=costs._asdict())
    yield from found[1:]


async def _measured(bench: Bench, home: Path, url: str) -> tuple[list[Row], scaling.Costs, int]:
    ratios: dict[tuple[str, float], list[float]] = {}
    seen: dict[tuple[str, float], list[float]] = {}
    every: list[scaling.Costs] = []
    sender = Sender(home, url)
    await sender.open()
    try:
        for number in range(bench.rounds):
            # Measured anew in each round: what a submission costs beside other work changes from minute to minute.
            costs = await _costs(sender)
            every.append(costs)
            for name, rate in (("1,000,000 a day", MILLION_A_DAY), ("a quarter of the most", 0.25 / costs.checked_s)):
                bench.say(f"{name}: {rate:.0f} a second, with bursts")
                times = scaling.arrivals(rate, PEAK, 3 * SECONDS, number)[: int(rate * SECONDS)]
                simulated, real = scaling.simulate(times, costs, 1, number), await sender.at(times)
                for share in (0.5, 0.99):
                    ratios.setdefault((name, share), []).append(percentile(simulated, share) / percentile(real, share))
                    seen.setdefault((name, share), []).append(1000 * percentile(real, share))
    finally:
        await sender.close()
    found = [
        Row(
            f"scaling: {name}, p{share * 100:.0f}, simulated",
            given,
            "the same arrivals, really sent",
            None,
            f"measured {statistics.median(seen[name, share]):.1f} ms",
        )
        for (name, share), given in ratios.items()
    ]
    return found, min(every, key=lambda one: one.checked_s), sender.count


async def _costs(sender: Sender) -> scaling.Costs:
    alone, most = sorted(await sender.one_by_one(ALONE)), await sender.at_once(MOST)
    # The longest is among them: whoever comes while a transaction stalls waits for it, so rare stalls make the p99.
    later = ("followed_s", "replicated_s", "log_bytes", "stream_bytes", "views_bytes", "views_rows")
    nothing = dict.fromkeys((*later, "node_memory_bytes"), 0.0)
    return scaling.Costs(
        checked_s=1 / most,
        alone_s=[alone[number * (len(alone) - 1) // (QUANTILES - 1)] for number in range(QUANTILES)],
        request_bytes=sender.request_bytes / sender.count,
        answer_bytes=sender.answer_bytes / sender.count,
        **nothing,
    )


class Sender:
    """One agent that submits signed findings, each alone."""

    def __init__(self, home: Path, url: str) -> None:
        folder = Home(home)
        self._key = open_key(folder.key_file(AUTHOR))
        self._connection = AsyncConnection(url, AUTHOR, folder.bus_seed(AUTHOR))
        ledger = msgspec.json.decode((home / "bus" / "generation.json").read_bytes())["ledger"]
        self._ledger, self._subject, self._number = ledger, submit_subject(ledger, AUTHOR), 0
        self.count = self.request_bytes = self.answer_bytes = 0

    async def open(self) -> None:
        """Connect, and start the session."""
        await self._connection.open()
        await self._send(self._signed(SessionStarted(task="measure")))

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def signed(self, count: int) -> list[bytes]:
        """Return so many new submissions."""
        self._number += count
        return [self._signed(FindingLogged(finding=text_of(self._number - one))) for one in range(count)]

    async def one_by_one(self, count: int) -> list[float]:
        """Return how long each submission took, of a node that was idle: a process that slept wakes up first."""
        times = []
        for one in self.signed(count):
            await asyncio.sleep(PAUSE_S)
            times.append(await self._timed(one, time.perf_counter()))
        return times

    async def at_once(self, count: int) -> float:
        """Return how many a second were answered, with always the same number under way."""
        waiting, began = iter(self.signed(count)), time.perf_counter()

        async def work() -> None:
            for one in waiting:
                await self._send(one)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return count / (time.perf_counter() - began)

    async def at(self, times: Sequence[float]) -> list[float]:
        """Return how long after it was due each of these submissions was answered."""
        ready, began, tasks = self.signed(len(times)), time.perf_counter(), []
        for due, one in zip(times, ready, strict=True):
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._timed(one, began + due)))
        return await asyncio.gather(*tasks)

    def _signed(self, data: Any) -> bytes:
        draft = Draft(stream="session/scaling", data=data)
        return draft_and_sign([draft], self._key, ledger=self._ledger, author=AUTHOR).encode()

    async def _timed(self, payload: bytes, began: float) -> float:
        await self._send(payload)
        return time.perf_counter() - began

    async def _send(self, payload: bytes) -> None:
        answer = await self._connection.request(self._subject, payload)
        self.count += 1
        self.request_bytes += len(payload)
        self.answer_bytes += len(msgspec.json.encode(answer))


def sizes(home: Path) -> dict[str, float]:
    """Return the bytes of log, stream and views on disk, and the rows of views, which are brought up to date."""
    subprocess.run((DEEDBOOK, "--home", home, "project"), check=True, stdout=subprocess.DEVNULL)
    with closing(sqlite3.connect(home / "views.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        count = sum(db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)
    stream = sum(file.stat().st_size for file in (home / "bus" / "jetstream").rglob("*.blk"))
    files = {"log_bytes": home / "log" / "data.mdb", "views_bytes": home / "views.db"}
    return {name: float(file.stat().st_size) for name, file in files.items()} | {
        "stream_bytes": float(stream),
        "views_rows": float(count),
    }


def memory_bytes(home: Path) -> float:
    """Return the memory of a node's process and of its nats-server's."""

    def status(pid: str) -> dict[str, str]:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    server = status((home / "bus" / "server.pid").read_text("ascii").strip())
    return 1024.0 * sum(int(one["VmRSS"].split()[0]) for one in (server, status(server["PPid"])))
