"""Events as they come, for whoever reads over HTTP: one source for the API and the dashboard, and what carries it.

A reader pulls: at most one page of the log is held for it, and nothing is read ahead of what it has taken. Whoever
takes nothing for ``stall_max_s`` is cut off, with what lies in its socket. The id of a server-sent event is its index
in the log: a reader that comes back with ``Last-Event-ID`` goes on behind it, without a gap (WHATWG HTML, section 9.2).
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
from deedbook.ledger.client.following import poll_wait_s
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event

CHECK: Final = "deedbook.check"
EVENT_STREAM: Final = "text/event-stream"
heartbeat_s: Final = 15.0
stall_max_s: Final = 30.0
followers_max: Final = 32
page_events_max: Final = 64
NEVER_SNIFFED: Final = {"x-content-type-options": "nosniff"}
_NOTHING_KEPT: Final = {"cache-control": "no-store", "x-accel-buffering": "no", **NEVER_SNIFFED}


class Followers:
    """The places of those who follow a log: each takes a thread while it waits, so there are not more of them."""

    def __init__(self, places: int = followers_max) -> None:
        self.places = places
        self.threads = CapacityLimiter(places)
        self._present: set[CancelScope] = set()

    @property
    def present(self) -> int:
        """How many places are taken."""
        return len(self._present)

    def end(self) -> None:
        """End every stream, and begin no other: a server that stops would wait for them."""
        self.places = 0
        for scope in self._present:
            scope.cancel()

    @contextlib.contextmanager
    def place(self) -> Iterator[CancelScope]:
        """Hold a place within the block, which is cancelled at the ``end``.

        Raises Unavailable: ``BUSY`` when all are taken.
        """
        if self.present >= self.places:
            message = f"{self.places} readers follow the log already: ask again later, or read it page by page"
            raise Unavailable("BUSY", message, limit=self.places)
        scope = CancelScope()
        self._present.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self._present.remove(scope)


async def events_from(
    client: Client,
    index: int,
    kinds: Collection[str] = (),
    *,
    stream: str | None = None,
    threads: CapacityLimiter | None = None,
    until: int | None = None,
) -> AsyncIterator[Event | int]:
    """Yield the events from ``index`` on, in order, and then what comes; an int says how far there was nothing.

    That is yielded every ``heartbeat_s`` seconds without an event, so that a filter that lets little through does not
    lead back to where it began. With ``until`` it ends before that index. It waits in a thread, one of ``threads``.
    Raises: as ``Client.entries``.
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


def as_server_sent(last: int, document: bytes = b"") -> bytes:
    """Return an event as ``text/event-stream`` has it, or without one a heartbeat; ``last`` is the last index read."""
    return b"id: %d\n" % last + (b"data: " + document if document else b": nothing new") + b"\n\n"


class Stream(StreamingResponse):
    """An answer without an end, which ends when its reader goes, reads nothing any more or may read no more.

    The last is what ``scope[CHECK]`` raises of, where there is one, before anything is sent, a heartbeat at the latest.
    """

    def __init__(self, content: AsyncIterator[bytes], media_type: str, followers: Followers) -> None:
        super().__init__(content, media_type=media_type, headers=_NOTHING_KEPT)
        self._followers = followers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the reader goes. Raises Unavailable: ``BUSY`` when all places are taken."""

        async def send_soon(message: Message) -> None:
            try:
                scope.get(CHECK, _nothing)()
                async with asyncio.timeout(stall_max_s):
                    await send(message)
            except (TimeoutError, Refused):
                scope.get(DROP, _nothing)()  # else what it does not read waits in its socket for ever
                raise ClientDisconnect from None

        with contextlib.suppress(ClientDisconnect):
            with self._followers.place() as place:
                await super().__call__(scope, receive, send_soon)
            if place.cancelled_caught:
                await send({"type": "http.response.body"})  # its reader sees an end, and no fault


def _nothing() -> None:
    """Do nothing, where no server of ours serves."""
