"""A node among the nodes of its ledger: it receives heartbeats, follows the stream, and acts by its state.

``ledger.replication.state.step`` makes every decision; this module does the work that takes time. Its tasks never wait
for each other: heartbeats (``beat``), steps (``run``), following (``follow``), and the duties in their order (choose
which requests are answered, start and stop the workers).

The node writes the heartbeats that it heard to a file for this machine (``peers``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, assert_never

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from deedbook.consumers.interfaces.node.peers import NODES_FILE, NodesView, view_of
from deedbook.consumers.interfaces.node.publication import scrub_every_s, scrub_pause_s
from deedbook.consumers.interfaces.node.replica import DamagedError, ForkedError, Replica
from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.log.records import ClusterRecord
from deedbook.ledger.replication.signals import (
    Action,
    ActionFailed,
    Beat,
    Followed,
    Interrupted,
    LogForked,
    Observation,
    Rebuild,
    Scrub,
    Scrubbed,
    StreamDamaged,
    Tick,
)
from deedbook.ledger.replication.state import NodeState, Timing, step
from deedbook.ledger.service.service import LogWatcher
from deedbook.ledger.system.files import replacing

log = structlog.get_logger("deedbook.nodes")

tick_s: Final = 0.1
beat_pause_s: Final = 0.02
follow_every_s: Final = 1.0
paused_min_s: Final = 1.0
"""A node that made no step for this long was stopped; the other nodes may have continued without it."""

fault_scrub_every_s: Final = 10.0


class Membership:
    """One node of several. ``answer(admits, reads)`` chooses which requests it answers; ``work(does)`` its workers."""

    def __init__(
        self,
        nats: Callable[[], NatsClient],
        replica: Replica,
        watcher: LogWatcher,
        *,
        folder: Path,
        url: str,
        answer: Callable[[bool, bool], Awaitable[None]],
        work: Callable[[bool], Awaitable[None]],
        timing: Timing,
    ) -> None:
        self.state = NodeState(_now_ms())
        self._nats, self._replica, self._watcher, self._folder, self._url = nats, replica, watcher, folder, url
        self._timing = timing
        self._answer, self._work = answer, work
        self._observations: asyncio.Queue[Observation] = asyncio.Queue()
        self._duties: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._job: asyncio.Task[None] | None = None
        self._answered = (False, False)
        self._works = False
        self._is_leaving = False
        self._stepped_ms = _now_ms()
        self._connections = 0
        self._shared: ClusterRecord | None = None
        replica.permits = lambda: self.admits
        replica.head = lambda: self.state.head

    async def start(self) -> None:
        """Subscribe to the others' heartbeats on the present connection. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        self._interrupt()
        with bus_errors("hearing the other nodes"):
            await self._nats().subscribe(subjects.node_pattern(self._replica.ledger), cb=self._hear)

    def _interrupt(self) -> None:
        # Subscribe at once, so that a publish that waits for a connection continues only after the others were heard.
        self.state, _ = step(self.state, Interrupted(), self._replica.own(), _now_ms(), self._timing)
        self._replica.forget_stream()
        self._wake.set()

    @property
    def admits(self) -> bool:
        """Whether this node takes submissions."""
        self._look_for_interruptions()
        return self.state.admits(_now_ms(), self._timing)

    @property
    def works(self) -> bool:
        """Whether this node runs the workers."""
        return self._works

    @property
    def stream(self) -> str | None:
        """The name of the log stream in use; None before it is known."""
        return None if self._replica.generation is None else self._replica.generation.name

    async def has_all(self) -> bool:
        """Return whether no node has an entry that this one lacks. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        return not self.state.fault and await self._replica.has_all()

    def _look_for_interruptions(self) -> None:
        """Find out whether the node was stopped, or lost its connection, since the last check."""
        now_ms, nats = _now_ms(), self._nats()
        was_stopped = now_ms - self._stepped_ms >= paused_min_s * 1000
        if was_stopped or not nats.is_connected or nats.stats["reconnects"] != self._connections:
            self._stepped_ms, self._connections = now_ms, nats.stats["reconnects"]
            self._interrupt()

    async def run(self) -> None:
        """Step until cancelled."""
        while True:
            late = asyncio.get_running_loop().call_later(tick_s, self._observations.put_nowait, Tick())
            observation = await self._observations.get()
            late.cancel()
            self._look_for_interruptions()
            self._stepped_ms = _now_ms()
            for item in (observation,) if isinstance(observation, Tick) else (observation, Tick()):
                self._step(item)

    def _step(self, observation: Observation) -> None:
        own, before, now_ms = self._replica.own(), self.state, _now_ms()
        self.state, actions = step(before, observation, own, now_ms, self._timing)
        if self.state.fault != before.fault:
            log.info("fault", fault=self.state.fault or "none", size=own.size, because=type(observation).__name__)
        for action in actions:
            self._do(action)
        answered = (self.admits and not self._is_leaving, self.state.reads(now_ms, self._timing))
        if answered != self._answered:
            self._answered = answered
            self._duties.put_nowait(lambda: self._answer(*answered))
        works = not self._is_leaving and self.state.has_duties(own, now_ms, self._timing)
        if works != self._works:
            self._works = works
            self._duties.put_nowait(lambda: self._work(works))

    def _do(self, action: Action) -> None:
        match action:
            case Rebuild():
                self._begin(self._rebuild)
            case Scrub():
                self._begin(self._scrub)
            case _:
                assert_never(action)

    def _begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin the job of a step, unless another job is running. A job that fails is requested again."""
        if self._job is not None and not self._job.done():
            return

        async def report() -> None:
            try:
                await work()
            except DamagedError as error:
                self._found(error)
            except ForkedError as error:
                self._observations.put_nowait(LogForked(str(error)))
                log.error("this log has other entries than the stream", error=str(error))
            except DeedbookError as error:
                log.warning("job failed", code=error.code, error=error.message)
                self._observations.put_nowait(ActionFailed())
            except Exception:
                log.exception("step failed")
                self._observations.put_nowait(ActionFailed())

        self._job = asyncio.create_task(report())

    def _found(self, error: DamagedError) -> None:
        self._replica.forget_stream()
        self._observations.put_nowait(StreamDamaged(str(error), error.generation))
        log.error("stream degraded", error=str(error))

    async def _rebuild(self) -> None:
        await self._replica.rebuild()
        self._wake.set()

    async def _scrub(self, pause_s: float = 0.0) -> int:
        if generation := await self._replica.scrub(pause_s):
            self._observations.put_nowait(Scrubbed(generation))
        return generation

    async def scrub(self) -> None:
        """Compare the whole stream with the log, at start and every hour, until cancelled."""
        while True:
            pause_s = fault_scrub_every_s
            try:
                pause_s = scrub_every_s if await self._scrub(scrub_pause_s) else follow_every_s
            except DamagedError as error:
                self._found(error)
            await asyncio.sleep(pause_s)

    async def follow(self) -> None:
        """Follow the stream, at once when another node announces entries, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(follow_every_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._replica.follow()
            except DamagedError as error:
                self._found(error)
                await asyncio.sleep(follow_every_s)
            except ForkedError as error:
                self._observations.put_nowait(LogForked(str(error)))
                await asyncio.sleep(follow_every_s)
            except DeedbookError as error:
                log.info("cannot follow", code=error.code, error=error.message)
                await asyncio.sleep(tick_s)
            else:
                self._watcher.look()
                if self._replica.generation is not None:
                    self._observations.put_nowait(Followed(self._replica.generation.number))

    async def erase(self) -> None:
        """Replace a stream that holds an erased body, and delete the replaced ones, until cancelled."""
        erased, cleared = 0, 0
        while True:
            await asyncio.sleep(follow_every_s)
            generation = self._replica.generation
            if generation is None or self.state.fault:
                continue
            before, erased = erased, self._replica.erased_count()
            if erased > generation.redactions:
                if erased == before:  # one new stream is enough for several redactions in a row
                    # As for a damaged stream, nobody publishes to the next stream before it holds the whole log.
                    self._found(self._replica.replace_erased())
            elif generation.number != cleared and self.admits:
                await self._replica.delete_erased()
                cleared = generation.number

    async def do_duties(self) -> None:
        """Carry out the duties of steps one after the other, until cancelled."""
        while True:
            duty = await self._duties.get()
            try:
                await duty()
            except DeedbookError as error:
                log.warning("duty failed", code=error.code, error=error.message)
                await asyncio.sleep(tick_s)
                if self._duties.empty():  # otherwise a newer duty replaces this one
                    self._duties.put_nowait(duty)

    # Heartbeats.

    async def _hear(self, message: Msg) -> None:
        try:
            beat = read_json(message.data, Beat)
        except UNREADABLE:
            return
        if beat.node == self._replica.name or beat.node != message.subject.rpartition(".")[2]:
            return  # our own, or from a node that uses another name
        if not self._replica.knows(beat.node):
            return  # only registered nodes are stored
        known = self._replica.generation
        if known is not None and beat.generation > known.number:
            self._replica.forget_stream()
        # Do this at once: a publish that waits for this node's heartbeat must not wait for the next step.
        self._step(beat)
        if known is None or beat.size > self._replica.own().size:
            self._wake.set()

    async def beat(self) -> None:
        """Send the state of this node to the others, at once when its log has grown, until cancelled."""
        size, written_ms = -1, 0
        while True:
            size = await self._watcher.wait_beyond(size, limits.heartbeat_s)
            with bus_errors("heartbeat"):
                await self._send_beat()
            if _now_ms() - written_ms >= limits.heartbeat_s * 1000:
                written_ms = _now_ms()
                await self._write_view()
            await asyncio.sleep(beat_pause_s)

    async def _send_beat(self) -> None:
        subject = subjects.node_subject(self._replica.ledger, self._replica.name)
        await self._nats().publish(subject, msgspec.json.encode(self._beat()))

    def _beat(self) -> Beat:
        own, state, known = self._replica.own(), self.state, self._replica.generation
        return Beat(
            own.node,
            own.size,
            self.admits,
            self._url,
            state.fault or self._replica.silence,
            known.number if known else 0,
            state.is_apart,
            self._is_leaving,
        )

    async def _write_view(self) -> None:
        """Write the view for this machine."""
        with replacing(self._folder / NODES_FILE, is_durable=False) as file:
            file.write(msgspec.json.encode(self.view()))
        shared = ClusterRecord(self._replica.name, self._url)
        if shared != self._shared:
            self._shared = shared
            await asyncio.to_thread(self._replica.log.set_shared, shared)

    def view(self) -> NodesView:
        """Return the view of all nodes, this one first."""
        return view_of(self._beat(), self.state.peers.values(), _now_ms())

    async def leave(self) -> None:
        """Tell the others that this node stops, so that they do not wait for it."""
        self._is_leaving = True
        with contextlib.suppress(nats.errors.Error, OSError):  # otherwise the others find out by themselves
            await self._send_beat()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
