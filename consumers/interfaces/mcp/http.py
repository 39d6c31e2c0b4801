"""Streamable HTTP for clients on this machine: one address, one token, one allowed origin.

The server listens on 127.0.0.1 only. Who calls it has read the token's file, which only its owner can; a browser page
of another origin is refused by its Origin, and one that rebinds a name to this address by its Host (MCP specification,
"Transports", Security Warning). The socket is bound before anything is said, so the address that is printed holds.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.interfaces.web.server import LOOPBACK
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.identity import read_private, write_private

PATH: Final = "/mcp"
TOKEN_FILE: Final = "mcp.token"  # noqa: S105 - the name of a file
body_size_max_bytes: Final = 1024**2
sessions_max: Final = 256
"""With room for clients that were killed: their sessions stay until they have been idle."""

connections_max: Final = 3 * sessions_max
"""A client holds one for what it is told, and one for each call meanwhile."""

session_idle_max_s: Final = 1_800.0
_token_bytes: Final = 32
_token_chars_min: Final = 32
_token_chars_max: Final = 4_096
"""More is no header that a client can send."""


class OneToken:
    """Verifies the one bearer token there is (the SDK's ``TokenVerifier``)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whom the token lets in; None for any other token."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="owner", scopes=[])


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner can read, made now if there is none.

    Raises Refused: ``KEY_FILE_MODE`` when others can read it, ``INVALID_FORMAT`` when it is too short to be one.
    Unavailable: ``STORE_UNAVAILABLE``.
    """
    try:
        write_private(path, secrets.token_urlsafe(_token_bytes).encode() + b"\n")
    except Refused as refusal:
        if refusal.code != "KEY_EXISTS":
            raise
    token = read_private(path).decode("ascii", "replace").strip()
    if not _token_chars_min <= len(token) <= _token_chars_max or not token.isprintable() or " " in token:
        message = f"{path} holds no token of {_token_chars_min} characters or more: delete it, and a new one is made"
        raise Refused("INVALID_FORMAT", message, path=str(path))
    return token


def application(ledger: ToolLedger, port: int, token: str) -> ASGIApp:
    """Return what a server runs at a port, which tells it when it begins and ends."""
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    origins = [f"http://{host}" for host in hosts]
    server = DeedbookServer(
        ledger,
        # Nobody issues tokens here; the SDK asks for an address none the less, and tells it to nobody.
        auth=AuthSettings(issuer_url=AnyHttpUrl(f"http://{LOOPBACK}:{port}"), resource_server_url=None),
        token_verifier=OneToken(token),
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=body_size_max_bytes,
        max_sessions=sessions_max,
        session_idle_timeout=session_idle_max_s,
        transport_security=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins),
    )
    app.router.redirect_slashes = False  # a redirect would lead to the Host that was sent, before it is checked

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):  # who goes while he is served hears of no error
            await app(scope, receive, send)

    return serve
