"""A ledger with something of every kind, and the web application on it, called without a socket."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.applications import Starlette
from starlette.testclient import TestClient

from deedbook.consumers.interfaces.web.app import Web
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.ledger.home.trust import read_folder, record_of, remember, root_in

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from view_ledger import ViewLedger

    from deedbook.ledger.client.local import LocalClient

LATER_MS: Final = 2**52
"""No token of a test ends before that."""


class Reading(NamedTuple):
    """A ledger's application, and a client that reads it with a token."""

    home: Path
    web: Web
    client: TestClient
    token: str

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Request a path with a token that may read it."""
        return self.client.get(path, headers={"authorization": f"Bearer {self.token}"} | headers)


def opened(stack: contextlib.ExitStack, client: LocalClient, *, is_public: bool = False) -> Reading:
    """Open the application on a ledger until the stack is closed."""
    home = client.settings.home
    remember(record_of(read_folder(home), root_in(client.entry(0)), ""))
    web = stack.enter_context(contextlib.closing(Web(client, is_public=is_public)))
    app = Starlette()  # the test client runs a lifespan, which our server does not
    app.router.default = web  # a mount would answer by itself if the path has a line end
    http = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    _, token = Tokens(home).create("alice", "reader", LATER_MS)
    return Reading(home, web, stack.enter_context(http), token)


class Own(NamedTuple):
    """A ledger for one test, which may be written to, and a reader of it over HTTP."""

    ledger: ViewLedger
    reading: Reading
