"""The log on the web: checkpoint, tiles and entries under the paths of C2SP tlog-tiles, as in an exported folder.

The server is bound before anything is said, run in the node's own event loop, and ended with it. A tile never changes
once it has a path, so it may be kept for ever; the checkpoint is asked for anew each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ledger.bundle.layout import tile_name
from ledger.client import read_event
from ledger.errors import BatonError, Refused, Unavailable
from ledger.events.authority import LedgerCreated
from ledger.local import LocalClient
from ledger.log.tiles import TILE_WIDTH

LOOPBACK: Final = "127.0.0.1"
connections_max: Final = 128
keep_alive_max_s: Final = 5
request_head_max_bytes: Final = 16 * 1024
stop_wait_max_s: Final = 3
path_max: Final = 64
_TILE: Final = re.compile(r"tile/(entries|\d|[1-5]\d|6[0-3])/((?:x\d{3}/)*\d{3})(?:\.p/([1-9]\d{0,2}))?", re.ASCII)
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_FOR_NOW: Final = "no-cache"
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
        return socket.create_server((host, port))
    except OSError as error:
        code = "STORE_UNAVAILABLE" if isinstance(error, socket.gaierror) else "STORE_IN_USE"
        raise Unavailable(code, f"nobody can listen at {host}:{port}: {error.strerror}", port=port) from error


@contextlib.asynccontextmanager
async def publishing(client: LocalClient, listening: socket.socket) -> AsyncIterator[str]:
    """Publish a ledger's log on a bound socket within the block; yields the address.

    Raises Unavailable: ``STORE_UNAVAILABLE`` when the server does not start.
    """
    host, port = listening.getsockname()[:2]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts(client, host), www_redirect=False)
    app = Starlette(routes=routes_of(client), middleware=[trusted])
    app.router.redirect_slashes = False  # a redirect would lead to the Host that was sent
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False,
        limit_concurrency=connections_max, timeout_keep_alive=keep_alive_max_s,
        timeout_graceful_shutdown=stop_wait_max_s, h11_max_incomplete_event_size=request_head_max_bytes,
    )  # fmt: skip
    answers = asyncio.Event()
    server = Server(config, answers.set)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    starting = asyncio.create_task(answers.wait())
    try:
        await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            raise Unavailable("STORE_UNAVAILABLE", "the web server did not start: see its log")
        yield f"http://{host}:{port}"
    finally:
        starting.cancel()
        server.should_exit = True
        await serving


def hosts(client: LocalClient, bound: str) -> list[str]:
    """Return the names by which the server may be called: a page of another site can point a name of its own here.

    They are the address it listens at, the loopback's, and the host in the log's origin, as a reverse proxy passes it.
    """
    created = read_event(0, client.entry(0)).data
    origin = created.origin if isinstance(created, LedgerCreated) else ""
    return [bound, LOOPBACK, "localhost", origin.split("/")[0].lower() or LOOPBACK]


class Server(uvicorn.Server):
    """A uvicorn server that leaves the process's signals to who runs it, and calls ``ready`` when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()


def routes_of(client: LocalClient) -> list[Route]:
    """Return the routes under which a ledger's log is published; GET and HEAD are answered."""

    def checkpoint(request: Request) -> Response:
        return _answer(request, lambda: client.published_checkpoint().encode(), _FOR_NOW, "text/plain; charset=utf-8")

    def tile(request: Request) -> Response:
        return _answer(request, lambda: _tile(client, request.scope["path"][1:]), _FOR_EVER, "application/octet-stream")

    return [Route("/checkpoint", checkpoint), Route("/tile/{path:path}", tile)]


def _tile(client: LocalClient, path: str) -> bytes:
    match = _TILE.fullmatch(path[:path_max])
    if match is not None:
        level, number = match[1], int(match[2].replace("x", "").replace("/", ""))
        width = int(match[3] or TILE_WIDTH)
        if tile_name(level, number, width) == path:  # one path for one tile: no superfluous x000, no .p/256
            with client.log.snapshot() as snapshot:
                if level == "entries":
                    return snapshot.entry_bundle(number, width)
                return snapshot.tile(int(level), number, width)
    raise Refused("NOT_FOUND", "there is no such tile")


def _answer(request: Request, read: Callable[[], bytes], cache: str, type_: str) -> Response:
    try:
        content = read()
    except BatonError as error:
        status = 404 if error.code == "NOT_FOUND" else 503
        return PlainTextResponse(f"{error}\n", status, {"cache-control": "no-store"})
    etag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = {"cache-control": cache, "etag": etag, "x-content-type-options": "nosniff"}
    if etag in [given.strip() for given in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=type_)
