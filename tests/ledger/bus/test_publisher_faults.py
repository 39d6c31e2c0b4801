"""After kills, losses and repetitions the stream holds the log in order, without gap or duplicate."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults import FAULTS, settle, times
from numbered_log import FIRST, NumberedLog, check_stream, opened, publish_all, until

from deedbook.ledger.bus import publisher as publisher_module
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Bus
    from nats.aio.client import Client

    from deedbook.ledger.bus.publisher import OutboundMessage


def test_two_publishers_of_one_log_store_every_event_once(bus: Bus) -> None:
    async def duel() -> None:
        log = NumberedLog(2000)
        async with bus.connect() as first, bus.connect() as second:
            both = [await opened(first, log), await opened(second, log)]
            sent = await asyncio.gather(*map(publish_all, both))
            assert sum(sent) == 2000
            await check_stream(first, FIRST, 2000)

    asyncio.run(duel())


def test_an_answer_that_was_lost_is_found_in_the_stream(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose() -> None:
        log = NumberedLog(300)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            send, lost = publisher_module.send_group, 0

            async def send_and_lose(client: Client, stream: str, group: Sequence[OutboundMessage]) -> object:
                nonlocal lost
                answer = await send(client, stream, group)
                if lost < 2:
                    lost += 1
                    raise Unavailable("BUS_UNAVAILABLE", "the answer was lost")
                return answer

            monkeypatch.setattr(publisher_module, "send_group", send_and_lose)
            await publish_all(publisher)
            assert (lost, publisher.published) == (2, 300)
            await check_stream(node, FIRST, 300)

    asyncio.run(lose())


def test_killed_publishers_leave_no_gap_and_no_duplicate(bus: Bus) -> None:
    program, size_max, size = Path(__file__).with_name("publishing_program.py"), 30_000 * FAULTS, 0
    rounds = times(2, 8)
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))

    def command(grown_to: int, until: int) -> list[str]:
        return [sys.executable, str(program), bus.server.url, bus.seeds["node"], str(grown_to), str(until)]

    for _ in range(rounds):
        with subprocess.Popen(command(size, size_max), stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            lines = [child.stdout.readline()]
            time.sleep(chance.uniform(0, 0.06))
            child.kill()
            lines += child.stdout.readlines()
        # Each complete line is a commit. The kill may have cut the last line.
        size = max([size, *(int(line) for line in lines if line.endswith("\n"))])

    async def finish() -> None:
        async with bus.connect() as node:
            publisher = await opened(node, NumberedLog(size))
            await publish_all(publisher)
            await check_stream(node, FIRST, size)
            stored = (await node.jetstream().stream_info(FIRST.name)).state.messages
            settle("kill -9 of the publisher", rounds, events=range(size), published=range(stored))

    assert size > rounds
    asyncio.run(finish())


def test_a_killed_server_costs_nothing_that_was_published(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.ledger.bus.publisher.acknowledge_wait_max_s", 0.2)

    kills_max = times(1, 4)

    async def kill_server_now_and_then(is_done: asyncio.Event) -> int:
        kills = 0
        while not is_done.is_set() and kills < kills_max:
            await asyncio.sleep(random.uniform(0, 0.05))
            if bus.server.pid:
                os.kill(bus.server.pid, signal.SIGKILL)
            await until(lambda: not bus.server.is_running)
            await asyncio.to_thread(bus.server.start, bus.users)
            kills += 1
        return kills

    async def publish() -> None:
        log, is_done = NumberedLog(1), asyncio.Event()
        async with bus.connect() as node:
            publisher = await opened(node, log)
            killing = asyncio.create_task(kill_server_now_and_then(is_done))
            while not killing.done():
                log.grow(random.choice([1, 5, 200]), 10**6)
                try:
                    await publish_all(publisher)
                except Unavailable as error:
                    if error.code != "BUS_UNAVAILABLE":
                        raise
            is_done.set()
            assert await killing >= 1
            await publish_all(publisher)
            assert publisher.published == log.size
            await check_stream(node, FIRST, log.size)
            stored = (await node.jetstream().stream_info(FIRST.name)).state.messages
            settle("kill -9 of the server", await killing, events=range(log.size), published=range(stored))

    asyncio.run(publish())


def test_a_bus_that_stays_away_is_told_in_bounded_time(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.ledger.bus.publisher.retry_wait_first_s", 0.001)

    async def publish() -> None:
        log = NumberedLog(5)
        async with bus.connect() as node:
            publisher = await opened(node, log)
            await publish_all(publisher)
            await asyncio.to_thread(bus.server.stop)
            await until(lambda: not node.is_connected)
            log.size = 6
            with pytest.raises(Unavailable) as refused:
                await publisher.publish_next()
            assert refused.value.code == "BUS_UNAVAILABLE"
            await asyncio.to_thread(bus.server.start, bus.users)
            await until(lambda: node.is_connected)
            assert await publish_all(publisher) == 1
            await check_stream(node, FIRST, 6)

    asyncio.run(publish())
