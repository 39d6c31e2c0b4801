"""Rows of the read API: a question over HTTP, on a connection that stays open, against ``Ledger.ask`` in this process.

The server is a process of its own (``python -m tests.bench.web FOLDER``), as a node is, so that the two share no
interpreter. The client is a socket and msgspec's decoder. It leaves out the time that an HTTP library takes to parse
headers (``http.client`` a tenth of a millisecond, others half of one), and includes the decoding of the answer. The
questions are everyday ones, with a page of the default size. Only ``handoffs.next`` has a smaller page, because both
ways check each of its rows against signed entries.

An answer over HTTP takes as long as in this process, plus the time of HTTP for as many bytes. The baseline is this sum;
its second part is measured with a server that does nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from deedbook.consumers.interfaces.web.app import publishing
from deedbook.consumers.interfaces.web.questions import address, path_of
from deedbook.consumers.interfaces.web.server import bind, serving
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.consumers.sdk.text import json_text
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.home.config import Settings
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import hand_over_steps, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

HANDOFFS: Final = 200
CALLS: Final = scaled(50, 2)
LATER_MS: Final = 2**52
BUDGET: Final = Budget("≤", 2.0)
QUESTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("handoffs.list", {}),
    ("handoffs.show", {"id": "2026-02-12-step-7"}),
    ("handoffs.next", {"limit": 5}),
    ("catalog.find", {}),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    home = bench.folder / "ledger"
    with open_ledger(home) as ledger:
        hand_over_steps(ledger, HANDOFFS)
    _, token = Tokens(home).create("alice", "reader", LATER_MS)
    command = [sys.executable, "-m", "tests.bench.web", str(home)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        host, bare = child.stdout.readline().split()
        with Ledger(settings=Settings(home=home)) as python:
            for query, arguments in QUESTIONS:
                bench.say(query)
                path = address(path_of(query), arguments)
                ask = partial(python.ask, query, **arguments)
                found = bench.paired(
                    partial(_by_http, host, token, path), partial(_by_python, ask, bare, f"/{len(json_text(ask()))}")
                )
                note = f"{HANDOFFS} handoffs, {1000 * min(ours for ours, _ in found) / CALLS:.2f} ms an answer"
                baseline = "the same by Python, and a bare answer"
                yield Row(f"web: {query} over HTTP", ratios(found), baseline, BUDGET, note)
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def _timed(ask: Callable[[], Any]) -> float:
    return seconds(lambda: [ask() for _ in range(CALLS)])


def _by_python(ask: Callable[[], Any], bare: str, path: str, _number: int) -> float:
    """Return the seconds of calls in this process plus those of as many bare HTTP answers."""
    return _timed(ask) + _by_http(bare, "none", path, 0)


def _by_http(host: str, token: str, path: str, _number: int) -> float:
    # A new connection for each round: the server closes a connection that is idle while Python is measured.
    with contextlib.closing(Client(host, token)) as client:
        return _timed(partial(client.get, path))


class Client:
    """A connection that stays open."""

    def __init__(self, host: str, token: str) -> None:
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=60)
        self._lines = self._socket.makefile("rb")
        self._head = f"host: {host}\r\nauthorization: Bearer {token}"

    def get(self, path: str) -> Any:
        """Return the document at a path."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\n{self._head}\r\n\r\n".encode())
        assert b" 200 " in self._lines.readline()
        heads = dict(line.split(b": ", 1) for line in iter(self._lines.readline, b"\r\n"))
        return msgspec.json.decode(self._lines.read(int(heads[b"content-length"])))

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()


async def serve(home: Path) -> None:
    """Serve a ledger and bare answers over HTTP until standard input ends; the first line of output is the address."""
    with LocalClient(Settings(home=home)) as client:
        async with publishing(client, bind("0")) as url, serving(_bare, bind("0")) as bare:
            print(url.removeprefix("http://"), bare.removeprefix("http://"), flush=True)
            await asyncio.to_thread(sys.stdin.read)


async def _bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with as many characters of JSON as the path says, from a thread, as the server answers slow queries."""
    body = await asyncio.to_thread(lambda: b'"' + b"x" * (int(scope["path"][1:]) - 2) + b'"')
    await Response(body)(scope, receive, send)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
