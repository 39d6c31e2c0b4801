"""Cutting nodes off: from the other nodes alone, so that agents still reach them, or from the agents, too.

There are relays between the nodes and servers of one network. Data sent through a relay that is cut waits, and nobody
gets an error, as in a network that loses packets. ``partitioned_program`` does the same with network namespaces, if the
machine permits them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from deedbook.ledger.service.server import find_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from three_nodes import Nodes

HOST: Final = "127.0.0.1"
size_max_bytes: Final = 1 << 16


class Network(Protocol):
    """The operations that cut a node off."""

    def cut_off(self, name: str, *, agents_too: bool) -> contextlib.AbstractContextManager[None]:
        """Cut a node off from the other nodes, and from the agents or not."""


def cut_each(nodes: Nodes, network: Network, rounds: int) -> None:
    """Cut off the node that agents try first, ``rounds`` times; then, as many times, one of the others at random."""
    chance = random.Random(str(nodes.folder))
    for is_first in (True, False):
        with nodes.work():
            for number in range(rounds):
                name = nodes.names[0] if is_first else chance.choice(nodes.names[1:])
                with network.cut_off(name, agents_too=number % 2 == 0):
                    nodes.progress(10)
                    time.sleep(chance.uniform(0, 1))
                nodes.whole()
        nodes.settle(f"partition of {'the node that agents try first' if is_first else 'another node'}", rounds)


class Relay:
    """A loopback port that relays its connections to another port, or to none for a while."""

    def __init__(self, target: str) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    async def listen(self) -> str:
        """Listen and return the address."""
        self.server = await asyncio.start_server(self._accept, HOST, 0)
        return f"{HOST}:{self.server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            async with _ended(writer):
                await self.is_open.wait()
                far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
                async with _ended(far_writer):
                    ways = [self._pass_on(reader, far_writer), self._pass_on(far_reader, writer)]
                    await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(size_max_bytes):
                await self.is_open.wait()
                writer.write(data)
                await writer.drain()
            await self.is_open.wait()


@contextlib.asynccontextmanager
async def _ended(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()


class Relays:
    """Relays between each two servers and before each node; the servers know no direct path to each other."""

    def __init__(self, nodes: Nodes) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._between: dict[tuple[str, str], Relay] = {}
        self._before: dict[str, Relay] = {}
        listens = {name: nodes.listen(name) for name in nodes.names}
        routes = {name: [listen] for name, listen in listens.items()}
        for near, far in itertools.permutations(nodes.names, 2):
            self._between[near, far], where = self._relay(listens[far])
            routes[near].append(where)
        for name in nodes.names:
            self._before[name], where = self._relay(f"{HOST}:{nodes.ports[name]}")
            nodes.url_by_node[name] = f"nats://{where}"
            program = nodes.folder / f"programs-{name}" / "nats-server"
            program.parent.mkdir()
            # Otherwise the servers would exchange their addresses and bypass the relays.
            words = shlex.join(["--cluster_advertise", f"{HOST}:1", "--client_advertise", where])
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find_server()))} "$@" {words}\n', "ascii")
            program.chmod(0o700)
            nodes.configure(name, f'nats_server = "{program}"', routes=routes[name])

    def _relay(self, target: str) -> tuple[Relay, str]:
        async def made() -> tuple[Relay, str]:
            relay = Relay(target)
            return relay, await relay.listen()

        return self._call(made())

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @contextlib.contextmanager
    def cut_off(self, name: str, *, agents_too: bool) -> Iterator[None]:
        """Cut a node off from the other nodes, and from the agents or not."""
        cut = [relay for pair, relay in self._between.items() if name in pair]
        cut += [self._before[name]] if agents_too else []
        for relay in cut:
            self._loop.call_soon_threadsafe(relay.is_open.clear)
        try:
            yield
        finally:
            for relay in cut:
                self._loop.call_soon_threadsafe(relay.is_open.set)

    def end(self) -> None:
        """Relay nothing any more."""

        async def cancel() -> None:
            for relay in [*self._between.values(), *self._before.values()]:
                relay.server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._call(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
