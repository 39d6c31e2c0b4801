"""The requests of agents to a node for one kind of work: one bounded queue for each agent, served in turn.

Most requests come over the bus. ``Intake.request`` puts a request from elsewhere (HTTP, for example) into the same
queues.

Each agent has a subscription of its own. A request that finds its agent's queue full is shed without parsing: the node
answers ``BUSY`` from bytes made beforehand and closes the subscription. It also closes the subscription when bytes
arrive too fast: it unsubscribes, and the server answers the agent "no responders". After a pause the node subscribes
again for at most a mebibyte of messages, which the server counts. The pauses grow while the agent uses this up at once.
When the agent has not flooded for some time, its next subscription has no such limit. A node without processor time
cannot close anything. So every subscription has a *window*: the server passes on only a limited number of messages
beyond those that the node has read, even while the node does not run.

The node drops messages that were under way when it closed a subscription. It answers only the first few requests that
it sheds: a flood must not become a flood of answers. A well-behaved agent sends again (``ledger.bus.connection``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

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
    {"error": Unavailable("BUSY", "too many of your requests are waiting: try again later").to_dict()}
)


class _DirectRequest:
    """A request that came to this process, not over the bus; ``answer`` resolves to the answer."""

    subject, reply = "", "direct"

    def __init__(self, data: bytes, headers: dict[str, str] | None) -> None:
        self.data, self.headers = data, headers
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def respond(self, data: bytes) -> None:
        """Answer the request, like a message of the bus."""
        if not self.answer.done():  # otherwise the caller has gone
            self.answer.set_result(data)


Request: TypeAlias = Msg | _DirectRequest
"""A request of an agent, over the bus or not."""
Serve: TypeAlias = Callable[[str, Request], Awaitable[bytes]]
"""Returns the encoded answer to a request of an agent."""


class _ByteRate:
    """The recent bytes of one agent, as a leaking bucket: they decrease at the agent's allowed rate."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._updated_s = 0.0

    def add(self, size: int) -> float:
        """Count ``size`` bytes; return the seconds until the agent is within its burst again, 0 if it is now."""
        now_s = asyncio.get_running_loop().time()
        covered = (now_s - self._updated_s) * limits.agent_bytes_per_s_max
        self._bytes = max(0.0, self._bytes - covered) + size
        self._updated_s = now_s
        return max(0.0, (self._bytes - limits.agent_burst_max_bytes) / limits.agent_bytes_per_s_max)


class _AgentSubscription:
    """The state of one agent's subscription; ``handle`` is None while it is closed."""

    def __init__(self) -> None:
        self.handle: Subscription | None = None
        # the number of messages that the server still passes on; None if it does not count
        self.left: int | None = None
        self.size_mean = 0.0
        self.received, self.answers = _ByteRate(), _ByteRate()
        self.pause_s = limits.subscription_pause_min_s
        self.opened_s = 0.0
        self.flooded_s = -math.inf
        self.answered = 0
        # The number of messages read since the subscription began, and the number that the server may pass on in all.
        self.read = self.allowed = 0
        self.is_extending = False


