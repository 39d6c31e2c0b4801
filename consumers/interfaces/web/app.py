"""The application of `deed serve --web`: the API, the metrics, and the checks before every request that reads.

``writes`` answers the paths that write. For all others, the checks refuse other methods, requests with a body,
addresses that are too long, and requests without a valid token. Only the description of the API and the health check
need no token. The log's entries contain all content, so tiles need a token unless the operator made the log public. No
header allows pages of other sites to read (CORS). A thread answers each request, so that a slow one delays neither the
node's event loop nor its agents; after ``answer_wait_max_s`` the request fails.

Answers of 500 bytes and more are compressed for clients that accept gzip, except events that are followed, which would
be held back, and blobs and tiles, which are hashes or foreign files. The length of a compressed answer can leak a
secret (BREACH) only if a page of another site can make the reader's browser request it. No browser sends a bearer token
by itself, and no answer contains one. The dashboard has cookies and form tokens, so its pages are not compressed. An
ETag is weak, so it is the same for the compressed and the plain form.

Routes are found by their text in one table, because a router that tries patterns one after the other takes a tenth of
an answer's time (measured). The metrics use prometheus-client, one small package without dependencies. A metric has the
route of the table as its label, never the requested address, because a thousand ids would make a thousand series.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, Info, generate_latest
from prometheus_client import ProcessCollector as Process
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response

from deedbook.consumers.interfaces.web.api import BYTES, JSON, Api, ApiRequest, Health, PathLine, PathList, refused
from deedbook.consumers.interfaces.web.questions import ROOT
from deedbook.consumers.interfaces.web.server import hosts, serving
from deedbook.consumers.interfaces.web.stream import CHECK, EVENT_STREAM, READER, Followers
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.consumers.interfaces.web.writes import Submit, Writes
from deedbook.consumers.sdk.version import commit
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable, did_you_mean, near
from deedbook.ledger.home import trust
from deedbook.ledger.system import traces
from deedbook.ledger.system.metrics import METRIC_DEFINITIONS, SECONDS, Metrics

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from deedbook.consumers.interfaces.web.server import Tls
    from deedbook.ledger.client.local import LocalClient

Gauges = Mapping[str, Callable[[], float]]
METHODS: Final = "GET, HEAD, OPTIONS"
METRICS: Final = "/metrics"
HEALTH: Final = "/healthz"
DESCRIPTION: Final = f"{ROOT}/openapi.json"
answer_wait_max_s: Final = 30.0
gzip_level: Final = 6
questions_running_max: Final = 8
address_max_chars: Final = 12_288
_HOST: Final = re.compile(r"([^\s:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_CODING: Final = re.compile(r"([A-Za-z0-9*_-]+)[ \t]*(?:;[ \t]*[qQ]=([0-9](?:\.[0-9]{0,3})?))?[ \t]*(?:,|$)")
_log: Final = logging.getLogger("deedbook.web")


@contextlib.asynccontextmanager
async def publishing(
    client: LocalClient,
    listening: socket.socket,
    *,
    tls: Tls | None = None,
    is_public: bool = False,
    gauges: Gauges | None = None,
    metrics: Metrics | None = None,
    submit: Submit | None = None,
) -> AsyncIterator[str]:
    """Serve a ledger on a bound socket within the block; yields the address.

    If the log ``is_public``, checkpoint and tiles need no token. ``gauges``, ``metrics`` and ``submit`` are the node's
    own; without ``submit`` nothing can be written.
    Raises Refused: ``NOT_TRUSTED``, because the tokens in an untrusted folder may be a stranger's. Unavailable: as
    ``server.serving``.
    """
    with contextlib.closing(Web(client, is_public=is_public, gauges=gauges, metrics=metrics, submit=submit)) as web:
        app: ASGIApp = Compressed(web)
        if tls is None:  # With TLS, a browser refuses the certificate under another site's name.
            app = OwnNames(app, hosts(client, listening.getsockname()[0]))
        async with serving(app, listening, tls=tls) as url:
            try:
                yield url
            finally:
                web.end()


class OwnNames:
    """Refuses requests for another host name, against DNS rebinding, with a problem document."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        host = Headers(scope=scope).get("host", "")
        if (_HOST.fullmatch(host) or [""] * 2)[1].lower() in self._names:
            await self._app(scope, receive, send)
            return
        message = f"this server is not {host[:200]!r}: use its own address, or a name in the origin of its log"
        await refused(Refused("USAGE", message))(scope, receive, send)


