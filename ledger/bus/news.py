"""News of the log for those who wait: this process's own commits at once, other processes' within a poll."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.log.log import Log

poll_interval_s: Final = 0.02


class News:
    """Wakes coroutines of one event loop when the log has grown."""

    def __init__(self, log: Log) -> None:
        """Watch ``log``."""
        self._log = log
        self._changed = asyncio.Condition()
        self._seen = -1
        self.size = 0

    def announce(self) -> None:
        """Look at once: something was just committed here."""
        task = asyncio.ensure_future(self._look())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def run(self) -> None:
        """Look for other processes' commits until cancelled: LMDB's transaction number is read, no page."""
        while True:
            await self._look()
            await asyncio.sleep(poll_interval_s)

    async def wait_beyond(self, size: int, wait_s: float) -> int:
        """Wait until the log has more than ``size`` entries, or ``wait_s``; return its size."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self.size > size)
        return self.size

    async def _look(self) -> None:
        transaction = self._log.tables.last_transaction()
        if transaction == self._seen:
            return
        self._seen = transaction
        with self._log.snapshot() as snapshot:
            size = snapshot.size
        if size != self.size:
            async with self._changed:
                self.size = size
                self._changed.notify_all()
