"""The remote client passes the tests for all clients; a request that cannot succeed fails at once with its code."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from client_suite import ClientSuite
from served import Served, bus_seed, failure_of, settings_of

from deedbook.ledger.bus import connection
from deedbook.ledger.bus.connection import AsyncConnection
from deedbook.ledger.bus.loop_thread import Connection
from deedbook.ledger.bus.message import KNOWN_SIZE_HEADER
from deedbook.ledger.bus.subjects import read_subject, submit_subject
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.identity import write_private
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import pending
from deedbook.ledger.service.server import EmbeddedServer

if TYPE_CHECKING:
    from building import Ledger


@pytest.fixture
def client(served: Served) -> RemoteClient:
    """The client under test."""
    return served.client()


class TestRemoteClient(ClientSuite):
    """Runs the tests of ``client_suite``."""


# Requests that the server does not allow


def test_denied_publish_is_told_at_once(client: RemoteClient, ledger: Ledger, never_give_up: None) -> None:
    submission = ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted()))
    client._submit_subject = submit_subject(ledger.id, "bob")
    error = failure_of(lambda: client.submit(submission))
    assert (error.code, type(error)) == ("BUS_DENIED", Refused)
    client._submit_subject = submit_subject(ledger.id, "alice")
    assert client.submit(submission)[0].index == ledger.head()[0] - 1


def test_server_without_tls_gets_nothing_from_an_agent_that_asks_for_tls(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 1000)
    error = failure_of(lambda: RemoteClient(settings_of(ledger, served.url.replace("nats://", "tls://"))))
    assert (error.code, "offers no TLS, so nothing was sent" in error.message) == ("BUS_DENIED", True)


def test_agent_the_server_does_not_know_is_denied_at_once(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "connect_timeout_s", 1000)
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 1000)
    ledger.register("mallory")
    error = failure_of(lambda: open_client(settings_of(ledger, served.url, "mallory")))
    assert (error.code, error.details["agent"]) == ("BUS_DENIED", "mallory")
    assert "deedbook-bus" not in {thread.name for thread in threading.enumerate()}


def test_agent_without_keys_is_told_which_is_missing(served: Served, ledger: Ledger) -> None:
    ledger.write_keys()
    settings = Settings(home=ledger.home.path, server=served.url, agent="nobody")
    assert failure_of(lambda: open_client(settings)).code == "KEY_FILE_MISSING"
    assert failure_of(lambda: open_client(Settings(home=ledger.home.path, server=served.url))).code == "USAGE"


@pytest.fixture
def crashed_rotation(served: Served, ledger: Ledger) -> Settings:
    """Return the settings after a rotation of alice's keys that crashed after the ledger had accepted it.

    The server knows the new key. The old key is still in its file, and the new one beside it.
    """
    ledger.write_keys()
    write_private(ledger.home.nkey_file("alice"), bus_seed("replaced").encode())
    write_private(pending(ledger.home.nkey_file("alice")), bus_seed("alice").encode())
    return Settings(home=ledger.home.path, server=served.url, agent="alice")


@pytest.mark.parametrize("has_spool", [False, True])
def test_client_connects_with_the_new_key_after_a_rotation_that_crashed(
    ledger: Ledger, crashed_rotation: Settings, has_spool: bool
) -> None:
    settings = msgspec.structs.replace(crashed_rotation, spool=has_spool)
    with RemoteClient(settings) as client:
        assert client.head().size == ledger.head()[0]


def test_client_that_is_open_goes_on_with_the_key_that_a_rotation_brings(
    ledger: Ledger, crashed_rotation: Settings
) -> None:
    new, old = pending(ledger.home.nkey_file("alice")), ledger.home.nkey_file("alice")
    seed, home = new.read_bytes(), ledger.home
    new.unlink()

    async def connect_later() -> None:
        url = str(crashed_rotation.server)
        connection = AsyncConnection(
            url, "alice", home.bus_seed("alice"), read_seeds=lambda: home.bus_seeds("alice")
        )  # the client has read the old key
        old.write_bytes(seed)
        await connection.open()
        await connection.close()

    asyncio.run(connect_later())


def test_agent_whose_keys_the_server_all_refuses_is_denied(ledger: Ledger, crashed_rotation: Settings) -> None:
    pending(ledger.home.nkey_file("alice")).write_bytes(bus_seed("never accepted").encode())
    assert failure_of(lambda: RemoteClient(crashed_rotation)).code == "BUS_DENIED"


# Missing things


@pytest.mark.parametrize("url", ["nats://127.0.0.1:1", "nats://no.such.host.invalid:4222"])
def test_no_server_is_unavailable_at_once(ledger: Ledger, url: str, never_give_up: None) -> None:
    error = failure_of(lambda: RemoteClient(settings_of(ledger, url)))
    assert (error.code, error.details["server"]) == ("BUS_UNAVAILABLE", url)
    assert "deedbook-bus" not in {thread.name for thread in threading.enumerate()}


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
    client, errors = served.client(), list[DeedbookError]()
    asking = threading.Thread(target=lambda: errors.append(failure_of(lambda: client.entries(99, wait_s=30))))
    asking.start()
    while served.service.reads_waiting < 1:
        asking.join(0.01)
    client.close()
    asking.join(30)
    assert [error.code for error in errors] == ["BUS_UNAVAILABLE"]


def test_nobody_waits_for_ever_who_asks_as_another_thread_closes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, errors, stop_loop = served.client(), list[DeedbookError](), Connection._stop_loop

    def stop_while_another_asks(connection: Connection) -> None:
        asking = threading.Thread(
            target=lambda: errors.append(failure_of(lambda: connection._run(asyncio.sleep(60)))), daemon=True
        )
        asking.start()
        asking.join(0.2)
        stop_loop(connection)
        asking.join(10)

    monkeypatch.setattr(Connection, "_stop_loop", stop_while_another_asks)
    client.close()
    assert [error.code for error in errors] == ["BUS_UNAVAILABLE"]


def test_request_beyond_the_limit_is_never_sent(client: RemoteClient, ledger: Ledger) -> None:
    error = failure_of(lambda: client._connection.request(client._submit_subject, b"\x94" * 2_000_000))
    assert error.code == "TOO_LARGE"
    assert client.head().size == ledger.head()[0]


def test_reads_say_up_to_where_the_client_knows_the_log_also_after_its_own_writes(
    client: RemoteClient, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated: list[int] = []
    inner = client._connection.request

    def request(subject: str, payload: bytes, headers: dict[str, str] | None = None, **others: float) -> Any:
        if subject != client._submit_subject:
            stated.append(int((headers or {}).get(KNOWN_SIZE_HEADER, "0")))
        return inner(subject, payload, headers, **others)

    monkeypatch.setattr(client._connection, "request", request)
    size = client.head().size
    client.submit(ledger.sign("alice", Draft(stream="session/s1", data=SessionStarted())))
    client.head()
    client.view("sessions.show", {"id": "s1"})
    assert stated[-2:] == [size + 1, size + 1]


def test_requests_of_many_threads_share_a_connection(client: RemoteClient, ledger: Ledger) -> None:
    assert isinstance(client._connection, Connection)
    submissions = [
        ledger.sign("alice", Draft(stream=f"session/t{number}", data=SessionStarted())) for number in range(32)
    ]
    indexes: list[int] = []
    threads = [
        threading.Thread(target=lambda submission=submission: indexes.append(client.submit(submission)[0].index))
        for submission in submissions
    ]
    size = ledger.head()[0]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(indexes) == list(range(size, size + 32))


def test_reading_is_not_allowed_on_subjects_of_another_ledger(client: RemoteClient, never_give_up: None) -> None:
    error = failure_of(lambda: client._connection.request(read_subject("0" * 32, "alice", "head"), b"{}"))
    assert error.code == "BUS_DENIED"
