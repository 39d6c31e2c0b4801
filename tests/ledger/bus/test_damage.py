"""The publisher detects damage in the stream's files by counting messages, or by comparing every message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from numbered_log import NumberedLog, message, opened, publish_all

from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bus

SIZE = 2000


def damage(bus: Bus, how: Callable[[Path], None]) -> None:
    """Publish, stop the server, damage the file that holds the messages, and start it again."""

    async def publish() -> None:
        async with bus.connect() as node:
            await publish_all(await opened(node, NumberedLog(SIZE)))

    asyncio.run(publish())
    bus.server.stop()
    [block] = bus.server.folder.glob("jetstream/**/msgs/*.blk")
    how(block)
    bus.server.start(bus.users)


def cut_in_half(block: Path) -> None:
    """Cut off the second half of the file."""
    with block.open("r+b") as file:
        file.truncate(block.stat().st_size // 2)


def flip_a_bit(block: Path) -> None:
    """Change a bit of one payload in the middle of the file."""
    content = bytearray(block.read_bytes())
    content[content.index(message(SIZE // 2).payload) + 1] ^= 1
    block.write_bytes(content)


def test_a_truncated_stream_is_degraded_at_the_start(bus: Bus) -> None:
    damage(bus, cut_in_half)

    async def start() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(SIZE + 100))
            await publish_all(publisher)

    with pytest.raises(Unavailable) as refused:
        asyncio.run(start())
    assert refused.value.code == "BUS_DEGRADED"


def test_a_flipped_bit_is_found_by_the_scrub(bus: Bus) -> None:
    damage(bus, flip_a_bit)

    async def scrub() -> None:
        async with bus.connect() as node:
            publisher, at = await opened(node, NumberedLog(SIZE)), -1
            while at < SIZE - 1:
                at = await publisher.scrub(at)

    with pytest.raises(Unavailable) as refused:
        asyncio.run(scrub())
    assert refused.value.code == "BUS_DEGRADED"
