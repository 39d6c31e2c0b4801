"""Publish the log, in order, each event once, by compare-and-set on the stream's sequence.

The log itself is the outbox: entries that the stream lacks are still to be published. Every publish says which sequence
must be the last one (``Nats-Expected-Last-Sequence`` = the index of its first event), so the server refuses a
repetition. Then the publisher compares the stored messages with the log's. Equal messages were published before; any
other message is foreign and ends publishing until the next generation. A publish also names its stream
(``Nats-Expected-Stream``): if it comes so late that the stream was retired, the next generation refuses it.
``Nats-Msg-Id`` is not used: the server checks the expected sequence first, so it would never help (measured).

After a crash at any line, the next start asks the stream where it ends and continues there. After a lost answer or
connection the code does the same, so this path is exercised often.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.js.api import RawStreamMsg

from deedbook.ledger import limits
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.message import headers_of
from deedbook.ledger.bus.stream import Generation, raise_degraded, scrub_quick, stream_info
from deedbook.ledger.bus.subjects import event_subject
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.format.envelope import decode_entry, head_of
from deedbook.ledger.format.merkle import inclusion_proof, subtrees_of
from deedbook.ledger.log.log import Log
from deedbook.ledger.system import traces

ReadMessages = Callable[[int, int], "list[OutboundMessage]"]

acknowledge_wait_max_s: Final = 2.0
"""A longer wait gains nothing: after a lost answer the publisher reads the stream."""

retry_wait_first_s: Final = 0.05
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
"""The server's error codes for a stream, or a subject, that ends at another sequence than the publisher expects."""

WRONG_STREAM: Final = 10060
"""The server's error code for a publish to another stream than the publisher expects."""


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """An event as it is published; headers are ASCII without surrounding spaces, and none begins with ``Nats-``.

    ``unit_left`` counts the events of the same signed batch that follow: they are published together.
    """

    index: int
    subject: str
    payload: bytes
    headers: dict[str, str]
    leaf_hash: bytes
    unit_left: int = 0

    @property
    def size(self) -> int:
        """Bytes of the payload and headers."""
        return len(self.payload) + sum(len(name) + len(value) + 4 for name, value in self.headers.items())


class Answer(msgspec.Struct):
    """The server's answer to a publish. A newer server may send more fields."""

    seq: int = 0
    error: AnswerError | None = None


class AnswerError(msgspec.Struct):
    """The reason why the server stored nothing."""

    err_code: int = 0
    description: str = ""


def next_group(messages: Sequence[OutboundMessage]) -> Sequence[OutboundMessage]:
    """Return the first messages to publish together: whole units, at least one, within the limits.

    Raises Corrupted: if not even the first unit is whole.
    """
    size = end = 0
    for count, message in enumerate(messages[: limits.batch_events_max], start=1):
        size += message.size
        if size > limits.batch_size_max_bytes and end:
            break
        if message.unit_left == 0:
            end = count
    if messages and not end:
        raise Corrupted(
            "CORRUPTED", f"the signed batch from entry {messages[0].index} on is not whole: run `deed fsck`"
        )
    return messages[:end]


def is_same(stored: RawStreamMsg, ours: OutboundMessage) -> bool:
    """Whether a stored message is this event: payload and headers rebuild the entry, so the leaf is the same."""
    headers: Mapping[str, str] = stored.headers or {}
    own_headers = {name: value for name, value in headers.items() if not name.startswith("Nats-")}
    return stored.subject == ours.subject and (stored.data or b"") == ours.payload and own_headers == ours.headers


