"""A real nats-server for one test, with a node and two agents, ended by its own pid."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nkeys
import pytest
from building import Actors
from nats.aio.client import Client
from served import Served, users

from deedbook.ledger.bus import connection
from deedbook.ledger.bus.subjects import INBOX_OF_NODES, inbox_prefix
from deedbook.ledger.service.server import EmbeddedServer
from deedbook.ledger.service.server_config import BusUsers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from building import Ledger

LEDGER = "0123456789abcdef0123456789abcdef"


def _new_seed() -> str:
    return nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()


def _public(seed: str) -> str:
    return nkeys.from_seed(bytearray(seed, "ascii")).public_key.decode()


@dataclass
class Bus:
    """A server, and the secret seeds of the keys of all its users."""

    server: EmbeddedServer
    seeds: dict[str, str] = field(default_factory=lambda: {n: _new_seed() for n in ("node", "alice", "bob")})
    ledger: str = LEDGER

    @property
    def users(self) -> BusUsers:
        """The users of the server, with their public keys."""
        public = {name: _public(seed) for name, seed in self.seeds.items()}
        return BusUsers(nodes=(public.pop("node"),), agents=public)

    def add(self, name: str) -> None:
        """Make a key for one more agent."""
        self.seeds[name] = _new_seed()

    @staticmethod
    async def settle(client: Client) -> None:
        """Wait until the server has read everything that a client sent.

        nats-py sends the PING of ``flush`` before the data that it has buffered (measured). So the first flush only
        sends the buffer; the server answers the second after it has read the buffer.
        """
        await client.flush()
        await client.flush()

    @asynccontextmanager
    async def connect(self, name: str = "node", **options: Any) -> AsyncIterator[Client]:
        """Connect as a user; ``errors`` collects the errors of the server."""
        errors: list[Exception] = options.pop("errors", [])

        async def collect(error: Exception) -> None:
            errors.append(error)

        client = Client()
        try:
            await client.connect(
                self.server.url,
                inbox_prefix=INBOX_OF_NODES if name == "node" else inbox_prefix(name),
                error_cb=collect,
                reconnect_time_wait=0.02,
                **{"max_reconnect_attempts": -1, "nkeys_seed_str": self.seeds[name]} | options,
            )
            yield client
        finally:
            await client.close()  # also after a refusal, because a refused client keeps its socket open


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    """Run a server with its users."""
    bus = Bus(EmbeddedServer(tmp_path / "nats", LEDGER))
    bus.server.start(bus.users)
    yield bus
    bus.server.stop()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Run a server for all tests of a module: their ledgers have the same id, and their agents the same bus keys."""
    server = EmbeddedServer(tmp_path_factory.mktemp("nats"), Actors().id)
    server.start(users())
    yield server
    server.stop()


@pytest.fixture
def served(ledger: Ledger, shared_server: EmbeddedServer) -> Iterator[Served]:
    """Serve the ledger of this test."""
    with Served(ledger, shared_server) as service:
        yield service


@pytest.fixture
def never_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every time-out longer than a test may take."""
    monkeypatch.setattr(connection, "attempt_timeout_s", 1000)
    monkeypatch.setattr(connection, "request_time_max_s", 1000)
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 1000)


@pytest.fixture
def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time-outs, so that calls that must fail do so quickly."""
    monkeypatch.setattr(connection, "attempt_timeout_s", 0.1)
    monkeypatch.setattr(connection, "request_time_max_s", 0.3)
    monkeypatch.setattr(connection, "reconnect_wait_max_s", 0.3)
    monkeypatch.setattr(connection, "connect_timeout_s", 0.5)
