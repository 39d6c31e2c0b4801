"""A node reads many messages at once from the nearest replica: in order, within limits, and equal to the leader's."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from served import connect, public_key

from deedbook.consumers.interfaces.node import replica
from deedbook.consumers.interfaces.node.replica import DamagedError, Replica
from deedbook.ledger.bus import history
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.history import entry_at, read_messages, read_near
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, log_stream_config, open_stream
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from building import Ledger
    from nats.js.api import RawStreamMsg

WAIT_S = 5.0


@pytest.fixture
def entries(ledger: Ledger) -> list[bytes]:
    """Single events and signed batches."""
    for number in range(6):
        findings = [Draft(stream=f"session/s{number}", data=FindingLogged(finding=f"{index}")) for index in range(9)]
        ledger.submit(ledger.sign("alice", Draft(stream=f"session/s{number}", data=SessionStarted())))
        ledger.submit(ledger.sign("alice", *findings))
    with ledger.log.snapshot() as snapshot:
        return snapshot.entries(0, limit=1000, size_max_bytes=1 << 24)


@pytest.fixture
def server(tmp_path: Path, ledger: Ledger) -> Iterator[EmbeddedServer]:
    """A server for one test, because each test fills the stream."""
    server = EmbeddedServer(tmp_path / "nats", ledger.id)
    server.start(BusUsers(nodes=(public_key(NODE),)))
    yield server
    server.stop()


@asynccontextmanager
async def published(server: EmbeddedServer, ledger: Ledger) -> AsyncIterator[tuple[Any, Generation]]:
    """The ledger's stream, and a node's connection."""
    client = await connect(server.url, NODE)
    try:
        generation = await open_stream(client, Generation(ledger.id))
        publisher = StreamPublisher(client, generation, Outbox(ledger.log, ledger.id).read)
        await publisher.start()
        while await publisher.publish_next():
            pass
        yield client, generation
    finally:
        await client.close()


@asynccontextmanager
async def following(client: Any, ledger: Ledger, folder: Path) -> AsyncIterator[Replica]:
    """Another node's log."""
    (folder / "other" / "log").mkdir(parents=True)
    with Log(folder / "other", map_size=1 << 24, create=True) as log:
        yield Replica(lambda: client, log, ledger.id, "node-2", replicas=1, record=folder / "generation.json")


def test_all_is_read_in_order_in_pieces_that_are_no_larger_than_wanted(
    ledger: Ledger, server: EmbeddedServer, entries: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "near_size_max_bytes", 20_000)

    async def run() -> None:
        async with published(server, ledger) as (client, generation):
            read = list[bytes | None]()
            while len(read) < len(entries):
                near = await read_near(client, generation, len(read) + 1, len(entries), WAIT_S)
                assert 0 < len(near) < len(entries) / 2
                assert sum(len(message.data or b"") for message in near) < 20_000
                read += [entry_at(seq, message) for seq, message in enumerate(near, len(read) + 1)]
            assert read == entries
            assert len(await read_near(client, generation, 3, 7, WAIT_S)) == 5
            assert await read_near(client, generation, len(entries) + 1, len(entries) + 9, WAIT_S) == []

    asyncio.run(run())


def test_nothing_is_taken_from_a_replica_whose_last_message_is_not_the_leaders(
    ledger: Ledger, server: EmbeddedServer, entries: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_others(*arguments: Any) -> dict[int, RawStreamMsg | None]:
        return {
            seq: message and replace(message, data=b"!") for seq, message in (await read_messages(*arguments)).items()
        }

    async def run() -> None:
        async with published(server, ledger) as (client, generation):
            assert len(await read_near(client, generation, 1, len(entries), WAIT_S)) == len(entries)
            monkeypatch.setattr(history, "read_messages", read_others)
            assert await read_near(client, generation, 1, len(entries), WAIT_S) == []

    asyncio.run(run())


def test_where_no_replica_answers_the_leader_is_asked(
    ledger: Ledger, server: EmbeddedServer, entries: list[bytes], tmp_path: Path
) -> None:
    async def run() -> None:
        async with published(server, ledger) as (client, generation):
            await client.jetstream().update_stream(log_stream_config(generation).evolve(allow_direct=False))
            assert await read_near(client, generation, 1, len(entries), WAIT_S) == []
            async with following(client, ledger, tmp_path) as follower:
                await follower.follow()
                assert follower.own().size == len(entries)

    asyncio.run(run())


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_damaged_at_one_replica_is_read_from_the_leader_and_damage_there_is_damage(
    ledger: Ledger,
    server: EmbeddedServer,
    entries: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    everywhere: bool,
) -> None:
    def damaged(message: RawStreamMsg | None) -> RawStreamMsg | None:
        return message and replace(message, data=(message.data or b"")[:-1] + b"!")

    async def near(*arguments: Any) -> list[Any]:
        read = await read_near(*arguments)
        return [*read[:20], damaged(read[20]), *read[21:]]

    async def of_leader(*arguments: Any) -> dict[int, RawStreamMsg | None]:
        read = await read_messages(*arguments)
        return {seq: damaged(message) if everywhere and seq == 21 else message for seq, message in read.items()}

    monkeypatch.setattr(replica, "read_near", near)
    monkeypatch.setattr(replica, "read_messages", of_leader)

    async def run() -> None:
        async with published(server, ledger) as (client, _), following(client, ledger, tmp_path) as follower:
            if not everywhere:
                await follower.follow()
                assert follower.own().size == len(entries)
                return
            with pytest.raises(DamagedError, match="message 21 "):
                await follower.follow()
            assert 0 < follower.own().size <= 20  # the follower has only messages before the damaged one

    asyncio.run(run())


LINES = st.lists(
    st.one_of(
        st.from_regex(rb"\A[A-Za-z-]{1,9}: ?[ -~]{0,12}\Z"),
        st.from_regex(rb"\A[ -~\t\xff\x00]{0,9}:[ -~\t\xff\x0b\x85]{0,9}\Z"),
        st.binary(max_size=9).filter(lambda line: b"\r\n" not in line),
    ),
    max_size=6,
)


@given(LINES, st.sampled_from([b"", b" 503", b" 404 Not Found", b"x"]))
def test_a_node_reads_headers_as_its_client_library_does(lines: list[bytes], status: bytes) -> None:
    headers = b"NATS/1.0" + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"

    async def run() -> None:
        try:
            expected = await Client()._process_headers(headers)
        except (ValueError, LookupError):
            expected = None
        assert await NodeClient()._process_headers(headers) == expected

    asyncio.run(run())
