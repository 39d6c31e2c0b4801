"""A receiver of webhooks that answers by a script.

It checks every signature with its own implementation of the Standard Webhooks specification, not with the code that
made the signature. After the script's end it answers with 204.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from http_double import HttpDouble, drip_parts, flood_parts

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from http_double import Parts

KEY = b"a shared secret of 32 bytes, ok!"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
VARIABLE = "NOTIFY_TEST_SECRET"


class Reply(NamedTuple):
    """An answer: a status with headers, and ``parts`` until the client disconnects or the test ends.

    ``waits`` answers nothing at all before the test ends.
    """

    status: int = 204
    headers: dict[str, str] = {}
    parts: Parts | None = None
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
    return Reply(200, parts=flood_parts(megabytes))


def drip() -> Reply:
    """Return a reply whose headers never end."""
    return Reply(parts=drip_parts(b"x"), waits=True)


class Receiver(HttpDouble):
    """A receiver that answers by its script and stores the requests."""

    script: list[Reply]
    received: list[Received]

    @property
    def url(self) -> str:
        return f"{self.origin}/hook?token=path-is-secret"

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.received]

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        return Received(path, headers, body)

    def beyond_script(self) -> Reply:
        return Reply()

    def send(self, request: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.waits and reply.parts is None:
            self.closing.wait()
            return
        if reply.waits:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        else:
            self.send_head(request, reply.status, reply.headers)
        if reply.parts is not None:
            self.send_parts(request, reply.parts)
