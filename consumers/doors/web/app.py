"""What `baton serve --web` serves: the log as tiles."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from consumers.doors.web import log
from consumers.doors.web.server import hosts, serving
from ledger.local import LocalClient


@contextlib.asynccontextmanager
async def publishing(client: LocalClient, listening: socket.socket) -> AsyncIterator[str]:
    """Publish a ledger's log on a bound socket within the block; yields the address.

    Raises Unavailable: as ``server.serving``.
    """
    allowed = hosts(client, listening.getsockname()[0])
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=allowed, www_redirect=False)
    app = Starlette(routes=log.routes_of(client), middleware=[trusted])
    app.router.redirect_slashes = False  # a redirect would lead to the Host that was sent
    async with serving(app, listening) as url:
        yield url
