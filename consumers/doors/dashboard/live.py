"""The live tail: server-sent events that say how far the log is; what is new, a page fetches as it would anyway.

One thread waits at the end of the log for all viewers. Nothing is kept for any of them: a viewer that is woken asks
where the log ends now, so one that sleeps through a thousand entries is sent one line, and one that never reads is
dropped (``web.stream.Stream``). Ids are indexes of the log, and a page knows at which it was made: so nothing is missed
between the two, or by a browser that reconnects, and nothing is shown twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from consumers.doors.web.stream import EVENT_STREAM, Stream
from ledger.client import poll_wait_s
from ledger.errors import BatonError

if TYPE_CHECKING:
    from ledger.client import Client

viewers_max: Final = 32
beat_s: Final = 10.0


class Tail:
    """Where the log ends, told to whoever looks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._viewers = 0
        self._is_stopped = False
        self._waiting: asyncio.Task[int] | None = None

    def stop(self) -> None:
        """End every stream, within about a second."""
        self._is_stopped = True

    async def stream(self) -> Response:
        """Return the stream for one viewer: first where the log ends now, then each time it has grown."""
        if self._viewers >= viewers_max:
            return PlainTextResponse("too many tabs look at this already: close one\n", 503)
        return Stream(self._lines(), EVENT_STREAM)

    async def _lines(self) -> AsyncIterator[bytes]:
        self._viewers += 1
        try:
            seen = await run_in_threadpool(self._head)
            yield b"retry: 1000\n" + _line(seen)
            told_s = time.monotonic()
            while not self._is_stopped:
                head = await self._beyond(seen)
                if head != seen:
                    seen = head
                    yield _line(seen)
                elif time.monotonic() - told_s >= beat_s:
                    yield b"event: beat\ndata:\n\n"
                else:
                    continue
                told_s = time.monotonic()
        finally:
            self._viewers -= 1

    async def _beyond(self, seen: int) -> int:
        """Return where the log ends: as soon as that is beyond ``seen``, or after a second."""
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(run_in_threadpool(self._wait, seen))
        # Shielded: a viewer that goes must not take away what the others wait for.
        return await asyncio.shield(self._waiting)

    def _head(self) -> int:
        return self._client.head().size - 1

    def _wait(self, seen: int) -> int:
        try:
            page = self._client.entries(seen + 1, limit=1, wait_s=poll_wait_s)
        except BatonError:
            time.sleep(poll_wait_s)  # a server that is away: its viewers wait, and hear nothing new
            return seen
        return page.size - 1


def _line(index: int) -> bytes:
    return b"id: %d\nevent: head\ndata: %d\n\n" % (index, index)
