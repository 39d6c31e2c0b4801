"""Blobs among nodes: if a node publishes wrong content, others wait only until a node with the blob publishes it."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from erasing import SECRET, files_with

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.service.nodes import BlobStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Bus
    from nats.aio.client import Client

CONTENT = bytes(range(256)) * (10 * limits.blob_chunk_bytes // 256)
REF = f"blake3:{blake3(CONTENT).hexdigest()}"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log that has the blob."""
    (tmp_path / "home" / "log").mkdir(parents=True)
    with Log(tmp_path / "home", map_size=1 << 24, create=True) as log:
        put_restored(log.blobs, REF, [CONTENT])
        yield log


async def write(node: Client, bus: Bus, number: int, chunk: bytes, headers: dict[str, str]) -> None:
    """Write wrong content as a chunk of the blob, as a broken node may."""
    await node.jetstream().publish(subjects.blob_subject(bus.ledger, REF, number), chunk, headers=headers)


async def content_of(stream: BlobStream) -> bytes:
    """Return the blob as a node reads it from the stream."""
    file = BytesIO()
    await stream.get(REF, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("chunk", "headers"),
    [
        (b"another first chunk", {"Deedbook-Chunks": "11"}),
        (CONTENT[: limits.blob_chunk_bytes], {"Deedbook-Chunks": "1"}),
        (CONTENT[: limits.blob_chunk_bytes], {"Deedbook-Chunks": "many"}),
        (CONTENT[: limits.blob_chunk_bytes], {"Deedbook-Chunks": "9" * 19}),
        (CONTENT[: limits.blob_chunk_bytes], {"Deedbook-Chunks": "-1"}),
        (CONTENT[: limits.blob_chunk_bytes], {"Deedbook-Chunks": ""}),
    ],
)
def test_a_wrong_first_chunk_is_no_blob_and_is_put_right_by_whoever_publishes_it(
    bus: Bus, log: Log, chunk: bytes, headers: dict[str, str]
) -> None:
    async def run() -> None:
        async with bus.connect() as node:
            leader, follower = (BlobStream(lambda: node, bus.ledger, 1) for _ in range(2))
            await leader._make()
            await write(node, bus, 3, b"another chunk", {"Deedbook-Chunks": "11"})
            await write(node, bus, 0, chunk, headers)
            with pytest.raises(Unavailable, match="is not available yet") as refused:
                await content_of(follower)
            assert refused.value.code == "BUS_UNAVAILABLE"
            await leader.put(REF, log.blobs)
            assert await content_of(follower) == CONTENT

    asyncio.run(run())


def test_a_blob_that_the_stream_has_is_not_sent_again_unless_it_was_lost(
    bus: Bus, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    put = BlobStream._put

    async def counted(self: BlobStream, ref: str, number: int, *what: Any) -> None:
        written.append(number)
        await put(self, ref, number, *what)

    async def run() -> None:
        async with bus.connect() as node:
            first, second = (BlobStream(lambda: node, bus.ledger, 1) for _ in range(2))
            with pytest.raises(Unavailable):
                await content_of(second)
            await first.put(REF, log.blobs)
            monkeypatch.setattr(BlobStream, "_put", counted)
            await first.put(REF, log.blobs)
            await second.put(REF, log.blobs)
            assert written == []
            assert await content_of(second) == CONTENT
        async with bus.connect() as node:
            await write(node, bus, 0, b"", {"Deedbook-Chunks": "0"})
            first.forget()
            await BlobStream(lambda: node, bus.ledger, 1).put(REF, log.blobs)
            assert len(written) == len(set(written)) > 1

    asyncio.run(run())


def test_an_erased_blob_is_in_no_file_of_the_server_and_other_nodes_do_not_wait_for_it(bus: Bus, log: Log) -> None:
    secret = SECRET.encode() * 10_000
    ref = f"blake3:{blake3(secret).hexdigest()}"
    put_restored(log.blobs, ref, [secret])

    async def run() -> None:
        async with bus.connect() as node:
            leader, follower = (BlobStream(lambda: node, bus.ledger, 1) for _ in range(2))
            for blob in (ref, REF):
                await leader.put(blob, log.blobs)
            assert files_with(bus.server.folder)
            assert not await follower.is_erased(ref)
            for _ in range(2):
                leader.forget()
                await leader.erase({ref})
                for blob in (ref, REF):
                    await leader.put(blob, log.blobs)
                assert files_with(bus.server.folder) == []
                assert (await follower.is_erased(ref), await follower.is_erased(REF)) == (True, False)
                assert await content_of(follower) == CONTENT

    asyncio.run(run())
