"""Two nodes begin the next generation of a stream at once, on a real server: the result is one stream and one log."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from served import connect, public_key

from deedbook.consumers.interfaces.node.generations import Generations
from deedbook.consumers.interfaces.node.replica import DamagedError, Replica
from deedbook.ledger.bus.history import entry_at, read_messages
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, open_stream
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.nodes import stream_in_use
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from building import Ledger

BEHIND, ROUNDS, TRIES_MAX = 40, 3, 50


def _entries(log: Log) -> list[bytes]:
    with log.snapshot() as snapshot:
        return snapshot.entries(0, limit=1000, size_max_bytes=1 << 24)


class _Copies:
    """The copies of two nodes, one of which lacks the last entries of the stream."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.ledger, self.folder = ledger, folder
        for number in range(3):
            ledger.submit(ledger.sign("alice", Draft(stream=f"session/s{number}", data=SessionStarted())))
            drafts = [Draft(stream=f"session/s{number}", data=FindingLogged(finding=f"{index}")) for index in range(25)]
            for draft in drafts:
                ledger.submit(ledger.sign("alice", draft))
        self.whole = _entries(ledger.log)

    async def open(self, stack: AsyncExitStack, url: str, name: str, size: int) -> Generations:
        """Return a node that has the first ``size`` entries and follows no stream yet."""
        folder = self.folder / name
        (folder / "log").mkdir(parents=True)
        log = stack.enter_context(Log(folder, map_size=1 << 24, create=True))
        client: Any = await connect(url, NODE)
        stack.push_async_callback(client.close)
        record = folder / "generation.json"
        replica = Replica(lambda: client, log, self.ledger.id, name, replicas=1, record=record)
        replica._follower.append(0, self.whole[:size])
        return Generations(replica)


async def _again(node: Generations, scrubbed: int) -> None:
    """Rebuild and follow until this node has all entries; wait while another node creates or fills the stream."""
    for _ in range(TRIES_MAX):
        with suppress(Unavailable, DamagedError):
            await node.rebuild(scrubbed)
            await node._replica.follow()
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not reach the end of the next stream")


@contextmanager
def _serving(ledger: Ledger, folder: Path) -> Iterator[str]:
    """Serve the bus of a ledger, and yield its address."""
    server = EmbeddedServer(folder / "nats", ledger.id)
    server.start(BusUsers(nodes=(public_key(NODE),)))
    try:
        yield server.url
    finally:
        server.stop()


async def _published(stack: AsyncExitStack, url: str, ledger: Ledger) -> Any:
    """Publish a log to its first stream, and return the connection."""
    client: Any = await connect(url, NODE)
    stack.push_async_callback(client.close)
    first = await open_stream(client, Generation(ledger.id))
    publisher = StreamPublisher(client, first, Outbox(ledger.log, ledger.id).read)
    await publisher.start()
    while await publisher.publish_next():
        pass
    return client


def test_two_nodes_that_begin_one_generation_at_once_agree_on_it(ledger: Ledger, tmp_path: Path) -> None:
    copies = _Copies(ledger, tmp_path)

    async def run(url: str) -> None:
        async with AsyncExitStack() as stack:
            client = await _published(stack, url, ledger)
            sizes = {"node": len(copies.whole), "node-b": len(copies.whole) - BEHIND}
            nodes = [await copies.open(stack, url, name, size) for name, size in sizes.items()]
            for number in range(1, 1 + ROUNDS):
                await asyncio.gather(*(_again(node, number) for node in nodes))
                in_use = await stream_in_use(client, ledger.id)
                assert in_use is not None
                assert (in_use.number, in_use.size) == (number + 1, len(copies.whole))
                retired = (await client.jetstream().stream_info(Generation(ledger.id, number).name)).config
                assert retired.subjects == [retired_subject(ledger.id, number)]
                stored = await read_messages(client, in_use, 1, len(copies.whole))
                assert [entry_at(seq, message) for seq, message in stored.items()] == copies.whole
                assert all(_entries(node._replica.log) == copies.whole for node in nodes)

    with _serving(ledger, tmp_path) as url:
        asyncio.run(run(url))


def test_stream_whose_subjects_somebody_changed_is_replaced(ledger: Ledger, tmp_path: Path) -> None:
    """It is neither in use nor retired: no node may wait for another one to make the next."""
    copies = _Copies(ledger, tmp_path)

    async def run(url: str) -> None:
        async with AsyncExitStack() as stack:
            client = await _published(stack, url, ledger)
            node = await copies.open(stack, url, "node", len(copies.whole))
            await node._replica.follow()
            config = (await client.jetstream().stream_info(Generation(ledger.id).name)).config
            await client.jetstream().update_stream(config.evolve(subjects=["elsewhere"]))
            assert await stream_in_use(client, ledger.id) is None
            await _again(node, 0)
            in_use = await stream_in_use(client, ledger.id)
            assert in_use is not None
            assert (in_use.number, in_use.size) == (2, len(copies.whole))
            retired = (await client.jetstream().stream_info(Generation(ledger.id).name)).config
            assert retired.subjects == [retired_subject(ledger.id, 1)]

    with _serving(ledger, tmp_path) as url:
        asyncio.run(run(url))
