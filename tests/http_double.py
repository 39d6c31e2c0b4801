"""A scripted HTTP server on a free port of this machine: a test double that clients reach over a real network.

Each request gets the next reply of the script. Each type of double defines the reply after the end of the script.
"""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Parts = Callable[[threading.Event], Iterator[bytes]]


def flood_parts(megabytes: int) -> Parts:
    return lambda _: (b"x" * 1024**2 for _ in range(megabytes))


def drip_parts(byte: bytes) -> Parts:
    """Return parts of one byte each, for ever."""

    def bytes_of(closing: threading.Event) -> Iterator[bytes]:
        while not closing.wait(0.02):
            yield byte

    return bytes_of


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # default 5: a client that finds the queue full tries again after a second


class HttpDouble:
    """The server, its script of replies, and the received requests. Each type of double defines the types of both."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.received: list[Any] = []
        self.sent_bytes = 0
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        """Return a received request as an object for tests; the names of headers are in lower case."""
        raise NotImplementedError

    def reply_to(self, received: Any) -> Any:
        """Return the reply to a request; several may arrive at the same time."""
        return self.script.pop(0) if self.script else self.beyond_script()

    def beyond_script(self) -> Any:
        """Return the reply to a request beyond the end of the script."""
        raise NotImplementedError

    def send(self, request: BaseHTTPRequestHandler, reply: Any) -> None:
        raise NotImplementedError

    def send_head(self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()

    def send_parts(self, request: BaseHTTPRequestHandler, parts: Parts) -> None:
        """Send parts in turn, until the client disconnects or the test ends."""
        for part in parts(self.closing):
            request.wfile.write(part)
            self.sent_bytes += len(part)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        size = int(headers["content-length"])
        body = request.rfile.read(size)
        if len(body) < size:  # the client was killed while it sent: this is no request
            return
        received = self.read(request.path, headers, body)
        self.received.append(received)
        reply = self.reply_to(received)
        with contextlib.suppress(ConnectionError):
            self.send(request, reply)

    def _handler(double: HttpDouble) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                double.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it overrides
                """Log nothing: only a test may write to its output."""

        return Handler
