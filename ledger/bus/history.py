"""Find the acknowledged entries that a log stream holds and its log lacks.

A log is committed before it is published. So if a stream is ahead of its log, or holds other entries, another copy of
the log was published to it. Then a person must decide before anything is appended or retired. A message proves nothing
unless it is a validly signed entry of this ledger at its own index; else the stream is foreign or damaged
(``ledger.bus.stream``).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import RawStreamMsg

from deedbook.ledger import limits
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.message import entry_in, entry_of
from deedbook.ledger.bus.stream import Generation, stream_info
from deedbook.ledger.bus.subjects import retired_subject
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.envelope import decode_entry, entry_leaf
from deedbook.ledger.log.keys import key_key
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.trust.history import ResetPoint, TrustedHead

# Evidence is searched for in this number of events before and after the end of the shorter of log and stream.
window_events: Final = limits.batch_events_max
_reads_at_once: Final = 32
near_events_max: Final = 4 * limits.batch_events_max
near_size_max_bytes: Final = 2 * limits.batch_size_max_bytes
"""The limit exceeds a whole signed batch with its headers."""


@dataclass(frozen=True)
class LostHistory:
    """Acknowledged entries of a stream that the log lacks; both begin with the same ``shared`` entries.

    ``stream_size`` counts from entry 0, whichever entry is the stream's first.
    """

    generation: Generation
    shared: int
    log_size: int
    stream_size: int

    @property
    def missing(self) -> int:
        """How many acknowledged entries the log lacks."""
        return self.stream_size - self.shared

    @property
    def is_fork(self) -> bool:
        """Whether log and stream hold different entries at the same index."""
        return self.shared < self.log_size

    def error(self) -> Corrupted:
        """Return the error with which ``serve`` and ``recover`` refuse; it names both next steps."""
        own = self.log_size - self.shared
        if self.is_fork:
            excess = f"{self.missing} acknowledged entries from index {self.shared} on, where the log has {own} others"
            next_step = (
                f"To keep the stream's entries, restore a backup of at most {self.shared} entries (`deed restore`) and "
                "run `deed recover --from-stream`. To keep the log's, run `deed recover --accept-loss`"
            )
        else:
            excess = f"{self.missing} acknowledged entries beyond the log's {self.log_size}"
            next_step = (
                "Run `deed recover --from-stream` to recover them, or `deed recover --accept-loss` to continue "
                "without them"
            )
        message = f"the log is in an earlier state: the stream {self.generation.name} holds {excess}. {next_step}"
        details = {"stream": self.generation.name, "log_size": self.log_size, "stream_size": self.stream_size}
        return Corrupted("HISTORY_CHANGED", message, **details, shared=self.shared, missing=self.missing)


async def lost_history(client: Client, generation: Generation, log: Log) -> LostHistory | None:
    """Return the entries that the stream in use proves to be missing; None if none are, or a history reset covers them.

    Raises Unavailable: ``BUS_UNAVAILABLE``.
    """
    try:
        info = await stream_info(client, generation)
    except Unavailable as error:
        if error.code != "BUS_DEGRADED":
            raise
        return None  # it was deleted, and proves nothing
    if info.config.subjects == [retired_subject(generation.ledger, generation.number)]:
        return None  # It was retired: abandoned, or replaced because it was damaged.
    first, last = max(info.state.first_seq, 1), info.state.last_seq
    with log.snapshot() as snapshot:
        size = snapshot.size
    if size == 0:
        return LostHistory(generation, 0, 0, last) if last else None
    begin = max(first, min(size, last) - window_events + 1)
    messages = await read_messages(client, generation, begin, min(last, size + window_events))
    with log.snapshot() as snapshot:
        if not any(_proves_loss(snapshot, generation.ledger, seq, message) for seq, message in messages.items()):
            return None
    history = LostHistory(generation, await _shared_size(client, generation, log, first, min(size, last)), size, last)
    return None if await _is_abandoned(client, history, log) else history


async def read_messages(
    client: Client, generation: Generation, begin: int, end: int, wait_s: float = limits.request_timeout_s
) -> dict[int, RawStreamMsg | None]:
    """Return the messages with these sequences; None for each that the stream has lost.

    Raises Unavailable: ``BUS_UNAVAILABLE``.
    """
    manager = client.jetstream(timeout=wait_s)

    async def read(seq: int) -> RawStreamMsg | None:
        try:
            with bus_errors(f"message {seq} of log stream {generation.name}"):
                return await manager.get_msg(generation.name, seq)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            return None

    messages: dict[int, RawStreamMsg | None] = {}
    for start in range(begin, end + 1, _reads_at_once):
        sequences = range(start, min(start + _reads_at_once, end + 1))
        messages |= zip(sequences, await asyncio.gather(*map(read, sequences)), strict=True)
    return messages


async def read_near(client: Client, generation: Generation, begin: int, end: int, wait_s: float) -> list[RawStreamMsg]:
    """Return the messages from ``begin`` without a gap from the nearest replica, at most ``near_size_max_bytes``.

    The list is empty unless the stream's leader holds the same last message: a replica may lag, and two histories that
    differ never agree again. Earlier messages may still be damaged. Raises Unavailable: ``BUS_UNAVAILABLE``.
    """
    messages: list[RawStreamMsg] = []
    is_over = asyncio.Event()

    async def take(message: Msg) -> None:
        headers, seq = message.headers or {}, begin + len(messages)
        if headers.get("Nats-Sequence") == str(seq):
            messages.append(RawStreamMsg(headers.get("Nats-Subject"), seq, message.data, headers=headers))
        else:  # the end or a gap
            is_over.set()

    arguments = {"seq": begin, "batch": min(end - begin + 1, near_events_max), "max_bytes": near_size_max_bytes}
    inbox = client.new_inbox()
    with bus_errors(f"messages from {begin} on of log stream {generation.name}"):
        subscription = await client.subscribe(inbox, cb=take)
        try:
            await client.publish(f"$JS.API.DIRECT.GET.{generation.name}", msgspec.json.encode(arguments), reply=inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await is_over.wait()
        finally:
            await subscription.unsubscribe()
    if not messages:
        return messages
    last = begin + len(messages) - 1
    leader_message = (await read_messages(client, generation, last, last, wait_s))[last]
    return messages if _content(leader_message) == _content(messages[-1]) else []


def _content(message: RawStreamMsg | None) -> tuple[str | None, bytes, dict[str, str]] | None:
    """Return the publisher's part of a message: servers add their own headers to some answers."""
    if message is None:
        return None
    headers = {name: value for name, value in (message.headers or {}).items() if not name.startswith("Nats-")}
    return message.subject, message.data or b"", headers