@dataclass
class StreamPublisher:
    """Publishes a log to one log stream; one task uses it, and nobody else publishes there.

    ``read_messages(after_index, limit)`` returns the next whole units of the log. It runs in the event loop, so it must
    be short.
    """

    client: Client
    generation: Generation
    read_messages: ReadMessages
    answer_wait_s: float = limits.request_timeout_s
    _last_seq: int = field(default=0, init=False)
    _is_certain: bool = field(default=False, init=False)
    _degraded: Unavailable | None = field(default=None, init=False)

    @property
    def published(self) -> int:
        """The number of events that the stream is known to hold: the index of the next one."""
        return max(self._last_seq, self.generation.first_seq - 1)

    async def start(self, acknowledged_seq: int = 0) -> int:
        """Compare the stream with the log, and return ``published``.

        ``acknowledged_seq`` is the last sequence that an earlier run recorded as published, or 0. Raises Unavailable:
        ``BUS_DEGRADED`` if the stream is not the beginning of the log, else ``BUS_UNAVAILABLE``.
        """
        self._last_seq = acknowledged_seq
        await self._retry(self._resync)
        return self.published

    async def publish_next(self) -> int:
        """Publish the next group of events and return their number; 0 if the log holds no more.

        Raises Unavailable: ``BUS_UNAVAILABLE``: call again later. ``BUS_DEGRADED``: the log needs a new generation.
        """
        return await self._retry(self._publish_group)

    async def scrub(self, after_index: int, limit: int = limits.batch_events_max) -> int:
        """Compare the next published messages with the log and return the last index that was compared.

        Raises Unavailable: as ``publish_next``.
        """
        begin = max(after_index + 2, self.generation.first_seq)
        end = min(begin + limit - 1, self._last_seq)
        await self.compare(begin, end)
        return max(end, begin - 1) - 1

    async def _retry(self, call: Callable[[], Awaitable[int]]) -> int:
        wait = retry_wait_first_s
        for attempts_left in reversed(range(limits.retry_attempts_max)):
            if self._degraded is not None:
                raise self._degraded
            try:
                return await call()
            except Unavailable as error:
                if error.code == "BUS_DEGRADED":
                    self._degraded = error
                if error.code != "BUS_UNAVAILABLE" or not attempts_left or self.client.is_closed:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, limits.retry_wait_max_s)
        raise AssertionError

    async def _resync(self) -> int:
        info = await stream_info(self.client, self.generation, self.answer_wait_s)
        end, first = info.state.last_seq, self.generation.first_seq
        raise_degraded(self.generation, scrub_quick(info, self.generation, self._last_seq))
        # Compare the messages since the last certain answer, or at a start the end of the stream. A publisher has only
        # one group under way at a time, so the full scrub compares anything older.
        begin = min(self._last_seq + 1, end) if self._last_seq >= first else first
        await self.compare(max(first, begin, end - limits.batch_events_max + 1), end)
        self._last_seq, self._is_certain = end, True
        return 0

    async def compare(self, begin: int, end: int) -> None:
        """Compare the messages of these sequences with the log. Raises Unavailable: as ``publish_next``."""
        if begin > end:
            return
        ours = {message.index + 1: message for message in self.read_messages(begin - 2, end - begin + 1)}
        manager = self.client.jetstream(timeout=limits.request_timeout_s)
        for seq in range(begin, end + 1):
            if seq not in ours:
                raise_degraded(self.generation, [f"it is ahead of the log, which has no index {seq - 1}"], seq=seq)
            with bus_errors(f"message {seq} of log stream {self.generation.name}"):
                stored = await manager.get_msg(self.generation.name, seq)  # From the leader: a replica may lag.
            if not is_same(stored, ours[seq]):
                faults = [f"message {seq} is not the event of index {seq - 1}"]
                raise_degraded(self.generation, faults, seq=seq, leaf=ours[seq].leaf_hash.hex())

    async def _publish_group(self) -> int:
        if not self._is_certain:
            await self._resync()
        next_index = self.published
        group = next_group(self.read_messages(next_index - 1, limits.batch_events_max))
        if not group:
            return 0
        if [message.index for message in group] != list(range(next_index, next_index + len(group))):
            message = f"the log's entries from index {next_index} on are missing or out of order: run `deed fsck`"
            raise Corrupted("CORRUPTED", message)
        if not self.client.is_connected:
            raise Unavailable("BUS_UNAVAILABLE", "there is no connection to the bus")
        began_s = time.perf_counter()
        # From here until the answer it is unknown what the stream holds. A crash, a lost connection and a cancelled
        # task all leave it so, and the next call asks the stream.
        self._is_certain = False
        answer = await send_group(self.client, self.generation.name, group)
        if answer.error is not None:
            message = f"the stream refused index {next_index}: {answer.error.description}"
            raise Unavailable("BUS_UNAVAILABLE", message, err_code=answer.error.err_code)
        if answer.seq != next_index + len(group):
            faults = [f"index {next_index + len(group) - 1} was stored at sequence {answer.seq}"]
            raise_degraded(self.generation, faults, seq=answer.seq)
        self._last_seq, self._is_certain = answer.seq, True
        parents = traces.recall(message.index for message in group)
        traces.record("deedbook.publish", began_s, parents, events=len(group))
        return len(group)


