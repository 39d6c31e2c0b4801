"""Keeping the log stream in step with the log: publish what is new, compare what is there, rebuild what is damaged.

The incarnation of the stream is recorded in a file beside the embedded server's store. What happens if we crash here:
the record is replaced atomically, and every publish compares first, so the next start goes on where the stream ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ledger.bus.publisher import StreamPublisher
from ledger.bus.stream import Incarnation, next_incarnation, open_stream
from ledger.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client as NatsClient

    from ledger.bus.news import News
    from ledger.bus.outbox import Outbox

log = structlog.get_logger("baton.publisher")

scrub_pause_s: Final = 0.5
scrub_every_s: Final = 3600.0
retry_pause_s: Final = 1.0


class Publishing:
    """Publishes one log to one stream for as long as ``run`` is not cancelled."""

    def __init__(self, nats: NatsClient, ledger: str, outbox: Outbox, news: News, record: Path) -> None:
        """Publish ``outbox`` over ``nats``; ``record`` is the file that remembers the incarnation."""
        self._nats = nats
        self._outbox = outbox
        self._news = news
        self._record = record
        self._incarnation = _read(record, ledger)
        self._publisher: StreamPublisher | None = None

    @property
    def published(self) -> int:
        """The number of entries that the stream is known to hold."""
        return 0 if self._publisher is None else self._publisher.published

    async def start(self) -> None:
        """Open the stream and compare it with the log; a damaged one is retired and built anew.

        Raises:
            Unavailable: ``BUS_UNAVAILABLE``.
        """
        try:
            await self._open()
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            await self._rebuild(error)

    async def run(self) -> None:
        """Publish until cancelled; a bus that is away is waited for, a damaged stream is built anew."""
        while True:
            try:
                assert self._publisher is not None  # noqa: S101 - start comes before run
                if not await self._publisher.publish_next():
                    await self._news.wait_beyond(self._publisher.published, scrub_every_s)
            except Unavailable as error:
                if error.code == "BUS_DEGRADED":
                    await self._rebuild(error)
                else:
                    log.warning("bus away", error=error.message)
                    await asyncio.sleep(retry_pause_s)

    async def finish(self) -> None:
        """Publish what is left, once, before the bus is closed.

        Raises:
            Unavailable: it could not be; the next start publishes it.
        """
        while self._publisher is not None and await self._publisher.publish_next():
            pass

    async def scrub(self) -> None:
        """Compare every published message with the log, at start and every hour, until cancelled."""
        while True:
            try:
                await self._scrub_once()
            except Unavailable as error:
                # A damaged stream makes the next publish raise, and ``run`` rebuilds it.
                log.error("scrub", code=error.code, error=error.message)
            await asyncio.sleep(scrub_every_s)

    async def _scrub_once(self) -> None:
        compared = -1
        while self._publisher is not None and compared + 1 < self._publisher.published:
            compared = await self._publisher.scrub(compared)
            await asyncio.sleep(scrub_pause_s)

    async def _open(self) -> None:
        self._incarnation = await open_stream(self._nats, self._incarnation)
        _write(self._record, self._incarnation)
        self._publisher = StreamPublisher(self._nats, self._incarnation, self._outbox.read)
        await self._publisher.start()

    async def _rebuild(self, reason: Unavailable) -> None:
        log.error("stream degraded: building the next incarnation from the log", error=reason.message)
        self._incarnation = await next_incarnation(self._nats, self._incarnation)
        await self._open()


def _read(record: Path, ledger: str) -> Incarnation:
    try:
        return msgspec.json.decode(record.read_bytes(), type=Incarnation)
    except FileNotFoundError:
        return Incarnation(ledger)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            "STORE_UNAVAILABLE",
            f"{record} cannot be read ({error}): delete the folder {record.parent}, it is rebuilt from the log",
        ) from error


def _write(record: Path, incarnation: Incarnation) -> None:
    fresh = record.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(incarnation))
    fresh.replace(record)
