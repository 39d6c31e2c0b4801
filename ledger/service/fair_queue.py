"""Choose which agent's request runs next when there are more than can run: start-time fair queueing. Pure.

Every agent has a queue of its own, bounded in number and bytes, and a limit for the requests that run at once. The next
request is of the agent that was served least since it was last idle, measured in bytes plus a constant for each
request. So neither many small requests nor a few large ones get ahead of others. An agent that was idle starts at the
present virtual time: it gets no extra turns for its idle time, and it waits only for running requests.

The queue forgets an idle agent when the virtual time has reached the agent's turn, because its account is then like a
new one. When nothing waits, the virtual time moves on to the last turn, and all agents begin anew. So the queue stores
the agents that wait or run and, while some wait, those that were served more.

When all queues together are too large, the queue drops the newest request of the longest one: a flooder loses its own.

Source: Goyal, Vin, Cheng, "Start-time fair queueing" (SIGCOMM 1996); dropping from the longest queue is from RFC 8290.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

request_cost_bytes: Final = 4096  # The cost of a request in addition to its bytes.


@dataclass(frozen=True)
class Share:
    """The limits of waiting and running requests, for one agent and for all together."""

    waiting_max: int
    waiting_max_bytes: int
    running_max: int
    running_max_bytes: int
    all_waiting_max_bytes: int
    all_running_max: int


@dataclass
class _Account(Generic[T]):
    """One agent's requests."""

    waiting: deque[tuple[T, int]] = field(default_factory=deque)
    waiting_bytes: int = 0
    returning: deque[tuple[T, int]] = field(default_factory=deque)
    running: int = 0
    running_bytes: int = 0
    turn: int = 0  # The virtual time at which its next request may start.

    def next(self) -> tuple[T, int] | None:
        """Return the next request and its size: first those that ran before."""
        queue = self.returning or self.waiting
        return queue[0] if queue else None

    def is_idle(self) -> bool:
        """Whether no request of the agent waits or runs."""
        return not (self.running or self.waiting or self.returning)


class FairQueue(Generic[T]):
    """The waiting requests of many agents, and the choice of the next one to run."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._accounts: dict[str, _Account[T]] = {}
        self._now = 0
        self.running = 0
        self.waiting_bytes = 0

    def put(self, agent: str, item: T, size: int) -> list[tuple[str, T]]:
        """Queue a request.

        Return the shed requests, each with its agent: this one, or the newest of the longest queues.
        """
        account = self._accounts.get(agent) or _Account(turn=self._now)
        share = self._share
        if len(account.waiting) >= share.waiting_max or account.waiting_bytes + size > share.waiting_max_bytes:
            return [(agent, item)]
        self._accounts[agent] = account
        account.waiting.append((item, size))
        account.waiting_bytes += size
        self.waiting_bytes += size
        shed = []
        while self.waiting_bytes > share.all_waiting_max_bytes:
            shed.append(self._shed_longest())
        return shed

    def put_back(self, agent: str, item: T, size: int) -> None:
        """Queue a request that ran before and waited for something else meanwhile: it is never shed or dropped."""
        self._accounts.setdefault(agent, _Account(turn=self._now)).returning.append((item, size))

    def take(self) -> tuple[str, T] | None:
        """Return an agent and its request, which counts as running from now on; None when none may run."""
        if self.running >= self._share.all_running_max:
            return None
        ready = [(agent, account) for agent, account in self._accounts.items() if self._may_run(account)]
        if not ready:
            return None
        agent, account = min(ready, key=lambda pair: pair[1].turn)
        if account.returning:
            item, size = account.returning.popleft()
        else:
            item, size = account.waiting.popleft()
            account.waiting_bytes -= size
            self.waiting_bytes -= size
        # An agent that was at its limit gets no extra turns later.
        self._now = max(self._now, account.turn)
        account.turn = self._now + size + request_cost_bytes
        account.running += 1
        account.running_bytes += size
        self.running += 1
        self._forget_settled()
        return agent, item

    def finish(self, agent: str, size: int) -> None:
        """Record that a request from ``take`` no longer runs."""
        account = self._accounts[agent]
        account.running -= 1
        account.running_bytes -= size
        self.running -= 1
        self._forget_settled()

    def drop(self, agent: str) -> list[T]:
        """Drop the waiting requests of an agent and return them; those that run or were ``put_back`` are kept."""
        dropped: list[T] = []
        if (account := self._accounts.get(agent)) is not None:
            dropped = [item for item, _ in account.waiting]
            self.waiting_bytes -= account.waiting_bytes
            account.waiting.clear()
            account.waiting_bytes = 0
            self._forget_settled()
        return dropped

    def _forget_settled(self) -> None:
        accounts = self._accounts
        if not any(account.waiting or account.returning for account in accounts.values()):
            self._now = max((account.turn for account in accounts.values()), default=self._now)
        for agent in [name for name, account in accounts.items() if account.is_idle() and account.turn <= self._now]:
            del accounts[agent]

    def _may_run(self, account: _Account[T]) -> bool:
        request = account.next()
        if request is None or not account.running:
            return request is not None
        is_within = account.running_bytes + request[1] <= self._share.running_max_bytes
        return account.running < self._share.running_max and is_within

    def _shed_longest(self) -> tuple[str, T]:
        agent, account = max(self._accounts.items(), key=lambda pair: pair[1].waiting_bytes)
        item, size = account.waiting.pop()
        account.waiting_bytes -= size
        self.waiting_bytes -= size
        return agent, item
