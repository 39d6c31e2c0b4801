"""Serving over HTTP on this machine: a socket that is bound before anything is said, and a server that ends with it.

What is served is others' (``app``, the dashboard): here are the address, the names by which it may be called, and the
limits of connections. It runs in the event loop of whoever serves, whose signals stay that one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import uvicorn

from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from deedbook.ledger.client.reads import EntryReads

LOOPBACK: Final = "127.0.0.1"
connections_max: Final = 128
keep_alive_max_s: Final = 5
request_wait_max_s: Final = 15
request_head_max_bytes: Final = 16 * 1024
stop_wait_max_s: Final = 3
DROP: Final = "deedbook.drop"
_STATUSES: Final = {"TOKEN_INVALID": 401, "NOT_ACCEPTABLE": 406, "TOO_LARGE": 413, "NOT_WITNESSED": 503}
_WHERE: Final = re.compile(r"(?:([A-Za-z0-9.-]{1,253}):)?(\d{1,5})", re.ASCII)


def bind(where: str) -> socket.socket:
    """Return a socket that listens at ``[HOST:]PORT``, by default of the loopback interface; port 0 takes a free one.

    Raises Refused: ``USAGE`` for what is no such place. Unavailable: ``STORE_IN_USE`` when the port is taken,
    ``STORE_UNAVAILABLE`` when the host is not this machine.
    """
    match = _WHERE.fullmatch(where)
    if match is None or int(match[2]) >= 2**16:
        raise Refused("USAGE", f"--web takes HOST:PORT or PORT, as 127.0.0.1:8080, and not {where[:80]!r}")
    host, port = match[1] or LOOPBACK, int(match[2])
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        code = "STORE_UNAVAILABLE" if isinstance(error, socket.gaierror) else "STORE_IN_USE"
        raise Unavailable(code, f"nobody can listen at {host}:{port}: {error.strerror}", port=port) from error
    # Accepted sockets have it, too: asyncio knows none of these as TCP, and head and body would wait for each other.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, *, connections: int = connections_max, has_lifespan: bool = False
) -> AsyncIterator[str]:
    """Serve an application on a bound socket within the block; yields the address.

    One that ``has_lifespan`` is told when it begins and ends. What it is called with has ``scope[DROP]``, which cuts
    the connection of a client that does not read. Raises Unavailable: ``STORE_UNAVAILABLE`` when it does not start.
    """
    host, port = listening.getsockname()[:2]

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope[DROP] = partial(server.drop, scope)
        await app(scope, receive, send)

    # By name: uvicorn takes httptools where that happens to be installed, which knows no limit of a request's head.
    config = uvicorn.Config(
        serve,
        log_config=None,
        access_log=False,
        lifespan="on" if has_lifespan else "off",
        server_header=False,
        ws="none",
        http="h11",
        limit_concurrency=connections,
        timeout_keep_alive=keep_alive_max_s,
        timeout_graceful_shutdown=stop_wait_max_s,
        h11_max_incomplete_event_size=request_head_max_bytes,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    starting = asyncio.create_task(server.answers.wait())
    try:
        await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            raise Unavailable("STORE_UNAVAILABLE", "the web server did not start: see its log")
        yield f"http://{host}:{port}"
    finally:
        starting.cancel()
        server.should_exit = True
        await serving


def status_of(error: DeedbookError) -> int:
    """Return the HTTP status that says what the exit code of an error says to a shell, and of some codes more."""
    if (status := _STATUSES.get(error.code)) is not None:
        return status
    match error.exit_code:
        case Exit.USAGE:
            return 400
        case Exit.GATED:
            return 403
        case Exit.NOT_FOUND:
            return 404
        case Exit.CONFLICT:
            return 409
        case Exit.UNAVAILABLE:
            return 503
        case Exit.OK | Exit.UNEXPECTED | Exit.UNVERIFIED:
            return 500
        case _:
            assert_never(error.exit_code)


def hosts(client: EntryReads, bound: str) -> list[str]:
    """Return the names by which the server may be called: a page of another site can point a name of its own here.

    They are the address it listens at, the loopback's, and the host in the log's origin, as a reverse proxy passes it.
    """
    created = read_event(0, client.entry(0)).data
    origin = created.origin if isinstance(created, LedgerCreated) else ""
    return [bound, LOOPBACK, "localhost", origin.split("/")[0].lower() or LOOPBACK]


class _Server(uvicorn.Server):
    """A uvicorn server that leaves the process's signals to who runs it, and says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()
        self._waiting: dict[tuple[object, object], float] = {}

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self.answers.set()

    async def on_tick(self, counter: int) -> bool:
        """Cut whoever has not sent a whole request in time: so few connections there are, and nobody else would."""
        waiting, self._waiting, now = self._waiting, {}, time.monotonic()
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is None or cycle.response_complete or cycle.more_body:
                since = self._waiting.setdefault((connection, cycle), waiting.get((connection, cycle), now))
                if now - since > request_wait_max_s:
                    connection.transport.abort()
        return await super().on_tick(counter)

    def drop(self, scope: Scope) -> None:
        """Cut the connection that a request came by, with what waits there to be read."""
        for connection in self.server_state.connections:
            if getattr(connection, "scope", None) is scope:
                connection.transport.abort()
