"""Logs the errors of a connection to the bus: one line for each type of error in an interval, with a count."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

log = structlog.get_logger("deedbook.node")

interval_s: Final = 60.0


class BusErrorLog:
    """The error callback of a connection. It limits the log, because an agent can cause errors as fast as it sends."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    async def report(self, error: Exception) -> None:
        """Log an error at once if none of its type was logged in this interval; otherwise count it."""
        name, text = type(error).__name__, str(error) or type(error).__name__
        if name in self._counts:
            self._counts[name] += 1
            return
        log.warning("bus", error=text)
        self._begin(name)

    def _begin(self, name: str) -> None:
        self._counts[name] = 0
        asyncio.get_running_loop().call_later(interval_s, self._end, name)

    def _end(self, name: str) -> None:
        count = self._counts.pop(name)
        if count:
            log.warning("bus: the same error again", error=name, times=count, seconds=interval_s)
            self._begin(name)
