"""The dashboard as a web application: routes, errors, JSON twins, launch, forms and static files.

Requests read the ledger in a worker thread, never on the event loop, so a slow page does not delay the live tails.
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
from deedbook.consumers.interfaces.dashboard.facets import WrongFilter
from deedbook.consumers.interfaces.dashboard.guard import HEADERS, Guard, Session, check_host, check_origin
from deedbook.consumers.interfaces.dashboard.live import heads
from deedbook.consumers.interfaces.dashboard.page import Download, Page, PageContext, Redirect, Route, templates
from deedbook.consumers.interfaces.dashboard.pages import DOWNLOADS, FORMS, ROUTES
from deedbook.consumers.interfaces.dashboard.pages.audit import checkpoint
from deedbook.consumers.interfaces.dashboard.signer import why_unusable
from deedbook.consumers.interfaces.web.rebuild import Rebuild
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.interfaces.web.stream import EVENT_STREAM, Followers, Stream, followers_max
from deedbook.consumers.sdk.text import document, error_document, json_text
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import DeedbookError, Refused

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger

form_size_max_bytes: Final = 64 * 1024
fields_max: Final = 100
away_min_ms: Final = 10 * 60_000
"""A person who has not looked at the queue for this long was away: the page then counts the events since."""

away_max_s: Final = 400 * 86_400
_AWAY: Final = re.compile(r"([0-9]{0,15})\.([0-9]{1,15})\.([0-9]{1,15})", re.ASCII)
_log: Final = logging.getLogger("deedbook.dashboard")


class Dashboard:
    """One dashboard: a ledger, the human who may decide in it, and the browsers that are logged in."""

    def __init__(
        self,
        ledger: Ledger,
        guard: Guard,
        *,
        human: str | None = None,
        why_not: str = "",
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``why_not`` is shown if there is no ``human``: the reason why nobody can decide here."""
        self.ledger = ledger
        self.guard = guard
        self.human = human
        self.clock_ms = clock_ms
        self._why_not = why_not
        self._templates = templates()
        self.followers = Followers(of_agent=followers_max)  # all of them are of the person who opened it
        self._rebuild = Rebuild(ledger.client, ledger.settings) if ledger.settings.server is None else None
        self._away_cookie = f"deedbook_left_{ledger.client.ledger[:12]}"
        self._audit = Audit(ledger.settings)
        self._checkpoint: tuple[int, dict[str, Any]] = (-2, {})

    def close(self) -> None:
        """End the live connections, for which a stopping server waits, and a running audit; close the views."""
        self.followers.end()
        self._audit.close()
        if self._rebuild is not None:
            self._rebuild.reader.close()

    def application(self) -> ASGIApp:
        """Return the ASGI application; Starlette runs handlers that are not coroutines in a worker thread."""
        routes = [
            WebRoute("/launch", self._launch),
            Mount("/static", StaticFiles(packages=[(__package__, "static")])),
            WebRoute("/live", self._live),
            *(WebRoute(route.path, partial(self._answer, route, route.show)) for route in ROUTES + DOWNLOADS),
            *(WebRoute(route.path, partial(self._post, route), methods=["POST"]) for route in FORMS),
            WebRoute("/{rest:path}", partial(self._answer, Route("", "error", _nothing), _nothing)),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False
        return _RequestFilter(app)

    def _launch(self, request: Request) -> Response:
        cookie = self.guard.launch(request.query_params.get("token", ""), self.clock_ms())
        if cookie is None and self._session(request) is None:
            return self._closed(request, "This link has expired or was already used.")
        response = RedirectResponse(own_path(request.query_params.get("next", "/")), 303)
        if cookie is not None:
            response.set_cookie(self.guard.cookie, cookie, httponly=True, samesite="strict")
        return response

    def _session(self, request: Request) -> Session | None:
        return self.guard.session(request.cookies.get(self.guard.cookie))

    async def _live(self, request: Request) -> Response:
        if self._session(request) is None:
            return PlainTextResponse("open the link that `deed dashboard` prints\n", 401)
        if self.followers.present >= self.followers.limit:
            return PlainTextResponse("too many live connections: close a tab\n", 503)
        return Stream(heads(self.ledger.client, self.followers.threads), EVENT_STREAM, self.followers)

    async def _post(self, route: Route, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            if len(body := body + part) > form_size_max_bytes:
                break
        return await run_in_threadpool(
            self._answer, route, lambda context: route.show(context, _form(request, body)), request
        )

    def _answer(
        self, route: Route, show: Callable[[PageContext], Page | Redirect | Download], request: Request
    ) -> Response:
        if (session := self._session(request)) is None:
            return self._closed(request, "")
        context = None
        try:
            context = self._context(request, session, route)
            return self._respond(request, route, context, show(context))
        except DeedbookError as refused:
            error = refused
        except Exception as failure:  # noqa: BLE001 - any failure becomes an error page and is logged
            _log.exception("%s failed", request.url.path)
            message = f"{type(failure).__name__}: please report it with the log in the dashboard's terminal"
            error = DeedbookError("UNEXPECTED", message)
        if request.scope.get("is_json"):
            return _json(error_document(error), status_of(error))
        progress = {name: error.details.get(name) for name in ("position", "size")}
        data = {"code": error.code, "message": error.message, "recoverable": error.recoverable, **progress}
        data["facets"] = error.form if isinstance(error, WrongFilter) else None
        return self._respond(request, route, context, Page("error.html", error.code, data, status_of(error)))

    def _respond(
        self, request: Request, route: Route, context: PageContext | None, page: Page | Redirect | Download
    ) -> Response:
        if isinstance(page, Redirect):
            return RedirectResponse(page.path, 303)
        if isinstance(page, Download):
            return PlainTextResponse(page.text, headers={"content-disposition": f'attachment; filename="{page.name}"'})
        if request.scope.get("is_json"):
            return _json(document(route.name, page.data), page.status)
        response = self._rendered(request, route.name, context, page)
        if page.status == 503:  # the page reloads itself, also without scripts
            response.headers["refresh"] = "2"
        if route.name == "home" and context is not None and context.as_of is None:
            value = f"{'' if context.left is None else context.left}.{context.head}.{self.clock_ms()}"
            response.set_cookie(self._away_cookie, value, max_age=away_max_s, httponly=True, samesite="strict")
        return response

    def _rendered(self, request: Request, name: str, context: PageContext | None, page: Page) -> Response:
        """Return a page in its frame: the position in the log, the user, and the menu."""
        is_answer = request.method == "POST"  # the answer to a form, whose address has no page to reload
        path = page.path or ("/" if is_answer else request.url.path)
        frame: dict[str, Any] = {
            "title": page.title,
            "name": name,
            "path": path,
            "human": context and self.human,
            "why_unusable": why_unusable(self.ledger, self.human) if context and self.human else "",
            "why_not": self._why_not,
            "waits": 0,
            "query": {},
            "is_answer": is_answer,
            "menu": [{"path": route.path, "name": route.name, "title": route.menu} for route in ROUTES if route.menu],
            "now_ms": self.clock_ms(),
            "head": None,
            "as_of": None,
            "instant": None,
            "session": None,
            "checkpoint": self._signed(context) if context and context.as_of is None and page.status == 200 else None,
        }
        if context is not None:
            frame |= {
                field: getattr(context, field) for field in ("query", "now_ms", "head", "as_of", "instant", "session")
            }
            if self.human is not None and page.status == 200:
                args = {"agent": self.human, "limit": 1}  # only the number is shown, so no entry is verified
                frame["waits"] = context.client.view("handoffs.waits", args, context.instant)["total"]
        text = self._templates.get_template(page.template).render(**page.data, frame=frame)
        return Response(text, page.status, media_type="text/html; charset=utf-8")

    def _signed(self, context: PageContext) -> dict[str, Any]:
        """Return the checkpoint for the page header; it is signed and compared once for each size of the log."""
        size, cached = self._checkpoint
        if size != context.head or cached["why_not"]:
            self._checkpoint = context.head, checkpoint(context)
        return self._checkpoint[1]

    def _closed(self, request: Request, why: str) -> Response:
        if request.scope.get("is_json"):
            error = Refused("NOT_AUTHORIZED", "open the link that `deed dashboard` prints, then try again")
            return _json(error_document(error), 401)
        return self._rendered(request, "closed", None, Page("closed.html", "Closed", {"why": why}, 401))

    def _context(self, request: Request, session: Session, route: Route) -> PageContext:
        size, now_ms = self.ledger.client.head().size, self.clock_ms()
        if self._rebuild is not None:
            self._rebuild.demand(size, searches=route.searches and bool(request.query_params.get("text")))
        query, as_of = dict(request.query_params), None
        if instant := query.pop("as_of", None) or None:
            instant = parse_moment(instant)  # so that "yesterday" stays the same day in every link of the page
            answer = self.ledger.ask("catalog.instant", at=instant)
            as_of, now_ms = answer["event_index"], answer["now_ms"]
        return PageContext(
            ledger=self.ledger,
            session=session,
            head=size - 1,
            now_ms=now_ms,
            params=request.path_params,
            query=query,
            as_of=as_of,
            instant=instant,
            human=self.human,
            left=self._left(request),
            audit=self._audit,
            leave=self.guard.leave,
        )

    def _left(self, request: Request) -> int | None:
        """Return the log's last index when this browser's user went away; None if they were here all the time."""
        if (match := _AWAY.fullmatch(request.cookies.get(self._away_cookie, ""))) is None:
            return None
        left_at, last, at_ms = match.groups()
        return int(last) if self.clock_ms() - int(at_ms) > away_min_ms else int(left_at) if left_at else None


class _RequestFilter:
    """Refuses requests for another host, adds the security headers, and recognizes requests for JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-cache")  # cached, and revalidated by its ETag
                headers.update({name: headers.get(name, value) for name, value in HEADERS.items()})
            await send(message)

        try:
            check_host(Headers(scope=scope))
        except Refused as refusal:
            await PlainTextResponse(f"{refusal.message}\n", 400)(scope, receive, send_with_headers)
            return
        # Look in the raw path: an id may end in .json, too, and is then percent-encoded (`path_to`).
        if scope.get("raw_path", b"").endswith(b".json"):
            scope = {**scope, "path": scope["path"].removesuffix(".json"), "is_json": True}
        await self._app(scope, receive, send_with_headers)


def _nothing(_: PageContext) -> Page:
    raise Refused("NOT_FOUND", "there is no such page: use the menu at the top")


def _form(request: Request, body: bytes) -> Mapping[str, str]:
    """Return the fields of a form. Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT``; as ``check_origin``."""
    check_origin(request.headers)
    if len(body) > form_size_max_bytes:
        raise Refused("TOO_LARGE", f"a form has at most {form_size_max_bytes} bytes", limit=form_size_max_bytes)
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=fields_max, errors="strict"))
    except ValueError as error:  # also raised for bytes that are not UTF-8
        raise Refused("INVALID_FORMAT", "the request is not a form of this dashboard") from error


def _json(answer: dict[str, Any], status: int) -> Response:
    return Response(json_text(answer), status, media_type="application/json")
