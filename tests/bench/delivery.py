"""Rows of delivery: from a submission to the call of a subscriber in another process, over loopback.

A node (``deed serve``: log, server, views, compressor) runs in one process, the subscriber in a second, the submitter
here; all three speak to the node's nats-server. The clock is the machine's monotonic one, which all processes share.
The baseline is a bare NATS request and its answer by a process that does nothing else, on a server of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nats.aio.client import Client as NatsClient

from deedbook.ledger.client.author import Draft, draft_and_sign
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.service.server import find_server
from tests.bench.pairs import Bench, Budget, Row, percentile, ratios, scaled
from tests.bench.workload import text_of
from tests.building import ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from nats.aio.msg import Msg

MESSAGES: Final = scaled(100, 10)
AUTHOR: Final = "alice"
SUBSCRIBER: Final = "watcher"
SUBJECT: Final = "bench.echo"
DEEDBOOK: Final = Path(sys.executable).with_name("deed")
BASELINE: Final = "a bare NATS request over loopback"
wait_max_s: Final = 30.0


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    bench.say("submit to subscriber, against a bare request")
    for arguments in (("init", "--unprotected"), ("agent", "add", AUTHOR), ("agent", "add", SUBSCRIBER)):
        subprocess.run((DEEDBOOK, "--home", home, *arguments), check=True, stdout=subprocess.DEVNULL)
    with served(home) as url, echoed() as bare, subscribed(home, url) as arrivals:
        settings = Settings(home=home, server=url, agent=AUTHOR)
        with RemoteClient(settings) as client:
            tails_of = {number: [0.0, 0.0] for number in range(1, bench.rounds + 1)}

            def median(number: int, times: list[float], tail: int) -> float:
                if number:
                    tails_of[number][tail] = percentile(times, 0.99)
                return statistics.median(times)

            found = bench.paired(
                lambda number: median(number, time_deliveries(client, arrivals, number), 0),
                lambda number: median(number, asyncio.run(time_requests(bare)), 1),
            )
            tails = [(ours, theirs) for ours, theirs in tails_of.values()]
    note = f"{MESSAGES} events a round, one at a time; each is synced to disk before it is answered or read"
    yield Row("delivery: submit to subscriber, median", ratios(found), BASELINE, Budget("≤", 12.0), note)
    yield Row("delivery: submit to subscriber, p99", ratios(tails), f"{BASELINE}, its p99")


def time_deliveries(client: RemoteClient, arrivals: Connection, number: int) -> list[float]:
    """Return how long each event of a session took from its submission to the subscriber's call."""
    key = open_key(Home(client.settings.home).key_file(AUTHOR))
    stream = f"session/round-{number}"
    drafts = [Draft(stream=stream, data=FindingLogged(finding=text_of(one))) for one in range(MESSAGES)]
    ready = [draft_and_sign([draft], key, ledger=client.ledger, author=AUTHOR) for draft in drafts]
    started = Draft(stream=stream, data=SessionStarted(task="measure"))
    client.submit(draft_and_sign([started], key, ledger=client.ledger, author=AUTHOR))
    times: list[float] = []
    for one in ready:
        start = time.monotonic()
        client.submit(one)
        if not arrivals.poll(wait_max_s):
            raise RuntimeError("the subscriber was not called")
        event_id, arrived = arrivals.recv()
        if [event_id] != ids_of(one):
            raise RuntimeError("the subscriber got another event")
        times.append(arrived - start)
    return times


async def time_requests(url: str) -> list[float]:
    """Return how long each bare request took until its answer."""
    client = NatsClient()
    await client.connect(url)
    times: list[float] = []
    for number in range(MESSAGES):
        start = time.monotonic()
        await client.request(SUBJECT, text_of(number).encode(), timeout=wait_max_s)
        times.append(time.monotonic() - start)
    await client.close()
    return times


@contextlib.contextmanager
def served(home: Path) -> Iterator[str]:
    """Run ``deed serve`` on the ledger; yield the address of its server."""
    with subprocess.Popen((DEEDBOOK, "--home", home, "serve", "--json"), stdout=subprocess.PIPE) as node:
        try:
            assert node.stdout is not None
            yield json.loads(node.stdout.readline())["data"]["url"]
        finally:
            node.terminate()
            node.wait(wait_max_s)


@contextlib.contextmanager
def echoed() -> Iterator[str]:
    """Run a nats-server, and a process that answers on it; yield the server's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"nats://127.0.0.1:{port}"
    command = (find_server(), "--addr", "127.0.0.1", "--port", str(port), "--log", "/dev/null")
    with subprocess.Popen(command) as server:
        try:
            with child(echo, url) as answer:
                answer.recv()
                yield url
        finally:
            server.terminate()
            server.wait(wait_max_s)


@contextlib.contextmanager
def subscribed(home: Path, url: str) -> Iterator[Connection]:
    """Run a subscriber in a process of its own, which reports each call and its time; yield the connection to it."""
    with child(subscribe, str(home), url) as arrivals:
        arrivals.recv()
        yield arrivals


@contextlib.contextmanager
def child(work: Callable[..., None], *arguments: str) -> Iterator[Connection]:
    """Run a function in a new process, with the sending end of a pipe as its last argument; yield the receiving end."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, sending), daemon=True)
    process.start()
    try:
        if not receiving.poll(wait_max_s):
            raise RuntimeError(f"{work.__name__} did not start")
        yield receiving
    finally:
        process.terminate()
        process.join()


def subscribe(home: str, url: str, answer: Connection) -> None:
    """Follow the ledger, and report each finding as soon as it is delivered."""
    with RemoteClient(Settings(home=Path(home), server=url, agent=SUBSCRIBER)) as client:
        start = client.head().size
        answer.send("ready")
        for item in follow(client, start, kinds=["finding.logged"]):
            if not isinstance(item, int):
                answer.send((item.id, time.monotonic()))


def echo(url: str, answer: Connection) -> None:
    """Answer every request with its own payload."""

    async def respond(message: Msg) -> None:
        await message.respond(message.data)

    async def run() -> None:
        client = NatsClient()
        await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        await client.subscribe(SUBJECT, cb=respond)
        await client.flush()
        await client.flush()  # a second time, because nats-py sends the PING of the first one before the buffered data
        answer.send("ready")
        await asyncio.Event().wait()

    asyncio.run(run())