class Compressed(GZipMiddleware):
    """Compresses long answers for clients that accept gzip. Starlette ignores ``gzip;q=0`` (RFC 9110 §12.4.2)."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, compresslevel=gzip_level, exclude_content_types=(EVENT_STREAM, BYTES))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        if accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            headers.append((b"accept-encoding", b"gzip"))
        scope["headers"] = headers  # in place: the server finds a connection by its scope
        await super().__call__(scope, receive, send)


def accepts_gzip(header: str) -> bool:
    """Return whether an ``Accept-Encoding`` header accepts gzip: by its name, or by ``*``, with a weight above 0."""
    weights = {match[1].lower(): float(match[2] or 1) for match in _CODING.finditer(header)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


class Web:
    """The read API of a ledger as an ASGI application, with authentication and metrics."""

    def __init__(
        self,
        client: LocalClient,
        *,
        is_public: bool = False,
        gauges: Gauges | None = None,
        metrics: Metrics | None = None,
        submit: Submit | None = None,
    ) -> None:
        trust.demand(client.settings.home, client)
        self.followers = Followers()
        self.api = Api(client, self.followers, is_public=is_public)
        self._client = client
        self._tokens = Tokens(client.settings.home)
        self._threads = ThreadPoolExecutor(questions_running_max, thread_name_prefix="deedbook-web")
        self._description = resources.files(__package__).joinpath("openapi.json").read_bytes()
        # These use no view and are answered at once, even if all threads are busy.
        self._at_once: dict[str, Callable[[ApiRequest], Response]] = {
            HEALTH: lambda request: request.document("health", Health(entries=request.size)),
            METRICS: lambda request: request.answer(generate_latest(registry), CONTENT_TYPE_LATEST),
            ROOT: lambda request: request.document("api", PathList(paths=self._paths())),
            DESCRIPTION: lambda request: request.answer(self._description, JSON),
        }
        self._routes = self._at_once | self.api.routes()
        self._writes = Writes(client, self._tokens, self._threads, submit)
        self._prefixes = {route.partition("{")[0]: route for route in self._routes if "{" in route}
        self._open = {ROOT, DESCRIPTION, HEALTH} | ({"/checkpoint", self._prefixes["/tile/"]} if is_public else set())
        own: Gauges = {
            "log_entries": lambda: self.api.size,
            "http_followers": lambda: self.followers.present,
            "views_behind_entries": lambda: self.api.size - self.api.rebuild.position(),
        }
        registry = _new_registry(metrics, {**own, **(gauges or {})})
        self._seconds = Histogram(
            "deedbook_http_request_seconds",
            "Requests, and the seconds until each began to be answered",
            ("route", "status"),
            registry=registry,
            buckets=SECONDS,
        )

    def end(self) -> None:
        """End everything that only the client would end: streams, and bodies that arrive slowly."""
        self.followers.end()
        self._writes.end()

    def close(self) -> None:
        """Close the views."""
        self._threads.shutdown(cancel_futures=True)
        self.api.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route, ref = self._route_of(scope["path"])
        with traces.span(f"HTTP {route}", Headers(scope=scope)) as noted:
            noted["http.request.method"], noted["http.route"] = scope["method"], route
            await self._respond(scope, receive, send, route, ref, noted=noted)

    async def _respond(
        self, scope: Scope, receive: Receive, send: Send, route: str, ref: str, *, noted: traces.Attributes
    ) -> None:
        start_s, has_begun = time.perf_counter(), False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun, noted["http.response.status_code"] = True, message["status"]
                self._seconds.labels(route, str(message["status"])).observe(time.perf_counter() - start_s)
            await send(message)

        try:
            if route in self._writes.routes:
                answer = await self._writes.answer(route, scope, receive)
            else:
                answer = await self._answer(scope, route, ref)
            await answer(scope, receive, send_noted)
        except Exception as error:  # an unexpected error is answered, too
            if not isinstance(error, DeedbookError):
                _log.exception("%s failed", scope["path"])
                error = DeedbookError("UNEXPECTED", f"{type(error).__name__}: see the log of `deed serve`")
            traces.note(noted, error)
            if has_begun:
                raise
            await refused(error)(scope, receive, send_noted)

    def _route_of(self, path: str) -> tuple[str, str]:
        """Return the route of a path, and the value of the route's placeholder."""
        for prefix, route in self._prefixes.items():
            if path.startswith(prefix):
                return route, path.removeprefix(prefix)
        return (path if path in self._routes or path in self._writes.routes else "other"), ""

    async def _answer(self, scope: Scope, route: str, ref: str) -> Response:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if method not in METHODS.split(", "):
            return refused(Refused("USAGE", f"this path is read-only: use {METHODS}"), 405, allow=METHODS)
        if len(path) + len(scope["query_string"]) > address_max_chars:
            return refused(Refused("TOO_LARGE", f"an address may have at most {address_max_chars} characters"), 414)
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise Refused("TOO_LARGE", "requests must have no body: send arguments in the address")
        if method == "OPTIONS":
            return Response(status_code=204, headers={"allow": METHODS})
        scope[CHECK] = partial(self._check, scope, route, headers.get("authorization", ""))
        size = scope[CHECK]()
        if (answer := self._routes.get(route)) is None:
            alike = near(path[:200], self._routes)
            advice = did_you_mean(alike) or f": {ROOT} lists all paths"
            raise Refused("NOT_FOUND", f"there is nothing at {path[:200]}{advice}", near=alike)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        request = ApiRequest(route, ref, query, headers, size)
        if route in self._at_once:
            return answer(request)
        try:
            async with asyncio.timeout(answer_wait_max_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, answer, request)
        except TimeoutError as error:
            message = f"the answer took longer than {answer_wait_max_s:g} s: request fewer rows, or try again later"
            raise Unavailable("BUSY", message) from error

    def _check(self, scope: Scope, route: str, header: str) -> int:
        """Return the log's size, and note the agent of the token.

        Raises Refused: ``TOKEN_INVALID`` without a token for this ledger, ``NOT_AUTHORIZED`` with another role.
        """
        with self._client.log.snapshot() as snapshot:
            if route not in self._open:
                token = self._tokens.check(header, snapshot)
                role, scope[READER] = token.role, token.agent
                if (role == "metrics") != (route == METRICS):
                    message = f"a token with the role {role} may not read {scope['path'][:200]}"
                    raise Refused("NOT_AUTHORIZED", message, role=role)
            return snapshot.size

    def _paths(self) -> list[PathLine]:
        paths: dict[str, dict[str, Any]] = msgspec.json.decode(self._description)["paths"]
        return [
            PathLine(
                path=path,
                method=method.upper(),
                meaning=operation["summary"],
                # A shared parameter has its own name.
                arguments=[
                    item["name"] if "name" in item else item["$ref"].rpartition("/")[2]
                    for item in operation["parameters"]
                ],
            )
            for path, item in paths.items()
            for method, operation in item.items()
        ]


