"""One node's log beside the stream that it shares with others: a leader publishes before it appends, others follow.

- The leader's gates call ``publish`` inside their write transaction. After any error nothing is appended, and nothing
  is published again before the log has reached the stream's end: a lost answer may have been a yes.
- ``follow`` appends the entries that the log lacks, in whole units, after a replay of each, and after the blobs that
  they refer to. It trusts nobody: an entry that the log could not have accepted is damage.
- ``rebuild`` fills the next generation from the log.

If we crash here, at any line, the stream decides, and the next start follows it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import structlog
from nats.aio.client import Client as NatsClient
from nats.js.api import RawStreamMsg, StreamInfo

from deedbook.consumers.interfaces.node.publication import read_record, write_record
from deedbook.ledger import limits
from deedbook.ledger.admission.erasure import erased_count
from deedbook.ledger.admission.follower import LogFollower, SignedEntry
from deedbook.ledger.bus.history import entry_at, is_same_entry, lost_history, read_messages, read_near
from deedbook.ledger.bus.publisher import OutboundMessage, Outbox, StreamPublisher, messages_of
from deedbook.ledger.bus.stream import Generation, delete_erased, open_stream, retire, scrub_quick, stream_info
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.authority import is_node
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.replication.role import NodeTerm, OwnLog
from deedbook.ledger.service.nodes import BlobStream, answer_wait_s, stream_in_use
from deedbook.ledger.system.files import read_chunks
from deedbook.ledger.system.metrics import Metrics

log = structlog.get_logger("deedbook.replica")

stream_silent_max_s: Final = 60.0
"""A majority of servers elects the leader of a stream in less time."""

near_least: Final = 8
"""More messages than this are read at once from the nearest replica; fewer one by one from the stream's leader."""

publish_wait_max_s: Final = 10.0
"""How long a writer waits; a stream of three servers elects a leader in less time."""


class DamagedError(Exception):
    """The stream differs from what was published or from this log. Never leaves the node."""


