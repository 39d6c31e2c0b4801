"""A whole node: after kills and damage, all acknowledged entries are in the log and on the stream."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec
import pytest
from faults import settle, times
from served import connect, until
from serving import (
    ServeProcess,
    as_carol,
    begin,
    carol,
    check_published,
    check_stream,
    find,
    published,
    remote,
    served,
)

from deedbook.consumers.interfaces.node import node as node_module
from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.reasoning.workers import CompressorWorker
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.bus import connection
from deedbook.ledger.bus.publisher import Outbox
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deedbook.ledger.client.remote import RemoteClient
    from deedbook.ledger.home.config import Settings


# Kills


def test_killed_nodes_lose_nothing_they_acknowledged(settings: Settings) -> None:
    chance, rounds = random.Random(os.environ.get("DEEDBOOK_SEED")), times(1, 1.2)
    acknowledged: dict[str, int] = {}
    errors: list[BaseException] = []
    node = ServeProcess(settings)
    port, is_done = node.port, threading.Event()
    as_carol(settings, node.url, begin)

    def write() -> None:
        number = 0
        with remote(settings, f"nats://127.0.0.1:{port}") as client:
            author = carol(client, settings)
            try:
                while not is_done.is_set():
                    text = str(number)
                    try:
                        (acknowledged[text],) = find(author, text)
                        number += 1
                    except Unavailable as error:
                        if error.code != "BUS_UNAVAILABLE":
                            raise
            except BaseException as error:
                errors.append(error)
                raise

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(rounds):
            count = len(acknowledged)
            while len(acknowledged) < count + 5 and writing.is_alive():
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))
            node.kill()
            node = ServeProcess(settings, port)
    finally:
        is_done.set()
        writing.join(60)
    assert node.stop() == 0
    assert errors == []
    with LocalClient(settings) as client:
        events = [Outbox(client.log, client.ledger).read(index - 1, 1)[0] for index in acknowledged.values()]
    texts = [msgspec.json.decode(event.payload)["data"]["finding"] for event in events]
    settle("kill -9 of the node", rounds, events=list(acknowledged), published=texts)
    assert len(acknowledged) >= 5 * rounds
    assert check_published(settings).number == 1


def test_killed_server_is_started_again_and_nobody_loses_anything(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine takes longer to start the server again than a client waits.
    monkeypatch.setattr(connection, "request_time_max_s", 100)
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 100)
    effects: list[str] = []
    kills = times(1, 2)

    def subscribe(client: RemoteClient, start: int, until: int) -> None:
        subscriptions = Subscriptions(tmp_path / "subscriber.db")
        reactor = Reactor(client, subscriptions, "one", wait_s=5)
        reactor.on("finding.logged")(lambda event, _: effects.append(event.data.finding))
        reactor.start_at(start)
        reactor.run(threading.Event(), until=until)
        subscriptions.close()

    async def run() -> Generation:
        async with Node(settings) as node:
            nats = await connect(node.url, NODE, max_reconnect_attempts=-1, reconnect_time_wait=1)
            with remote(settings, node.url) as client, remote(settings, node.url) as subscriber:
                author = carol(client, settings)
                await asyncio.to_thread(begin, client, author)
                start = node.client.head().size
                following = asyncio.create_task(asyncio.to_thread(subscribe, subscriber, start, start + 10 * kills))
                for number in range(10 * kills):
                    if number % 10 == 5:
                        os.kill(node._server.pid or 0, 9)
                    await asyncio.to_thread(find, author, str(number))
                await following
            await published(node)
            generation = await check_stream(nats, settings, node.client.log)
            await nats.close()
            return generation

    assert asyncio.run(run()).number == 1
    texts = [str(number) for number in range(10 * kills)]
    settle("kill -9 of the server under a node", kills, events=texts, published=texts, effects=effects)


def test_slow_and_absent_subscribers_hold_up_nobody_and_miss_nothing(settings: Settings, tmp_path: Path) -> None:
    texts = [str(number) for number in range(times(20, 40))]
    effects: dict[str, list[str]] = {"quick": [], "slow": [], "absent": []}

    def subscribe(url: str, name: str, start: int) -> None:
        subscriptions = Subscriptions(tmp_path / f"{name}.db")
        with remote(settings, url) as client:
            reactor = Reactor(client, subscriptions, name, wait_s=5)

            @reactor.on("finding.logged")
            def act(event: Any, _: Any) -> None:
                time.sleep(0.02 if name == "slow" else 0)
                effects[name].append(event.data.finding)

            reactor.start_at(start)
            reactor.run(threading.Event(), until=start + len(texts))
        subscriptions.close()

    async def run() -> None:
        async with Node(settings) as node:
            with remote(settings, node.url) as client:
                author = carol(client, settings)
                await asyncio.to_thread(begin, client, author)
                start = node.client.head().size
                there = [asyncio.to_thread(subscribe, node.url, name, start) for name in ("quick", "slow")]
                following = asyncio.gather(*there)
                await asyncio.to_thread(find, author, *texts)
                await following
                await asyncio.to_thread(subscribe, node.url, "absent", start)

    asyncio.run(run())
    for name, done in effects.items():
        fault = {"slow": "a slow subscriber", "absent": "an absent subscriber"}.get(name, "a subscriber beside those")
        settle(fault, 1, events=texts, published=texts, effects=done)


def test_connection_that_was_closed_for_good_is_made_again(settings: Settings) -> None:
    async def run() -> None:
        async with Node(settings) as node:
            await node._nats.close()
            async with asyncio.timeout(30):
                while node._nats.is_closed:  # noqa: ASYNC110 - a client waits for less long than a busy machine may need
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(as_carol, settings, node.url, begin)
            await published(node)

    asyncio.run(run())
    assert check_published(settings).number == 1


# Damage


def test_stream_that_was_deleted_is_built_again_from_the_log(settings: Settings) -> None:
    served(settings, begin)
    shutil.rmtree(settings.home / "bus" / "jetstream")
    served(settings, lambda _, author: find(author, "after"))
    assert check_published(settings).number == 2


def test_bus_folder_that_was_deleted_is_built_again_from_the_log(settings: Settings) -> None:
    served(settings, begin)
    shutil.rmtree(settings.home / "bus")
    served(settings, lambda _, author: find(author, "after"))
    assert check_published(settings).number == 1


def damage(settings: Settings, how: Callable[[bytearray], None]) -> None:
    """Change the file that holds the newest stream's messages."""
    block = max(settings.home.glob("bus/jetstream/**/msgs/*.blk"), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(block.read_bytes())
    how(content)
    block.write_bytes(content)


def cut(content: bytearray) -> None:
    """Cut off the second half of the file."""
    del content[len(content) // 2 :]


def flip(content: bytearray) -> None:
    """Alter one byte of a body in the middle."""
    content[content.index(b"find-3") + 5] ^= 1


def test_stream_that_was_cut_while_the_node_was_down_ends_as_the_log(settings: Settings) -> None:
    served(settings, lambda client, author: (begin(client, author), find(author, "a", "b", "c")))
    damage(settings, cut)
    served(settings, lambda _, author: find(author, "after"))
    check_published(settings)


def test_flipped_byte_is_found_by_the_scrub_and_the_next_generation_is_sound(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"find-{number}" for number in range(20)]
    served(settings, lambda client, author: (begin(client, author), find(author, *texts)))
    damage(settings, flip)
    # The start compares only the end of the stream; only the scrub reads as far back as the damage.
    monkeypatch.setattr("deedbook.ledger.limits.batch_events_max", 4)

    async def run() -> None:
        async with Node(settings) as node:
            await until(lambda: node._publishing._generation.number == 2)
            await published(node)

    asyncio.run(run())
    monkeypatch.undo()
    assert check_published(settings).number == 2


def test_record_behind_the_streams_is_passed_over(settings: Settings) -> None:
    served(settings, begin)
    record = settings.home / "bus" / "generation.json"
    first = record.read_bytes()
    for number in (2, 3):
        # A stream with another creation time is not ours: the node retires it, and builds the next one.
        recorded = msgspec.json.decode(record.read_bytes(), type=Generation)
        record.write_bytes(msgspec.json.encode(dataclasses.replace(recorded, created="another time")))
        assert check_published(settings).number == number
    record.write_bytes(first)  # As after a copy of the folder, or a crash before the record was written.
    served(settings, lambda _, author: find(author, "after"))
    assert check_published(settings).number == 3


def test_record_that_cannot_be_read_is_said_to_be(settings: Settings) -> None:
    served(settings, begin)
    record = settings.home / "bus" / "generation.json"
    for content in (b"", b"garbage", None):
        record.unlink()
        os.mkfifo(record) if content is None else record.write_bytes(content)
        with pytest.raises(Unavailable) as refused:
            served(settings, begin)
        assert refused.value.code == "STORE_UNAVAILABLE"
        assert "Delete only this file" in refused.value.message
    record.unlink()
    served(settings, lambda client, _: client.head())


def test_bus_folder_of_another_ledger_is_left_alone(settings: Settings) -> None:
    served(settings, begin)
    record = settings.home / "bus" / "generation.json"
    record.write_bytes(msgspec.json.encode(Generation("ab" * 16)))
    with pytest.raises(Unavailable) as refused:
        served(settings, begin)
    assert "Move this folder away" in refused.value.message


# Failures in the background


def test_background_work_that_fails_is_started_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "watch_interval_s", 0.01)
    calls: dict[str, int] = {"thread": 0, "users": 0}
    real = node_module.current_users

    def run_worker(*_: object, **__: object) -> None:
        calls["thread"] += 1
        raise RuntimeError("the worker broke")

    def users(*arguments: Any) -> Any:
        calls["users"] += 1
        if 2 < calls["users"] < 5:  # the first two calls belong to the start
            raise DeedbookError("UNEXPECTED", "no users")
        return real(*arguments)

    monkeypatch.setattr(CompressorWorker, "run", run_worker)
    monkeypatch.setattr(node_module, "current_users", users)

    async def run() -> None:
        async with Node(settings) as node:
            await until(lambda: calls["thread"] >= 3 and calls["users"] >= 5)
            size = node.client.head().size
            await asyncio.to_thread(as_carol, settings, node.url, begin)
            assert node.client.head().size > size

    asyncio.run(run())


def test_full_store_is_told_to_its_callers_and_does_not_end_the_node(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Unavailable("STORE_FULL", "no space left")

    def act(client: RemoteClient, author: Author) -> None:
        begin(client, author)
        with monkeypatch.context() as patch:
            patch.setattr("deedbook.ledger.log.log.Appender.append", full)
            with pytest.raises(Unavailable) as refused:
                find(author, "lost")
        assert refused.value.code == "STORE_FULL"
        find(author, "kept")

    served(settings, act)
    check_published(settings)


def test_node_whose_process_can_use_the_store_no_more_ends_and_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic() -> None:
        raise lmdb.PanicError  # LMDB answers every call so after it could not write its meta page

    async def run() -> None:
        async with Node(settings) as node:
            monkeypatch.setattr(node.client.log.tables, "_check_present", panic)
            await node.run(asyncio.Event())

    with pytest.raises(Unavailable) as ended:
        asyncio.run(run())
    assert ended.value.code == "STORE_STOPPED"
