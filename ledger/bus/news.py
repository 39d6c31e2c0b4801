"""News of the log for those who wait: this process's own commits at once, other processes' within a poll."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.log.log import Log

poll_interval_s: Final = 0.02


class News:
    """Wakes coroutines of one event loop when the log has grown; ``size`` is the log's at the last look."""

    def __init__(self, log: Log) -> None:
        """Watch ``log``."""
        self._log = log
        self._grown = asyncio.Event()
        self._seen = -1
        self.size = 0

    def look(self) -> None:
        """Look at once, as after a commit of this process: LMDB's transaction number first, a page only if it moved."""
        transaction = self._log.tables.last_transaction()
        if transaction == self._seen:
            return
        with self._log.snapshot() as snapshot:
            size = snapshot.size
        self._seen = transaction  # Only now: had the snapshot failed, the next look would have to try again.
        if size != self.size:
            self.size = size
            # Who waits holds the old event; who comes later waits on the new one.
            self._grown.set()
            self._grown = asyncio.Event()

    async def run(self) -> None:
        """Look for other processes' commits until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(poll_interval_s)

    async def wait_beyond(self, size: int, wait_s: float) -> int:
        """Wait until the log has more than ``size`` entries, or ``wait_s``; return its size."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.size <= size:
                    await self._grown.wait()
        return self.size
