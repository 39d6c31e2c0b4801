"""The stream holds the log, in order and nothing else; any other message ends publishing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered_log import FIRST, NumberedLog, check_stream, message, opened, publish_all

from deedbook.ledger import limits
from deedbook.ledger.bus.publisher import (
    WRONG_STREAM,
    OutboundMessage,
    StreamPublisher,
    is_same,
    next_group,
    send_group,
)
from deedbook.ledger.bus.stream import next_generation, open_stream
from deedbook.ledger.errors import Corrupted, Unavailable

if TYPE_CHECKING:
    from conftest import Bus


def test_the_log_is_published_in_order_alone_and_in_batches(bus: Bus) -> None:
    async def publish() -> None:
        log = NumberedLog()
        async with bus.connect() as node:
            publisher = await opened(node, log)
            assert await publisher.publish_next() == 0
            for events in (1, 1, 3, 700, 1):
                before = log.size
                log.grow(events, 2000)
                assert await publish_all(publisher) == log.size - before
                assert publisher.published == log.size
            await check_stream(node, FIRST, log.size)
            at = -1
            while at < log.size - 1:
                at = await publisher.scrub(at)
            assert await publisher.scrub(at) == at

    asyncio.run(publish())


def test_a_publisher_started_again_goes_on_where_the_stream_ends(bus: Bus) -> None:
    async def publish() -> None:
        async with bus.connect() as node:
            assert await publish_all(await opened(node, NumberedLog(500))) == 500
            again = StreamPublisher(node, FIRST, NumberedLog(510).read)
            assert await again.start(acknowledged_seq=500) == 500
            assert await publish_all(again) == 10
            await check_stream(node, FIRST, 510)

    asyncio.run(publish())


@pytest.mark.parametrize("size", [0, 5, 9])
def test_a_foreign_message_ends_publishing(bus: Bus, size: int) -> None:
    async def inject() -> None:
        log = NumberedLog(size)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            await publish_all(publisher)
            await node.jetstream().publish(message(size).subject, b"foreign", headers=message(size).headers)
            log.size = 15
            for _ in range(2):  # the second attempt fails in the same way
                with pytest.raises(
                    Unavailable, match=f"message {size + 1} is not the event of index {size}"
                ) as refused:
                    await publisher.publish_next()
                assert refused.value.code == "BUS_DEGRADED"
            with pytest.raises(Unavailable, match="is not the event"):
                await StreamPublisher(node, FIRST, log.read).start()
            # To repair this, publish the log to the next generation of the stream.
            following = await next_generation(node, await open_stream(node, FIRST))
            rebuilt = StreamPublisher(node, following, log.read)
            assert await rebuilt.start() == 0
            assert await publish_all(rebuilt) == 15
            await check_stream(node, following, 15)

    asyncio.run(inject())


@pytest.mark.parametrize("size", [1, 5])
def test_a_publish_that_comes_after_its_stream_was_retired_does_not_land_in_the_next_one(bus: Bus, size: int) -> None:
    async def come_late() -> None:
        async with bus.connect() as node:
            retired = await open_stream(node, FIRST)
            following = await next_generation(node, retired)
            late = [message(index) for index in range(4, 4 + size)]
            # Give the messages the indexes that the next stream, which is empty, expects first.
            late = [replace(one, index=index) for index, one in enumerate(late)]
            answer = await send_group(node, retired.name, late)
            assert answer.error is not None
            assert answer.error.err_code == WRONG_STREAM
            await check_stream(node, following, 0)
            assert (await send_group(node, following.name, late)).seq == size

    asyncio.run(come_late())


def test_a_stream_ahead_of_the_log_is_degraded(bus: Bus) -> None:
    async def restart_with_less() -> None:
        async with bus.connect() as node:
            await publish_all(await opened(node, NumberedLog(20)))
            with pytest.raises(Unavailable, match="ahead of the log") as refused:
                await opened(node, NumberedLog(19))
            assert refused.value.code == "BUS_DEGRADED"

    asyncio.run(restart_with_less())


def test_a_stream_that_lost_its_end_is_degraded(bus: Bus) -> None:
    async def restart_with_more_acknowledged() -> None:
        async with bus.connect() as node:
            await publish_all(await opened(node, NumberedLog(20)))
            publisher = StreamPublisher(node, FIRST, NumberedLog(30).read)
            with pytest.raises(Unavailable, match="ends at sequence 20, but 25 was acknowledged"):
                await publisher.start(acknowledged_seq=25)

    asyncio.run(restart_with_more_acknowledged())


def test_an_generation_may_begin_later(bus: Bus) -> None:
    async def publish() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(100))
            await publish_all(publisher)
            later = await next_generation(node, publisher.generation, first_index=60)
            rest = StreamPublisher(node, later, NumberedLog(100).read)
            assert await rest.start() == 60
            assert await publish_all(rest) == 40
            await check_stream(node, later, 100)

    asyncio.run(publish())


@given(st.lists(st.tuples(st.integers(1, 256), st.integers(0, 40_000)), min_size=1, max_size=20))
def test_a_group_is_whole_units_within_the_limits_or_one_unit(units: list[tuple[int, int]]) -> None:
    messages = [
        OutboundMessage(0, "s", b"x" * size, {"Deedbook-Index": "0"}, b"", count - 1 - position)
        for count, size in units
        for position in range(count)
    ][:400]
    while messages and messages[-1].unit_left:
        messages.pop()
    while messages:
        group = next_group(messages)
        units_in_group = [m for m in group if m.unit_left == 0]
        assert group[-1].unit_left == 0
        assert len(group) <= limits.batch_events_max
        assert len(units_in_group) == 1 or sum(m.size for m in group) <= limits.batch_size_max_bytes
        messages = messages[len(group) :]
    assert next_group([]) == []


def test_a_torn_batch_is_never_published(bus: Bus) -> None:
    async def publish() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(2))  # Index 0 begins a batch of four.
            with pytest.raises(Corrupted, match="is not whole"):
                await publisher.publish_next()

    asyncio.run(publish())


def test_a_log_that_skips_an_index_is_never_published(bus: Bus) -> None:
    async def publish() -> None:
        async with bus.connect() as node:
            alone = replace(message(5), unit_left=0)
            publisher = StreamPublisher(node, await open_stream(node, FIRST), lambda _after, _limit: [alone])
            with pytest.raises(Corrupted, match="entries from index 0 on are missing"):
                await publisher.publish_next()

    asyncio.run(publish())


def test_stored_control_headers_do_not_make_an_event_foreign(bus: Bus) -> None:
    async def compare() -> None:
        async with bus.connect() as node:
            await publish_all(await opened(node, NumberedLog(9)))
            stored = await node.jetstream().get_msg(FIRST.name, 9)
            assert is_same(stored, message(8))
            for other in (
                replace(message(8), payload=b"other"),
                replace(message(8), subject="other"),
                replace(message(8), headers={}),
                replace(message(8), headers=message(8).headers | {"Deedbook-More": "x"}),
            ):
                assert not is_same(stored, other)

    asyncio.run(compare())
