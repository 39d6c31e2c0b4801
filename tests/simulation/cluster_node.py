"""One of several nodes: the real ``Membership``, ``Replica``, gate and follower, on this world's clock, log and bus.

What a node does beside that is left out: views, workers, metrics. Requests are not queued by agent, only in one line.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from deedbook.consumers.interfaces.node.membership import Membership
from deedbook.consumers.interfaces.node.replica import Replica
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus.subjects import submit_pattern
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.replication.lease import Timing
from tests.simulation.solo_node import SoloNode
from tests.simulation.story import actors

if TYPE_CHECKING:
    from tests.simulation.client import SimSubscription
    from tests.simulation.memory_log import MemoryLog
    from tests.simulation.world import Process


class _Nowhere:
    """A folder in which there is nothing, whatever is written there."""

    def __truediv__(self, _name: str) -> _Nowhere:
        return self

    def exists(self) -> bool:
        return False


NOWHERE: Final = _Nowhere()


class ClusterNode(SoloNode):
    """A node, its disk and its server; ``start`` begins a new life of it."""

    @property
    def readable(self) -> MemoryLog | None:
        return self.log if self.process.is_alive and self.reads else None

    @property
    def has_complete_log(self) -> bool:
        """Whether it would say now of what its log lacks that nobody has that."""
        if not (self.process.is_alive and self.reads and self.process.stopped_until <= self.world.now):
            return False
        current, self.world.current = self.world.current, self.process
        try:
            return self.membership.has_complete_log
        finally:
            self.world.current = current

    def _begin(self, process: Process) -> None:
        self.reads = self.is_admitting = False
        self.subscription: SimSubscription | None = None
        process.run_task(self._run(process))

    async def _run(self, process: Process) -> None:
        client: Any = self._client
        replicas = len(self.network.cluster.hosts)
        self.replica = Replica(
            lambda: client,
            self.log,
            actors().id,
            self.host,
            replicas=replicas,
            record=self.record,  # type: ignore[arg-type]
        )
        self.membership = membership = Membership(
            lambda: client,
            self.replica,
            self._watcher,
            folder=NOWHERE,  # type: ignore[arg-type]
            url=self.host,
            key=actors().keys[self.host],
            replicas=replicas,
            answer=self._let,
            lead=self._lead,
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
        ):
            process.run_task(self._keep_running(work))

    async def _let(self, admits: bool, reads: bool) -> None:
        self.reads = reads
        if admits and self.subscription is None:
            self.subscription = await self._client.subscribe(submit_pattern(actors().id), cb=self._receive)
        elif self.subscription is not None and not admits:
            await self.subscription.unsubscribe()
            self.subscription = None

    async def _lead(self, does: bool) -> None:
        self.world.tell(self.host, "leads" if does else "leads no more")

    def _committed(self, start: int, entries: list[bytes]) -> None:
        super()._committed(start, entries)
        self.invariants.grown(self.host, start + len(entries))
        if self.is_admitting:
            self.invariants.admitted(self.host, start, len(entries))

    async def _admit(self, group: list[Any]) -> list[Any]:
        answers: list[Any] = await asyncio.to_thread(self._admit_in_thread, group)
        return answers

    def _admit_in_thread(self, group: list[Any]) -> list[Any]:
        gate = self._gate
        self.is_admitting = True
        try:
            return gate.admit(group)
        except Unavailable as error:
            return [error] * len(group)
        finally:
            self.is_admitting = False

    def _new_gate(self) -> Gate:
        return Gate(self.log, publish=self.replica.publish)  # type: ignore[arg-type]
