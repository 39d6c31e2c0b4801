"""Rows of several nodes: the speed of the ledger's bus, divided by that of plain JetStream on the same server.

Both are measured in the same round.

*Publishing*: after an append, the ledger publishes its log in atomic batches with compare-and-set. The baseline is
nats-py's ``publish_async`` of the same payloads and headers, under subjects of equal length, to a plain stream.

*Following*: a follower copies the entries of another node from the stream into its own log. It verifies every signature
and applies the rules to every event again. The baseline is a plain ordered consumer that counts the same messages.

*Delivery* ends when the function of a subscription has run; its transaction is still open. The baseline is a plain
subscriber.

*Failover* uses the script of ``deploy/``. A SIGKILL ends the node whose server leads the stream, and that server. The
row shows the longest time without an acknowledgement. The baseline is a plain stream of three servers whose leader is
killed: there this time is the time of the servers' own election.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import nats.js.errors
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamConfig

from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger import limits
from deedbook.ledger.admission.candidate import CheckedSubmission
from deedbook.ledger.admission.check import check
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.publisher import OutboundMessage, Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, open_stream
from deedbook.ledger.bus.subjects import event_pattern
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.home.config import Settings
from deedbook.ledger.log.log import Log
from tests.bench.delivery import (
    AUTHOR,
    DEEDBOOK,
    MESSAGES,
    SUBSCRIBER,
    child,
    served,
    time_deliveries,
    wait_max_s,
)
from tests.bench.pairs import Bench, Budget, Row, percentile, rate, ratios, scaled
from tests.bench.servers import connected, servers
from tests.bench.workload import MAP_SIZE, batches, open_ledger, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

    from deedbook.ledger.events.body import Event
    from tests.building import Ledger

BATCHES: Final = scaled(16, 1)
FAILOVER_ROUNDS_MAX: Final = 3
FAILOVER: Final = ("--events", str(scaled(600, 40)), "--agents", "2")
PROGRAM: Final = Path(__file__).parents[2] / "deploy" / "three-nodes.py"
SYNCS: Final = {"": "the server's own sync_interval", "always": "sync_interval: always"}
PUBLISHED: Final = "plain publish_async of the same bytes"
READ: Final = "a plain consumer of the same stream"
APPENDED: Final = "a node's append of the same events"
GAP_MAX: Final = 1.1
PLAIN: Final = "plain"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    with contextlib.ExitStack() as stack:
        urls = {sync: stack.enter_context(servers(bench.folder / f"bus-{sync}", sync=sync))[0] for sync in SYNCS}
        ledger = stack.enter_context(open_ledger(bench.folder / "published"))
        bench.say(f"publishing and following {BATCHES * 256:,} events a round")
        yield from asyncio.run(_of_streams(bench, ledger, urls))
        bench.say("submit to a subscription's function, against JetStream's")
        yield from _of_delivery(bench, urls["always"])
    yield from _of_failover(bench)


async def _of_streams(bench: Bench, ledger: Ledger, urls: dict[str, str]) -> list[Row]:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        sides = [await _Side.make(await stack.enter_async_context(connected(urls[sync])), ledger) for sync in SYNCS]
        log = stack.enter_context(
            contextlib.closing(Log(_made(bench.folder / "follower"), map_size=MAP_SIZE, create=True))
        )
        following, own = sides[-1], await stack.enter_async_context(connected(urls["always"], NodeClient))
        follower = Replica(lambda: own, log, ledger.id, "node-2", replicas=1, record=bench.folder / "generation.json")
        for number in range(bench.rounds + 1):
            start = ledger.head()[0]
            ready = [check(one) for one in batches(ledger, f"round-{number}", BATCHES)]
            count = BATCHES * 256
            appended = rate(count, partial(_append, ledger, ready))
            messages = _messages(ledger, start)
            for sync, side in zip(SYNCS, sides, strict=True):
                pair = await side.publish(messages, first=number % 2)
                found.setdefault((f"publish, {SYNCS[sync]}", PUBLISHED), []).append(pair)
            followed = await _rate(count if number else count + start, follower.follow())
            read = await _rate(count, _consumed(following.client, ledger.id, start + 1, count))
            for baseline, rate_of in (READ, read), (APPENDED, appended):
                found.setdefault(("a follower catches up", baseline), []).append((followed, rate_of))
    return [
        Row(f"nodes: {what}", ratios(pairs[1:]), baseline, None, _rates(pairs[1:]))
        for (what, baseline), pairs in found.items()
    ]


def _append(ledger: Ledger, ready: list[CheckedSubmission]) -> None:
    for start in range(0, len(ready), 4):
        ledger.gate.admit(ready[start : start + 4])


def _messages(ledger: Ledger, start: int) -> list[OutboundMessage]:
    outbox, messages = Outbox(ledger.log, ledger.id), list[OutboundMessage]()
    while following := outbox.read(start + len(messages) - 1, limits.batch_events_max):
        messages += following
    return messages


class _Side:
    """A server with one setting of ``sync_interval``, and two streams on it: the ledger's and a plain one."""

    def __init__(self, client: NatsClient, publisher: StreamPublisher) -> None:
        self.client, self._publisher = client, publisher
        self._plain = client.jetstream(timeout=wait_max_s)

    @classmethod
    async def make(cls, client: NatsClient, ledger: Ledger) -> _Side:
        generation = await open_stream(client, Generation(ledger.id))
        publisher = StreamPublisher(client, generation, Outbox(ledger.log, ledger.id).read)
        await publisher.start()
        while await publisher.publish_next():
            pass
        made = cls(client, publisher)
        await made._plain.add_stream(StreamConfig(name=PLAIN, subjects=[f"{PLAIN}.>"]))
        return made

    async def publish(self, messages: list[OutboundMessage], *, first: int) -> tuple[float, float]:
        """Return the events per second of the ledger's publishing and of plain publishing."""
        count = len(messages)
        if first:
            plain, ours = await _rate(count, self._plainly(messages)), await _rate(count, self._ours())
        else:
            ours, plain = await _rate(count, self._ours()), await _rate(count, self._plainly(messages))
        return ours, plain

    async def _ours(self) -> None:
        while await self._publisher.publish_next():
            pass

    async def _plainly(self, messages: list[OutboundMessage]) -> None:
        under_way = [
            await self._plain.publish_async(
                PLAIN + one.subject.removeprefix("deedbook"),
                one.payload,
                headers=dict(one.headers),
                wait_stall=wait_max_s,
            )
            for one in messages
        ]
        await asyncio.gather(*under_way)


