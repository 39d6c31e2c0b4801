"""Live events over HTTP, for the API and the dashboard.

A reader pulls: the server holds at most one page of the log for it and reads nothing ahead. A reader that takes nothing
for ``stall_max_s`` is disconnected, and the unread data in its socket is discarded.

The name of a server-sent event is the kind of the log's event, and its id is the index there: a reader that reconnects
with ``Last-Event-ID`` continues after it without a gap (WHATWG HTML, section 9.2). If a reader's filter matches nothing
for ``heartbeat_s``, the reader gets an event ``position`` with the index up to which the log was read. If the log has
not grown either, the reader gets a comment: some clients report a message without data as an event and try to parse it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Iterator
from functools import partial
from typing import Final

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from deedbook.consumers.interfaces.web.server import DROP
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.event_stream import poll_wait_s
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event

CHECK: Final = "deedbook.check"
READER: Final = "deedbook.reader"
"""The key of the agent in a request's scope; without it, all readers share the places of one agent."""
EVENT_STREAM: Final = "text/event-stream"
POSITION: Final = "position"
KEEP_ALIVE: Final = b": nothing new\n\n"
heartbeat_s: Final = 15.0
stall_max_s: Final = 30.0
followers_max: Final = 32
followers_of_agent_max: Final = 8
page_events_max: Final = 64
NEVER_SNIFFED: Final = {"x-content-type-options": "nosniff"}
_NOT_STORED: Final = {"cache-control": "no-store", "x-accel-buffering": "no", **NEVER_SNIFFED}


class Followers:
    """The clients that follow a log. Each uses a thread while it waits, so their number is limited.

    All tokens of an agent together have only some of the places, so that others find one.
    """

    def __init__(self, limit: int = followers_max, of_agent: int = followers_of_agent_max) -> None:
        self.limit = limit
        self.threads = CapacityLimiter(limit)
        self._of_agent = of_agent
        self._present: dict[CancelScope, str] = {}

    @property
    def present(self) -> int:
        """The number of clients that follow now."""
        return len(self._present)

    def end(self) -> None:
        """End every stream and allow no new ones, because a stopping server would wait for them."""
        self.limit = 0
        for scope in self._present:
            scope.cancel()

    def check(self, agent: str = "") -> None:
        """Raises Unavailable: ``BUSY`` if there are too many clients, or too many of this agent."""
        if list(self._present.values()).count(agent) >= self._of_agent:
            message = f"{self._of_agent} clients of {agent or 'this server'} already follow the log: close one of them"
            raise Unavailable("BUSY", message, limit=self._of_agent, agent=agent)
        if self.present >= self.limit:
            message = f"{self.limit} clients already follow the log: try again later, or read it page by page"
            raise Unavailable("BUSY", message, limit=self.limit)

    @contextlib.contextmanager
    def place(self, agent: str = "") -> Iterator[CancelScope]:
        """Count a client of an agent while the block runs; ``end`` cancels the block.

        Raises Unavailable: ``BUSY`` if there are too many clients, or too many of this agent.
        """
        self.check(agent)
        scope = CancelScope()
        self._present[scope] = agent
        try:
            with scope:
                yield scope
        finally:
            del self._present[scope]


async def events_from(
    client: Client,
    index: int,
    kinds: Collection[str] = (),
    *,
    stream: str | None = None,
    threads: CapacityLimiter | None = None,
    until: int | None = None,
) -> AsyncIterator[Event | int]:
    """Yield the events from ``index`` on, in order, and then new ones; an int is the index up to which none matched.

    After ``heartbeat_s`` seconds without an event it yields the int, so that a client with a narrow filter can resume
    there. With ``until`` it ends before that index. It waits in one of ``threads``. Raises: as ``Client.entries``.
    """
    quiet_since = time.monotonic()
    while until is None or index < until:
        read = partial(client.entries, index, kinds=kinds, stream=stream, limit=page_events_max, wait_s=poll_wait_s)
        page = await to_thread.run_sync(read, limiter=threads, abandon_on_cancel=True)
        for at, data in page.entries:
            if until is not None and at >= until:
                return
            yield read_event(at, data)
            quiet_since = time.monotonic()
        index = page.next_index
        if time.monotonic() - quiet_since >= heartbeat_s:
            yield index
            quiet_since = time.monotonic()


def as_server_sent(last: int, name: str, document: bytes) -> bytes:
    """Return an event in the format ``text/event-stream``; ``last`` is the last index that was read."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (last, name.encode(), document)


class Stream(StreamingResponse):
    """An endless answer that stops if its reader disconnects, stops reading, or loses its permission to read.

    Before each message, at least once a heartbeat, ``scope[CHECK]`` raises if the permission is gone.
    """

    def __init__(self, content: AsyncIterator[bytes], media_type: str, followers: Followers) -> None:
        super().__init__(content, media_type=media_type, headers=_NOT_STORED)
        self._followers = followers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the reader disconnects. Raises Unavailable: ``BUSY`` if there are too many clients."""
        if scope["method"] == "HEAD":  # it gets no events, so it would never end
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body"})
            return

        async def send_soon(message: Message) -> None:
            try:
                scope.get(CHECK, _nothing)()
                async with asyncio.timeout(stall_max_s):
                    await send(message)
            except (TimeoutError, Refused):
                scope.get(DROP, _nothing)()  # otherwise unread data would stay in its socket for ever
                raise ClientDisconnect from None

        with contextlib.suppress(ClientDisconnect):
            with self._followers.place(scope.get(READER, "")) as place:
                await super().__call__(scope, receive, send_soon)
            if place.cancelled_caught:
                await send({"type": "http.response.body"})  # the reader sees a normal end, not an error


def _nothing() -> None:
    """Do nothing: the default outside of our own server."""
