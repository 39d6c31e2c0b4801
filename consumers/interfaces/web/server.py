"""HTTP serving on this machine: a socket that is bound before its address is printed, and a server on it.

The applications are elsewhere (``app``, the dashboard). This module has the address, the allowed host names and the
limits of connections. The server runs in the caller's event loop, and the caller handles the signals. Within a second
after a certificate is renewed, new connections use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from deedbook.ledger.client.reads import EntryReads

LOOPBACK: Final = "127.0.0.1"
connections_max: Final = 128
head_wait_max_s: Final = 5
keep_alive_max_s: Final = 5
request_wait_max_s: Final = 15
request_head_max_bytes: Final = 16 * 1024
stop_wait_max_s: Final = 3
warning_interval_s: Final = 60.0
DROP: Final = "deedbook.drop"
TIMED: Final = "deedbook.timed"
_STATUSES: Final = {"TOKEN_INVALID": 401, "NOT_ACCEPTABLE": 406, "TOO_LARGE": 413, "NOT_WITNESSED": 503}
_log: Final = logging.getLogger("deedbook.web")
_WHERE: Final = re.compile(r"(?:([A-Za-z0-9.-]{1,253}):)?(\d{1,5})", re.ASCII)


def bind(where: str) -> socket.socket:
    """Return a socket that listens at ``[HOST:]PORT`` (default host: loopback; port 0: any free port).

    Raises Refused: ``USAGE`` for an invalid address. Unavailable: ``STORE_UNAVAILABLE`` if the host's name cannot be
    resolved; ``STORE_IN_USE`` if the system refuses to bind (the port is taken, or the host is another machine).
    """
    match = _WHERE.fullmatch(where)
    if match is None or int(match[2]) >= 2**16:
        raise Refused("USAGE", f"--web takes HOST:PORT or PORT, such as 127.0.0.1:8080, not {where[:80]!r}")
    host, port = match[1] or LOOPBACK, int(match[2])
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        code = "STORE_UNAVAILABLE" if isinstance(error, socket.gaierror) else "STORE_IN_USE"
        raise Unavailable(code, f"cannot listen at {host}:{port}: {error.strerror}", port=port) from error
    # Accepted sockets inherit this. asyncio does not set it on them, and head and body would wait for each other.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class Tls:
    """The TLS of a server, from PEM files: its certificate, with those of the authorities between, and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files. Raises Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``, ``INVALID_FORMAT``."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate, self._key = certificate, key
        self._version = self._stat()
        self._load()

    def renew(self) -> None:
        """Read the files again if they changed. If key and certificate do not match yet, keep the former ones."""
        if (version := self._stat()) == self._version:
            return
        self._version = version
        try:
            self._load()
            _log.info("uses the renewed certificate %s", self._certificate)
        except Refused as error:
            _log.warning("keeps the former certificate: %s", error.message)

    def _stat(self) -> list[tuple[int, int]]:
        with contextlib.suppress(OSError):
            return [(file.stat().st_mtime_ns, file.stat().st_ino) for file in (self._certificate, self._key)]
        return []  # one of the files is missing

    def _load(self) -> None:
        path = str(self._certificate)
        try:
            for file in (self._certificate, self._key):
                file.open("rb").close()  # OpenSSL does not say which one is missing
            # OpenSSL would keep the certificate of a pair that does not match, so another context tries the pair first.
            # Without the argument ``password``, OpenSSL would ask on the terminal.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                if self._key.stat().st_mode & 0o007:
                    message = f"all users can read or change {self._key}: run `chmod o= {self._key}`"
                    raise Refused("KEY_FILE_MODE", message, path=str(self._key))
                context.load_cert_chain(path, self._key, password="")
        except ssl.SSLError as error:
            message = f"{path} must be a certificate in PEM, and {self._key} its key in PEM, without a passphrase"
            raise Refused("INVALID_FORMAT", message, path=path, reason=error.reason) from error
        except OSError as error:
            message = f"cannot read the TLS file {error.filename}: {error.strerror}"
            raise Refused("KEY_FILE_MISSING", message, path=str(error.filename)) from error


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listening: socket.socket,
    *,
    tls: Tls | None = None,
    connections: int = connections_max,
    has_lifespan: bool = False,
) -> AsyncIterator[str]:
    """Serve an application on a bound socket within the block; yields the address.

    With ``has_lifespan`` the application gets lifespan events. ``scope[DROP]`` is a function that cuts the connection
    of a client that does not read. An application that sets ``scope[TIMED]`` limits the time of the body itself.
    Raises Unavailable: ``STORE_UNAVAILABLE`` if the server does not start.
    """
    host, port = listening.getsockname()[:2]

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope[DROP] = partial(server.drop, scope)
        await app(scope, receive, send)

    # This is the protocol of h11. With httptools, which may be installed, the head of a request would have no limit.
    config = uvicorn.Config(
        serve,
        log_config=None,
        access_log=False,
        lifespan="on" if has_lifespan else "off",
        server_header=False,
        ws="none",
        http=_Connection,
        limit_concurrency=connections,
        timeout_keep_alive=keep_alive_max_s,
        timeout_graceful_shutdown=stop_wait_max_s,
        h11_max_incomplete_event_size=request_head_max_bytes,
    )
    server = _Server(config, tls)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    starting = asyncio.create_task(server.accepts.wait())
    warnings, library = _Warnings(), logging.getLogger("uvicorn.error")
    library.addFilter(warnings)
    try:
        await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            raise Unavailable("STORE_UNAVAILABLE", "the web server did not start: see its log")
        yield f"{'http' if tls is None else 'https'}://{host}:{port}"
    finally:
        starting.cancel()
        server.should_exit = True
        await serving
        library.removeFilter(warnings)


