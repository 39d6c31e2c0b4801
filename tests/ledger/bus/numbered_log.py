"""A log whose events are computed from their indexes, so that any process knows the event of an index."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deedbook.ledger.bus.publisher import OutboundMessage, StreamPublisher
from deedbook.ledger.bus.stream import Generation, open_stream
from deedbook.ledger.bus.subjects import event_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

L = "0123456789abcdef0123456789abcdef"
FIRST = Generation(L)


def message(index: int) -> OutboundMessage:
    """Return the event of an index; every tenth begins a signed batch of four."""
    digit = index % 10
    return OutboundMessage(
        index,
        event_subject(L, "session.started" if index % 3 else "finding.logged", f"session/{index % 7}"),
        f'{{"n":{index}}}'.encode() + b" " * (index % 400),
        {"Deedbook-Index": str(index), "Deedbook-Id": f"blake3:{index:064x}"},
        index.to_bytes(32),
        3 - digit if digit < 4 else 0,
    )


class NumberedLog:
    """A test double of the log, with ``size`` events."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def read(self, after_index: int, limit: int) -> list[OutboundMessage]:
        """Return the events after an index."""
        return [message(i) for i in range(after_index + 1, min(after_index + 1 + limit, self.size))]

    def grow(self, events: int, size_max: int) -> None:
        """Commit more events, and the rest of a signed batch that they begin."""
        self.size = min(self.size + events, size_max)
        while self.size < size_max and message(self.size - 1).unit_left:
            self.size += 1


async def check_stream(client: Client, generation: Generation, size: int) -> None:
    """Read the stream as any NATS client would, and assert that it has exactly the events below ``size``."""
    subscription = await client.jetstream().subscribe(
        f"deedbook.{L}.event.>", stream=generation.name, ordered_consumer=True
    )
    for index in range(generation.first_seq - 1, size):
        stored = await subscription.next_msg(timeout=60)
        assert stored.metadata.sequence.stream == index + 1
        expected = message(index)
        assert (stored.subject, stored.data) == (expected.subject, expected.payload)
        assert expected.headers.items() <= (stored.headers or {}).items()
    with pytest.raises(TimeoutError):
        await subscription.next_msg(timeout=0.02)
    await subscription.unsubscribe()


async def publish_all(publisher: StreamPublisher) -> int:
    """Publish until all events of the log are published; return the number of published events."""
    total = 0
    while count := await publisher.publish_next():
        total += count
    return total


async def opened(client: Client, log: NumberedLog) -> StreamPublisher:
    """Return a publisher that was started."""
    publisher = StreamPublisher(client, await open_stream(client, FIRST), log.read)
    await publisher.start()
    return publisher


async def until(is_true: Callable[[], bool]) -> None:
    """Wait, for at most five seconds, until something is true."""
    for _ in range(1000):
        if is_true():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not become true")