def entry_at(seq: int, message: RawStreamMsg | None, *, verify: bool = True) -> bytes | None:
    """Return the entry in a message; None if its index is another or, with ``verify``, its signature is not valid."""
    if message is None:
        return None
    try:
        index, entry = (entry_of if verify else entry_in)(message.data or b"", message.headers or {})
    except Corrupted:
        return None
    return entry.encode() if index == seq - 1 else None


def is_same_entry(entry: bytes, other: bytes) -> bool:
    """Whether two copies are the same entry of the tree. One of them may lack its erased body."""
    return entry == other or entry_leaf(entry) == entry_leaf(other)


async def abandoned_head(client: Client, history: LostHistory, log: Log) -> tuple[int, bytes]:
    """Return (size, root) of the stream's tree: the shared entries and the stream's entries after them.

    The tree ends before the first damaged message, because no later root can be computed. Raises Unavailable:
    ``BUS_UNAVAILABLE``.
    """
    with log.snapshot() as snapshot:
        frontier = snapshot.frontier(history.shared)
    for begin in range(history.shared + 1, history.stream_size + 1, window_events):
        end = min(begin + window_events - 1, history.stream_size)
        messages = await read_messages(client, history.generation, begin, end)
        for seq, message in messages.items():
            data = entry_at(seq, message)
            if data is None:
                return frontier.size, frontier.root()
            frontier = frontier.extend([entry_leaf(data)])
    return frontier.size, frontier.root()


def resets(snapshot: Snapshot) -> list[ResetPoint]:
    """Return the history resets of a log, in order."""
    events = ((index, read_event(index, snapshot.entry(index)).data) for _, index in snapshot.resets())
    return [
        ResetPoint(index, data.abandoned_size, data.abandoned_root, data.reason)
        for index, data in events
        if isinstance(data, HistoryReset)
    ]


async def _is_abandoned(client: Client, history: LostHistory, log: Log) -> bool:
    with log.snapshot() as snapshot:
        later_resets = [reset for reset in resets(snapshot) if reset.index >= history.shared]
    if not later_resets:
        return False
    size, root = await abandoned_head(client, history, log)
    return any(reset.covers(TrustedHead(size, root.hex())) for reset in later_resets)


def _proves_loss(snapshot: Snapshot, ledger: str, seq: int, message: RawStreamMsg | None) -> bool:
    """Whether a message is an acknowledged entry of this ledger that the log does not hold at its index."""
    data = entry_at(seq, message)
    if data is None or (seq <= snapshot.size and is_same_entry(snapshot.entry(seq - 1), data)):
        return False
    entry = decode_entry(data)
    try:
        body = read_stored(entry.body).body
    except Refused:
        return False
    owner = snapshot.record(key_key(entry.key.hex()))
    return body.ledger == ledger and owner is not None and owner.agent == body.author


async def _shared_size(client: Client, generation: Generation, log: Log, first: int, last: int) -> int:
    """Return by bisection how many first entries log and stream share: two histories that differ never agree again."""
    low, high = first - 1, last
    while low < high:
        middle = (low + high) // 2
        data = entry_at(middle + 1, (await read_messages(client, generation, middle + 1, middle + 1))[middle + 1])
        with log.snapshot() as snapshot:
            # A damaged or lost message does not prove another history.
            is_same = data is None or is_same_entry(snapshot.entry(middle), data)
        low, high = (middle + 1, high) if is_same else (low, middle)
    return low