def status_of(error: DeedbookError) -> int:
    """Return the HTTP status for an error, by its code or its exit code."""
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
        case Exit.UNAVAILABLE | Exit.SPOOLED:
            return 503
        case Exit.NOT_INSTALLED:
            return 501
        case Exit.OK | Exit.UNEXPECTED | Exit.UNVERIFIED:
            return 500
        case _:
            assert_never(error.exit_code)


def hosts(client: EntryReads, bound: str) -> list[str]:
    """Return the allowed host names, against DNS rebinding: another site can make its own name resolve to this server.

    They are the bound address, loopback, and the host in the log's origin, which a reverse proxy passes on.
    """
    created = read_event(0, client.entry(0)).data
    origin = created.origin if isinstance(created, LedgerCreated) else ""
    return [bound, LOOPBACK, "localhost", origin.split("/")[0].lower() or LOOPBACK]


class _Warnings(logging.Filter):
    """Passes each warning of uvicorn once in an interval: any client can cause one with each request."""

    def __init__(self) -> None:
        super().__init__()
        self._until_s: dict[str, float] = {}  # by the text of the warning; there are few texts

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        now = time.monotonic()
        if record.levelno != logging.WARNING:
            return True
        if now < self._until_s.get(record.msg, 0):
            return False
        self._until_s[record.msg] = now + warning_interval_s
        return True


class _Connection(H11Protocol):
    """A connection. When there are too many, a new one replaces one that waits for the head of a request.

    So clients that send no complete head do not displace those that do. A limit for each address would not work: behind
    a reverse proxy, all clients have the same address. A client whose request was answered is replaced last, because it
    may use its connection again.
    """

    began_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin; if there are now too many connections, cut the one that has waited longest."""
        super().connection_made(transport)
        self.began_s = time.monotonic()
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [other for other in self.connections if isinstance(other, _Connection) and other is not self]
        if waiting := [other for other in others if other.waits_for_head()]:
            oldest = min(waiting, key=lambda other: (other.cycle is not None, other.began_s))
            self.connections.discard(oldest)
            oldest.transport.abort()

    def waits_for_head(self) -> bool:
        """Return whether no request of this connection is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller, and sets an event once it accepts requests."""

    def __init__(self, config: uvicorn.Config, tls: Tls | None) -> None:
        super().__init__(config)
        self._tls = tls
        self.accepts = asyncio.Event()
        self._waiting: dict[tuple[object, object], float] = {}

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests, and set the event."""
        await super().startup(sockets=[])
        # As uvicorn does it, but with a shorter timeout of the TLS handshake: by asyncio's default, a silent client
        # would keep a file descriptor for a minute.
        protocol = partial(
            _Connection, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        create = partial(asyncio.get_running_loop().create_server, backlog=self.config.backlog)
        if self._tls is not None:
            create = partial(create, ssl=self._tls.context, ssl_handshake_timeout=head_wait_max_s)
        self.servers += [await create(protocol, sock=listening) for listening in sockets or ()]
        if self.started:
            self.accepts.set()

    async def on_tick(self, counter: int) -> bool:
        """Cut clients that send no complete request in time, because connections are few; load renewed certificates."""
        if self._tls is not None and counter % 10 == 0:
            self._tls.renew()
        waiting, self._waiting, now = self._waiting, {}, time.monotonic()
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is None or cycle.response_complete or (cycle.more_body and TIMED not in cycle.scope):
                since = self._waiting.setdefault((connection, cycle), waiting.get((connection, cycle), now))
                is_head = cycle is None or cycle.response_complete
                if now - since > (head_wait_max_s if is_head else request_wait_max_s):
                    connection.transport.abort()
        return await super().on_tick(counter)

    def drop(self, scope: Scope) -> None:
        """Cut the connection of a request, and discard the data that its client has not read."""
        for connection in self.server_state.connections:
            if getattr(connection, "scope", None) is scope:
                connection.transport.abort()
