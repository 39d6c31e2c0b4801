"""A client of several nodes: it goes on to the next node if one is absent, and refuses one with another history."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from building import Actors, Ledger
from served import Served, failure_of, settings_of, users

from deedbook import Ledger as Program
from deedbook.ledger.bus import connection
from deedbook.ledger.bus.connection import AsyncConnection
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.home.config import check_server
from deedbook.ledger.home.home import bus_seed
from deedbook.ledger.service.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SESSION = "session/s1"


def nobody() -> str:
    """Return an address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"nats://127.0.0.1:{free.getsockname()[1]}"


class Node:
    """A server, and a ledger that answers on it until ``go`` is called."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.server = EmbeddedServer(folder, Actors().id)
        self.server.start(users())
        self.url = self.server.url
        self._answering = ExitStack()
        self._answering.enter_context(Served(ledger, self.server))

    def go(self) -> None:
        """Stop the service and the server."""
        self._answering.close()
        self.server.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """A function that starts a node of a ledger; the node ends with the test."""
    with ExitStack() as stack:

        def start(ledger: Ledger, name: str) -> Node:
            node = Node(ledger, tmp_path / name)
            stack.callback(node.go)
            return node

        yield start


def find(ledger: Ledger, *texts: str) -> None:
    """Append findings."""
    for text in texts:
        ledger.emit("alice", SESSION, FindingLogged(finding=text))


def test_client_that_knows_one_server_where_no_ledger_answers_uses_a_learned_address(
    ledger: Ledger, serve: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 1.0)
    silent, second = EmbeddedServer(tmp_path / "silent", Actors().id), serve(ledger, "second")
    silent.start(users())
    try:
        with RemoteClient(settings_of(ledger, silent.url)) as client:
            with pytest.raises(Unavailable, match="no ledger answers"):
                client.head()
            monkeypatch.setattr(KnownAddresses, "others", [second.url])
            assert client.head().size == ledger.head()[0]
            assert client.server == second.url
    finally:
        silent.stop()


def test_client_goes_on_with_the_next_node_when_one_is_away_or_goes(ledger: Ledger, serve: Callable[..., Node]) -> None:
    first, second = serve(ledger, "first"), serve(ledger, "second")
    ledger.emit("alice", SESSION, SessionStarted())
    servers = f"{nobody()},{first.url},{second.url}"
    with RemoteClient(settings_of(ledger, servers)) as client:
        size = client.head().size
        first.go()
        find(ledger, "more")
        assert client.head().size == size + 1
        second.go()
        first.server.start(users())  # a running server on which no ledger answers
        assert failure_of(client.head).code == "BUS_UNAVAILABLE"


def test_server_where_no_ledger_answers_is_left_for_the_next(
    ledger: Ledger, serve: Callable[..., Node], tmp_path: Path
) -> None:
    empty = EmbeddedServer(tmp_path / "empty", Actors().id)
    empty.start(users())
    try:
        with RemoteClient(settings_of(ledger, f"{empty.url},{serve(ledger, 'full').url}")) as client:
            assert client.head().size == ledger.head()[0]
    finally:
        empty.stop()


def test_subscriber_keeps_its_position_across_nodes_and_refuses_a_fork(
    ledger: Ledger, serve: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = serve(ledger, "first"), serve(ledger, "second")
    ledger.emit("alice", SESSION, SessionStarted())
    find(ledger, "a", "b")
    findings: list[str] = []

    def run(*servers: Node, until: int) -> None:
        settings = settings_of(ledger, ",".join(server.url for server in servers))
        with Program(settings=settings) as program:
            program.on("finding.logged")(lambda event, _: findings.append(event.data.finding))
            program.run("mail", after=-1, until=until)

    run(first, second, until=ledger.head()[0])
    first.go()
    find(ledger, "c")
    run(first, second, until=ledger.head()[0])
    assert findings == ["a", "b", "c"]
    with Ledger(tmp_path / "fork") as fork:  # the same keys, another history: as after writes to a copy
        fork.emit("alice", SESSION, SessionStarted())
        find(fork, "forged", "forged too", "and more", "and even more")
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
            forged = serve(fork, "forged")
        second.go()
        error: Any = failure_of(lambda: run(first, forged, until=fork.head()[0]))
        assert error.code == "HISTORY_CHANGED"
        assert findings == ["a", "b", "c"]


@pytest.mark.parametrize("servers", ["", "nats://a,", "nats://a,,nats://b", "nats://a, nats://b", "nats://a,b"])
def test_list_of_servers_is_checked_one_by_one(servers: str) -> None:
    check_server("nats://a:4222,tls://b")
    with pytest.raises(Refused) as refused:
        check_server(servers)
    assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize("greeting", [b"INFO " + b"[" * 100_000 + b"\r\n", b"INFO {" + b"a" * 5_000_000, b"INFO {\r\n"])
def test_server_that_greets_in_another_form_is_no_server(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:  # the test is over
                    return
                with client:
                    try:
                        client.sendall(greeting)
                    except OSError:
                        continue

        thread = threading.Thread(target=greet)
        thread.start()
        connection = AsyncConnection(f"nats://127.0.0.1:{listening.getsockname()[1]}", "alice", bus_seed(bytes(32)))
        with pytest.raises(Unavailable) as refused:
            asyncio.run(connection.open())
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert refused.value.code == "BUS_UNAVAILABLE"
