"""One node's log beside the stream that it shares with others: find the stream, follow it, and compare it.

``follow`` appends the entries that the log lacks, in whole units, after a replay of each, and after the blobs that they
refer to. It trusts nobody: an entry that the log could not have accepted is damage.

``stream_order`` publishes a node's own entries, ``generations`` replaces a damaged stream. If we crash, at any line of
the three, the stream decides, and the next start follows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from nats.aio.client import Client as NatsClient
from nats.js.api import RawStreamMsg, StreamInfo

from deedbook.consumers.interfaces.node.publication import write_record
from deedbook.ledger import limits
from deedbook.ledger.admission.erasure import erased_count
from deedbook.ledger.admission.follower import LogFollower, SignedEntry
from deedbook.ledger.bus.history import entry_at, is_same_entry, read_messages, read_near
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import Generation, is_led, scrub_quick, stream_info
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.lifecycle.authority import is_node
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.replication.state import OwnLog
from deedbook.ledger.service.nodes import BlobStream, answer_wait_s, stream_in_use
from deedbook.ledger.system.files import read_chunks
from deedbook.ledger.system.metrics import Metrics

near_least: Final = 8
"""More messages than this are read at once from the nearest replica; fewer one by one from the stream's leader."""


class DamagedError(Exception):
    """The stream differs from what was published or from this log. Never leaves the node.

    ``generation`` is its number, 0 if there is no stream. ``is_hidden``: only scrubbing sees the damage.
    """

    def __init__(self, reason: str, generation: int = 0, *, is_hidden: bool = False) -> None:
        super().__init__(reason)
        self.generation, self.is_hidden = generation, is_hidden


class ForkedError(Exception):
    """This log and the stream have different entries at one index. Never leaves the node."""


