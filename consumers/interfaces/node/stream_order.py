"""The order of a node's own entries: the node publishes each entry to the stream before it appends it to its log.

The node's gates call ``publish`` inside their write transaction. After any error nothing is appended, and nothing is
published again before the log has the stream's message at that position: the publish may have succeeded although its
answer was lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from deedbook.consumers.interfaces.node.replica import DamagedError, ForkedError, Replica
from deedbook.ledger import limits
from deedbook.ledger.admission.order import OvertakenError
from deedbook.ledger.bus.publisher import (
    WRONG_LAST_SEQUENCE,
    WRONG_STREAM,
    OutboundMessage,
    messages_of,
    next_group,
    send_group,
)
from deedbook.ledger.bus.stream import Generation
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable, message_of
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.envelope import decode_entry

log = structlog.get_logger("deedbook.order")

publish_wait_max_s: Final = 10.0
"""How long a writer waits; a stream of three servers elects a leader in less time."""

permit_wait_s: Final = 0.02
permit_waits_max: Final = 150
"""How many waits to hear the other nodes after an interruption: together over ``limits.heartbeats_missed_s``."""

sent_again_s: Final = 0.5
"""The wait for an answer before a group is sent again: servers drop messages while they elect a leader."""

under_way_max_s: Final = 30.0
"""After this time, no server stores a message any more that was sent before."""

_FAILURES: Final = (DamagedError, ForkedError, DeedbookError, concurrent.futures.CancelledError, TimeoutError)
_chance: Final = random.Random()  # noqa: S311 - the length of a wait is no secret


class StreamOrder:
    """Publishes the entries of one node's gates, which call ``publish`` and ``catch_up`` in threads."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._loop = asyncio.get_running_loop()
        self._sent = -1, 0.0

    def publish(self, start: int, entries: list[bytes]) -> None:
        """Publish the entries from index ``start`` before they are appended; as ``Order.publish``."""
        self._run(self._publish(start, entries))

    def catch_up(self, attempt: int) -> None:
        """Append the entries that the log lacks; as ``Order.catch_up``."""
        self._replica.metrics.count("publish_conflicts")
        self._run(self._catch_up(attempt))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(publish_wait_max_s):
                await work

        try:
            asyncio.run_coroutine_threadsafe(limited(), self._loop).result()
        except _FAILURES as error:
            why = message_of(error) or type(error).__name__
            message = f"it is unknown whether this was published ({why}). Submit it again; it is never recorded twice."
            raise Unavailable("BUS_UNAVAILABLE", message) from error

    async def _catch_up(self, attempt: int) -> None:
        size = self._replica.own().size
        await asyncio.sleep(_chance.random() * attempt * limits.publish_conflict_wait_s)
        for _ in range(permit_waits_max):
            if self._replica.permits():
                break
            await asyncio.sleep(permit_wait_s)
        if self._replica.own().size == size:  # otherwise the log has just been followed
            await self._replica.follow()

    async def _publish(self, start: int, entries: list[bytes]) -> None:
        self._check_order(start)
        if not entries:
            await self._check_end(start)
            return
        replica = self._replica
        for ref in refs_of(entries):
            await replica.blobs.put(ref, replica.log.blobs)
        messages = messages_of(
            replica.ledger, start, entries, lambda begin, size: entries[begin - start : begin - start + size]
        )
        while messages:
            group = next_group(messages)
            await self._send(group)
            messages = messages[len(group) :]

    def _check_order(self, start: int) -> Generation:
        """Return the stream in use. Raises OvertakenError: this node must not publish at ``start`` now."""
        generation = self._replica.generation
        if generation is None or not self._replica.permits() or start < max(self._replica.head(), generation.size):
            raise OvertakenError
        return generation

    async def _check_end(self, start: int) -> None:
        if start <= self._sent[0] and time.monotonic() - self._sent[1] < under_way_max_s:
            # An earlier publish may still arrive here. Then a submission that this node refuses now would be recorded.
            raise Unavailable("BUS_UNAVAILABLE", "an earlier publish got no answer")
        if await self._replica.end() != start:
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
                answer = await send_group(self._replica.nats(), generation.name, group, sent_again_s)
            except Unavailable as error:
                log.debug("published without an answer", index=start, error=error.message)
            else:
                if answer.error is None and answer.seq == start + len(group):
                    return
                if answer.error is None:
                    message = f"index {start + len(group) - 1} was stored at sequence {answer.seq}"
                    raise DamagedError(message, generation.number)
                if answer.error.err_code == WRONG_STREAM:
                    self._replica.forget_stream()  # it was retired, and the next one is there
                if answer.error.err_code in {*WRONG_LAST_SEQUENCE, WRONG_STREAM}:
                    raise OvertakenError
            await asyncio.sleep(permit_wait_s)


def refs_of(entries: Sequence[bytes]) -> list[str]:
    """Return the blobs that entries refer to."""
    refs = list[str]()
    for entry in entries:
        with contextlib.suppress(Refused):  # a replay reports the fault
            refs += blobs_of(read_stored(decode_entry(entry).body).data)
    return refs
