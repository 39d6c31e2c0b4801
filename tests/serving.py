"""Whole nodes: a ledger in a folder, `deed serve` in this process or another, and the agent carol, who uses the bus."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from building import Ledger
from forked_deed import DeedProcess
from ports import port_option
from served import connect, register_on_bus, until, write_bus_key

from deedbook.consumers.interfaces.node.node import Node
from deedbook.ledger.bus.message import entry_of
from deedbook.ledger.bus.publisher import Outbox
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.lifecycle.authority import NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nats.aio.client import Client as NatsClient

    from deedbook.ledger.log.log import Log

CAROL: Final = "carol"
SESSION: Final = "session/work"
T = TypeVar("T")


def make_home(folder: Path) -> Settings:
    """Make a ledger in which carol may use the bus, with all keys; return the settings with which a node opens it."""
    with Ledger(folder) as ledger:
        register_on_bus(ledger, CAROL)
        ledger.write_keys()
        for name in (NODE, CAROL):
            write_bus_key(ledger.home, name)
        return ledger.settings()


def remote(settings: Settings, url: str, name: str = CAROL) -> RemoteClient:
    """Connect to a node as an agent."""
    write_bus_key(Home(settings.home), name)
    return RemoteClient(Settings(home=settings.home, server=url, agent=name))


class ServeProcess:
    """`deed serve` in a process of its own, which a test can kill."""

    def __init__(
        self, settings: Settings, port: int | None = None, *, web: bool = False, more: Sequence[str] = ()
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        options = ["--port", str(port)] if port else port_option(settings.home)
        options += [*(["--web", "0"] if web else []), *more]
        arguments = ("--home", settings.home, "serve", "--json", *options)
        self.child = DeedProcess(*arguments, stdout=subprocess.PIPE, env=environment)
        assert self.child.stdout is not None
        data = msgspec.json.decode(self.child.stdout.readline())["data"]
        self.url: str = data["url"]
        self.web: str = data.get("web", "")

    @property
    def port(self) -> int:
        """The port on which the node listens."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill the node as a power cut would; its nats-server goes on as an orphan."""
        self.child.kill()
        self.end()

    def stop(self) -> int:
        """Ask the node to end, and return its exit code."""
        self.child.terminate()
        return self.end()

    def end(self) -> int:
        """Wait until the node has ended, and return its exit code."""
        assert self.child.stdout is not None
        code = self.child.wait(60)
        self.child.stdout.close()
        return code


def carol(client: Any, settings: Settings) -> Author:
    """Return an author who publishes as carol through a client."""
    key = open_key(Home(settings.home).key_file(CAROL))
    return Author(client, CAROL, lambda _: key)


def served(settings: Settings, act: Callable[[RemoteClient, Author], T]) -> T:
    """Run a node, let carol act over the bus, and return her result."""

    async def run() -> T:
        async with Node(settings) as node:
            return await asyncio.to_thread(as_carol, settings, node.url, act)

    return asyncio.run(run())


def as_carol(settings: Settings, url: str, act: Callable[[RemoteClient, Author], T]) -> T:
    """Let carol act over the bus."""
    with remote(settings, url) as client:
        return act(client, carol(client, settings))


def begin(_: RemoteClient, author: Author) -> None:
    """Start the session."""
    author.emit(Draft(stream=SESSION, data=SessionStarted()))


def find(author: Author, *texts: str) -> list[int]:
    """Append findings, one submission each."""
    return [author.emit(Draft(stream=SESSION, data=FindingLogged(finding=text)))[0].index for text in texts]


async def check_stream(nats: NatsClient, settings: Settings, log: Log) -> Generation:
    """Read the stream in use as any NATS client would, and check that it equals the log, entry by entry."""
    record = (Home(settings.home).bus / "generation.json").read_bytes()
    generation = msgspec.json.decode(record, type=Generation)
    with log.snapshot() as snapshot:
        entries = snapshot.entries(0, limit=10**6, size_max_bytes=2**30)
    state = (await nats.jetstream().stream_info(generation.name)).state
    assert (state.first_seq, state.last_seq, state.messages) == (1, len(entries), len(entries))
    ours = {message.index: message for message in Outbox(log, generation.ledger).read(-1, 10**6)}
    for index, data in enumerate(entries):
        stored = await nats.jetstream().get_msg(generation.name, index + 1)
        found, entry = entry_of(stored.data or b"", stored.headers or {})
        assert (found, entry.encode()) == (index, data)
        assert index not in ours or stored.subject == ours[index].subject
    return generation


async def published(node: Node) -> None:
    """Wait until the stream has the whole log."""
    await until(lambda: node.published == node.client.head().size)


def check_published(settings: Settings) -> Generation:
    """Start a node and check its stream against the log."""

    async def run() -> Generation:
        async with Node(settings) as node:
            await published(node)
            nats = await connect(node.url, NODE)
            try:
                return await check_stream(nats, settings, node.client.log)
            finally:
                await nats.close()

    return asyncio.run(run())


def size_of(settings: Settings) -> int:
    """Return the size of the log."""
    with LocalClient(settings) as client:
        return client.head().size
