"""Ledgers behind a server: bus keys that are the same in every run, and a service on a test's own log.

``Served`` answers from the open log of the fixture ``ledger``, in a thread with its own event loop. So a test can look
at the log while it sends requests over the bus. Whole nodes are in ``serving``.
"""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec
import nkeys
import pytest
from blake3 import blake3
from building import AGENTS, Ledger, key_named
from nats.aio.client import Client as NatsClient

from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.subjects import INBOX_OF_NODES, inbox_prefix
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.format.identity import write_private
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, public_bus_key
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.service.server_config import BusUsers
from deedbook.ledger.service.service import LogWatcher, Service
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from deedbook.ledger.client.client import When
    from deedbook.ledger.service.server import EmbeddedServer


def bus_seed(name: str) -> str:
    """Return the same bus key for the same name, in every run."""
    seed: bytes = nkeys.encode_seed(blake3(f"bus {name}".encode()).digest(), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def public_key(name: str) -> str:
    """Return the public part of the bus key of a name."""
    return public_bus_key(bus_seed(name))


def users(*names: str) -> BusUsers:
    """Return the users of a server: the node and these agents (default: those of every test ledger)."""
    return BusUsers(nodes=(public_key(NODE),), agents={name: public_key(name) for name in names or AGENTS})


def write_bus_key(home: Home, name: str) -> None:
    """Write the bus key of a name to the file where clients and nodes look for it."""
    if not home.nkey_file(name).exists():
        write_private(home.nkey_file(name), bus_seed(name).encode())


async def connect(url: str, name: str, **options: Any) -> NatsClient:
    """Connect to a server under a name, without our clients."""

    async def ignore(_: Exception) -> None:
        """Ignore an error of the server: it is not the subject of these tests."""

    client = NodeClient() if name == NODE else NatsClient()
    prefix = INBOX_OF_NODES if name == NODE else inbox_prefix(name)
    await client.connect(
        url, nkeys_seed_str=bus_seed(name), inbox_prefix=prefix, **{"error_cb": ignore, "connect_timeout": 2} | options
    )
    return client


def failure_of(action: Callable[[], object]) -> DeedbookError:
    """Return the error that an action raises."""
    with pytest.raises(DeedbookError) as failed:
        action()
    return failed.value


def settings_of(ledger: Ledger, url: str, agent: str = "alice") -> Settings:
    """Write the keys of an agent, and return its settings for a server."""
    ledger.write_keys()
    if agent in ledger.keys:
        write_bus_key(ledger.home, agent)
    return Settings(home=ledger.home.path, server=url, agent=agent)


async def until(is_true: Callable[[], bool], wait_s: float = 30) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(wait_s):
        while not is_true():  # noqa: ASYNC110 - no event announces the condition
            await asyncio.sleep(0.005)


class Served:
    """A service that answers from the open log of ``ledger``, on a running server."""

    def __init__(self, ledger: Ledger, server: EmbeddedServer) -> None:
        self.ledger = ledger
        self.url = server.url
        self.local = ledger.client()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._clients: list[RemoteClient] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.committer = Committer(Gate(self.ledger.log))
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        try:
            self.run(self._stop())
        finally:  # otherwise the thread would keep pytest running if the service fails to stop
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.committer.close()
        if "reader" in self.__dict__:
            self.reader.close()

    @cached_property
    def reader(self) -> Reader:
        """The views, created at their first use."""
        return Reader(self.local, self.ledger.settings())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the service's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop_polling(self) -> None:
        """Stop polling the log: from now on the service notices only its own commits."""
        self._loop.call_soon_threadsafe(self._looking.cancel)

    def client(self, name: str = "alice") -> RemoteClient:
        """Return a client that is closed with the service."""
        write_bus_key(self.ledger.home, name)
        client = RemoteClient(Settings(home=self.ledger.home.path, server=self.url, agent=name))
        self._clients.append(client)
        return client

    def ask(self, subject: str, payload: bytes, headers: dict[str, str] | None = None, timeout: float = 10) -> Any:
        """Send bytes as alice, without our clients, and return the answer."""

        async def request() -> bytes:
            answer = await self.alice.request(subject, payload, timeout=timeout, headers=headers)
            return answer.data

        return msgspec.json.decode(self.run(request()))

    def _answer(self, query: str, arguments: dict[str, Any], as_of: When | None = None) -> dict[str, Any]:
        return self.reader.answer(query, arguments, as_of)

    async def _start(self) -> None:
        self.watcher = LogWatcher(self.ledger.log)
        self._looking = asyncio.create_task(self.watcher.run())
        self.service = Service(self.local, self.committer, self.watcher, self._answer)
        self.nats = await connect(self.url, NODE)
        self.alice = await connect(self.url, "alice")
        await self.service.start(self.nats, AGENTS)

    async def _stop(self) -> None:
        await self.service.stop()
        self._looking.cancel()
        for client in (self.nats, self.alice):
            await client.close()


def register_on_bus(ledger: Ledger, name: str, nkey: str | None = None) -> None:
    """Register one more agent, with a key for the bus."""
    key = ledger.keys.setdefault(name, key_named(name))
    proof = key.prove_possession(ledger.id, name)
    data = AgentRegistered(name=name, key=key.public.hex(), proof=proof, roles=["agent"], nkey=nkey or public_key(name))
    ledger.emit(ROOT, f"agent/{name}", data)
