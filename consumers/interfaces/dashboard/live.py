"""The live tail: server-sent events with the index of the last log entry; the page then fetches the new content.

The server stores nothing for a viewer: a browser that sleeps through a thousand entries gets one line, and one that
never reads is disconnected (``web.stream``). Event ids are log indexes, and a page knows the index at which it was
rendered. So a page misses nothing between rendering and connecting, or when it reconnects, and shows nothing twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio import CapacityLimiter, to_thread

from deedbook.consumers.interfaces.web.stream import POSITION, as_server_sent
from deedbook.ledger.client.event_stream import poll_wait_s
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client

beat_s: Final = 10.0


async def heads(client: Client, threads: CapacityLimiter) -> AsyncIterator[bytes]:
    """Yield the index of the last entry: now, each time the log has grown, and every ``beat_s`` seconds."""
    # An unreachable server ends the tail; the browser shows that and reconnects by itself.
    with contextlib.suppress(Unavailable):
        size, sent_s = await to_thread.run_sync(lambda: client.head().size), -beat_s
        sent_size = -1
        while True:
            if size != sent_size or time.monotonic() - sent_s >= beat_s:
                yield as_server_sent(size - 1, POSITION, b"%d" % (size - 1))
                sent_size, sent_s = size, time.monotonic()
            wait = partial(client.entries, size, limit=1, wait_s=poll_wait_s)
            size = (await to_thread.run_sync(wait, limiter=threads, abandon_on_cancel=True)).size
