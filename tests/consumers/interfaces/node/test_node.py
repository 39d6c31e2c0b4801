"""A whole node: agents work over the bus, and everything that it started ends with it, even after a failed start."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog
from building import Ledger, key_named
from served import public_key, register_on_bus
from serving import (
    CAROL,
    SESSION,
    ServeProcess,
    as_carol,
    begin,
    check_published,
    find,
    remote,
    served,
    size_of,
)

from deedbook.consumers.interfaces.node import node as node_module
from deedbook.consumers.interfaces.node.node import Node, _end
from deedbook.consumers.interfaces.node.users import current_users, is_bus_key
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.authority import AgentRemoved, KeyCompromised, KeyRevoked, KeyRotated
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.identity import Key
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.client.remote import RemoteClient
    from deedbook.ledger.home.config import Settings


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = {thread.name for thread in set(threading.enumerate()) - before if not thread.name.startswith("asyncio")}
    assert left == set()


# Working


def test_agents_write_read_and_ask_for_views(settings: Settings) -> None:
    def act(client: RemoteClient, author: Author) -> None:
        begin(client, author)
        (index,) = find(author, "it works")
        assert client.head().size == index + 1
        session = client.view("sessions.show", {"id": "work"})
        assert "it works" in msgspec.json.encode(session).decode()

    served(settings, act)
    assert check_published(settings).number == 1


def test_everything_accepted_is_published_when_the_node_has_stopped(settings: Settings) -> None:
    def act(client: RemoteClient, author: Author) -> None:
        begin(client, author)
        drafts = [Draft(stream=SESSION, data=FindingLogged(finding=str(number))) for number in range(256)]
        author.emit(*drafts)
        author.emit(*drafts)

    async def run() -> tuple[int, int]:
        async with Node(settings) as node:
            await asyncio.to_thread(as_carol, settings, node.url, act)
        return node.published, size_of(settings)

    stream, log = asyncio.run(run())
    assert stream == log
    assert not (settings.home / "bus" / "url").exists()


def test_another_history_that_many_tasks_meet_is_logged_once_and_ends_the_node(settings: Settings) -> None:
    async def run() -> None:
        node = Node(settings)
        node._fatal = asyncio.get_running_loop().create_future()
        for task in ("publish", "notify", "publish"):
            node._failed(task, Corrupted("HISTORY_CHANGED", "another past"))
        await node.run(asyncio.Event())

    with structlog.testing.capture_logs() as logged, pytest.raises(Corrupted, match="another past"):
        asyncio.run(run())
    assert [line["task"] for line in logged] == ["publish"]


def test_block_that_raises_still_ends_everything(settings: Settings) -> None:
    async def run() -> Node:
        node = Node(settings)
        with contextlib.suppress(ZeroDivisionError):
            async with node:
                assert node._server.pid is not None
                raise ZeroDivisionError
        return node

    node = asyncio.run(run())
    assert not node._server.is_running
    assert size_of(settings) > 0  # The log can be opened again, so no process has it open.
    served(settings, begin)


@pytest.mark.parametrize("part", ["Reader", "current_users", "EmbeddedServer", "Publishing", "Committer", "Service"])
def test_part_that_cannot_start_leaves_nothing_behind(
    settings: Settings, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Unavailable("SERVER_MISSING", "not here")

    async def run() -> None:
        async with Node(settings):
            pytest.fail("it started")

    with monkeypatch.context() as patch:
        patch.setattr(node_module, part, fail)
        with pytest.raises(Unavailable) as refused:
            asyncio.run(run())
    assert refused.value.code == "SERVER_MISSING"
    served(settings, begin)


def test_second_node_is_refused_and_takes_nothing_from_the_first(settings: Settings) -> None:
    first = ServeProcess(settings)
    try:

        async def run() -> None:
            async with Node(settings):
                pytest.fail("it started")

        with pytest.raises(Unavailable) as refused:
            asyncio.run(run())
        assert refused.value.code == "STORE_IN_USE"
        assert (settings.home / "bus" / "url").read_text().strip() == first.url
        as_carol(settings, first.url, begin)
    finally:
        assert first.stop() == 0


def test_agent_registered_while_it_serves_can_connect(settings: Settings) -> None:
    def register() -> None:
        with open_ledger(settings) as ledger:
            register_on_bus(ledger, "dave")
            ledger.write_keys()

    first = ServeProcess(settings)
    try:
        register()
        for _ in range(100):
            with contextlib.suppress(Refused), remote(settings, first.url, "dave") as client:
                assert client.head().size == size_of(settings)
                break
            time.sleep(0.05)
        else:
            pytest.fail("dave was never let in")
    finally:
        first.stop()


@contextlib.contextmanager
def open_ledger(settings: Settings) -> Iterator[Ledger]:
    """Open the log beside the node that serves it, with every key."""
    with Ledger(settings.home) as ledger:
        ledger.clock.now_ms = time.time_ns() // 1_000_000
        yield ledger


@pytest.mark.parametrize("nkey", ["U" + "A" * 55, public_key(NODE)])
def test_bus_key_that_cannot_be_used_keeps_only_its_agent_out(settings: Settings, nkey: str) -> None:
    with open_ledger(settings) as ledger:
        register_on_bus(ledger, "dave", nkey)
        with ledger.client() as client:
            agents = current_users(client, ledger.home).agents
    assert "dave" not in agents
    assert agents["carol"] == public_key(CAROL)
    served(settings, begin)


def test_bus_users_are_the_agents_with_a_valid_identity_key(settings: Settings) -> None:
    def users() -> dict[str, str]:
        with ledger.client() as client:
            return current_users(client, ledger.home).agents

    def rotated(nkey: str) -> KeyRotated:
        fresh = Key.generate()
        proof = fresh.prove_possession(ledger.id, "dave")
        return KeyRotated(agent="dave", key=fresh.public.hex(), proof=proof, nkey=nkey)

    with open_ledger(settings) as ledger:
        register_on_bus(ledger, "dave")
        key = ledger.keys["dave"].public.hex()
        assert users()["dave"] == public_key("dave")
        ledger.emit(ROOT, "agent/dave", KeyCompromised(key=key, since=0))
        assert "dave" not in users()
        with pytest.raises(Refused) as refused:  # it is carol's key, and a server would admit only one of them
            ledger.emit(ROOT, "agent/dave", rotated(public_key(CAROL)))
        assert refused.value.code == "KEY_EXISTS"
        with pytest.raises(Refused) as refused:  # dave's own old key stays used up, too
            ledger.emit(ROOT, "agent/dave", rotated(public_key("dave")))
        assert refused.value.code == "KEY_EXISTS"
        ledger.emit(ROOT, "agent/dave", rotated(public_key("another")))
        assert users()["dave"] == public_key("another")
        ledger.emit(ROOT, "agent/dave", AgentRemoved(agent="dave"))
        assert "dave" not in users()
        ledger.emit(ROOT, "agent/carol", KeyRevoked(key=key_named(CAROL).public.hex()))
        assert CAROL not in users()


def test_public_keys_are_told_from_what_looks_like_one() -> None:
    key = public_key(CAROL)
    assert is_bus_key(key)
    others = ["", "U", key[:-1], key[:-1] + ("A" if key[-1] != "A" else "B"), key.lower(), "A" + key[1:], key + "A" * 8]
    assert not any(map(is_bus_key, others))


def test_background_task_that_drops_a_cancellation_is_cancelled_again() -> None:
    dropped = 0

    async def run_for_ever() -> None:
        nonlocal dropped
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if dropped == 2:
                    raise
                dropped += 1

    async def start_and_end() -> None:
        task = asyncio.create_task(run_for_ever())
        await asyncio.sleep(0)
        await _end([task])
        assert task.cancelled()

    asyncio.run(start_and_end())
    assert dropped == 2


def test_server_without_a_copy_of_the_stream_is_restarted_once_for_each_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(node_module.time, "monotonic", lambda: now[0])
    copies, told = node_module._Copies(), []
    for at, stream, has_copy in [
        (0, "s_1", True),
        (60, "s_1", True),
        (61, "s_2", False),  # the copy of a new stream is made soon
        (62, "s_2", True),
        (80, "s_3", False),
        (89, "s_3", False),
        (91, "s_3", False),
        (200, "s_3", False),  # reported already: a restart did not help
        (201, "s_3", True),
        (202, "s_3", False),
        (213, "s_3", False),
    ]:
        now[0] = 100.0 + at
        told += [at] if copies.is_lost(stream, has_copy=has_copy) else []
    assert told == [91, 213]
