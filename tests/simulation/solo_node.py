"""A single node with its own server, as ``serve`` runs it: the gate commits, then ``Publishing`` publishes the log.

Gate, publishing, scrub and generations are the real code. If an older copy of the log was restored, the node must
refuse to start. Then the world's operator restores the missing entries from the stream, with the real follower.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from deedbook.consumers.interfaces.node.publication import Publishing
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus.history import entry_at, read_messages
from deedbook.ledger.bus.publisher import Outbox
from deedbook.ledger.bus.stream import Generation, stream_info
from deedbook.ledger.bus.subjects import submit_pattern
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.service.service import LogWatcher
from tests.simulation.client import SimClient, SimMessage
from tests.simulation.story import actors, checked, first_log
from tests.simulation.world import Process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deedbook.ledger.admission.candidate import CheckedSubmission
    from deedbook.ledger.admission.decide import Accepted
    from tests.simulation.client import Network
    from tests.simulation.invariants import Invariants
    from tests.simulation.memory_log import MemoryLog

sync_s = 0.004
group_max = 8


class Record:
    """The file that stores the generation of the stream."""

    def __init__(self) -> None:
        self.generation: Generation | None = None


class SoloNode:
    """A node and its disk; ``start`` starts it again after a crash."""

    def __init__(self, network: Network, host: str, invariants: Invariants) -> None:
        self.network, self.world, self.host, self.invariants = network, network.world, host, invariants
        self.log = first_log()
        self.record = Record()
        self.process = Process(self.world, host)
        self.backup: MemoryLog | None = None
        self.start()

    def start(self) -> None:
        self.process.kill()
        self.process = process = Process(self.world, self.host)
        self.log.begin(process, self._committed)
        self._client: Any = SimClient(self.network, process, self.host)
        self._watcher = LogWatcher(self.log)  # type: ignore[arg-type]
        self._waiting: list[SimMessage] = []
        self._arrived = asyncio.Event()
        self._begin(process)

    def _begin(self, process: Process) -> None:
        process.run_task(self._run(process))

    def _committed(self, start: int, entries: list[bytes]) -> None:
        self.invariants.committed(self.host, start, entries)

    @property
    def readable(self) -> MemoryLog | None:
        return self.log if self.process.is_alive else None

    async def _run(self, process: Process) -> None:
        outbox, ledger = Outbox(self.log, actors().id), actors().id  # type: ignore[arg-type]
        self.publishing = Publishing(ledger, outbox, self._watcher, self.record)  # type: ignore[arg-type]
        while True:
            try:
                await self.publishing.start(self._client)
                break
            except Unavailable:
                await asyncio.sleep(1.0)
            except Corrupted as error:
                self.world.tell(self.host, f"refuses to start: {error.message}")
                await self._recover()
        self._watcher.look()
        for work in (self.publishing.run, self.publishing.scrub):
            process.run_task(self._keep_running(work))
        process.run_task(self._write())
        await self._client.subscribe(submit_pattern(ledger), cb=self._receive)
        self.world.tell(self.host, f"serves {len(self.log.data)} entries")

    async def _keep_running(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except DeedbookError as error:
                self.world.tell(self.host, f"starts a task again: {error.message}")
            await asyncio.sleep(1.0)

    async def _recover(self) -> None:
        follower, generation = LogFollower(self.log), self.publishing._generation  # type: ignore[arg-type]
        try:
            end = (await stream_info(self._client, generation)).state.last_seq
            size = len(self.log.data)
            stored = await read_messages(self._client, generation, size + 1, end)
        except Unavailable:
            await asyncio.sleep(1.0)
            return
        entries = [entry_at(seq, message) for seq, message in stored.items()]
        taken = follower.append(size, [data for data in entries if data is not None])
        self.world.tell(self.host, f"brought {taken} entries back")

    async def _receive(self, message: SimMessage) -> None:
        self._waiting.append(message)
        self._arrived.set()

    async def _write(self) -> None:
        self._gate = self._new_gate()
        while True:
            await self._arrived.wait()
            group, self._waiting = self._waiting[:group_max], self._waiting[group_max:]
            if not self._waiting:
                self._arrived.clear()
            await asyncio.sleep(sync_s * self.world.random.random())
            answers = await self._admit([asked_for(message) for message in group])
            self._watcher.look()
            await asyncio.sleep(sync_s * self.world.random.random())
            for message, answer in zip(group, answers, strict=True):
                await self._answer(message, answer)

    def _new_gate(self) -> Gate:
        return Gate(self.log)  # type: ignore[arg-type]

    async def _admit(self, group: list[CheckedSubmission]) -> list[list[Accepted] | DeedbookError]:
        return self._gate.admit(group)

    async def _answer(self, message: SimMessage, answer: list[Accepted] | DeedbookError) -> None:
        if not isinstance(answer, DeedbookError):
            self.invariants.answered(self.host, self.log, answer)
        await message.respond(encoded(answer))


def asked_for(message: SimMessage) -> Any:
    """Return the submission that a message names by its author and number."""
    return checked(message.subject.rpartition(".")[2], int(message.data))


def encoded(answer: list[Accepted] | DeedbookError) -> bytes:
    """Return the bytes of an answer."""
    if isinstance(answer, DeedbookError):
        kind = "Refused" if isinstance(answer, Refused) and answer.code != "CLOCK_JUMPED" else "Unavailable"
        return msgspec.json.encode({"kind": kind, "code": answer.code})
    return msgspec.json.encode({"accepted": [(one.id, one.index) for one in answer]})
