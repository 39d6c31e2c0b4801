"""The stream holds the log: in order, without gap or duplicate, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered_log import L, NumberedLog, message

from ledger import limits
from ledger.bus.publisher import OutboundMessage, StreamPublisher, is_same, next_group
from ledger.bus.stream import Incarnation, next_incarnation, open_stream
from ledger.errors import Corrupted, Unavailable

if TYPE_CHECKING:
    from conftest import Bus
    from nats.aio.client import Client

FAULTS = int(os.environ.get("BATON_FAULTS", "1"))
FIRST = Incarnation(L)


async def check_stream(client: Client, incarnation: Incarnation, size: int) -> None:
    """Read the stream as any NATS client would: it holds exactly the events below ``size``."""
    subscription = await client.jetstream().subscribe(
        f"baton.{L}.event.>", stream=incarnation.name, ordered_consumer=True
    )
    for index in range(incarnation.first_seq - 1, size):
        stored = await subscription.next_msg(timeout=5)
        assert stored.metadata.sequence.stream == index + 1
        expected = message(index)
        assert (stored.subject, stored.data) == (expected.subject, expected.payload)
        assert expected.headers.items() <= (stored.headers or {}).items()
    with pytest.raises(TimeoutError):
        await subscription.next_msg(timeout=0.02)
    await subscription.unsubscribe()


async def publish_all(publisher: StreamPublisher) -> int:
    """Publish until the log holds no more, and return how many events went out."""
    total = 0
    while count := await publisher.publish_next():
        total += count
    return total


async def opened(client: Client, log: NumberedLog) -> StreamPublisher:
    """Return a publisher that was started."""
    publisher = StreamPublisher(client, await open_stream(client, FIRST), log.read)
    await publisher.start()
    return publisher


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


def test_two_publishers_of_one_log_store_every_event_once(bus: Bus) -> None:
    async def duel() -> None:
        log = NumberedLog(2000)
        async with bus.connect() as one, bus.connect() as two:
            both = [await opened(one, log), await opened(two, log)]
            sent = await asyncio.gather(*map(publish_all, both))
            assert sum(sent) == 2000
            await check_stream(one, FIRST, 2000)

    asyncio.run(duel())


def test_an_answer_that_was_lost_is_found_in_the_stream(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose() -> None:
        log = NumberedLog(300)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            send, lost = StreamPublisher._send, 0  # noqa: SLF001

            async def send_and_lose(self: StreamPublisher, group: list[OutboundMessage]) -> object:
                nonlocal lost
                answer = await send(self, group)
                if lost < 2:
                    lost += 1
                    raise Unavailable("BUS_UNAVAILABLE", "the answer was lost")
                return answer

            monkeypatch.setattr(StreamPublisher, "_send", send_and_lose)
            await publish_all(publisher)
            assert (lost, publisher.published) == (2, 300)
            await check_stream(node, FIRST, 300)

    asyncio.run(lose())


@pytest.mark.parametrize("size", [0, 5, 9])
def test_a_foreign_message_ends_publishing(bus: Bus, size: int) -> None:
    async def inject() -> None:
        log = NumberedLog(size)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            await publish_all(publisher)
            await node.jetstream().publish(message(size).subject, b"foreign", headers=message(size).headers)
            log.size = 15
            for _ in range(2):  # It stays so.
                with pytest.raises(
                    Unavailable, match=f"message {size + 1} is not the event of index {size}"
                ) as refused:
                    await publisher.publish_next()
                assert refused.value.code == "BUS_DEGRADED"
            with pytest.raises(Unavailable, match="is not the event"):
                await StreamPublisher(node, FIRST, log.read).start()
            # The way out: the next incarnation, from the log.
            following = await next_incarnation(node, await open_stream(node, FIRST))
            rebuilt = StreamPublisher(node, following, log.read)
            assert await rebuilt.start() == 0
            assert await publish_all(rebuilt) == 15
            await check_stream(node, following, 15)

    asyncio.run(inject())


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


def test_an_incarnation_may_begin_later(bus: Bus) -> None:
    async def publish() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(100))
            await publish_all(publisher)
            later = await next_incarnation(node, publisher.incarnation, first_index=60)
            rest = StreamPublisher(node, later, NumberedLog(100).read)
            assert await rest.start() == 60
            assert await publish_all(rest) == 40
            await check_stream(node, later, 100)

    asyncio.run(publish())


def test_killed_publishers_leave_no_gap_and_no_duplicate(bus: Bus) -> None:
    program, size_max, size = Path(__file__).with_name("publishing_program.py"), 30_000 * FAULTS, 0
    chance = random.Random(os.environ.get("BATON_SEED"))  # noqa: S311

    def command(grown_to: int, until: int) -> list[str]:
        return [sys.executable, str(program), bus.server.url, bus.seeds["node"], str(grown_to), str(until)]

    for _ in range(8 * FAULTS):
        with subprocess.Popen(command(size, size_max), stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
            assert child.stdout
            lines = [child.stdout.readline()]
            time.sleep(chance.uniform(0, 0.06))
            child.kill()
            lines += child.stdout.readlines()
        # What was committed before the kill stays committed; a line cut in the middle was not.
        size = max([size, *(int(line) for line in lines if line.endswith("\n"))])

    async def finish() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(size))
            await publish_all(publisher)
            await check_stream(node, FIRST, size)

    assert size > 8
    asyncio.run(finish())


def test_a_killed_server_costs_nothing_that_was_published(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.bus.publisher.acknowledge_wait_max_s", 0.2)

    async def kill_server_now_and_then(is_done: asyncio.Event) -> int:
        kills = 0
        while not is_done.is_set() and kills < 4 * FAULTS:
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311
            if bus.server.pid:
                os.kill(bus.server.pid, signal.SIGKILL)
            while bus.server.is_running:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(bus.server.start, bus.users)
            kills += 1
        return kills

    async def publish() -> None:
        log, is_done = NumberedLog(1), asyncio.Event()
        async with bus.connect() as node:
            publisher = await opened(node, log)
            killing = asyncio.create_task(kill_server_now_and_then(is_done))
            while not killing.done():
                log.grow(random.choice([1, 5, 200]), 10**6)  # noqa: S311
                try:
                    await publish_all(publisher)
                except Unavailable as error:
                    assert error.code == "BUS_UNAVAILABLE"
            is_done.set()
            assert await killing >= 1
            await publish_all(publisher)
            assert publisher.published == log.size
            await check_stream(node, FIRST, log.size)

    asyncio.run(publish())


def test_a_bus_that_stays_away_is_told_in_bounded_time(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.bus.publisher.retry_wait_first_s", 0.001)

    async def publish() -> None:
        log = NumberedLog(5)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            await publish_all(publisher)
            await asyncio.to_thread(bus.server.stop)
            while node.is_connected:
                await asyncio.sleep(0.005)
            log.size = 6
            with pytest.raises(Unavailable) as refused:
                await publisher.publish_next()
            assert refused.value.code == "BUS_UNAVAILABLE"
            await asyncio.to_thread(bus.server.start, bus.users)
            while not node.is_connected:
                await asyncio.sleep(0.005)
            assert await publish_all(publisher) == 1
            await check_stream(node, FIRST, 6)

    asyncio.run(publish())


@given(st.lists(st.tuples(st.integers(1, 256), st.integers(0, 40_000)), min_size=1, max_size=20))
def test_a_group_is_whole_units_within_the_limits_or_one_unit(units: list[tuple[int, int]]) -> None:
    messages = [
        OutboundMessage(0, "s", b"x" * size, {"Baton-Index": "0"}, b"", count - 1 - place)
        for count, size in units
        for place in range(count)
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
            with pytest.raises(Corrupted, match="does not hold index 0"):
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
                replace(message(8), headers=message(8).headers | {"Baton-More": "x"}),
            ):
                assert not is_same(stored, other)

    asyncio.run(compare())
