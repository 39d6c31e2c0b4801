"""The remote client passes the suite of all clients, and fails at once, by the right code, when it cannot."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from client_suite import ClientSuite, found
from served import Served, connect, users, write_bus_key

from ledger import limits
from ledger.author import Draft
from ledger.bus import connection
from ledger.bus.connection import Connection
from ledger.bus.remote import RemoteClient
from ledger.bus.server import EmbeddedServer
from ledger.bus.subjects import read_pattern, read_subject, submit_pattern, submit_subject
from ledger.client import follow
from ledger.config import Settings
from ledger.connect import open_client
from ledger.errors import BatonError, Corrupted, Refused, Unavailable
from ledger.events.body import Event
from ledger.events.session import SessionStarted
from ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from building import Ledger


@pytest.fixture
def client(served: Served) -> RemoteClient:
    """The client under test."""
    return served.client()


class TestRemoteClient(ClientSuite):
    """See ``client_suite``."""


@pytest.fixture
def never_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every time-out be longer than a test may take: what answers at all answers at once."""
    monkeypatch.setattr(connection, "attempt_timeout_s", 1000)
    monkeypatch.setattr(connection, "request_time_max_s", 1000)


@pytest.fixture
def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what cannot be done fail before a test becomes long."""
    monkeypatch.setattr(connection, "attempt_timeout_s", 0.1)
    monkeypatch.setattr(connection, "request_time_max_s", 0.3)
    monkeypatch.setattr(connection, "connect_timeout_s", 0.5)


def failure_of(action: Callable[[], object]) -> BatonError:
    """Return the error of an action."""
    with pytest.raises(BatonError) as failed:
        action()
    return failed.value


def settings_of(ledger: Ledger, url: str, agent: str = "alice") -> Settings:
    """Return the settings of an agent that has its keys."""
    ledger.write_keys()
    if agent in ledger.keys:
        write_bus_key(ledger.home, agent)
    return Settings(home=ledger.home.path, server=url, agent=agent)


# What the server does not allow


def test_denied_publish_is_told_at_once(client: RemoteClient, ledger: Ledger, never_give_up: None) -> None:
    submission = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))
    client._submit_subject = submit_subject(ledger.id, "bob")
    error = failure_of(lambda: client.submit(submission))
    assert (error.code, type(error)) == ("BUS_DENIED", Refused)
    client._submit_subject = submit_subject(ledger.id, "alice")
    assert client.submit(submission)[0].index == ledger.head()[0] - 1


def test_agent_the_server_does_not_know_is_denied_at_once(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "connect_timeout_s", 1000)
    ledger.register("mallory")
    error = failure_of(lambda: open_client(settings_of(ledger, served.url, "mallory")))
    assert (error.code, error.details["agent"]) == ("BUS_DENIED", "mallory")
    assert "baton-bus" not in {thread.name for thread in threading.enumerate()}


def test_agent_without_keys_is_told_which_is_missing(served: Served, ledger: Ledger) -> None:
    ledger.write_keys()
    settings = Settings(home=ledger.home.path, server=served.url, agent="nobody")
    assert failure_of(lambda: open_client(settings)).code == "KEY_FILE_MISSING"
    assert failure_of(lambda: open_client(Settings(home=ledger.home.path, server=served.url))).code == "USAGE"


# What is not there


@pytest.mark.parametrize("url", ["nats://127.0.0.1:1", "127.0.0.1:1", "nats://no.such.host.invalid:4222"])
def test_no_server_is_unavailable(ledger: Ledger, url: str, give_up_soon: None) -> None:
    error = failure_of(lambda: RemoteClient(settings_of(ledger, url)))
    assert (error.code, error.details["server"]) == ("BUS_UNAVAILABLE", url)
    assert "baton-bus" not in {thread.name for thread in threading.enumerate()}


def test_server_without_a_node_is_unavailable(
    ledger: Ledger, shared_server: EmbeddedServer, give_up_soon: None
) -> None:
    with RemoteClient(settings_of(ledger, shared_server.url)) as client:
        assert failure_of(client.head).code == "BUS_UNAVAILABLE"


def test_request_is_repeated_until_somebody_answers(
    ledger: Ledger, shared_server: EmbeddedServer, never_give_up: None
) -> None:
    with RemoteClient(settings_of(ledger, shared_server.url)) as client:
        heads: list[Any] = []
        asking = threading.Thread(target=lambda: heads.append(client.head()))
        asking.start()
        with Served(ledger, shared_server):
            asking.join(30)
        assert heads[0].size == ledger.head()[0]


def test_closed_client_says_so(served: Served, ledger: Ledger, never_give_up: None) -> None:
    client = served.client()
    client.close()
    client.close()
    assert failure_of(client.head).code == "BUS_UNAVAILABLE"


def test_closing_ends_requests_that_wait(served: Served, never_give_up: None) -> None:
    client, errors = served.client(), list[BatonError]()
    asking = threading.Thread(target=lambda: errors.append(failure_of(lambda: client.entries(99, wait_s=30))))
    asking.start()
    while served.service._reads_waiting < 1:
        asking.join(0.01)
    client.close()
    asking.join(30)
    assert [error.code for error in errors] == ["BUS_UNAVAILABLE"]


def test_request_beyond_the_limit_is_never_sent(client: RemoteClient, ledger: Ledger) -> None:
    error = failure_of(lambda: client._connection.request(client._submit_subject, b"\x94" * 2_000_000))
    assert error.code == "TOO_LARGE"
    assert client.head().size == ledger.head()[0]


# A server that dies, and one that lies


@dataclass
class OwnServer:
    """A server of one test, to be killed."""

    server: EmbeddedServer

    def again(self) -> None:
        """Kill it and start it again."""
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
    start, seen, stop = ledger.head()[0], list[int](), threading.Event()
    with Served(ledger, own_server.server) as served, served.client() as client:

        def subscribe() -> None:
            for item in follow(client, start, kinds=["finding.logged"], stop=stop, wait_s=20):
                if isinstance(item, Event):
                    seen.append(item.index)
                if len(seen) == 2:
                    return

        subscribing = threading.Thread(target=subscribe)
        subscribing.start()
        for number in range(2):
            while served.service._reads_waiting < 1 or len(seen) < number:
                subscribing.join(0.01)
            own_server.again()
            ledger.submit(found(ledger, str(number)))
            while len(seen) < number + 1:
                subscribing.join(0.01)
        subscribing.join(30)
    assert seen == [start, start + 1]


def test_agent_that_is_struck_off_while_connected_is_denied(
    own_server: OwnServer, ledger: Ledger, never_give_up: None
) -> None:
    with Served(ledger, own_server.server) as served, served.client("bob") as client:
        assert client.head().size == ledger.head()[0]
        own_server.server.reload(users("alice"))
        while client._connection._nats.is_connected:
            threading.Event().wait(0.01)
        assert failure_of(client.head).code == "BUS_DENIED"


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
            lambda: client.put_blob(b"x"),
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
        error = failure_of(lambda: client.put_blob(b"x" * limits.blob_chunk_bytes * 2))
        assert (error.code, type(error)) == ("BUS_UNAVAILABLE", Unavailable)


class lying_server:  # noqa: N801 - used as a context manager
    """Somebody with the node's key who answers whatever a test says."""

    def __init__(self, ledger: Ledger, server: EmbeddedServer, answer: Callable[[str], bytes]) -> None:
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
            await message.respond(self._answer(message.subject))

        self._nats = await connect(self._url, NODE)
        for pattern in self._patterns:
            await self._nats.subscribe(pattern, cb=respond)
        await self._nats.flush()
        await self._nats.flush()


def test_requests_of_many_threads_share_a_connection(client: RemoteClient, ledger: Ledger) -> None:
    assert isinstance(client._connection, Connection)
    submissions = [
        ledger.sign("alice", Draft(stream=f"session/t{number}", data=SessionStarted())) for number in range(32)
    ]
    indexes: list[int] = []
    threads = [
        threading.Thread(target=lambda one=one: indexes.append(client.submit(one)[0].index)) for one in submissions
    ]
    size = ledger.head()[0]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(indexes) == list(range(size, size + 32))


def test_reading_is_not_allowed_on_subjects_of_another_ledger(client: RemoteClient, never_give_up: None) -> None:
    error = failure_of(lambda: client._connection.request(read_subject("0" * 32, "head"), b"{}"))
    assert error.code == "BUS_DENIED"