class Replica:
    """The log of the node ``name`` and the stream; used in the event loop.

    ``permits`` returns whether the node may publish now, and ``head`` the size of the longest log of another node, as
    its heartbeats say. ``fill`` publishes the log to a stream that ends before its stated head.
    """

    def __init__(
        self, nats: Callable[[], NatsClient], entries: Log, ledger: str, name: str, *, replicas: int, record: Path
    ) -> None:
        """``record`` is the file of the last known generation."""
        self.log, self.ledger, self.name = entries, ledger, name
        self.permits: Callable[[], bool] = lambda: False
        self.head: Callable[[], int] = lambda: 0
        self.fill: Callable[[Generation, int, int], Awaitable[None]] = _fill_nothing
        self.generation: Generation | None = None
        self.record, self.replicas, self.nats = record, replicas, nats
        self.blobs = BlobStream(nats, ledger, replicas)
        self.metrics = Metrics()
        self.at_work = asyncio.Lock()
        self._follower = LogFollower(entries)
        self._reached = 0

    def own(self) -> OwnLog:
        """Return the name of the node and the size of its log."""
        with self.log.snapshot() as snapshot:
            return OwnLog(self.name, snapshot.size)

    def knows(self, node: str) -> bool:
        """Whether this name is a registered node that was not removed."""
        with self.log.snapshot() as snapshot:
            return is_node(snapshot, node)

    def known(self) -> Generation:
        """Return the stream in use. Raises Unavailable: ``BUS_UNAVAILABLE``: it was not found yet."""
        if self.generation is None:
            raise Unavailable("BUS_UNAVAILABLE", "the node has not found the log stream yet")
        return self.generation

    async def end(self) -> int:
        """Return how many entries the stream in use has now.

        Raises DamagedError; ForkedError. Unavailable: ``BUS_UNAVAILABLE``, also while the stream is filled.
        """
        return (await self._info(self.known())).state.last_seq

    async def has_all(self) -> bool:
        """Return whether the log has every entry that any node acknowledged before this call.

        Raises DamagedError; ForkedError. Unavailable: ``BUS_UNAVAILABLE``, also while the stream is filled.
        """
        end, size = await self.end(), self.own().size
        return end <= size and size >= max(self.known().size, self.head())

    async def follow(self) -> int:
        """Append the entries of the stream, up to its end; continue to fill it if nobody does.

        Return the number of its generation. Raises DamagedError; ForkedError. Unavailable: ``BUS_UNAVAILABLE``, also
        while the stream is filled.
        """
        async with self.at_work:
            return await self.advance()

    async def advance(self) -> int:
        """Do what ``follow`` does; the caller is ``at_work``."""
        if self.generation is None:
            await self._find()
        generation, before = self.known(), self.own().size
        info = await self._info(generation)
        end, size = info.state.last_seq, before
        while size < end:
            size = await self.take(generation, size, end)
        if end < generation.size:
            await self.fill(generation, end, size)
            return await self.advance()  # others may have published since
        if end < before:  # not ``size``: the log may have grown after the stream's end was read
            message = f"{generation.name} ends at index {end - 1}, but this log has {before} published entries"
            raise DamagedError(message, generation.number)
        self._reached = generation.number
        return generation.number

    async def _info(self, generation: Generation) -> StreamInfo:
        """Return the state of the stream in use, as its leader gives it. Raises DamagedError. Unavailable."""
        try:
            info = await stream_info(self.nats(), generation, answer_wait_s)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            self.forget_stream()
            if await stream_in_use(self.nats(), self.ledger) not in (None, generation):
                raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was deleted: the next one is there") from error
            raise DamagedError(error.message, generation.number) from error
        if not is_led(info):
            raise Unavailable("BUS_UNAVAILABLE", f"the server that answers for {generation.name} was cut off")
        if self.is_retired(info, generation):
            self.forget_stream()
            raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was retired. The node looks for the next one.")
        if faults := scrub_quick(info, generation):  # the stream's new leader may be a server that lost part of it
            message = f"{generation.name} differs from what was published: {'; '.join(faults)}"
            raise DamagedError(message, generation.number)
        return info

    async def take(self, generation: Generation, size: int, end: int) -> int:
        """Append the next entries; read many of them from the nearest replica, if its copy is sound.

        Return the size of the log then. Raises DamagedError; ForkedError. Unavailable: ``BUS_UNAVAILABLE``, also while
        the stream is filled.
        """
        if end - size > near_least:
            near = await read_near(self.nats(), generation, size + 1, end, answer_wait_s)
            with contextlib.suppress(DamagedError):
                return await self._append(generation, size, near, verify=False)
            size = self.own().size
        if size >= end:  # this node has published meanwhile
            return size
        last = min(size + limits.batch_events_max, end)
        read = await read_messages(self.nats(), generation, size + 1, last, answer_wait_s)
        return await self._append(generation, size, list(read.values()), verify=True)

    async def _append(
        self, generation: Generation, size: int, messages: Sequence[RawStreamMsg | None], *, verify: bool
    ) -> int:
        """Append whole units; ``verify`` checks each message, so that the entries before a damaged one are taken."""
        try:
            signed, sound = await asyncio.to_thread(self._read_units, size, messages, verify=verify)
            for ref in (ref for entry in signed for ref in blobs_of(entry.candidate.data)):
                await self._fetch(ref)
            if signed:
                await asyncio.to_thread(self._follower.take, size, signed)
        except Corrupted as error:
            if error.code == "HISTORY_CHANGED":
                return self.own().size  # this node's own publish has appended meanwhile
            raise DamagedError(error.message, generation.number) from error
        if not signed or sound < len(messages):
            message = f"message {size + sound + 1} of the log stream is damaged, or its batch is incomplete"
            raise DamagedError(message, generation.number)
        return size + len(signed)

    def _read_units(
        self, size: int, messages: Sequence[RawStreamMsg | None], *, verify: bool
    ) -> tuple[list[SignedEntry], int]:
        """Return the whole units that begin at ``size``, and how many messages were sound; in a thread."""
        entries = list[bytes]()
        for seq, message in enumerate(messages, size + 1):
            if (data := entry_at(seq, message, verify=verify)) is None:
                break
            entries.append(data)
        signed = self._follower.read(size, entries)
        if not size and signed and signed[0].candidate.body.ledger != self.ledger:
            raise DamagedError("the log stream holds another ledger")
        return signed, len(entries)

    async def _fetch(self, ref: str) -> None:
        if not (self.log.blobs.is_whole(ref) or await self.blobs.is_erased(ref)):
            with TemporaryFile() as file:
                await self.blobs.get(ref, file)
                chunks = read_chunks(file, limits.blob_chunk_bytes)
                await asyncio.to_thread(put_restored, self.log.blobs, ref, chunks)

    async def _find(self) -> None:
        """Find the stream in use, and compare it with the log: with its last entry, and with the head that it states.

        Two histories that differ never agree again, so the last entry proves all entries before it.
        """
        stream = await stream_in_use(self.nats(), self.ledger)
        if stream is None:
            raise DamagedError("there is no log stream")
        size = self.own().size
        with self.log.snapshot() as snapshot:
            if 0 < stream.size <= size and snapshot.frontier(stream.size).root().hex() != stream.root:
                raise ForkedError(f"{stream.name} is filled from a log with other entries than this one")
        if size:
            message = (await read_messages(self.nats(), stream, size, size, answer_wait_s))[size]
            with self.log.snapshot() as snapshot:
                data = None if message is None else entry_at(size, message) or b""
                if data is not None and not is_same_entry(data, snapshot.entry(size - 1)):
                    message_text = f"{stream.name} and this log have different entries at index {size - 1}"
                    raise DamagedError(message_text, stream.number)
        self.generation = stream
        self.metrics.put("stream_generation", stream.number)
        write_record(self.record, stream)

    def forget_stream(self) -> None:
        """Forget the stream, so that it is searched and compared again: it may be another one now."""
        self.generation = None

    def is_retired(self, info: StreamInfo, generation: Generation) -> bool:
        """Return whether a stream accepts nothing more."""
        return info.config.subjects == [retired_subject(self.ledger, generation.number)]

    async def scrub(self, pause_s: float) -> int:
        """Compare every message with the log; return the number of the generation, 0 if none is in use yet.

        Raises DamagedError: one differs. Unavailable: ``BUS_UNAVAILABLE``.
        """
        generation, size, seq = self.generation, self.own().size, 1
        if generation is None or self._reached != generation.number:
            return 0  # a stream that is being filled lacks messages
        while self.generation == generation and seq <= size:
            end = min(seq + limits.batch_events_max - 1, size)
            try:
                await StreamPublisher(self.nats(), generation, Outbox(self.log, self.ledger).read).compare(seq, end)
            except Unavailable as error:
                if error.code != "BUS_DEGRADED" or self.generation != generation:
                    raise
                if self.erased_count() > generation.redactions:
                    return 0  # the log erased this body, and a node replaces the stream
                self.metrics.count("stream_faults")
                raise DamagedError(error.message, generation.number, is_hidden=True) from error
            seq = end + 1
            await asyncio.sleep(pause_s)
        if self.generation != generation:
            return 0
        self.metrics.put("scrub_timestamp_seconds", time.time())
        return generation.number

    def erased_count(self) -> int:
        """Return how many bodies were erased in the log."""
        with self.log.snapshot() as snapshot:
            return erased_count(snapshot)


async def _fill_nothing(generation: Generation, end: int, _size: int) -> None:
    raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} is being filled: {end} of {generation.size} are there")
