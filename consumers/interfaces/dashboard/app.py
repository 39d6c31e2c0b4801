"""The dashboard as a web application: routes, errors, JSON twins, launch, forms and static files.

Whatever asks the ledger runs in a worker thread, never on the event loop: a slow page holds up nobody's live tail.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as WebRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deedbook.consumers.interfaces.dashboard.address import own_path
from deedbook.consumers.interfaces.dashboard.audit import Audit
from deedbook.consumers.interfaces.dashboard.guard import HEADERS, Guard, Session, check_host, check_origin
from deedbook.consumers.interfaces.dashboard.live import heads
from deedbook.consumers.interfaces.dashboard.page import Go, Page, Route, Seen, templates
from deedbook.consumers.interfaces.dashboard.pages import OPERATION_ROUTES, ROUTES
from deedbook.consumers.interfaces.dashboard.pages.audit import checkpoint
from deedbook.consumers.interfaces.web.rebuild import Rebuild
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.interfaces.web.stream import EVENT_STREAM, Followers, Stream
from deedbook.consumers.sdk.text import document, error_document, json_text
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import DeedbookError, Refused

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger

form_size_max_bytes: Final = 64 * 1024
fields_max: Final = 100
away_min_ms: Final = 10 * 60_000
"""After so long without a look at the queue somebody was away, and is told what came since."""

away_max_s: Final = 400 * 86_400
_AWAY: Final = re.compile(r"([0-9]{0,15})\.([0-9]{1,15})\.([0-9]{1,15})", re.ASCII)
_log: Final = logging.getLogger("deedbook.dashboard")


class Dashboard:
    """One dashboard: a ledger, who may decide in it, and the browsers that look at it."""

    def __init__(
        self,
        ledger: Ledger,
        guard: Guard,
        *,
        human: str | None = None,
        why_not: str = "",
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``why_not`` says in words why nobody can decide here, where there is no ``human``."""
        self.ledger = ledger
        self.guard = guard
        self.human = human
        self.clock_ms = clock_ms
        self._why_not = why_not
        self._templates = templates()
        self.followers = Followers()
        self._rebuild = Rebuild(ledger.client, ledger.settings) if ledger.settings.server is None else None
        self._away_cookie = f"deedbook_left_{ledger.client.ledger[:12]}"
        self._audit = Audit(ledger.settings)
        self._checkpoint: tuple[int, dict[str, Any]] = (-2, {})

    def close(self) -> None:
        """End the live tails, so that a server need not wait for them, and an audit, and close the views."""
        self.followers.end()
        self._audit.close()
        if self._rebuild is not None:
            self._rebuild.reader.close()

    def application(self) -> ASGIApp:
        """Return what a server runs; what is no coroutine, it runs in a worker thread."""
        routes = [
            WebRoute("/launch", self._launch),
            Mount("/static", StaticFiles(packages=[(__package__, "static")])),
            WebRoute("/live", self._live),
            *(WebRoute(one.path, partial(self._answer, one, one.show)) for one in ROUTES),
            *(WebRoute(one.path, partial(self._post, one), methods=["POST"]) for one in OPERATION_ROUTES),
            WebRoute("/{rest:path}", partial(self._answer, Route("", "error", _nothing), _nothing)),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False
        return _Door(app)

    def _launch(self, request: Request) -> Response:
        cookie = self.guard.launch(request.query_params.get("token", ""), self.clock_ms())
        if cookie is None and self._session(request) is None:
            return self._closed(request, "This link was used already, or is too old.")
        response = RedirectResponse(own_path(request.query_params.get("next", "/")), 303)
        if cookie is not None:
            response.set_cookie(self.guard.cookie, cookie, httponly=True, samesite="strict")
        return response

    def _session(self, request: Request) -> Session | None:
        return self.guard.session(request.cookies.get(self.guard.cookie))

    async def _live(self, request: Request) -> Response:
        if self._session(request) is None:
            return PlainTextResponse("open the link that `deed dashboard` prints\n", 401)
        if self.followers.present >= self.followers.places:
            return PlainTextResponse("too many look at this already: close a tab\n", 503)
        return Stream(heads(self.ledger.client, self.followers.threads), EVENT_STREAM, self.followers)

    async def _post(self, route: Route, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            if len(body := body + part) > form_size_max_bytes:
                break
        return await run_in_threadpool(
            self._answer, route, lambda seen: route.show(seen, _form(request, body)), request
        )

    def _answer(self, route: Route, show: Callable[[Seen], Page | Go], request: Request) -> Response:
        if (session := self._session(request)) is None:
            return self._closed(request, "")
        seen = None
        try:
            seen = self._seen(request, session, route)
            return self._shown(request, route, seen, show(seen))
        except DeedbookError as refusal:
            error = refusal
        except Exception as fault:  # noqa: BLE001 - whatever a page runs into is a page, too, and is logged
            _log.exception("%s failed", request.url.path)
            message = f"{type(fault).__name__}: the terminal that the dashboard runs in says more; please report it"
            error = DeedbookError("UNEXPECTED", message)
        if request.scope.get("is_json"):
            return _json(error_document(error), status_of(error))
        done = {name: error.details.get(name) for name in ("position", "size")}
        data = {"code": error.code, "message": error.message, "recoverable": error.recoverable, **done}
        return self._shown(request, route, seen, Page("error.html", error.code, data, status_of(error)))

    def _shown(self, request: Request, route: Route, seen: Seen | None, page: Page | Go) -> Response:
        if isinstance(page, Go):
            return RedirectResponse(page.path, 303)
        if request.scope.get("is_json"):
            return _json(document(route.name, page.data), page.status)
        response = self._drawn(request, route.name, seen, page)
        if page.status == 503:  # also without scripts it comes back by itself
            response.headers["refresh"] = "2"
        if route.name == "home" and seen is not None and seen.as_of is None:
            value = f"{'' if seen.left is None else seen.left}.{seen.head}.{self.clock_ms()}"
            response.set_cookie(self._away_cookie, value, max_age=away_max_s, httponly=True, samesite="strict")
        return response

    def _drawn(self, request: Request, name: str, seen: Seen | None, page: Page) -> Response:
        """Return a page in its frame: where it is in the log, who looks, and where one can go."""
        is_answer = request.method == "POST"  # to a form: what is asked for again is another page
        path = page.path or ("/" if is_answer else request.url.path)
        frame: dict[str, Any] = {
            "title": page.title,
            "name": name,
            "path": path,
            "human": seen and self.human,
            "why_not": self._why_not,
            "waits": 0,
            "query": {},
            "is_answer": is_answer,
            "menu": [{"path": one.path, "name": one.name, "title": one.menu} for one in ROUTES if one.menu],
            "now_ms": self.clock_ms(),
            "head": None,
            "as_of": None,
            "moment": None,
            "session": None,
            "checkpoint": self._signed(seen) if seen and seen.as_of is None and page.status == 200 else None,
        }
        if seen is not None:
            frame |= {of: getattr(seen, of) for of in ("query", "now_ms", "head", "as_of", "moment", "session")}
            if self.human is not None and page.status == 200:
                asked = {"agent": self.human, "limit": 1}  # a number alone, for which no entry is checked
                frame["waits"] = seen.client.view("handoffs.next", asked, seen.moment)["total"]
        text = self._templates.get_template(page.template).render(**page.data, frame=frame)
        return Response(text, page.status, media_type="text/html; charset=utf-8")

    def _signed(self, seen: Seen) -> dict[str, Any]:
        """Return what the head of each page says of the log, signed and compared once for each end of it."""
        size, kept = self._checkpoint
        if size != seen.head or kept["why_not"]:
            self._checkpoint = seen.head, checkpoint(seen)
        return self._checkpoint[1]

    def _closed(self, request: Request, why: str) -> Response:
        if request.scope.get("is_json"):
            error = Refused("NOT_AUTHORIZED", "open the link that `deed dashboard` prints, and ask again")
            return _json(error_document(error), 401)
        return self._drawn(request, "closed", None, Page("closed.html", "Closed", {"why": why}, 401))

    def _seen(self, request: Request, session: Session, route: Route) -> Seen:
        size, now_ms = self.ledger.client.head().size, self.clock_ms()
        if self._rebuild is not None:
            self._rebuild.demand(size, searches=route.searches)
        query, as_of = dict(request.query_params), None
        if moment := query.pop("as_of", None) or None:
            moment = parse_moment(moment)  # "yesterday" is a day for good in every link of the page
            there = self.ledger.ask("catalog.instant", at=moment)
            as_of, now_ms = there["event_index"], there["now_ms"]
        return Seen(
            ledger=self.ledger,
            session=session,
            head=size - 1,
            now_ms=now_ms,
            params=request.path_params,
            query=query,
            as_of=as_of,
            moment=moment,
            human=self.human,
            left=self._left(request),
            audit=self._audit,
            leave=self.guard.leave,
        )

    def _left(self, request: Request) -> int | None:
        """Return where the log ended when whoever looks had gone away; None for who was here all the time."""
        if (match := _AWAY.fullmatch(request.cookies.get(self._away_cookie, ""))) is None:
            return None
        left, last, at_ms = match.groups()
        return int(last) if self.clock_ms() - int(at_ms) > away_min_ms else int(left) if left else None


class _Door:
    """Lets in what was sent to this host, says the headers of every answer, and tells who asks for JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-cache")  # kept, and asked for by its ETag
                headers.update({name: headers.get(name, value) for name, value in HEADERS.items()})
            await send(message)

        try:
            check_host(Headers(scope=scope))
        except Refused as refusal:
            await PlainTextResponse(f"{refusal.message}\n", 400)(scope, receive, send_with_headers)
            return
        # In the raw path: the id of a thing may end in .json, too, and is then written with an escape (`path_to`).
        if scope.get("raw_path", b"").endswith(b".json"):
            scope = {**scope, "path": scope["path"].removesuffix(".json"), "is_json": True}
        await self._app(scope, receive, send_with_headers)


def _nothing(_: Seen) -> Page:
    raise Refused("NOT_FOUND", "there is no such page: the head of this one leads to those there are")


def _form(request: Request, body: bytes) -> Mapping[str, str]:
    """Return the fields of a form, each name once. Raises Refused: another's, or ``TOO_LARGE``, ``INVALID_FORMAT``."""
    check_origin(request.headers)
    if len(body) > form_size_max_bytes:
        raise Refused("TOO_LARGE", f"a form has at most {form_size_max_bytes} bytes", limit=form_size_max_bytes)
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=fields_max, errors="strict"))
    except ValueError as error:  # also what is not text in UTF-8
        raise Refused("INVALID_FORMAT", "what was sent is no form of this dashboard") from error


def _json(answer: dict[str, Any], status: int) -> Response:
    return Response(json_text(answer), status, media_type="application/json")
