"""What arrives at a node for one kind of work: a bounded queue for each agent, served in turn, shed before it is read.

Each agent has a subscription of its own, a *door*. A request that finds its agent's queue full is shed, unparsed:
answered ``BUSY`` from bytes made beforehand. And the door is closed, as it is when bytes come too fast: the node
unsubscribes, and the server answers the agent "no responders". After a pause the door opens again for a mebibyte or
less, which the server counts. While that happens at once, pauses grow; after some time without, it stays open.

A node that gets no processor closes no door. So every door has a *window*: the server passes on so many messages beyond
those that were read, also while the node does not run at all.

What was on its way when a door closed is dropped without an answer, and of those shed only the first few are answered:
a flood must not be turned into a flood of answers. Whoever sent it in earnest asks again (``ledger.bus.connection``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from deedbook.ledger import limits
from deedbook.ledger.bus.connection import NodeClient, bus_errors
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.service.fair_queue import FairQueue, Share

log = structlog.get_logger("deedbook.intake")

QUEUE: Final = "deedbook-nodes"
_SIZES_REMEMBERED: Final = 8
_BUSY: Final = msgspec.json.encode(
    {"error": Unavailable("BUSY", "more of your requests wait already than may: try again later").to_dict()}
)


class _Meter:
    """Bytes that passed lately, beyond what the rate allowed to one agent has made up for."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seen_s = 0.0

    def add(self, size: int) -> float:
        """Count ``size`` bytes; return how many seconds it takes until they were not too many."""
        now_s = asyncio.get_running_loop().time()
        made_up = (now_s - self._seen_s) * limits.agent_bytes_per_s_max
        self._bytes = max(0.0, self._bytes - made_up) + size
        self._seen_s = now_s
        return max(0.0, (self._bytes - limits.agent_burst_max_bytes) / limits.agent_bytes_per_s_max)