class Replica:
    """The log of the node ``name`` and the stream; ``publish`` is called in threads, the rest in the event loop."""

    def __init__(
        self, nats: Callable[[], NatsClient], entries: Log, ledger: str, name: str, *, replicas: int, record: Path
    ) -> None:
        """``record`` is the file of the last known generation."""
        self.log, self.ledger, self.name = entries, ledger, name
        self.is_open = False
        """Whether this node leads, so that it publishes the decisions of its gates."""

        self.generation: Generation | None = None
        self.metrics = Metrics()
        self._nats, self._replicas, self._record = nats, replicas, record
        self._blobs = BlobStream(nats, ledger, replicas)
        self._follower = LogFollower(entries)
        self._publisher: StreamPublisher | None = None
        self._pending: list[OutboundMessage] = []
        self._publishing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._at_work = asyncio.Lock()
        self.is_behind = False
        """Whether the stream may hold more than the log: nothing is published before the log has caught up."""

        self._published = 0
        self._silent_since: float | None = None

    def own(self) -> OwnLog:
        """Return the size and the term of the log."""
        with self.log.snapshot() as snapshot:
            term = snapshot.term()
            return OwnLog(self.name, snapshot.size, NodeTerm() if term is None else NodeTerm(term.number, term.node))

    def knows(self, node: str) -> bool:
        """Whether this name is a registered node that was not removed."""
        with self.log.snapshot() as snapshot:
            return is_node(snapshot, node)

    @property
    def has_all(self) -> bool:
        """Whether the log holds everything that this node published; followers may hold it earlier."""
        return self._published <= self.own().size

    # Publishing first.

    def publish(self, start: int, entries: list[bytes], *, is_term: bool = False) -> None:
        """Publish the entries from index ``start`` before they are appended; in a thread, within its transaction.

        Without entries, check that the log ends where the stream does, so that only the leader refuses submissions.

        Raises Unavailable: ``NOT_LEADER``; ``BUS_UNAVAILABLE``: the stream may hold the entries or not, so they must
        not be acknowledged.
        """
        if not (self.is_open or is_term):
            raise Unavailable("NOT_LEADER", f"{self.name} does not lead now. Submit again; the leader will take it.")
        if self.is_behind:
            raise _unknown("an earlier publish got no answer")
        self._published = start + len(entries)
        try:
            asyncio.run_coroutine_threadsafe(self._publish_within(start, entries), self._loop).result()
        except BaseException as error:
            self.is_behind = True  # from here on the end of the stream is unknown until it was followed
            if isinstance(error, DeedbookError | concurrent.futures.CancelledError | TimeoutError):
                raise _unknown(error_text(error)) from error
            raise

    def close(self) -> None:
        """Stop publishing and cancel the running publish: its caller learns that the outcome is unknown."""
        self.is_open = False
        if self._publishing is not None:
            self._publishing.cancel()

    async def _publish_within(self, start: int, entries: list[bytes]) -> None:
        self._publishing = asyncio.create_task(self._publish(start, entries))
        try:
            async with asyncio.timeout(publish_wait_max_s):
                await self._publishing
        finally:
            self._publishing, self._pending = None, []

    async def _publish(self, start: int, entries: list[bytes]) -> None:
        if not entries:
            info = await stream_info(self._nats(), self._known())
            if info.state.last_seq != start or self._is_retired(info):
                raise Unavailable("BUS_UNAVAILABLE", "the log and the stream end at different indexes")
            return
        for ref in _refs(entries):
            await self._blobs.put(ref, self.log.blobs)
        self._pending = messages_of(
            self.ledger, start, entries, lambda begin, size: entries[begin - start : begin - start + size]
        )
        try:
            publisher = self._publisher
            if publisher is None or publisher.published != start:
                publisher = StreamPublisher(self._nats(), self._known(), self._read, answer_wait_s)
                await publisher.start(acknowledged_seq=start)
                self._publisher = publisher
            while publisher.published < start + len(entries):  # also if the stream is forgotten meanwhile
                await publisher.publish_next()
        except BaseException:
            self._publisher = None
            raise

    def _read(self, after_index: int, limit: int) -> list[OutboundMessage]:
        """Return messages of the log and, after its end, those being published."""
        pending = [message for message in self._pending if message.index > after_index]
        own = self._pending[0].index - after_index - 1 if self._pending else limit
        before = Outbox(self.log, self.ledger).read(after_index, min(own, limit)) if own > 0 else []
        return [*before, *pending][:limit]

    # Following.

    async def follow(self, *, must_reach: bool = False) -> None:
        """Append the entries of the stream; with ``must_reach`` it must hold the whole log, as for a new leader.

        Raises DamagedError. Unavailable: ``BUS_UNAVAILABLE``.
        """
        async with self._at_work:
            with self._heard():
                await self._follow(must_reach=must_reach)

    @property
    def silence(self) -> str:
        """Advice about a log stream without an answer for a long time; empty while it answers."""
        silent_s = 0.0 if self._silent_since is None else time.monotonic() - self._silent_since
        if silent_s <= stream_silent_max_s:
            return ""
        return f"the log stream has had no leader for {silent_s:.0f} s: see `Rebuild a stream` in deploy/runbook.md"

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            self._silent_since = self._silent_since or time.monotonic()
            error.message += f"; {self.silence}" if self.silence else ""
            raise
        self._silent_since = None

    async def _follow(self, *, must_reach: bool) -> None:
        if self.generation is None:
            await self._find()
        generation = self._known()
        try:
            info = await stream_info(self._nats(), generation, answer_wait_s)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            if await stream_in_use(self._nats(), self.ledger) not in (None, generation):
                self.forget_stream()
                raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was deleted: the next one is there") from error
            raise DamagedError(error.message) from error
        if self._is_retired(info):
            self.forget_stream()  # another node retired it as damaged: a leader, too, continues in the next one
            raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was retired. The node looks for the next one.")
        if faults := scrub_quick(info, generation):  # the stream's present leader may be a server that lost part of it
            raise DamagedError(f"{generation.name} differs from what was published: {'; '.join(faults)}")
        end, size = info.state.last_seq, self.own().size
        if end < size and must_reach:
            message = f"{generation.name} ends at index {end - 1}, but this log has {size} published entries"
            raise DamagedError(message)
        while size < end:
            size = await self._take(generation, size, end)
        self._published = 0
        self.is_behind = False

    async def _take(self, generation: Generation, size: int, end: int) -> int:
        """Append the next entries; read many of them from the nearest replica, if its copy is sound."""
        if end - size > near_least:
            near = await read_near(self._nats(), generation, size + 1, end, answer_wait_s)
            with contextlib.suppress(DamagedError):
                return await self._append(size, near, verify=False)
            size = self.own().size
        last = min(size + limits.batch_events_max, end)
        read = await read_messages(self._nats(), generation, size + 1, last, answer_wait_s)
        return await self._append(size, list(read.values()), verify=True)

    async def _append(self, size: int, messages: Sequence[RawStreamMsg | None], *, verify: bool) -> int:
        """Append whole units; ``verify`` checks each message, so that the entries before a damaged one are taken."""
        try:
            signed, sound = await asyncio.to_thread(self._read_units, size, messages, verify=verify)
            for ref in (ref for entry in signed for ref in blobs_of(entry.candidate.data)):
                await self._fetch(ref)
            if signed:
                await asyncio.to_thread(self._follower.take, size, signed)
        except Corrupted as error:
            if error.code == "HISTORY_CHANGED":
                return self.own().size  # our own publish appended at this moment
            raise DamagedError(error.message) from error
        if not signed or sound < len(messages):
            message = f"message {size + sound + 1} of the log stream is damaged, or its batch is incomplete"
            raise DamagedError(message)
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
        if not (self.log.blobs.is_whole(ref) or await self._blobs.is_erased(ref)):
            with TemporaryFile() as file:
                await self._blobs.get(ref, file)
                chunks = read_chunks(file, limits.blob_chunk_bytes)
                await asyncio.to_thread(put_restored, self.log.blobs, ref, chunks)

    async def _find(self) -> None:
        """Find the stream in use, and compare its message with the log's last entry, if it has one at that index.

        Two histories that differ never agree again, so this entry proves all entries before it.
        """
        stream = await stream_in_use(self._nats(), self.ledger)
        if stream is None:
            raise DamagedError("there is no log stream")
        size = self.own().size
        if size:
            message = (await read_messages(self._nats(), stream, size, size, answer_wait_s))[size]
            with self.log.snapshot() as snapshot:
                data = None if message is None else entry_at(size, message) or b""
                if data is not None and not is_same_entry(data, snapshot.entry(size - 1)):
                    raise DamagedError(f"{stream.name} and this log have different entries at index {size - 1}")
        self.generation = stream
        self.metrics.put("stream_generation", stream.number)
        write_record(self._record, stream)

    def forget_stream(self) -> None:
        """Forget the stream, so that it is looked for again: it was damaged, or has a new generation."""
        self.generation = self._publisher = None

    async def scrub(self, pause_s: float) -> None:
        """Compare every message with the log. Raises DamagedError: one differs. Unavailable: ``BUS_UNAVAILABLE``."""
        size, seq = self.own().size, 1
        while self.generation is not None and seq <= size:
            end = min(seq + limits.batch_events_max - 1, size)
            try:
                await StreamPublisher(self._nats(), self._known(), Outbox(self.log, self.ledger).read).compare(seq, end)
            except Unavailable as error:
                if error.code != "BUS_DEGRADED" or self.generation is None:
                    raise
                if self.holds_erased:
                    return  # the log lost this body, and the leader replaces the stream
                self.metrics.count("stream_faults")
                raise DamagedError(error.message) from error
            seq = end + 1
            await asyncio.sleep(pause_s)
        if self.generation is not None:
            self.metrics.put("scrub_timestamp_seconds", time.time())

    async def rebuild(self) -> None:
        """Retire the stream, if there is one, and publish the whole log to the next generation.

        Raises Corrupted: ``HISTORY_CHANGED``: stream and log differ at the same index. Unavailable:
        ``BUS_UNAVAILABLE``.
        """
        async with self._at_work:
            nats = self._nats()
            newest = await stream_in_use(nats, self.ledger) or read_record(self._record, self.ledger)
            lost = None if newest.created is None else await lost_history(nats, newest, self.log)
            if lost is not None and lost.is_fork:
                raise lost.error()
            # This node may have been suspended since it began, and another may have led meanwhile. A retired stream
            # accepts nothing more, so its entries are taken over before the next stream is filled. And a node that
            # retired a stream may have died before it made the next one.
            number = newest.number
            while await self._retire(number) or (number == newest.number and newest.created is not None):
                number += 1
            redactions = self.erased_count()  # what is erased while the next stream is filled makes another one
            following = await open_stream(nats, Generation(self.ledger, number, redactions=redactions), self._replicas)
            self.forget_stream()
            await self._put_blobs()
            publisher = StreamPublisher(nats, following, Outbox(self.log, self.ledger).read)
            await publisher.start()
            while await publisher.publish_next():
                pass
            write_record(self._record, following)
            self.generation = following
            self.metrics.put("stream_generation", following.number)

    @property
    def holds_erased(self) -> bool:
        """Whether the stream in use holds the body of an entry that was erased in the log."""
        return self.generation is not None and self.erased_count() > self.generation.redactions

    def erased_count(self) -> int:
        """Return how many bodies were erased in the log."""
        with self.log.snapshot() as snapshot:
            return erased_count(snapshot)

    async def delete_erased(self) -> None:
        """Delete the retired streams that hold an erased body. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        if names := await delete_erased(self._nats(), self._known()):
            log.info("deleted streams that held an erased body", streams=names)

    async def _put_blobs(self) -> None:
        """Put every local blob that the log refers to into the stream of blobs, which may be lost, too."""
        self._blobs.forget()
        with self.log.snapshot() as snapshot:
            erased = erased_blobs(snapshot.redactions().values())
        await self._blobs.erase(erased)
        start = 0
        while entries := self._entries(start):
            for ref in _refs(entries):
                await self._blobs.put(ref, self.log.blobs)
            start += len(entries)

    def _entries(self, start: int) -> list[bytes]:
        with self.log.snapshot() as snapshot:
            return snapshot.entries(start, limit=limits.batch_events_max, size_max_bytes=limits.batch_size_max_bytes)

    async def _retire(self, number: int) -> bool:
        """Retire a stream and append its sound entries beyond this log; False if there is no such stream.

        Raises Unavailable: ``BUS_UNAVAILABLE``.
        """
        generation = Generation(self.ledger, number)
        await retire(self._nats(), generation)
        try:
            end = (await stream_info(self._nats(), generation)).state.last_seq
            while (size := self.own().size) < end:
                await self._take(generation, size, end)
        except DamagedError as error:
            log.warning("left the entries after the damage in the retired stream", error=str(error))
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            return False
        return True

    def _is_retired(self, info: StreamInfo) -> bool:
        return info.config.subjects == [retired_subject(self.ledger, self._known().number)]

    def _known(self) -> Generation:
        if self.generation is None:
            raise Unavailable("BUS_UNAVAILABLE", "the node has not found the log stream yet")
        return self.generation


def _unknown(why: str) -> Unavailable:
    message = f"it is unknown whether this was published ({why}). Submit it again; it is never recorded twice."
    return Unavailable("BUS_UNAVAILABLE", message)


def _refs(entries: Sequence[bytes]) -> list[str]:
    refs = list[str]()
    for entry in entries:
        with contextlib.suppress(Refused):  # a replay reports the fault
            refs += blobs_of(read_stored(decode_entry(entry).body).data)
    return refs


def error_text(error: BaseException) -> str:
    """Return the text of an error for a log line."""
    return error.message if isinstance(error, DeedbookError) else str(error) or type(error).__name__
