"""The live tail: server-sent events that say how far the log is; what is new, a page fetches as it would anyway.

Nothing is kept for a viewer: one that sleeps through a thousand entries is sent one line, and one that never reads is
cut off (``web.stream``). Ids are indexes of the log, and a page knows at which it was made: so nothing is missed
between the two, or by a browser that reconnects, and nothing is shown twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio import CapacityLimiter, to_thread

from deedbook.consumers.interfaces.web.stream import as_server_sent
from deedbook.ledger.client.following import poll_wait_s
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client

beat_s: Final = 10.0


async def heads(client: Client, threads: CapacityLimiter) -> AsyncIterator[bytes]:
    """Yield where the log ends: now, each time that it has grown, and every ``beat_s`` seconds."""
    # A server that is away ends the tail: the browser says so, and comes back by itself.
    with contextlib.suppress(Unavailable):
        size, told_s = await to_thread.run_sync(lambda: client.head().size), -beat_s
        told = -1
        while True:
            if size != told or time.monotonic() - told_s >= beat_s:
                yield as_server_sent(size - 1, b"%d" % (size - 1))
                told, told_s = size, time.monotonic()
            wait = partial(client.entries, size, limit=1, wait_s=poll_wait_s)
            size = (await to_thread.run_sync(wait, limiter=threads, abandon_on_cancel=True)).size