class _Door:
    """One agent's subscription, open or closed."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.left: int | None = None  # How many messages more it lets in; None while they are not counted.
        self.size_mean = 0.0
        self.received, self.answers = _Meter(), _Meter()
        self.pause_s = limits.door_pause_min_s
        self.opened_s = 0.0
        self.flooded_s = -math.inf
        self.answered = 0
        # How many messages were read since the subscription began, and how many the server may pass on.
        self.read = self.allowed = 0
        self.is_extending = False


class Intake:
    """Requests to one family of subjects, from the server to ``serve``."""

    def __init__(
        self,
        subject: Callable[[str, str], str],
        serve: Callable[[str, Msg], Awaitable[bytes]],
        share: Share,
        shedding: Callable[[str], None] = lambda _: None,
        queue: str = QUEUE,
    ) -> None:
        """Serve what agents send to ``subject(ledger, agent)``, as ``share`` allows; ``serve`` returns the answer.

        ``shedding`` is told ``requests_shed`` for each that is dropped, and ``doors_closed`` for each closed door. Of
        all nodes with one ``queue`` one gets a request.
        """
        self._shedding, self._queue_group = shedding, queue
        self._subject = subject
        self._serve = serve
        self._queue: FairQueue[Msg | asyncio.Future[None]] = FairQueue(share)
        self._doors: dict[str, _Door] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._nats: NodeClient | None = None
        self._ledger = ""

    async def start(self, nats: NodeClient, ledger: str, agents: Collection[str]) -> None:
        """Subscribe for these agents; started again on a new connection, the doors of the old one went with it."""
        self._nats, self._ledger = nats, ledger
        self._doors.clear()
        await self.follow(agents)

    async def follow(self, agents: Collection[str]) -> None:
        """From now on serve these agents; what waits for others is dropped."""
        for agent in [agent for agent in self._doors if agent not in agents]:
            door = self._doors.pop(agent)
            self._queue.drop(agent)
            if door.subscription is not None:
                with bus_errors("closing the door of an agent"):
                    await door.subscription.unsubscribe()
        for agent in agents:
            if agent not in self._doors:
                self._doors[agent] = _Door()
                await self._open(agent)

    async def drain(self) -> None:
        """Take no more; what was taken is served."""
        doors, self._doors = self._doors, {}
        open_ones = [door.subscription for door in doors.values() if door.subscription is not None]
        await asyncio.gather(*(one.drain() for one in open_ones))  # type: ignore[no-untyped-call]  # left unannotated

    async def finish(self, wait_s: float) -> None:
        """Wait until all that was taken was answered; give up what takes longer."""
        for task in self._closing:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._tasks:  # What ends may let the next one begin.
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            log.error("request given up", task=str(task))
            task.cancel()

    async def rest(self, agent: str, size: int, work: Awaitable[Any]) -> None:
        """Wait for ``work`` outside what may run for an agent at once; return when its turn comes again."""
        self._queue.finish(agent, size)
        self._advance()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await work
        finally:
            self._queue.put_back(agent, turn, size)
            self._advance()
            await turn

    async def _receive(self, agent: str, message: Msg) -> None:
        size = len(message.data)
        shed = self._queue.put(agent, message, size)
        self._advance()
        if (door := self._doors.get(agent)) is not None:
            door.read += 1
            if self._is_over(door, size):
                self._close(agent, door)
            elif door.left is None and door.allowed - door.read <= limits.door_window_max // 2:
                self._extend(agent, door)
        for flooder, refused in shed:
            if isinstance(refused, Msg):
                await self._shed(flooder, refused)

    def _is_over(self, door: _Door, size: int) -> bool:
        """Count a message; return whether its door must close, because of its count or of its rate.

        The rate matters by itself: what is refused quickly never fills a queue, and still comes faster than it is read.
        """
        too_fast_s = door.received.add(size)
        door.size_mean += (size - door.size_mean) / _SIZES_REMEMBERED
        if door.left is not None:
            door.left -= 1
        return door.left == 0 or too_fast_s > 0

    def _advance(self) -> None:
        while (taken := self._queue.take()) is not None:
            agent, item = taken
            if isinstance(item, Msg):
                _keep(self._tasks, self._run(agent, item))
            elif not item.done():  # else it was given up while it waited for its turn
                item.set_result(None)

    async def _run(self, agent: str, message: Msg) -> None:
        size = len(message.data)
        try:
            answer = await self._serve(agent, message)
            door = self._doors.get(agent)
            if door is not None and (pause_s := door.answers.add(len(answer))):
                # Its turn lasts so long: whoever does not read its answers fills the server's memory at no higher rate.
                await asyncio.sleep(pause_s)
        finally:
            self._queue.finish(agent, size)
            self._advance()
        await _respond(message, answer)

    async def _shed(self, agent: str, message: Msg) -> None:
        self._shedding("requests_shed")
        door = self._doors.get(agent)
        if door is None:
            return
        if door.answered < limits.door_answers_max:
            door.answered += 1
            await _respond(message, _BUSY)
        self._close(agent, door)

    def _extend(self, agent: str, door: _Door) -> None:
        if door.subscription is not None and not door.is_extending:
            door.is_extending = True
            _keep(self._closing, self._allow(agent, door, door.subscription))

    async def _allow(self, agent: str, door: _Door, subscription: Subscription) -> None:
        """Move the window on; where the server may have come to its end before it heard that, open the door anew."""
        assert self._nats is not None  # noqa: S101 - start comes first
        before, door.allowed = door.allowed, door.read + limits.door_window_max
        try:
            await self._nats.allow(subscription, door.allowed)
            # Answered in order: what the server passed on before it heard of the new count lies here by then.
            await self._nats.flush()
            # At the old end the server ends a subscription a moment after the message that was the last, also when it
            # hears of the new end in that moment. And what was read while we waited moved nothing.
            is_open = door.read + subscription.pending_msgs < before
        except (nats.errors.Error, OSError):
            is_open = False
        door.is_extending = False
        if not is_open and door.subscription is subscription:
            door.subscription = None
            with bus_errors("moving the window of an agent"):
                await subscription.drain()  # type: ignore[no-untyped-call]  # what came is served
            if door.answered:  # some of it was shed: a flood, let in piece by piece
                door.flooded_s = asyncio.get_running_loop().time()
            if self._doors.get(agent) is door:
                await self._open(agent)

    def _close(self, agent: str, door: _Door) -> None:
        subscription, door.subscription = door.subscription, None
        if subscription is not None:
            self._shedding("doors_closed")
            _keep(self._closing, self._reopen(agent, door, subscription))

    async def _reopen(self, agent: str, door: _Door, subscription: Subscription) -> None:
        """End a subscription, and make the next one after a pause, or at once if this one has lasted."""
        now_s = asyncio.get_running_loop().time()
        if door.left is None:
            log.warning("an agent sends more than is served: what it sends is let in piece by piece", agent=agent)
        if door.left != 0:
            with bus_errors("closing the door of an agent"):
                await subscription.unsubscribe()
        if door.left is None or now_s - door.opened_s < limits.door_pause_max_s:
            door.flooded_s = now_s
            await asyncio.sleep(door.pause_s)
            door.pause_s = min(2 * door.pause_s, limits.door_pause_max_s)
        else:
            door.pause_s = limits.door_pause_min_s
        if self._doors.get(agent) is door:
            await self._open(agent)

    async def _open(self, agent: str) -> None:
        door = self._doors[agent]
        assert self._nats is not None  # noqa: S101 - start comes first
        door.opened_s = asyncio.get_running_loop().time()
        door.answered, door.left = 0, None
        with bus_errors("opening the door of an agent"):
            subscription = await self._nats.subscribe(
                self._subject(self._ledger, agent),
                queue=self._queue_group,
                cb=partial(self._receive, agent),
                pending_msgs_limit=limits.subscription_pending_max,
                pending_bytes_limit=limits.subscription_pending_max_bytes,
            )
            door.read, door.allowed = 0, limits.door_window_max
            if door.opened_s - door.flooded_s >= limits.door_flood_forget_s:
                await self._nats.allow(subscription, door.allowed)
            else:
                fitting = int(limits.door_batch_max_bytes / max(door.size_mean, 1.0))
                door.left = max(1, min(fitting, limits.door_batch_max))
                # Leaves in the same write as the subscription: the server never sees it without the count.
                await subscription.unsubscribe(door.left)
        door.subscription = subscription


async def _respond(message: Msg, answer: bytes) -> None:
    if not message.reply:
        return  # A submission may be sent without waiting for its receipt.
    try:
        await message.respond(answer)
    except (nats.errors.Error, OSError) as error:
        # The bus is away. Whoever asked gets no answer, as after a crash, and asks again.
        log.warning("answer not sent", subject=message.subject, error=str(error) or type(error).__name__)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