async def _rate(count: int, work: Any) -> float:
    start = time.perf_counter()
    await work
    return count / (time.perf_counter() - start)


async def _consumed(client: NatsClient, ledger: str, first_seq: int, count: int) -> None:
    left, done = count, asyncio.Event()

    async def take(_message: Msg) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first_seq)
    subscription = await client.jetstream(timeout=wait_max_s).subscribe(
        event_pattern(ledger), stream=Generation(ledger).name, cb=take, ordered_consumer=True, config=config
    )
    await done.wait()
    await subscription.unsubscribe()


def _rates(pairs: list[tuple[float, float]]) -> str:
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return f"{ours:,.0f} events a second, beside {theirs:,.0f}"


def _made(folder: Path) -> Path:
    (folder / "log").mkdir(parents=True)
    return folder


# Delivery.


def _of_delivery(bench: Bench, plain_url: str) -> Iterator[Row]:
    home = bench.folder / "delivered"
    for arguments in (("init", "--unprotected"), ("agent", "add", AUTHOR), ("agent", "add", SUBSCRIBER)):
        subprocess.run((DEEDBOOK, "--home", home, *arguments), check=True, stdout=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(served(home))
        called = stack.enter_context(child(subscribe, str(home), url))
        plainly = stack.enter_context(child(consume, plain_url))
        client = stack.enter_context(RemoteClient(Settings(home=home, server=url, agent=AUTHOR)))
        for one in (called, plainly):
            one.recv()
        ours, theirs = list[float](), list[float]()
        found = bench.paired(
            lambda number: _put(ours, time_deliveries(client, called, number)),
            lambda _: _put(theirs, asyncio.run(time_messages(plain_url, plainly))),
        )
    note = f"{MESSAGES} events a round, one at a time, each synced to disk; {_ms(found)}"
    tails = list(zip(ours[1:], theirs[1:], strict=True))
    baseline = "a plain JetStream publish to its subscriber, sync_interval: always"
    yield Row("nodes: submit to a subscription's function, median", ratios(found), baseline, None, note)
    yield Row(
        "nodes: submit to a subscription's function, p99", ratios(tails), f"{baseline}, its p99", None, _ms(tails)
    )


def _put(tails: list[float], times: list[float]) -> float:
    tails.append(percentile(times, 0.99))
    return statistics.median(times)


def _ms(pairs: list[tuple[float, float]]) -> str:
    ours, theirs = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
    return f"{ours:.1f} ms, beside {theirs:.1f}"


def subscribe(home: str, url: str, answer: Connection) -> None:
    """Subscribe as a program does, and report each finding when its function has run."""
    with RemoteClient(Settings(home=Path(home), server=url, agent=SUBSCRIBER)) as client:
        reactor = Reactor(client, Subscriptions(Path(home).with_name("subscriptions.db")), SUBSCRIBER)

        @reactor.on("finding.logged")
        def act(event: Event, _db: Any) -> None:
            answer.send((event.id, time.monotonic()))

        reactor.start_at(client.head().size)
        answer.send("ready")
        reactor.run(threading.Event())


def consume(url: str, answer: Connection) -> None:
    """Subscribe to a plain stream, and report when each message has arrived."""

    async def take(message: Msg) -> None:
        answer.send(time.monotonic())
        await message.ack()

    async def run() -> None:
        async with connected(url) as client:
            await client.jetstream().subscribe(f"{PLAIN}.delivered", cb=take, manual_ack=True)
            answer.send("ready")
            await asyncio.Event().wait()

    asyncio.run(run())


async def time_messages(url: str, arrivals: Connection) -> list[float]:
    """Return how long each plain message took from its publish to its subscriber."""
    times: list[float] = []
    async with connected(url) as client:
        stream = client.jetstream(timeout=wait_max_s)
        for number in range(MESSAGES):
            start = time.monotonic()
            await stream.publish(f"{PLAIN}.delivered", text_of(number).encode())
            if not arrivals.poll(wait_max_s):
                raise RuntimeError("the plain subscriber was not called")
            times.append(arrivals.recv() - start)
    return times


# Failover.


def _of_failover(bench: Bench) -> Iterator[Row]:
    pairs: list[tuple[float, float]] = []
    for number in range(min(bench.rounds, FAILOVER_ROUNDS_MAX)):
        bench.say(f"the node whose server leads the stream is killed, {number + 1}")
        command = [sys.executable, str(PROGRAM), *FAILOVER, "--folder", str(bench.folder)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"three nodes: {ended.stderr}{ended.stdout}")
        gap_s, folder = float(json.loads(ended.stdout)["gap_s"]), bench.folder / f"plain-{number}"
        with servers(folder, count=3) as urls:
            pairs.append((gap_s, asyncio.run(_time_election(urls, folder))))
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    baseline = "a plain stream of three servers whose leader is killed"
    note = f"{ours:.1f} s, beside {theirs:.1f}: servers elect 4 to 9 s after they last heard a leader"
    yield Row("nodes: gap when one of three is killed", ratios(pairs), baseline, Budget("≤", GAP_MAX), note)


async def _time_election(urls: list[str], folder: Path) -> float:
    """Kill the leader of a plain stream of three servers; return the seconds until the next acknowledgement."""
    config = StreamConfig(name=PLAIN, subjects=[f"{PLAIN}.>"], num_replicas=len(urls))
    async with connected(urls[0]) as client:
        made = await client.jetstream(timeout=wait_max_s).add_stream(config)
    leader = (made.cluster and made.cluster.leader) or "server-0"
    async with connected(urls[(int(leader[-1]) + 1) % len(urls)]) as client:
        stream = client.jetstream(timeout=0.5)
        last = await _acknowledged(stream)
        os.kill(int((folder / leader / "server.pid").read_text("ascii")), signal.SIGKILL)
        return await _acknowledged(stream) - last


async def _acknowledged(stream: Any) -> float:
    """Publish until the stream acknowledges, and return the time of the acknowledgement."""
    while True:
        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
            await stream.publish(f"{PLAIN}.one", b"one")
            return time.monotonic()
        await asyncio.sleep(0.05)
