"""The next generation of a stream that is damaged, or that holds the body of an entry that was erased.

A node retires the stream and makes the next one, which states a head (size and root): that of the log from which it is
to be filled. If several nodes want to make it, the first one succeeds. Any node whose log contains this head may fill
the stream, and may continue what another node began, because each message has its position. No node accepts submissions
while its log is shorter than the stated head.
"""

from __future__ import annotations

import structlog

from deedbook.consumers.interfaces.node.publication import read_record
from deedbook.consumers.interfaces.node.replica import DamagedError, ForkedError, Replica
from deedbook.consumers.interfaces.node.stream_order import refs_of
from deedbook.ledger import limits
from deedbook.ledger.bus.history import lost_history
from deedbook.ledger.bus.publisher import Outbox, StreamPublisher
from deedbook.ledger.bus.stream import (
    HOLDS_ERASED,
    Generation,
    delete_erased,
    open_stream,
    retire,
    stream_info,
)
from deedbook.ledger.bus.subjects import event_pattern
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.service.nodes import stream_in_use

log = structlog.get_logger("deedbook.generations")


class Generations:
    """Makes the next generation of one node's stream, and fills it from the node's log."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._made = 0
        self._seen = 0, 0
        replica.fill = self._fill

    async def rebuild(self, scrubbed: int) -> None:
        """Retire the damaged stream and make the next generation, unless another node has made it.

        ``scrubbed`` is the generation that scrubbing found damaged; 0: following found the damage. ``follow`` fills the
        next one. Raises ForkedError: stream and log differ at the same index. Unavailable: ``BUS_UNAVAILABLE``.
        """
        replica, nats = self._replica, self._replica.nats()
        async with replica.at_work:
            newest, damaged = await stream_in_use(nats, replica.ledger), scrubbed
            if newest is None or newest.number != scrubbed:
                try:
                    await replica.advance()
                except DamagedError as error:
                    damaged = error.generation
                else:
                    return  # only one server had the damage and leads no more, or another node has mended it
            if newest is not None:
                if newest.number != damaged:
                    return  # another node made it, and it is compared when it is followed
                lost = await lost_history(nats, newest, replica.log)
                if lost is not None and lost.is_fork:
                    raise ForkedError(lost.error().message)
                await retire(nats, newest)
            known = read_record(replica.record, replica.ledger)
            number = max(known.number, damaged)
            # A node that retired a stream may have died before it made the next one. A retired stream accepts nothing
            # more, so this node first takes over its last entries, and then the next stream states its head.
            while await self._take_over(number) or (number == known.number and known.created is not None):
                number += 1
            with replica.log.snapshot() as snapshot:
                size, root = snapshot.size, snapshot.frontier(snapshot.size).root().hex()
            # If a body is erased while the next stream is filled, another stream is made.
            redactions = replica.erased_count()
            following = Generation(replica.ledger, number, redactions=redactions, size=size, root=root)
            await open_stream(nats, following, replica.replicas)
            log.warning("made the next generation of the log stream", stream=following.name, entries=size)
            self._made = number
            replica.forget_stream()

    async def _take_over(self, number: int) -> bool:
        """Append the sound entries of a retired stream beyond this log; False if there is no such stream.

        Raises Unavailable: ``BUS_UNAVAILABLE``, also if the stream is in use: another node has just made it.
        """
        replica, generation = self._replica, Generation(self._replica.ledger, number)
        try:
            info = await stream_info(replica.nats(), generation)
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            return False
        if info.config.subjects == [event_pattern(replica.ledger)]:
            raise Unavailable("BUS_UNAVAILABLE", f"another node has made {generation.name}")
        if not replica.is_retired(info, generation):  # somebody gave it other subjects, so it is in use nowhere
            await retire(replica.nats(), generation)
        try:
            while (size := replica.own().size) < info.state.last_seq:
                await replica.take(generation, size, info.state.last_seq)
        except DamagedError as error:
            log.warning("left the entries after the damage in the retired stream", error=str(error))
        return True

    async def _fill(self, generation: Generation, end: int, size: int) -> None:
        """Publish this log to a stream that does not hold its stated head yet, unless another node is doing so.

        If this log is longer than the stated head, publish its further entries, too. Raises DamagedError: the stream
        holds other entries. Unavailable: ``BUS_UNAVAILABLE``, also while another node fills the stream, or if this log
        is shorter than the stated head.
        """
        replica, before = self._replica, self._seen
        self._seen = generation.number, end
        if size < generation.size or (self._made != generation.number and self._seen != before):
            message = f"{generation.name} is being filled: {end} of {generation.size} entries are there"
            raise Unavailable("BUS_UNAVAILABLE", message)
        await self._put_blobs()
        publisher = StreamPublisher(replica.nats(), generation, Outbox(replica.log, replica.ledger).read)
        try:
            await publisher.start()
            while await publisher.publish_next():
                pass
        except Unavailable as error:
            if error.code != "BUS_DEGRADED":
                raise
            raise DamagedError(error.message, generation.number) from error

    async def _put_blobs(self) -> None:
        """Put every local blob that the log refers to into the stream of blobs, which may be lost, too."""
        replica = self._replica
        replica.blobs.forget()
        with replica.log.snapshot() as snapshot:
            erased = erased_blobs(snapshot.redactions().values())
        await replica.blobs.erase(erased)
        start = 0
        while entries := self._entries(start):
            for ref in refs_of(entries):
                await replica.blobs.put(ref, replica.log.blobs)
            start += len(entries)

    def _entries(self, start: int) -> list[bytes]:
        with self._replica.log.snapshot() as snapshot:
            return snapshot.entries(start, limit=limits.batch_events_max, size_max_bytes=limits.batch_size_max_bytes)

    def replace_erased(self) -> DamagedError:
        """Return the error that makes the node replace the stream in use because it holds an erased body."""
        return DamagedError(HOLDS_ERASED, self._replica.known().number, is_hidden=True)

    async def delete_erased(self) -> None:
        """Delete the retired streams that hold an erased body. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        if names := await delete_erased(self._replica.nats(), self._replica.known()):
            log.info("deleted streams that held an erased body", streams=names)
