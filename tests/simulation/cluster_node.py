"""A simulated node among several: real ``Membership``, ``Replica``, gate and follower on the clock and bus of a world.

Other parts of a node are left out: views, workers, metrics. There is one queue of requests, not one for each agent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from deedbook.consumers.interfaces.node.generations import Generations
from deedbook.consumers.interfaces.node.membership import Membership
from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.consumers.interfaces.node.stream_order import StreamOrder
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus.subjects import submit_pattern
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication.state import Timing
from tests.simulation.solo_node import SoloNode
from tests.simulation.story import actors
from tests.simulation.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.client import SimSubscription
    from tests.simulation.memory_log import MemoryLog
    from tests.simulation.world import Process


class _Nowhere:
    """A double of a folder that stays empty, whatever is written to it."""

    def __truediv__(self, _name: str) -> _Nowhere:
        return self

    def exists(self) -> bool:
        return False


NOWHERE: Final = _Nowhere()


class ClusterNode(SoloNode):
    """A node, its disk and its server; ``start`` starts it again after a crash.

    ``at_publish`` is called once: after a publish of this node was acknowledged, before the node appends the entries.
    """

    at_publish: Callable[[], None] | None = None

    @property
    def readable(self) -> MemoryLog | None:
        return self.log if self.process.is_alive and self.reads else None

    def _begin(self, process: Process) -> None:
        self.reads = self.is_admitting = False
        self.subscription: SimSubscription | None = None
        process.run_task(self._run(process))

    async def _run(self, process: Process) -> None:
        client: Any = self._client
        self.replica = Replica(
            lambda: client,
            self.log,  # type: ignore[arg-type]
            actors().id,
            self.host,
            replicas=len(self.network.cluster.hosts),
            record=self.record,  # type: ignore[arg-type]
        )
        self.order, self.generations = StreamOrder(self.replica), Generations(self.replica)
        self.membership = membership = Membership(
            lambda: client,
            self.replica,
            self.generations,
            self._watcher,
            folder=NOWHERE,  # type: ignore[arg-type]
            url=self.host,
            answer=self._let,
            work=self._work,
            timing=Timing(),
        )
        await membership.start()
        for work in (
            membership.run,
            membership.beat,
            membership.follow,
            membership.do_duties,
            membership.scrub,
            self._write,
            self._claim,
        ):
            process.run_task(self._keep_running(work))

    async def _let(self, admits: bool, reads: bool) -> None:
        self.reads = reads
        if admits and self.subscription is None:
            self.subscription = await self._client.subscribe(submit_pattern(actors().id), cb=self._receive)
        elif self.subscription is not None and not admits:
            await self.subscription.unsubscribe()
            self.subscription = None

    async def _work(self, does: bool) -> None:
        self.world.tell(self.host, "runs the workers" if does else "runs no workers")

    async def _claim(self) -> None:
        """From time to time, if this node thinks that it has the entries of all nodes, check that this is true."""
        while True:
            await asyncio.sleep(self.world.random.uniform(0.2, 3.0))
            size = len(self.invariants.history)
            if await self.membership.has_all() and len(self.log.data) < size:
                self.world.violate(f"{self.host} would call entries lost: it has {len(self.log.data)} of {size}")

    def _committed(self, start: int, entries: list[bytes]) -> None:
        super()._committed(start, entries)
        if self.is_admitting:
            self.invariants.admitted(self.host)

    async def _admit(self, group: list[Any]) -> list[Any]:
        answers: list[Any] = await asyncio.to_thread(self._admit_in_thread, group)
        return answers

    def _admit_in_thread(self, group: list[Any]) -> list[Any]:
        try:
            return self._gate.admit(group)
        except Unavailable as error:
            return [error] * len(group)

    def _new_gate(self) -> Gate:
        return Gate(self.log, order=self)  # type: ignore[arg-type]

    def publish(self, start: int, entries: list[bytes]) -> None:
        self.order.publish(start, entries)
        if self.at_publish is not None:
            happens, self.at_publish = self.at_publish, None
            happens()
            Thread.current().wait_for(asyncio.sleep(0.001))
        self.is_admitting = True

    def catch_up(self, attempt: int) -> None:
        self.is_admitting = False
        self.order.catch_up(attempt)
