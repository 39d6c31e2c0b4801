"""Keeps the log stream equal to the log: publishes new entries, compares published ones, rebuilds a damaged stream.

A stream that holds an erased body is replaced like a damaged one, and then deleted.

A file beside the embedded server's store records the generation of the stream. If we crash here: the record is replaced
atomically, and every publish compares first, so the next start continues where the stream ends. After a crash between
making a generation and recording it, the record is too old: then the next numbers are tried in turn, and retired
generations are skipped.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec
import structlog
from nats.aio.client import Client as NatsClient

from deedbook.ledger.admission.erasure import erased_count
from deedbook.ledger.bus.history import lost_history
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import HOLDS_ERASED, Generation, delete_erased, next_generation, open_stream
from deedbook.ledger.errors import DeedbookError, Unavailable, message_of
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.service.service import LogWatcher
from deedbook.ledger.system.files import read_regular, write_whole
from deedbook.ledger.system.metrics import Metrics

log = structlog.get_logger("deedbook.publisher")

idle_wait_s: Final = 1.0
gather_s: Final = 0.002
scrub_pause_s: Final = 0.5
scrub_every_s: Final = 3600.0
retry_pause_s: Final = 1.0
erasures_gather_s: Final = 0.5
rebuild_pause_max_s: Final = 600.0
generations_tried_max: Final = 16


class Publishing:
    """Publishes one log to one stream until ``run`` is cancelled."""

    def __init__(
        self, ledger: str, outbox: Outbox, watcher: LogWatcher, record: Path, metrics: Metrics | None = None
    ) -> None:
        """Publish ``outbox``; ``record`` is the file of the generation, ``metrics`` counts.

        Raises Unavailable: ``STORE_UNAVAILABLE`` if the record cannot be read.
        """
        self._ledger = ledger
        self._outbox = outbox
        self._watcher = watcher
        self._metrics = metrics or Metrics()
        self._record = record
        self._generation = read_record(record, ledger)
        self._nats: NatsClient | None = None
        self._publisher: StreamPublisher | None = None
        self._rebuild_pause_s = 0.0
        self._erased = -1, 0, 0.0
        self._cleared = 0
        # Locked while the stream is opened, rebuilt or published to: three tasks do that.
        self._lock = asyncio.Lock()

    @property
    def published(self) -> int:
        """The number of entries that the stream holds for certain."""
        return 0 if self._publisher is None else self._publisher.published

    async def start(self, nats: NatsClient) -> None:
        """Open the stream over ``nats`` and compare it with the log; a damaged stream is retired and rebuilt.

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
        """Publish until cancelled; wait for an unavailable bus, and rebuild a damaged stream."""
        while True:
            publisher = self._started()
            try:
                async with self._lock:
                    if self._erased_count() > self._generation.redactions and self._is_gathered():
                        await self._open_next(_holds_erased(), is_fault=False)
                        continue
                    count = await publisher.publish_next()
                    if not count:
                        await self._delete_erased()
            except Unavailable as error:
                await self._recover(error, publisher)
            else:
                if not count:
                    await self._watcher.wait_beyond(self.published, idle_wait_s)
                    await asyncio.sleep(gather_s)  # readers that wait for these entries are answered first

    async def finish(self) -> None:
        """Publish the rest before the bus is closed.

        Raises Unavailable: the rest could not be published; the next start publishes it.
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
            self._metrics.put("scrub_timestamp_seconds", time.time())

    async def _recover(self, error: Unavailable, publisher: StreamPublisher) -> None:
        """Wait for an unavailable bus; retire a damaged stream, with growing pauses if that does not help."""
        if error.code != "BUS_DEGRADED":
            log.warning("bus unavailable", code=error.code, error=error.message)
            await asyncio.sleep(retry_pause_s)
            return
        pause_s = self._rebuild_pause_s
        self._rebuild_pause_s = min(max(2 * pause_s, retry_pause_s), rebuild_pause_max_s)
        await asyncio.sleep(pause_s)
        async with self._lock:
            if publisher is self._publisher:  # Otherwise the other task has rebuilt it meanwhile.
                await self._open_next(error)

    async def _open_next(self, reason: Unavailable, *, is_fault: bool = True) -> None:
        """Retire the stream and build the next one. If only this stream holds some entries, change nothing."""
        assert self._nats is not None  # noqa: S101 - start comes first
        retiring = self._generation
        if is_fault:
            self._metrics.count("stream_faults")
        for _ in range(generations_tried_max):
            history = await lost_history(self._nats, retiring, self._outbox.log)
            if history is not None:
                raise history.error()
            if is_fault:
                log.error("stream degraded: building the next generation from the log", error=reason.message)
            else:
                log.info("building the next generation of the stream without erased bodies")
            try:
                await self._open(await next_generation(self._nats, retiring, redactions=self._erased_count()))
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
        self._metrics.put("stream_generation", self._generation.number)
        if self._erased_count() > self._generation.redactions:
            raise _holds_erased()
        publisher = StreamPublisher(self._nats, self._generation, self._outbox.read)
        await publisher.start()
        self._publisher = publisher

    def _erased_count(self) -> int:
        """Return how many bodies were erased in the log. The number is read only after a change of authority."""
        with self._outbox.log.snapshot() as snapshot:
            version = snapshot.head.authority_version if snapshot.head else 0
            if version != self._erased[0]:
                self._erased = version, erased_count(snapshot), time.monotonic()
        return self._erased[1]

    def _is_gathered(self) -> bool:
        """Whether no redaction came for a while, so that one new stream is enough for several redactions."""
        return time.monotonic() - self._erased[2] >= erasures_gather_s

    async def _delete_erased(self) -> None:
        """Delete the earlier streams that hold an erased body, because the present stream now holds the whole log."""
        assert self._nats is not None  # noqa: S101 - start comes first
        if self._cleared != self._generation.number:
            if names := await delete_erased(self._nats, self._generation):
                log.info("deleted streams that held an erased body", streams=names)
            self._cleared = self._generation.number

    def _started(self) -> StreamPublisher:
        assert self._publisher is not None  # noqa: S101 - start comes first
        return self._publisher


def _holds_erased() -> Unavailable:
    return Unavailable("BUS_DEGRADED", HOLDS_ERASED)


def read_record(record: Path, ledger: str) -> Generation:
    """Return the last recorded generation; the first generation without a record.

    Raises Unavailable: ``STORE_UNAVAILABLE`` if the record cannot be read.
    """
    try:
        content = read_regular(record, size_max_bytes=config_size_max_bytes)
        if content is None:
            return Generation(ledger)
        generation = read_json(content, Generation)
    except (*UNREADABLE, DeedbookError) as error:
        # Do not advise to delete the folder: its streams may hold entries that the log lost. No record is needed to
        # find them.
        message = f"cannot use {record} ({message_of(error)}). Delete only this file and keep its folder."
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(record)) from error
    if generation.ledger == ledger:
        return generation
    message = f"{record.parent} belongs to another ledger ({generation.ledger}). Move this folder away."
    raise Unavailable("STORE_UNAVAILABLE", message, path=str(record), ledger=generation.ledger)


def write_record(record: Path, generation: Generation) -> None:
    """Record the generation in use."""
    write_whole(record, msgspec.json.encode(generation))
