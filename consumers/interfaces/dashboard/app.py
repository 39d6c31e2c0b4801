"""The dashboard as a web application: routes, errors, JSON twins, launch, forms and static files.

Requests read the ledger in a worker thread, never on the event loop, so a slow page does not delay the live tails.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
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

from deedbook.consumers.interfaces.dashboard.account import Account, account_of
from deedbook.consumers.interfaces.dashboard.address import own_path
from deedbook.consumers.interfaces.dashboard.audit import Audit
from deedbook.consumers.interfaces.dashboard.facets import WrongFilter
from deedbook.consumers.interfaces.dashboard.guard import HEADERS, Guard, Session
from deedbook.consumers.interfaces.dashboard.live import heads
from deedbook.consumers.interfaces.dashboard.page import Download, Page, PageContext, Redirect, Route, templates
from deedbook.consumers.interfaces.dashboard.pages import DOWNLOADS, FORMS, page_routes
from deedbook.consumers.interfaces.dashboard.pages.audit import checkpoint
from deedbook.consumers.interfaces.dashboard.signer import why_unusable
from deedbook.consumers.interfaces.web.rebuild import Rebuild
from deedbook.consumers.interfaces.web.server import status_of
from deedbook.consumers.interfaces.web.stream import CHECK, EVENT_STREAM, READER, Followers, Stream
from deedbook.consumers.sdk.text import document, error_document, json_text
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.projections.views.registry import SEARCH

if TYPE_CHECKING:
    from deedbook.consumers.sdk.ledger import Ledger

form_size_max_bytes: Final = 64 * 1024
fields_max: Final = 100
away_min_ms: Final = 10 * 60_000
"""A person who has not opened the queue for this long was away: the page then counts the events since."""

away_max_s: Final = 400 * 86_400
_AWAY: Final = re.compile(r"([0-9]{0,15})\.([0-9]{1,15})\.([0-9]{1,15})", re.ASCII)
_log: Final = logging.getLogger("deedbook.dashboard")


class Dashboard:
    """One dashboard: a ledger, and the logged-in browsers, each of which acts as one person."""

    def __init__(
        self,
        ledger: Ledger,
        guard: Guard,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.ledger = ledger
        self.guard = guard
        self.clock_ms = clock_ms
        self._templates = templates()
        self._pages: list[Route] = []
        self.followers = Followers()
        self._rebuild = Rebuild(ledger.client, ledger.settings) if ledger.settings.server is None else None
        self._audit = Audit(ledger.settings)
        self._checkpoint: tuple[int, dict[str, Any]] = (-2, {})

    def close(self) -> None:
        """End the live connections (a stopping server waits for them) and a running audit, and close the views."""
        self.followers.end()
        self._audit.close()
        if self._rebuild is not None:
            self._rebuild.reader.close()

    def application(self) -> ASGIApp:
        """Return the ASGI application; Starlette runs handlers that are not coroutines in a worker thread."""
        self._pages = page_routes()
        routes = [
            WebRoute("/launch", self._launch),
            WebRoute("/launch", self._launch_by_form, methods=["POST"]),
            Mount("/static", StaticFiles(packages=[(__package__, "static")])),
            WebRoute("/live", self._live),
            *(WebRoute(route.path, partial(self._answer, route, route.show)) for route in [*self._pages, *DOWNLOADS]),
            *(WebRoute(route.path, partial(self._post, route), methods=["POST"]) for route in FORMS),
            WebRoute("/{rest:path}", partial(self._answer, Route("", "error", _nothing), _nothing)),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False
        return _RequestFilter(app, self.guard)

    def _launch(self, request: Request) -> Response:
        # A page with a link to here, or a program that previews links in messages, must not log anybody in.
        is_own = request.headers.get("sec-fetch-site", "none") == "none" and request.method == "GET"
        return self._enter(request, request.query_params, is_agreed=is_own)

    async def _launch_by_form(self, request: Request) -> Response:
        body = await _body(request)
        return await run_in_threadpool(self._launch_with, request, body)

    def _launch_with(self, request: Request, body: bytes) -> Response:
        try:
            return self._enter(request, _form(self.guard, request, body), is_agreed=True)
        except Refused as refused:
            return self._closed(request, refused.message)

    def _enter(self, request: Request, args: Mapping[str, str], *, is_agreed: bool) -> Response:
        """Log a browser in by its launch link, after the person has agreed to the name; else ask the person."""
        link, session = self.guard.link(token := args.get("token", "")), self._session(request)
        if link is None:
            return self._closed(request, "This is no link of this dashboard.")
        if not is_agreed:
            data = {"token": token, "login": link.name, "next": args.get("next", "/")}
            page = self._rendered(request, "enter", None, Page("enter.html", "Log in", data))
            page.headers["referrer-policy"] = "origin"  # else a proxy would log the unused link (Referer)
            return page
        try:
            account = account_of(self.ledger, link.name)
        except DeedbookError as error:
            return self._closed(request, error.message, link.name)
        agent, cookie = request.headers.get("user-agent", ""), request.cookies.get(self.guard.cookie)
        new = self.guard.launch(link, account, self.clock_ms(), user_agent=agent, cookie=cookie)
        if new is None and (session is None or session.ended or session.name != link.name):
            why = (
                "This link has expired or was already used. If you did not use it, somebody else did: log in with a "
                "new one, and end the other logins on the page that opens when you click on your name."
            )
            return self._closed(request, why, link.name)
        response = RedirectResponse(own_path(args.get("next", "/")), 303)
        if new is not None:
            self.guard.set_cookie(response, self.guard.cookie, new)
        return response

    def _session(self, request: Request) -> Session | None:
        """Return the session of a browser, which may have ended; None if it has none."""
        return self.guard.session(request.cookies.get(self.guard.cookie), self.clock_ms())

    async def _live(self, request: Request) -> Response:
        if (session := self._session(request)) is None or session.ended:
            return PlainTextResponse("open the link that `deed dashboard` prints\n", 401)
        try:
            self.followers.check(session.name)
        except Unavailable as error:
            return PlainTextResponse(f"{error.message}\n", 503)
        request.scope.update({READER: session.name, CHECK: partial(self._check_lasting, request)})
        return Stream(heads(self.ledger.client, self.followers.threads), EVENT_STREAM, self.followers)

    def _check_lasting(self, request: Request) -> None:
        """Check that the browser's login has not ended. Raises Refused: ``NOT_AUTHORIZED``."""
        if (session := self._session(request)) is None or session.ended:
            raise Refused("NOT_AUTHORIZED", "this login ended")

    async def _post(self, route: Route, request: Request) -> Response:
        body = await _body(request)
        return await run_in_threadpool(
            self._answer, route, lambda context: route.show(context, _form(self.guard, request, body)), request, body
        )

    def _answer(
        self,
        route: Route,
        show: Callable[[PageContext], Page | Redirect | Download],
        request: Request,
        body: bytes = b"",
    ) -> Response:
        if (session := self._session(request)) is None:
            return self._closed(request, "", form=self._unsigned(request, body))
        context = None
        try:
            account = account_of(self.ledger, session.name)
            if account.key not in (session.key, None):
                session.end(f"The ledger no longer accepts the key that {session.name} had when this login began.")
            if session.ended:
                return self._closed(request, session.ended, session.name, self._unsigned(request, body))
            context = self._context(request, session, account, route)
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
        data["is_too_early"] = "as_of" in request.query_params and "first" in error.details
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
        response = self._rendered(request, route.name, context, page, route.group)
        if page.status == 503:  # the page reloads itself, also without scripts
            response.headers["refresh"] = "2"
        if route.name == "home" and context is not None and context.as_of is None:
            value = f"{'' if context.left is None else context.left}.{context.head}.{self.clock_ms()}"
            self.guard.set_cookie(response, self._away_cookie(context.account.name), value, max_age=away_max_s)
        return response

    def _rendered(
        self, request: Request, name: str, context: PageContext | None, page: Page, group: str = ""
    ) -> Response:
        """Return a page in its frame: the position in the log, the user, and the menu."""
        is_answer = request.method == "POST"  # the answer to a form, whose address has no page to reload
        path = page.path or ("/" if is_answer else request.url.path)
        frame: dict[str, Any] = {
            "title": page.title,
            "name": name,
            "path": path,
            "parent": next((route.name for route in self._pages if route.group and route.group == group), ""),
            "human": context and context.human,
            "why_unusable": why_unusable(self.ledger, context.human) if context and context.human else "",
            "why_not": context.account.why_not if context else "",
            "waits": 0,
            "query": {},
            "is_answer": is_answer,
            "menu": [
                {"path": route.path, "name": route.name, "title": route.menu} for route in self._pages if route.menu
            ],
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
            if context.human is not None and page.status == 200:
                args = {"agent": context.human, "limit": 1}  # only the number is shown, so no entry is verified
                frame["waits"] = context.client.view("handoffs.waits", args, context.instant)["total"]
        text = self._templates.get_template(page.template).render(**page.data, frame=frame)
        return Response(text, page.status, media_type="text/html; charset=utf-8")

    def _signed(self, context: PageContext) -> dict[str, Any]:
        """Return the checkpoint for the page header; it is signed and compared once for each size of the log."""
        size, cached = self._checkpoint
        if size != context.head or cached["why_not"]:
            self._checkpoint = context.head, checkpoint(context)
        return self._checkpoint[1]

    def _closed(
        self, request: Request, why: str, name: str = "NAME", form: Mapping[str, str] = MappingProxyType({})
    ) -> Response:
        """Return the page for a browser that is not logged in: why, and how its person gets a link for ``name``.

        It has the note of the ``form`` that was sent, and leads back to the page of that form.
        """
        command = f"deed dashboard --link --as {name}" if name else "deed dashboard"
        if request.scope.get("is_json"):
            message = f"this browser is not logged in: open a link that `{command}` prints, then try again"
            return _json(error_document(Refused("NOT_AUTHORIZED", message, why=why)), 401)
        back = f"/?{form['queue']}" if form.get("queue") else request.url.path.removesuffix("/decide")
        data = {"why": why, "command": command, "note": form.get("note", ""), "back": own_path(back) if form else "/"}
        return self._rendered(request, "closed", None, Page("closed.html", "Not logged in", data, 401))

    def _unsigned(self, request: Request, body: bytes) -> Mapping[str, str]:
        """Return a form whose session ended before it was sent, so that its author can keep the note."""
        with contextlib.suppress(Refused):
            return _form(self.guard, request, body) if body else {}
        return {}

    def _away_cookie(self, name: str) -> str:
        return f"deedbook_left_{self.ledger.client.ledger[:12]}_{name}"

    def _context(self, request: Request, session: Session, account: Account, route: Route) -> PageContext:
        size, now_ms = self.ledger.client.head().size, self.clock_ms()
        if self._rebuild is not None:
            is_needed = route.group != SEARCH or request.query_params.get("text")
            self._rebuild.demand(size, route.group if is_needed else "")
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
            account=account,
            left=self._left(request, account.name),
            audit=self._audit,
            guard=self.guard,
        )

    def _left(self, request: Request, name: str) -> int | None:
        """Return the log's last index at the time when this browser's user went away; None if they never did."""
        if (match := _AWAY.fullmatch(request.cookies.get(self._away_cookie(name), ""))) is None:
            return None
        left_at, last, at_ms = match.groups()
        return int(last) if self.clock_ms() - int(at_ms) > away_min_ms else int(left_at) if left_at else None


