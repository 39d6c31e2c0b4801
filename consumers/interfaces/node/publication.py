"""Keeping the log stream in step with the log: publish what is new, compare what is there, rebuild what is damaged.

The generation of the stream is recorded in a file beside the embedded server's store. What happens if we crash here:
the record is replaced atomically, and every publish compares first, so the next start goes on where the stream ends.
A crash between making a generation and recording it leaves the record behind the streams: then the numbers are tried
in turn, and one that was retired already is passed over.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec
import structlog
from nats.aio.client import Client as NatsClient

from deedbook.ledger.bus.history import lost_history
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, next_generation, open_stream
from deedbook.ledger.errors import DeedbookError, Unavailable, message_of
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.service.service import News
from deedbook.ledger.system.files import read_regular, write_whole
from deedbook.ledger.system.metrics import Metrics

log = structlog.get_logger("deedbook.publisher")

idle_wait_s: Final = 1.0
gather_s: Final = 0.002
scrub_pause_s: Final = 0.5
scrub_every_s: Final = 3600.0
retry_pause_s: Final = 1.0
rebuild_pause_max_s: Final = 600.0
generations_tried_max: Final = 16


class Publishing:
    """Publishes one log to one stream for as long as ``run`` is not cancelled."""

    def __init__(self, ledger: str, outbox: Outbox, news: News, record: Path, metrics: Metrics | None = None) -> None:
        """Publish ``outbox``; ``record`` is the file that remembers the generation, ``metrics`` counts.

        Raises Unavailable: ``STORE_UNAVAILABLE`` when the record cannot be read.
        """
        self._ledger = ledger
        self._outbox = outbox
        self._news = news
        self._tally = metrics or Metrics()
        self._record = record
        self._generation = read_record(record, ledger)
        self._nats: NatsClient | None = None
        self._publisher: StreamPublisher | None = None
        self._rebuild_pause_s = 0.0
        # Held while the stream is opened, rebuilt or published to: three tasks come here.
        self._lock = asyncio.Lock()

    @property
    def published(self) -> int:
        """The number of entries that the stream is known to hold."""
        return 0 if self._publisher is None else self._publisher.published

    async def start(self, nats: NatsClient) -> None:
        """Open the stream over ``nats`` and compare it with the log; a damaged one is retired and built anew.

        Raises Corrupted: ``HISTORY_CHANGED``: the stream proves that the log lacks acknowledged entries. Unavailable:
        ``BUS_UNAVAILABLE``, ``STORE_UNAVAILABLE``.
        """
        async with self._lock:
            self._nats = nats
            try:
                await self._open(self._generation)
            except Unavailable as error:
                if error.code != "BUS_DEGRADED":
                    raise
                await self._open_next(error)

    async def run(self) -> None:
        """Publish until cancelled; a bus that is away is waited for, a damaged stream is built anew."""
        while True:
            publisher = self._started()
            try:
                async with self._lock:
                    count = await publisher.publish_next()
            except Unavailable as error:
                await self._recover(error, publisher)
            else:
                if not count:
                    await self._news.wait_beyond(self.published, idle_wait_s)
                    await asyncio.sleep(gather_s)  # who waits for the entries themselves is answered first

    async def finish(self) -> None:
        """Publish what is left, before the bus is closed.

        Raises Unavailable: it could not be; the next start publishes it.
        """
        while await self._started().publish_next():
            pass

    async def scrub(self) -> None:
        """Compare every published message with the log, at start and every hour, until cancelled."""
        while True:
            publisher = self._started()
            try:
                await self._scrub_once(publisher)
            except Unavailable as error:
                await self._recover(error, publisher)
            else:
                await asyncio.sleep(scrub_every_s)

    async def _scrub_once(self, publisher: StreamPublisher) -> None:
        compared = publisher.generation.first_seq - 2
        while publisher is self._publisher and compared + 1 < publisher.published:
            compared = await publisher.scrub(compared)
            await asyncio.sleep(scrub_pause_s)
        if publisher is self._publisher:
            self._rebuild_pause_s = 0.0
            self._tally.put("scrub_timestamp_seconds", time.time())

    async def _recover(self, error: Unavailable, publisher: StreamPublisher) -> None:
        """Wait for a bus that is away; retire a stream that is damaged, less and less often if that does not help."""
        if error.code != "BUS_DEGRADED":
            log.warning("bus away", code=error.code, error=error.message)
            await asyncio.sleep(retry_pause_s)
            return
        pause_s = self._rebuild_pause_s
        self._rebuild_pause_s = min(max(2 * pause_s, retry_pause_s), rebuild_pause_max_s)
        await asyncio.sleep(pause_s)
        async with self._lock:
            if publisher is self._publisher:  # Else the other task has rebuilt it meanwhile.
                await self._open_next(error)

    async def _open_next(self, reason: Unavailable) -> None:
        """Retire the stream and build the next one, unless it holds what nobody else has: then nothing is touched."""
        assert self._nats is not None  # noqa: S101 - start comes first
        retiring = self._generation
        self._tally.count("stream_faults")
        for _ in range(generations_tried_max):
            history = await lost_history(self._nats, retiring, self._outbox.log)
            if history is not None:
                raise history.error()
            log.error("stream degraded: building the next generation from the log", error=reason.message)
            try:
                await self._open(await next_generation(self._nats, retiring))
            except Unavailable as error:
                if error.code != "BUS_DEGRADED":
                    raise
                reason, retiring = error, Generation(self._ledger, retiring.number + 1)
            else:
                return
        raise reason

    async def _open(self, generation: Generation) -> None:
        assert self._nats is not None  # noqa: S101 - start comes first
        self._generation = await open_stream(self._nats, generation)
        write_record(self._record, self._generation)
        self._tally.put("stream_generation", self._generation.number)
        publisher = StreamPublisher(self._nats, self._generation, self._outbox.read)
        await publisher.start()
        self._publisher = publisher

    def _started(self) -> StreamPublisher:
        assert self._publisher is not None  # noqa: S101 - start comes first
        return self._publisher


def read_record(record: Path, ledger: str) -> Generation:
    """Return the generation that was used last; the first one of all without a record. Raises as ``Publishing``."""
    try:
        content = read_regular(record, size_max_bytes=config_size_max_bytes)
        if content is None:
            return Generation(ledger)
        generation = msgspec.json.decode(content, type=Generation)
    except (*UNREADABLE, DeedbookError) as error:
        # Not the folder: its streams may hold what the log has lost. They are found again without the record.
        message = f"{record} cannot be used ({message_of(error)}): delete this file, and keep the folder"
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(record)) from error
    if generation.ledger == ledger:
        return generation
    message = f"{record.parent} belongs to the ledger {generation.ledger}: move that folder away"
    raise Unavailable("STORE_UNAVAILABLE", message, path=str(record), ledger=generation.ledger)


def write_record(record: Path, generation: Generation) -> None:
    """Remember which generation is in use."""
    write_whole(record, msgspec.json.encode(generation))