class Intake:
    """Requests to one family of subjects, from the server to ``serve``."""

    def __init__(
        self,
        subject: Callable[[str, str], str],
        serve: Serve,
        share: Share,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Serve the requests to ``subject(ledger, agent)`` within ``share``; ``serve`` returns the encoded answer.

        ``count`` gets the metric's name for each shed request (``requests_shed``) and each closed subscription
        (``subscriptions_closed``). A server gives a request to the node beside it, or else to any other one.
        """
        self._count = count
        self._subject = subject
        self._serve = serve
        self._queue: FairQueue[Request | asyncio.Future[None]] = FairQueue(share)
        self._subscriptions: dict[str, _AgentSubscription] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._nats: NodeClient | None = None
        self._ledger = ""

    async def start(self, nats: NodeClient, ledger: str, agents: Collection[str]) -> None:
        """Subscribe for these agents; call it again on each new connection, which has none of the old subscriptions."""
        self._nats, self._ledger = nats, ledger
        self._subscriptions.clear()
        await self.follow(agents)

    async def follow(self, agents: Collection[str]) -> None:
        """Serve these agents from now on, and drop the waiting requests of all others."""
        for agent in [agent for agent in self._subscriptions if agent not in agents]:
            subscription = self._subscriptions.pop(agent)
            for dropped in self._queue.drop(agent):
                if isinstance(dropped, _DirectRequest):
                    await dropped.respond(_BUSY)
            if subscription.handle is not None:
                with bus_errors("closing the subscription of an agent"):
                    await subscription.handle.unsubscribe()
        for agent in agents:
            if agent not in self._subscriptions:
                self._subscriptions[agent] = _AgentSubscription()
                await self._open(agent)

    async def drain(self) -> None:
        """Accept no more requests; those that arrived are still served."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        handles = [subscription.handle for subscription in subscriptions.values() if subscription.handle is not None]
        await asyncio.gather(*(handle.drain() for handle in handles))  # type: ignore[no-untyped-call]  # unannotated

    async def finish(self, wait_s: float) -> None:
        """Wait until all accepted requests are answered; cancel those that take longer than ``wait_s``."""
        for task in self._closing:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._tasks:  # A request that ends may let the next one begin.
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            log.error("request cancelled: it took too long", task=str(task))
            task.cancel()

    async def request(self, agent: str, data: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Serve a request that came to this process, in the queue of its agent; return the encoded answer.

        If the caller is cancelled, the request is still served.
        """
        request = _DirectRequest(data, headers)
        shed = self._queue.put(agent, request, len(data))
        self._advance()
        await self._shed_all(shed)
        return await request.answer

    async def rest(self, agent: str, size: int, work: Awaitable[Any]) -> None:
        """Wait for ``work`` without a running slot of the agent; return when the request's turn comes again."""
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
        if (subscription := self._subscriptions.get(agent)) is not None:
            subscription.read += 1
            if self._is_over(subscription, size):
                self._close(agent, subscription)
            elif (
                subscription.left is None
                and subscription.allowed - subscription.read <= limits.subscription_window_max // 2
            ):
                self._extend(agent, subscription)
        await self._shed_all(shed)

    def _is_over(self, subscription: _AgentSubscription, size: int) -> bool:
        """Count a message; return whether its subscription must close, because of its count or of its rate.

        The rate is checked separately: quickly refused requests never fill a queue, but may arrive faster than they are
        read.
        """
        excess_s = subscription.received.add(size)
        subscription.size_mean += (size - subscription.size_mean) / _SIZES_REMEMBERED
        if subscription.left is not None:
            subscription.left -= 1
        return subscription.left == 0 or excess_s > 0

    def _advance(self) -> None:
        while (ready := self._queue.take()) is not None:
            agent, item = ready
            if not isinstance(item, asyncio.Future):
                _start_task(self._tasks, self._run(agent, item))
            elif not item.done():  # otherwise it was cancelled while it waited for its turn
                item.set_result(None)

    async def _run(self, agent: str, message: Request) -> None:
        size = len(message.data)
        try:
            answer = await self._serve(agent, message)
            subscription = self._subscriptions.get(agent)
            if subscription is not None and (pause_s := subscription.answers.add(len(answer))):
                # The request occupies a running slot during this pause. So an agent that does not read its answers
                # fills the server's memory no faster than at the allowed rate.
                await asyncio.sleep(pause_s)
        finally:
            self._queue.finish(agent, size)
            self._advance()
        await _respond(message, answer)

    async def _shed_all(self, shed: Iterable[tuple[str, Request | asyncio.Future[None]]]) -> None:
        for agent, refused in shed:
            if not isinstance(refused, asyncio.Future):
                await self._shed(agent, refused)

    async def _shed(self, agent: str, message: Request) -> None:
        self._count("requests_shed")
        if isinstance(message, _DirectRequest):
            await message.respond(_BUSY)
            return
        subscription = self._subscriptions.get(agent)
        if subscription is None:
            return
        if subscription.answered < limits.subscription_answers_max:
            subscription.answered += 1
            await _respond(message, _BUSY)
        self._close(agent, subscription)

    def _extend(self, agent: str, subscription: _AgentSubscription) -> None:
        if subscription.handle is not None and not subscription.is_extending:
            subscription.is_extending = True
            _start_task(self._closing, self._allow(agent, subscription, subscription.handle))

    async def _allow(self, agent: str, subscription: _AgentSubscription, handle: Subscription) -> None:
        """Move the window on. If the server may have reached the old end before it got the new one, subscribe again."""
        assert self._nats is not None  # noqa: S101 - start comes first
        before, subscription.allowed = subscription.allowed, subscription.read + limits.subscription_window_max
        try:
            await self._nats.allow(handle, subscription.allowed)
            # The server answers in order. So after this, all messages from before the new count have arrived.
            await self._nats.flush()
            # The server ends a subscription shortly after the last message of the window, even if it gets the new end
            # in between. Messages that we read during this wait did not move the window.
            is_open = subscription.read + handle.pending_msgs < before
        except (nats.errors.Error, OSError):
            is_open = False
        subscription.is_extending = False
        if not is_open and subscription.handle is handle:
            subscription.handle = None
            with bus_errors("moving the window of an agent"):
                await handle.drain()  # type: ignore[no-untyped-call]  # messages that came are served
            # some requests were shed: this is a flood, and the server counts the next subscription
            if subscription.answered:
                subscription.flooded_s = asyncio.get_running_loop().time()
            if self._subscriptions.get(agent) is subscription:
                await self._open(agent)

    def _close(self, agent: str, subscription: _AgentSubscription) -> None:
        handle, subscription.handle = subscription.handle, None
        if handle is not None:
            self._count("subscriptions_closed")
            _start_task(self._closing, self._reopen(agent, subscription, handle))

    async def _reopen(self, agent: str, subscription: _AgentSubscription, handle: Subscription) -> None:
        """End a subscription; make the next one after a pause, or at once if the agent used this one up slowly."""
        now_s = asyncio.get_running_loop().time()
        if subscription.left is None:
            log.warning("an agent floods: its requests are now admitted only in small portions", agent=agent)
        if subscription.left != 0:
            with bus_errors("closing the subscription of an agent"):
                await handle.unsubscribe()
        if subscription.left is None or now_s - subscription.opened_s < limits.subscription_pause_max_s:
            subscription.flooded_s = now_s
            await asyncio.sleep(subscription.pause_s)
            subscription.pause_s = min(2 * subscription.pause_s, limits.subscription_pause_max_s)
        else:
            subscription.pause_s = limits.subscription_pause_min_s
        if self._subscriptions.get(agent) is subscription:
            await self._open(agent)

    async def _open(self, agent: str) -> None:
        subscription = self._subscriptions[agent]
        assert self._nats is not None  # noqa: S101 - start comes first
        subscription.opened_s = asyncio.get_running_loop().time()
        subscription.answered, subscription.left = 0, None
        with bus_errors("opening the subscription of an agent"):
            handle = await self._nats.subscribe(
                self._subject(self._ledger, agent),
                queue=QUEUE,
                cb=partial(self._receive, agent),
                pending_msgs_limit=limits.subscription_pending_max,
                pending_bytes_limit=limits.subscription_pending_max_bytes,
            )
            subscription.read, subscription.allowed = 0, limits.subscription_window_max
            if subscription.opened_s - subscription.flooded_s >= limits.subscription_flood_forget_s:
                await self._nats.allow(handle, subscription.allowed)
            else:
                fitting = int(limits.subscription_batch_max_bytes / max(subscription.size_mean, 1.0))
                subscription.left = max(1, min(fitting, limits.subscription_batch_max))
                # Sent in the same write as the subscription, so the server never has it without the count.
                await handle.unsubscribe(subscription.left)
        subscription.handle = handle


async def _respond(message: Request, answer: bytes) -> None:
    if not message.reply:
        return  # A submission may be sent without waiting for its receipt.
    try:
        await message.respond(answer)
    except (nats.errors.Error, OSError) as error:
        # The bus is unavailable. The agent gets no answer, as after a crash, and sends its request again.
        log.warning("answer not sent", subject=message.subject, error=str(error) or type(error).__name__)


def _start_task(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