class _RequestFilter:
    """Refuses requests for another host, adds the security headers, and recognizes requests for JSON."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-cache")  # cached, and revalidated by its ETag
                headers.update({name: headers.get(name, value) for name, value in HEADERS.items()})
            await send(message)

        try:
            self._guard.check_host(Headers(scope=scope))
        except Refused as refusal:
            await PlainTextResponse(f"{refusal.message}\n", 400)(scope, receive, send_with_headers)
            return
        # Look in the raw path: an id may end in .json, too, and is then percent-encoded (`path_to`).
        if scope.get("raw_path", b"").endswith(b".json"):
            scope = {**scope, "path": scope["path"].removesuffix(".json"), "is_json": True}
        await self._app(scope, receive, send_with_headers)


def _nothing(_: PageContext) -> Page:
    raise Refused("NOT_FOUND", "there is no such page: use the menu at the top")


async def _body(request: Request) -> bytes:
    """Return the body of a request, or a part of it that is longer than a form may be."""
    body = b""
    async for part in request.stream():
        if len(body := body + part) > form_size_max_bytes:
            break
    return body


def _form(guard: Guard, request: Request, body: bytes) -> Mapping[str, str]:
    """Return the fields of a form. Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT``; as ``Guard.check_origin``."""
    guard.check_origin(request.headers)
    if len(body) > form_size_max_bytes:
        raise Refused("TOO_LARGE", f"a form has at most {form_size_max_bytes} bytes", limit=form_size_max_bytes)
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=fields_max, errors="strict"))
    except ValueError as error:  # also raised for bytes that are not UTF-8
        raise Refused("INVALID_FORMAT", "the request is not a form of this dashboard") from error


def _json(answer: dict[str, Any], status: int) -> Response:
    return Response(json_text(answer), status, media_type="application/json")
