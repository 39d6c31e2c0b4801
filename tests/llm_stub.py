"""A test double of a vendor of language models.

It answers 500 to each request after the end of its script, so that a test notices every unexpected retry.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from http_double import HttpDouble, drip_parts, flood_parts

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

    from http_double import Parts

API_KEY = "sk-stub-0123456789"
USAGE = {"prompt_tokens": 70, "completion_tokens": 7, "total_tokens": 77}


class Reply(NamedTuple):
    """A reply: ``body`` at once, or ``parts`` one after the other until the client disconnects or the test ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}
    parts: Parts | None = None


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def says(content: str, **choice: Any) -> Reply:
    """Return the reply of a model that wrote ``content``."""
    message = {"role": "assistant", "content": content}
    completion = {
        "id": "stub-1",
        "model": "stub",
        "choices": [{"index": 0, "message": message} | choice],
        "usage": USAGE,
    }
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
    return Reply(parts=drip_parts(b" "))


def flood(megabytes: int) -> Reply:
    return Reply(parts=flood_parts(megabytes))


class Vendor(HttpDouble):
    """A vendor that sends the replies of its script, and stores the requests."""

    script: list[Reply]
    received: list[Received]

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def read(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        return Received(path, headers, json.loads(body))

    def beyond_script(self) -> Reply:
        return Reply(500)

    def send(self, request: BaseHTTPRequestHandler, reply: Reply) -> None:
        length = {"content-length": str(len(reply.body))} if reply.parts is None else {}
        self.send_head(request, reply.status, reply.headers | length)
        self.send_parts(request, reply.parts or (lambda _: iter([reply.body])))
