"""A double for a vendor of language models, because a real one cannot run here.

It is a real HTTP server on a free port of this machine: what is doubled is the model, not the network. Each request
takes the next reply of the script; a request beyond its end is answered 500, so that no retry passes unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

API_KEY = "sk-stub-0123456789"


class Reply(NamedTuple):
    """What is answered: ``body`` whole, or ``parts`` one after the other until the client goes or the test ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}
    parts: Callable[[threading.Event], Iterator[bytes]] | None = None


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def says(content: str, **choice: Any) -> Reply:
    """Return the reply of a model that wrote ``content``."""
    message = {"role": "assistant", "content": content}
    completion = {"id": "stub-1", "model": "stub", "choices": [{"index": 0, "message": message} | choice]}
    return Reply(body=json.dumps(completion).encode())


def says_json(value: Any) -> Reply:
    return says(json.dumps(value, ensure_ascii=False))


def never() -> Reply:
    """Return a reply that sends headers and then nothing."""

    def wait(closing: threading.Event) -> Iterator[bytes]:
        closing.wait()
        yield b""

    return Reply(parts=wait)


def drip() -> Reply:
    """Return a reply that sends one byte after the other, for ever."""

    def bytes_of(closing: threading.Event) -> Iterator[bytes]:
        while not closing.wait(0.02):
            yield b" "

    return Reply(parts=bytes_of)


def flood(megabytes: int) -> Reply:
    return Reply(parts=lambda _: (b"x" * 1024**2 for _ in range(megabytes)))


class Vendor:
    """The server, its script, and what it was sent."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.received: list[Received] = []
        self.sent_bytes = 0
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers["content-length"])
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path, headers, json.loads(request.rfile.read(length))))
        reply = self.script.pop(0) if self.script else Reply(500)
        with contextlib.suppress(ConnectionError):
            request.send_response(reply.status)
            for name, value in reply.headers.items():
                request.send_header(name, value)
            if reply.parts is None:
                request.send_header("content-length", str(len(reply.body)))
            request.end_headers()
            for part in [reply.body] if reply.parts is None else reply.parts(self._closing):
                request.wfile.write(part)
                self.sent_bytes += len(part)

    def _handler(vendor: Vendor) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                vendor.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it overrides
                """Write nothing: a test's output is its own."""

        return Handler
