"""A receiver of webhooks: a real HTTP server on a free port of this machine that answers by a script.

It checks every signature by the words of the Standard Webhooks specification, not with the code that made it. A request
beyond the script's end is answered 204.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = b"a shared secret of 32 bytes, ok!"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
VARIABLE = "NOTIFY_TEST_SECRET"


class Reply(NamedTuple):
    """What is answered: a status with headers, and ``parts`` until the client goes or the test ends.

    ``waits`` answers nothing at all before the test ends.
    """

    status: int = 204
    headers: dict[str, str] = {}
    parts: Callable[[threading.Event], Iterator[bytes]] | None = None
    waits: bool = False


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    def is_signed_with(self, key: bytes) -> bool:
        said = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
        return hmac.compare_digest(expected, self.headers["webhook-signature"])


def flood(megabytes: int) -> Reply:
    return Reply(200, parts=lambda _: (b"x" * 1024**2 for _ in range(megabytes)))


def drip() -> Reply:
    """Return a reply whose headers never end."""

    def lines(closing: threading.Event) -> Iterator[bytes]:
        while not closing.wait(0.02):
            yield b"x"

    return Reply(parts=lines, waits=True)


class Receiver:
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
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?token=path-is-secret"

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.received]

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path, headers, request.rfile.read(int(headers["content-length"]))))
        reply = self.script.pop(0) if self.script else Reply()
        with contextlib.suppress(ConnectionError):
            if reply.waits and reply.parts is None:
                self._closing.wait()
                return
            if reply.waits:
                request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            else:
                request.send_response(reply.status)
                for name, value in reply.headers.items():
                    request.send_header(name, value)
                request.end_headers()
            for part in reply.parts(self._closing) if reply.parts else ():
                request.wfile.write(part)
                self.sent_bytes += len(part)

    def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it overrides
                """Write nothing: a test's output is its own."""

        return Handler
