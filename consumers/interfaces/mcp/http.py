"""Streamable HTTP for clients on this machine: one address, one token, one allowed origin.

The server listens on 127.0.0.1 only. A client needs the token from a file that only its owner can read. The server
refuses browser pages of another origin by their Origin header, and DNS rebinding by the Host header (MCP specification,
"Transports", Security Warning). The socket is bound before the address is printed, so the printed address is right.
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
"""Includes room for killed clients: their sessions stay until they have been idle for ``session_idle_max_s``."""

connections_max: Final = 3 * sessions_max
"""A client holds one connection for messages of the server, and one for each call in progress."""

session_idle_max_s: Final = 1_800.0
_token_bytes: Final = 32
_token_chars_min: Final = 32
_token_chars_max: Final = 4_096
"""A longer token would not fit into a header."""


class OneToken:
    """Verifies the only bearer token (implements the SDK's ``TokenVerifier``)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access of the token; None for any other token."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="owner", scopes=[])


def read_token(path: Path) -> str:
    """Return the token from a file that only its owner can read; a missing file is created.

    Raises Refused: ``KEY_FILE_MODE`` if others can read it, ``INVALID_FORMAT`` if its content is not a token.
    Unavailable: ``STORE_UNAVAILABLE``.
    """
    try:
        write_private(path, secrets.token_urlsafe(_token_bytes).encode() + b"\n")
    except Refused as refusal:
        if refusal.code != "KEY_EXISTS":
            raise
    token = read_private(path).decode("ascii", "replace").strip()
    if not _token_chars_min <= len(token) <= _token_chars_max or not token.isprintable() or " " in token:
        message = (
            f"{path} contains no token of at least {_token_chars_min} characters: delete the file to get a new token"
        )
        raise Refused("INVALID_FORMAT", message, path=str(path))
    return token


def application(ledger: ToolLedger, port: int, token: str) -> ASGIApp:
    """Return the ASGI application for a port; the server must send it lifespan events."""
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    origins = [f"http://{host}" for host in hosts]
    server = DeedbookServer(
        ledger,
        # No issuer exists; the SDK requires an address and does not publish it.
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
    app.router.redirect_slashes = False  # a redirect would use the Host header before it is checked

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):  # a client that disconnects is not an error
            await app(scope, receive, send)

    return serve
