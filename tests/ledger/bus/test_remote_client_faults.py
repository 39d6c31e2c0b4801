"""A server dies during the call of a remote client, or sends wrong answers."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from client_suite import signed_finding
from served import Served, connect, failure_of, settings_of, users

from deedbook.ledger import limits
from deedbook.ledger.bus import connection
from deedbook.ledger.bus.subjects import read_pattern, submit_pattern
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.event_stream import follow
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.authority import NODE
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.trust.store import TrustStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from building import Ledger


@dataclass
class OwnServer:
    """A server for one test, which kills it."""

    server: EmbeddedServer

    def again(self) -> None:
        """Kill the server and start it again."""
        child = self.server._child
        assert child is not None
        child.kill()
        child.wait()
        self.server.start(users())


@pytest.fixture
def own_server(tmp_path: Path, ledger: Ledger) -> Iterator[OwnServer]:
    """Run a server for this test alone."""
    server = EmbeddedServer(tmp_path / "nats", ledger.id)
    server.start(users())
    yield OwnServer(server)
    server.stop()


def test_waiting_read_goes_on_after_the_server_was_killed(
    own_server: OwnServer, ledger: Ledger, never_give_up: None
) -> None:
    ledger.emit("alice", "session/s1", SessionStarted())
    start, indexes, stop = ledger.head()[0], list[int](), threading.Event()
    with Served(ledger, own_server.server) as served, served.client() as client:

        def subscribe() -> None:
            for item in follow(client, start, kinds=["finding.logged"], stop=stop, wait_s=20):
                if isinstance(item, Event):
                    indexes.append(item.index)
                if len(indexes) == 2:
                    return

        subscribing = threading.Thread(target=subscribe)
        subscribing.start()
        for number in range(2):
            while served.service.reads_waiting < 1 or len(indexes) < number:
                subscribing.join(0.01)
            own_server.again()
            ledger.submit(signed_finding(ledger, str(number)))
            while len(indexes) < number + 1:
                subscribing.join(0.01)
        subscribing.join(30)
    assert indexes == [start, start + 1]


def test_connection_that_was_closed_for_good_is_made_again(served: Served, ledger: Ledger, never_give_up: None) -> None:
    client = served.client()
    for _ in range(2):
        client._connection._run(client._connection._inner._nats.close())
        assert client.head().size == ledger.head()[0]


def test_agent_that_is_struck_off_while_connected_is_denied(
    own_server: OwnServer, ledger: Ledger, never_give_up: None
) -> None:
    with Served(ledger, own_server.server) as served, served.client("bob") as client:
        assert client.head().size == ledger.head()[0]
        own_server.server.reload(users("alice"))
        while client._connection._inner._nats.is_connected:
            threading.Event().wait(0.01)
        assert failure_of(client.head).code == "BUS_DENIED"
        own_server.server.reload(users())
        assert client.head().size == ledger.head()[0]


def test_agent_that_is_refused_while_the_server_reads_its_users_is_let_in(
    own_server: OwnServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    discard, refused = connection.AsyncConnection._discard, list[str]()

    async def let_in_after_that(self: connection.AsyncConnection) -> None:
        refused.append(self._refusal)
        own_server.server.reload(users())
        await discard(self)

    with Served(ledger, own_server.server) as served:
        own_server.server.reload(users("alice"))
        monkeypatch.setattr(connection.AsyncConnection, "_discard", let_in_after_that)
        with served.client("bob") as client:
            assert client.head().size == ledger.head()[0]
    assert "Authorization Violation" in refused[0]


def test_refusal_is_not_forgotten_where_the_server_closed_before_it_was_read(
    own_server: OwnServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_error, heard = connection.AsyncConnection._on_error, set[connection.AsyncConnection]()

    async def lose_all_but_the_first(self: connection.AsyncConnection, error: Exception) -> None:
        await on_error(self, ConnectionResetError("Connection reset by peer") if self in heard else error)
        if not self._is_reset:
            heard.add(self)

    monkeypatch.setattr(connection.AsyncConnection, "_on_error", lose_all_but_the_first)
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 0.5)
    with Served(ledger, own_server.server) as served:
        own_server.server.reload(users("alice"))
        assert failure_of(lambda: served.client("bob")).code == "BUS_DENIED"


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage", b"[]", b"{}", b'{"error":7}', b'{"error":{"code":7}}', b'{"size":"x"}', b'{"accepted":[{}]}'],
)
def test_answer_that_is_none_is_a_typed_error(
    ledger: Ledger, shared_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(connection, "request_time_max_s", 0)
    ref = "blake3:" + "0" * 64
    with (
        lying_server(ledger, shared_server, lambda _: answer),
        RemoteClient(settings_of(ledger, shared_server.url)) as client,
    ):
        calls = [
            client.head,
            client.agents,
            client.checkpoint,
            lambda: client.entry(0),
            lambda: client.index_of("session/s1", ref),
            lambda: client.entries(0),
            lambda: client.prove(0),
            lambda: client.get_blob(ref),
            lambda: client.put_blob(b"x", ledger.intent("alice", b"x")),
            lambda: client.submit(ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))),
        ]
        for call in calls:
            assert failure_of(call).code in {"BUS_UNAVAILABLE", "UNEXPECTED"}


@pytest.mark.parametrize(
    "answer",
    [
        b'{"size":7,"content":"' + b"eHh4eHh4eA==" + b'"}',
        b'{"size":70000,"content":""}',
        b'{"size":1000000000000,"content":"eHg="}',
    ],
)
def test_blob_that_is_not_what_was_asked_for_is_refused(
    ledger: Ledger, shared_server: EmbeddedServer, answer: bytes
) -> None:
    with (
        lying_server(ledger, shared_server, lambda _: answer),
        RemoteClient(settings_of(ledger, shared_server.url)) as client,
    ):
        error = failure_of(lambda: client.get_blob("blake3:" + "0" * 64))
        assert (error.code, type(error)) == ("VERIFICATION_FAILED", Corrupted)


def test_ledger_that_keeps_forgetting_a_blob_is_not_sent_it_for_ever(
    ledger: Ledger, shared_server: EmbeddedServer
) -> None:
    with (
        lying_server(ledger, shared_server, lambda _: b'{"received":0}'),
        RemoteClient(settings_of(ledger, shared_server.url)) as client,
    ):
        content = b"x" * limits.blob_chunk_bytes * 2
        error = failure_of(lambda: client.put_blob(content, ledger.intent("alice", content)))
        assert (error.code, type(error)) == ("BUS_UNAVAILABLE", Unavailable)


class lying_server:  # noqa: N801 - used as a context manager
    """A program with the node's key: clients greet it as an honest node, and it answers as the test says."""

    def __init__(self, ledger: Ledger, server: EmbeddedServer, answer: Callable[[str], bytes]) -> None:
        with ledger.client() as client:
            consistency_proof = client.signed_consistency(0)
        trust_store = TrustStore.of_server(ledger.id)
        trust_store.checkpoint_keys = {ledger.checkpoint_key.verifier.vkey: True}
        trust_store.update(lambda _: consistency_proof, lambda _: None)
        self._greeting = msgspec.json.encode(msgspec.structs.replace(consistency_proof, path=[]))
        self._patterns = (submit_pattern(ledger.id), read_pattern(ledger.id))
        self._url, self._answer = server.url, answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._nats.close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        async def respond(message: Any) -> None:
            is_greeting = message.subject.endswith(".consistency")
            await message.respond(self._greeting if is_greeting else self._answer(message.subject))

        self._nats = await connect(self._url, NODE)
        for pattern in self._patterns:
            await self._nats.subscribe(pattern, cb=respond)
        await self._nats.flush()
        await self._nats.flush()
