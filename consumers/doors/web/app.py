"""What `baton serve --web` serves: the read API, the log as tiles, what is counted, and a door before all of it.

The door answers what is no question (another method, a request with a body, an address that is too long), and whoever
has no token for what is asked. Nothing but the description of the API is for everybody: the log's entries hold all that
was said, so tiles are without a token only where the log was made public by name. No header lets pages of other sites
read (CORS). Counts are prometheus-client's, one small package without others; a route is named by its pattern or query,
never by what was asked for, or whoever asks for a thousand ids makes a thousand series.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.routing import Route, Router

from consumers.doors.web import log
from consumers.doors.web.api import JSON, Api, refused
from consumers.doors.web.questions import ROOT
from consumers.doors.web.server import hosts, serving
from consumers.doors.web.stream import CHECK
from consumers.doors.web.tokens import Tokens
from consumers.sdk.text import document, json_text
from ledger import trust
from ledger.errors import BatonError, Refused

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ledger.local import LocalClient

Gauges = Mapping[str, Callable[[], float]]
METHODS: Final = "GET, HEAD, OPTIONS"
METRICS: Final = "/metrics"
HEALTH: Final = "/healthz"
DESCRIPTION: Final = f"{ROOT}/openapi.json"
address_max_chars: Final = 8_192
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_log: Final = logging.getLogger("baton.web")


@contextlib.asynccontextmanager
async def publishing(
    client: LocalClient, listening: socket.socket, *, is_public: bool = False, gauges: Gauges | None = None
) -> AsyncIterator[str]:
    """Serve a ledger on a bound socket within the block; yields the address.

    Where the log ``is_public``, checkpoint and tiles need no token. ``gauges`` are what whoever serves counts. Raises
    Refused: ``NOT_TRUSTED``: the tokens in the folder may be a stranger's. Unavailable: as ``server.serving``.
    """
    with contextlib.closing(Web(client, is_public=is_public, gauges=gauges)) as web:
        allowed = hosts(client, listening.getsockname()[0])
        app = TrustedHostMiddleware(web.application(), allowed_hosts=allowed, www_redirect=False)
        async with serving(app, listening) as url:
            yield url


class Web:
    """A ledger's answers over HTTP, and whom they are for."""

    def __init__(self, client: LocalClient, *, is_public: bool = False, gauges: Gauges | None = None) -> None:
        trust.demand(client.settings.home, client)
        self.api = Api(client)
        self._client = client
        self._tokens = Tokens(client.settings.home)
        self._is_public = is_public
        self._description = resources.files(__package__).joinpath("openapi.json").read_bytes()
        self._registry = CollectorRegistry()
        own: Gauges = {
            "log_entries": lambda: self.api.size, "http_followers": lambda: self.api.followers.present,
            "views_behind_entries": lambda: self.api.size - max(self.api.folded[False], 0),
        }  # fmt: skip
        for name, value in {**own, **(gauges or {})}.items():
            Gauge(f"baton_{name}", name.replace("_", " "), registry=self._registry).set_function(value)

    def close(self) -> None:
        """Let go of the views."""
        self.api.close()

    def application(self) -> ASGIApp:
        """Return what a server runs."""
        routes = [
            Route(HEALTH, lambda _: _json(document("health", {"status": "ok", "entries": self.api.size}))),
            Route(METRICS, lambda _: Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)),
            Route(ROOT, lambda _: _json(document("api", {"paths": self._paths()}))),
            Route(DESCRIPTION, lambda _: Response(self._description, media_type=JSON)),
            *self.api.routes(),
            *log.routes_of(self._client),
        ]
        # Without redirects: one would lead to the Host that was sent.
        return _Door(Router(routes, redirect_slashes=False, default=_missing), self._check, self._registry)

    def _paths(self) -> list[dict[str, Any]]:
        gets = {path: one["get"] for path, one in msgspec.json.decode(self._description)["paths"].items()}
        names = {path: [one["name"] for one in get["parameters"]] for path, get in gets.items()}
        return [{"path": path, "meaning": get["summary"], "arguments": names[path]} for path, get in gets.items()]

    def _check(self, path: str, header: str) -> None:
        """Raise Refused: ``TOKEN_INVALID`` without a token for this ledger, ``NOT_AUTHORIZED`` with another role."""
        if path in (ROOT, DESCRIPTION, HEALTH) or (self._is_public and path.startswith(("/checkpoint", "/tile/"))):
            return
        role = self._tokens.check(header, self._client).role
        if (role == "metrics") != (path == METRICS):
            raise Refused("NOT_AUTHORIZED", f"{path[:200]} is not for a token of the role {role}", role=role)


class _Door:
    """Lets in what is a question of somebody who may ask it, and counts and times every request."""

    def __init__(self, app: ASGIApp, check: Callable[[str, str], None], registry: CollectorRegistry) -> None:
        self._app, self._check = app, check
        self._requests = Counter("baton_http_requests", "Requests", ("route", "status"), registry=registry)
        self._seconds = Histogram(
            "baton_http_request_seconds", "Seconds until an answer was sent, but of streams", ("route",),
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, start = time.perf_counter(), Headers()

        async def send_noted(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = MutableHeaders(scope=message)
                start.setdefault("x-content-type-options", "nosniff")
                scope["baton.status"] = message["status"]
            await send(message)

        try:
            await (self._stopped(scope) or self._app)(scope, receive, send_noted)
        except BatonError as error:
            await refused(error)(scope, receive, send_noted)
        except Exception as error:  # what nobody foresaw is an answer, too
            _log.exception("%s failed", scope["path"])
            if "baton.status" in scope:
                raise
            message = f"{type(error).__name__}: the log of `baton serve` says more"
            await refused(BatonError("UNEXPECTED", message))(scope, receive, send_noted)
        route = scope.get("baton.route") or getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, str(scope.get("baton.status", 500))).inc()
        if "x-accel-buffering" not in start:
            self._seconds.labels(route).observe(time.perf_counter() - began)

    def _stopped(self, scope: Scope) -> Response | None:
        """Return the answer to what goes no further; None for what does. Raises Refused: as ``Web._check``."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if method not in METHODS.split(", "):
            return refused(Refused("USAGE", f"here one only reads: {METHODS}"), 405, allow=METHODS)
        if len(path) + len(scope["query_string"]) > address_max_chars:
            return refused(Refused("TOO_LARGE", f"an address has at most {address_max_chars} characters"), 414)
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return refused(Refused("TOO_LARGE", "a question has no body: ask by the address"))
        if method == "OPTIONS":
            return Response(status_code=204, headers={"allow": METHODS})
        scope[CHECK] = partial(self._check, path, headers.get("authorization", ""))
        scope[CHECK]()
        return None


def _json(value: object) -> Response:
    return Response(json_text(value), headers={"cache-control": "no-cache"}, media_type=JSON)


async def _missing(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Refused("NOT_FOUND", f"there is nothing at {scope['path'][:200]}: {ROOT} lists what there is")
