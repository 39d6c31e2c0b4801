"""One node's log beside the stream that it shares with others: a node publishes its decisions before it appends them.

- The node's gates call ``publish`` inside their write transaction. After any error nothing is appended, and nothing is
  published again before the log has reached the stream's end: the lost answer may have been a success.
- ``follow`` appends the entries that the log lacks, in whole units, after a replay of each, and after the blobs that
  they refer to. It trusts nobody: an entry that the log could not have accepted is damage.
- ``rebuild`` makes the next generation of a damaged stream. It states the head (size and root) of the log that fills
  it, and the first node that makes it decides. Any node whose log continues this head may fill it, also after another
  node began: each message has its position. No node decides with a log shorter than this head.

If we crash here, at any line, the stream decides, and the next start follows it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
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
from deedbook.ledger.admission.order import OvertakenError
from deedbook.ledger.bus.history import entry_at, is_same_entry, lost_history, read_messages, read_near
from deedbook.ledger.bus.publisher import (
    WRONG_LAST_SEQUENCE,
    WRONG_STREAM,
    OutboundMessage,
    Outbox,
    StreamPublisher,
    messages_of,
    next_group,
    send_group,
)
from deedbook.ledger.bus.stream import (
    HOLDS_ERASED,
    Generation,
    delete_erased,
    is_led,
    open_stream,
    retire,
    scrub_quick,
    stream_info,
)
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.lifecycle.authority import is_node
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.replication.state import OwnLog
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

permit_wait_s: Final = 0.02
sent_again_s: Final = 0.5
"""The wait for an answer before a group is sent again: servers drop messages while they elect a leader."""

permit_waits_max: Final = 150
"""The wait while the others are heard after an interruption; longer than ``limits.heartbeats_missed_s``."""

under_way_max_s: Final = 30.0
"""No server stores a message so long after it was sent."""

_chance: Final = random.Random()  # noqa: S311 - the length of a wait is no secret


class DamagedError(Exception):
    """The stream differs from what was published or from this log. ``generation`` is its number if scrubbing saw it.

    Never leaves the node.
    """

    def __init__(self, reason: str, generation: int = 0) -> None:
        super().__init__(reason)
        self.generation = generation


class ForkedError(Exception):
    """This log and the stream have different entries at one index. Never leaves the node."""


_FAILURES: Final = (DamagedError, ForkedError, DeedbookError, concurrent.futures.CancelledError, TimeoutError)


class Replica:
    """The log of the node ``name`` and the stream; gates call ``publish`` and ``catch_up`` in threads.

    The rest is called in the event loop. ``permits`` returns whether the node may publish now, and ``head`` the size of
    the longest log of another node, as its heartbeats say.
    """

    def __init__(
        self, nats: Callable[[], NatsClient], entries: Log, ledger: str, name: str, *, replicas: int, record: Path
    ) -> None:
        """``record`` is the file of the last known generation."""
        self.log, self.ledger, self.name = entries, ledger, name
        self.permits: Callable[[], bool] = lambda: False
        self.head: Callable[[], int] = lambda: 0
        self.generation: Generation | None = None
        self.metrics = Metrics()
        self._nats, self._replicas, self._record = nats, replicas, record
        self._blobs = BlobStream(nats, ledger, replicas)
        self._follower = LogFollower(entries)
        self._loop = asyncio.get_running_loop()
        self._at_work = asyncio.Lock()
        self._sent = -1, 0.0
        self._damaged, self._is_scrubbed = 0, False
        self._made = self._reached = 0
        self._filled = (0, 0, 0.0)
        self._silent_since: float | None = None

    def own(self) -> OwnLog:
        """Return the name of the node and the size of its log."""
        with self.log.snapshot() as snapshot:
            return OwnLog(self.name, snapshot.size)

    def knows(self, node: str) -> bool:
        """Whether this name is a registered node that was not removed."""
        with self.log.snapshot() as snapshot:
            return is_node(snapshot, node)

    async def has_all(self) -> bool:
        """Return whether the log has every entry that any node acknowledged before this call."""
        generation = self._known()
        info = await stream_info(self._nats(), generation, answer_wait_s)
        size = self.own().size
        is_in_use = is_led(info) and not self._is_retired(info, generation) and not scrub_quick(info, generation)
        return is_in_use and info.state.last_seq <= size and size >= max(generation.size, self.head())

    # Publishing first.

    def publish(self, start: int, entries: list[bytes]) -> None:
        """Publish the entries from index ``start`` before they are appended; as ``Order.publish``."""
        try:
            asyncio.run_coroutine_threadsafe(self._publish_within(start, entries), self._loop).result()
        except _FAILURES as error:
            raise _unknown(error_text(error)) from error

    def catch_up(self, attempt: int) -> None:
        """Append the entries that the log lacks; as ``Order.catch_up``."""
        self.metrics.count("publish_conflicts")
        try:
            asyncio.run_coroutine_threadsafe(self._catch_up(attempt), self._loop).result()
        except _FAILURES as error:
            raise _unknown(error_text(error)) from error

    async def _catch_up(self, attempt: int) -> None:
        await asyncio.sleep(_chance.random() * attempt * limits.publish_conflict_wait_s)
        for _ in range(permit_waits_max):
            if self.permits():
                break
            await asyncio.sleep(permit_wait_s)
        async with asyncio.timeout(publish_wait_max_s):
            await self.follow()

    async def _publish_within(self, start: int, entries: list[bytes]) -> None:
        async with asyncio.timeout(publish_wait_max_s):
            await self._publish(start, entries)

    async def _publish(self, start: int, entries: list[bytes]) -> None:
        self._check_order(start)
        if not entries:
            await self._check_end(start)
            return
        for ref in _refs(entries):
            await self._blobs.put(ref, self.log.blobs)
        messages = messages_of(
            self.ledger, start, entries, lambda begin, size: entries[begin - start : begin - start + size]
        )
        while messages:
            group = next_group(messages)
            await self._send(group)
            messages = messages[len(group) :]

    def _check_order(self, start: int) -> Generation:
        """Return the stream in use. Raises OvertakenError: this node must not publish at ``start`` now."""
        generation = self.generation
        if generation is None or not self.permits() or start < max(self.head(), generation.size):
            raise OvertakenError
        return generation

    async def _check_end(self, start: int) -> None:
        if start <= self._sent[0] and time.monotonic() - self._sent[1] < under_way_max_s:
            # An earlier publish may still arrive here. Then a submission that this node refuses now would be recorded.
            raise Unavailable("BUS_UNAVAILABLE", "an earlier publish got no answer")
        generation = self._known()
        info = await stream_info(self._nats(), generation, answer_wait_s)
        if not is_led(info):
            raise Unavailable("BUS_UNAVAILABLE", f"the server that answers for {generation.name} was cut off")
        if info.state.last_seq != start or self._is_retired(info, generation):
            raise OvertakenError

    async def _send(self, group: Sequence[OutboundMessage]) -> None:
        """Publish a group at its position, repeatedly until there is an answer: it can be stored there only once.

        Raises OvertakenError: this position is taken, perhaps by this same group.
        """
        start = group[0].index
        while True:
            generation = self._check_order(start)
            self._sent = start, time.monotonic()
            try:
                answer = await send_group(self._nats(), generation.name, group, sent_again_s)
            except Unavailable as error:
                log.debug("published without an answer", index=start, error=error.message)
            else:
                if answer.error is None and answer.seq == start + len(group):
                    return
                if answer.error is None:
                    raise DamagedError(f"index {start + len(group) - 1} was stored at sequence {answer.seq}")
                if answer.error.err_code == WRONG_STREAM:
                    self.forget_stream()  # it was retired, and the next one is there
                if answer.error.err_code in {*WRONG_LAST_SEQUENCE, WRONG_STREAM}:
                    raise OvertakenError
            await asyncio.sleep(permit_wait_s)

    # Following.

    async def follow(self) -> None:
        """Append the entries of the stream, up to its end; continue to fill it if nobody does.

        Raises DamagedError; ForkedError. Unavailable: ``BUS_UNAVAILABLE``, also while the stream is filled.
        """
        async with self._at_work:
            with self._heard():
                await self._follow()

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

    async def _follow(self) -> None:
        if self.generation is None:
            await self._find()
        generation, before = self._known(), self.own().size
        info = await self._info(generation)
        end, size = info.state.last_seq, before
        while size < end:
            size = await self._take(generation, size, end)
        if end < generation.size:
            await self._fill(generation, end, size)
            await self._follow()  # others may have published since
        elif end < before:  # the log may have grown since then
            message = f"{generation.name} ends at index {end - 1}, but this log has {before} published entries"
            raise self._damage(generation, message)
        self._reached = generation.number

    async def _info(self, generation: Generation) -> StreamInfo:
        """Return the state of the stream in use, as its leader gives it. Raises DamagedError. Unavailable."""
        try:
            info = await stream_info(self._nats(), generation, answer_wait_s)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            self.forget_stream()
            if await stream_in_use(self._nats(), self.ledger) not in (None, generation):
                raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was deleted: the next one is there") from error
            raise self._damage(generation, error.message) from error
        if not is_led(info):
            raise Unavailable("BUS_UNAVAILABLE", f"the server that answers for {generation.name} was cut off")
        if self._is_retired(info, generation):
            self.forget_stream()
            raise Unavailable("BUS_UNAVAILABLE", f"{generation.name} was retired. The node looks for the next one.")
        if faults := scrub_quick(info, generation):  # the stream's new leader may be a server that lost part of it
            raise self._damage(generation, f"{generation.name} differs from what was published: {'; '.join(faults)}")
        return info

    def _damage(self, generation: Generation | None, reason: str) -> DamagedError:
        """Store the number of the damaged generation; return the error."""
        self._damaged, self._is_scrubbed = generation.number if generation else 0, False
        return DamagedError(reason)

    async def _take(self, generation: Generation, size: int, end: int) -> int:
        """Append the next entries; read many of them from the nearest replica, if its copy is sound."""
        if end - size > near_least:
            near = await read_near(self._nats(), generation, size + 1, end, answer_wait_s)
            with contextlib.suppress(DamagedError):
                return await self._append(generation, size, near, verify=False)
            size = self.own().size
        if size >= end:  # this node has published meanwhile
            return size
        last = min(size + limits.batch_events_max, end)
        read = await read_messages(self._nats(), generation, size + 1, last, answer_wait_s)
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
                return self.own().size  # our own publish appended at this moment
            raise self._damage(generation, error.message) from error
        if not signed or sound < len(messages):
            message = f"message {size + sound + 1} of the log stream is damaged, or its batch is incomplete"
            raise self._damage(generation, message)
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
        """Find the stream in use, and compare it with the log: with its last entry, and with the head that it states.

        Two histories that differ never agree again, so the last entry proves all entries before it.
        """
        stream = await stream_in_use(self._nats(), self.ledger)
        if stream is None:
            raise self._damage(None, "there is no log stream")
        size = self.own().size
        with self.log.snapshot() as snapshot:
            if 0 < stream.size <= size and snapshot.frontier(stream.size).root().hex() != stream.root:
                raise ForkedError(f"{stream.name} is filled from a log with other entries than this one")
        if size:
            message = (await read_messages(self._nats(), stream, size, size, answer_wait_s))[size]
            with self.log.snapshot() as snapshot:
                data = None if message is None else entry_at(size, message) or b""
                if data is not None and not is_same_entry(data, snapshot.entry(size - 1)):
                    message_text = f"{stream.name} and this log have different entries at index {size - 1}"
                    raise self._damage(stream, message_text)
        self.generation = stream
        self.metrics.put("stream_generation", stream.number)
        write_record(self._record, stream)

    def forget_stream(self) -> None:
        """Forget the stream, so that it is searched and compared again: it may be another one now."""
        self.generation = None

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
                await StreamPublisher(self._nats(), generation, Outbox(self.log, self.ledger).read).compare(seq, end)
            except Unavailable as error:
                if error.code != "BUS_DEGRADED" or self.generation != generation:
                    raise
                if self.holds_erased:
                    return 0  # the log erased this body, and a node replaces the stream
                self.metrics.count("stream_faults")
                self._damaged, self._is_scrubbed = generation.number, True
                raise DamagedError(error.message, generation.number) from error
            seq = end + 1
            await asyncio.sleep(pause_s)
        if self.generation != generation:
            return 0
        self.metrics.put("scrub_timestamp_seconds", time.time())
        return generation.number

    # The next generation.

    async def rebuild(self) -> None:
        """Retire the stream that was found damaged, and make the next generation, unless another node has made it.

        ``follow`` fills it. Raises ForkedError: stream and log differ at the same index. Unavailable:
        ``BUS_UNAVAILABLE``.
        """
        async with self._at_work:
            if not self._is_scrubbed and await self._is_sound():
                return
            nats, known = self._nats(), read_record(self._record, self.ledger)
            newest = await stream_in_use(nats, self.ledger)
            if newest is not None and newest.number != self._damaged:
                return  # another node made it, and it is compared when it is followed
            number = max(known.number, self._damaged)
            if newest is not None:
                lost = await lost_history(nats, newest, self.log)
                if lost is not None and lost.is_fork:
                    raise ForkedError(lost.error().message)
                await retire(nats, newest)
            # A node that retired a stream may have died before it made the next one. A retired stream accepts nothing
            # more, so this node first takes over its last entries, and then the next stream states its head.
            while await self._take_over(number) or (number == known.number and known.created is not None):
                number += 1
            with self.log.snapshot() as snapshot:
                size, root = snapshot.size, snapshot.frontier(snapshot.size).root().hex()
                # If a body is erased while the next stream is filled, another stream is made.
                following = Generation(self.ledger, number, redactions=erased_count(snapshot), size=size, root=root)
            await open_stream(nats, following, self._replicas)
            log.warning("made the next generation of the log stream", stream=following.name, entries=size)
            self._made = number
            self.forget_stream()

    async def _is_sound(self) -> bool:
        """Return whether the stream can be followed now.

        Then the damage was that of one server, which is no longer the leader.
        """
        try:
            await self._follow()
        except DamagedError:
            return False
        return True

    async def _take_over(self, number: int) -> bool:
        """Append the sound entries of a retired stream beyond this log; False if there is no such stream.

        Raises Unavailable: ``BUS_UNAVAILABLE``, also if the stream is not retired: another node has just made it.
        """
        generation = Generation(self.ledger, number)
        try:
            info = await stream_info(self._nats(), generation)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            return False
        if not self._is_retired(info, generation):
            raise Unavailable("BUS_UNAVAILABLE", f"another node has made {generation.name}")
        try:
            while (size := self.own().size) < info.state.last_seq:
                await self._take(generation, size, info.state.last_seq)
        except DamagedError as error:
            log.warning("left the entries after the damage in the retired stream", error=str(error))
        return True

    async def _fill(self, generation: Generation, end: int, size: int) -> None:
        """Publish this log to a stream that does not hold its stated head yet, if nobody else does.

        A node whose log is longer publishes its further entries, too. Raises DamagedError: the stream holds others.
        Unavailable: ``BUS_UNAVAILABLE``, also while another node fills it, or this log is too short for it.
        """
        now_s = time.monotonic()
        if self._filled[:2] != (generation.number, end):
            self._filled = generation.number, end, now_s
        is_ours = self._made == generation.number or now_s - self._filled[2] >= limits.heartbeats_missed_s
        if size < generation.size or not is_ours:
            message = f"{generation.name} is being filled: {end} of {generation.size} entries are there"
            raise Unavailable("BUS_UNAVAILABLE", message)
        await self._put_blobs()
        publisher = StreamPublisher(self._nats(), generation, Outbox(self.log, self.ledger).read)
        try:
            await publisher.start()
            while await publisher.publish_next():
                pass
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            raise self._damage(generation, error.message) from error

    @property
    def holds_erased(self) -> bool:
        """Whether the stream in use holds the body of an entry that was erased in the log."""
        return self.generation is not None and self.erased_count() > self.generation.redactions

    def replace_erased(self) -> DamagedError:
        """Return the error that makes the node replace the stream in use because it holds an erased body."""
        self._damaged, self._is_scrubbed = self._known().number, True
        return DamagedError(HOLDS_ERASED, self._damaged)

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

    def _is_retired(self, info: StreamInfo, generation: Generation) -> bool:
        return info.config.subjects == [retired_subject(self.ledger, generation.number)]

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