class _MetricsCollector(NamedTuple):
    """A prometheus collector of the node's metrics; gauges are read only when somebody requests the metrics."""

    metrics: Metrics

    def collect(self) -> Iterator[Metric]:
        for name, definition in METRIC_DEFINITIONS.items():
            values = self.metrics.values(name)
            if definition.bounds:
                bounds, counts = [*map(str, definition.bounds), "+Inf"], accumulate(self.metrics.bucket_counts(name))
                buckets = [*zip(bounds, counts, strict=True)]
                yield HistogramMetricFamily(f"deedbook_{name}", definition.help, buckets=buckets, sum_value=values[""])
                continue
            family = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
            metric = family(f"deedbook_{name}", definition.help, labels=[definition.label] if definition.label else [])
            for label, value in values.items():
                metric.add_metric([label] if definition.label else [], value)
            yield metric


def _new_registry(metrics: Metrics | None, gauges: Gauges) -> CollectorRegistry:
    """Return the metrics of `/metrics`: the process, the node's counters (None: no node), and gauges by name."""
    registry = CollectorRegistry()
    Process(registry=registry)
    build = Info("deedbook_build", "The version and the commit that run", registry=registry)
    build.info({"version": version("deedbook"), "commit": commit()})
    if metrics is not None:
        registry.register(_MetricsCollector(metrics))
    for name, value in gauges.items():
        Gauge(f"deedbook_{name}", name.replace("_", " "), registry=registry).set_function(value)
    return registry
