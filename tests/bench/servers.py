"""Plain nats-servers on loopback. Rows about the bus are measured on them, or compared with them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import subprocess
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors
from nats.aio.client import Client as NatsClient

from deedbook.ledger.service.server import find_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

ready_wait_max_s = 60.0
poll_s = 0.1


@contextlib.contextmanager
def servers(folder: Path, *, sync: str = "", count: int = 1) -> Iterator[list[str]]:
    """Run ``count`` servers with JetStream, as one cluster if there are several; yield their addresses.

    ``sync`` is their ``sync_interval``, by default the server's own.
    """
    ports = free_ports(2 * count)
    routed = [ports.pop() for _ in range(count)]
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routed)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, (port, route) in enumerate(zip(ports, routed, strict=True)):
            store = folder / f"server-{number}"
            store.mkdir(parents=True)
            text = f'server_name: "server-{number}"\nlisten: "127.0.0.1:{port}"\nlog_file: "{store}/server.log"\n'
            text += f'pid_file: "{store}/server.pid"\n'
            text += f'jetstream {{ store_dir: "{store}"{f", sync_interval: {sync}" if sync else ""} }}\n'
            if count > 1:
                text += f'cluster {{ name: "bench", listen: "127.0.0.1:{route}", routes: [{routes}] }}\n'
            (store / "server.conf").write_text(text, "utf-8")
            running.append(subprocess.Popen((find_server(), "--config", str(store / "server.conf"))))
        urls = [f"nats://127.0.0.1:{port}" for port in ports]
        asyncio.run(_ready(urls))
        yield urls
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below the range from which the system takes ports of connections."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = random.randrange(10_000, 32_000)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


@contextlib.asynccontextmanager
async def connected(url: str, make: type[NatsClient] = NatsClient) -> AsyncIterator[NatsClient]:
    """Connect a client, and close it."""
    client = make()
    await client.connect(url, allow_reconnect=True, max_reconnect_attempts=600, reconnect_time_wait=0.1)
    try:
        yield client
    finally:
        await client.close()


async def _ready(urls: list[str]) -> None:
    for url in urls:
        for _ in range(round(ready_wait_max_s / poll_s)):
            if await _serves(url):
                break
            await asyncio.sleep(poll_s)
        else:
            raise RuntimeError(f"{url} does not serve")


async def _serves(url: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
            pass
        async with connected(url) as client:
            await client.jetstream(timeout=1).account_info()
    except (nats.errors.Error, nats.js.errors.Error, OSError):
        return False
    return True