async def send_group(
    client: Client, stream: str, group: Sequence[OutboundMessage], wait_s: float = acknowledge_wait_max_s
) -> Answer:
    """Publish a group of messages whole to ``stream``, if that ends before the first of them; return the answer.

    Raises Unavailable: ``BUS_UNAVAILABLE``: the stream may hold the group or not.
    """
    *before, last = group
    batch = f"{group[0].index}-{uuid.uuid4().hex}"
    compare = {"Nats-Expected-Last-Sequence": str(group[0].index)}
    with bus_errors(f"publishing index {group[0].index}"):
        for number, message in enumerate(before, start=1):
            control = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)} | compare
            await client.publish(message.subject, message.payload, headers=message.headers | control)
            compare = {}
        if before:
            compare = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(group)), "Nats-Batch-Commit": "1"}
        compare |= {"Nats-Expected-Stream": stream}
        answer = await client.request(last.subject, last.payload, timeout=wait_s, headers=last.headers | compare)
    try:
        return read_json(answer.data, Answer)
    except UNREADABLE as error:
        raise Unavailable("BUS_UNAVAILABLE", f"the stream's answer is not readable: {error}") from error


class Outbox:
    """Reads the messages of one log from any index."""

    def __init__(self, log: Log, ledger: str) -> None:
        self.log = log
        self._ledger = ledger

    def read(self, after_index: int, limit: int) -> list[OutboundMessage]:
        """Return at most ``limit`` messages after ``after_index``, in order."""
        with self.log.snapshot() as snapshot:
            start = after_index + 1
            entries = snapshot.entries(start, limit=limit, size_max_bytes=2 * limits.batch_size_max_bytes)

            def unit(begin: int, size: int) -> list[bytes]:
                return snapshot.entries(begin, limit=size, size_max_bytes=2 * limits.batch_size_max_bytes)

            return messages_of(self._ledger, start, entries, unit)


def messages_of(
    ledger: str, start: int, entries: list[bytes], unit: Callable[[int, int], list[bytes]]
) -> list[OutboundMessage]:
    """Return the entries from index ``start`` as messages; ``unit(begin, size)`` reads a whole signed batch."""
    messages: list[OutboundMessage] = []
    batch_start, paths = -1, list[list[bytes]]()
    for index, data in enumerate(entries, start):
        entry = decode_entry(data)
        if entry.batch_size > 1 and index - entry.batch_index != batch_start:
            batch_start = index - entry.batch_index
            paths = _paths(unit(batch_start, entry.batch_size), batch_start, entry.batch_size)
        path = paths[entry.batch_index] if entry.batch_size > 1 else []
        head = head_of(entry.body)
        subject = event_subject(ledger, head.kind, head.stream)
        headers, unit_left = headers_of(index, entry, path), entry.batch_size - 1 - entry.batch_index
        messages.append(OutboundMessage(index, subject, entry.body, headers, entry.leaf(), unit_left))
    return messages


def _paths(batch: list[bytes], start: int, size: int) -> list[list[bytes]]:
    if len(batch) != size:
        raise Corrupted(
            "CORRUPTED", f"the signed batch from entry {start} on is not whole: run `deed fsck`", index=start
        )
    subtrees = subtrees_of([decode_entry(data).commitment for data in batch])
    return [inclusion_proof(position, size, subtrees) for position in range(size)]
