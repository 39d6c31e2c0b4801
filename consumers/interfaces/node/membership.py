"""A node among the nodes of its ledger: it hears them, follows the stream, and does what its state requires.

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
from typing import Any, Final, TypeVar

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from deedbook.consumers.interfaces.node.generations import Generations
from deedbook.consumers.interfaces.node.peers import NODES_FILE, NodesView, view_of
from deedbook.consumers.interfaces.node.publication import scrub_every_s, scrub_pause_s
from deedbook.consumers.interfaces.node.replica import DamagedError, ForkedError, Replica
from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.log.records import ClusterRecord
from deedbook.ledger.replication.state import (
    Beat,
    Followed,
    Interrupted,
    LogForked,
    NodeState,
    Observation,
    Scrubbed,
    StreamDamaged,
    Tick,
    Timing,
    step,
)
from deedbook.ledger.service.service import LogWatcher
from deedbook.ledger.system.files import replacing

log = structlog.get_logger("deedbook.nodes")

T = TypeVar("T")
tick_s: Final = 0.1
beat_pause_s: Final = 0.02
follow_every_s: Final = 1.0
paused_min_s: Final = 1.0
"""A node that made no step for this long was stopped; the other nodes may have continued without it."""

scrub_again_s: Final = 10.0
rebuild_pause_s: Final = 0.5
stream_silent_max_s: Final = 60.0
"""A majority of servers elects the leader of a stream in less time."""


class Membership:
    """One node of several.

    ``answer(admits, reads)`` chooses which requests the node answers; ``work(does)`` starts or stops its workers.
    """

    def __init__(
        self,
        nats: Callable[[], NatsClient],
        replica: Replica,
        generations: Generations,
        watcher: LogWatcher,
        *,
        folder: Path,
        url: str,
        answer: Callable[[bool, bool], Awaitable[None]],
        work: Callable[[bool], Awaitable[None]],
        timing: Timing,
    ) -> None:
        self._began_ms = self._stepped_ms = _now_ms()
        self.state = NodeState(self._began_ms)
        self._nats, self._replica, self._watcher, self._folder, self._url = nats, replica, watcher, folder, url
        self._generations, self._timing = generations, timing
        self._answer, self._work = answer, work
        self._wake, self._stepped = asyncio.Event(), asyncio.Event()
        self._job: asyncio.Task[Any] | None = None
        self._scrubbed_for = ""
        self.works = False
        """Whether this node runs the workers."""

        self._is_leaving = False
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
        # Do this at once: a publish that waits for a connection must not continue before this node heard the others.
        self.state = step(self.state, Interrupted(), self._replica.own(), _now_ms(), self._timing)
        self._replica.forget_stream()
        self._wake.set()

    @property
    def admits(self) -> bool:
        """Whether this node takes submissions."""
        self._look_for_interruptions()
        return self.state.admits(_now_ms(), self._timing)

    @property
    def stream(self) -> str | None:
        """The name of the log stream in use; None before it is known."""
        return None if self._replica.generation is None else self._replica.generation.name

    async def has_all(self) -> bool:
        """Return whether no node has an entry that this one lacks. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        self._look_for_interruptions()
        # Before it has heard the others, a node that just started does not know what they have.
        if self.state.fault or not self.state.is_in_contact(_now_ms(), self._timing):
            return False
        with contextlib.suppress(DamagedError):
            return await self._replica.has_all()
        return False

    def _look_for_interruptions(self) -> None:
        """Find out whether the node was stopped, or lost its connection, since the last check."""
        now_ms, nats = _now_ms(), self._nats()
        was_stopped = now_ms - self._stepped_ms >= paused_min_s * 1000
        if was_stopped or not nats.is_connected or nats.stats["reconnects"] != self._connections:
            self._stepped_ms, self._connections = now_ms, nats.stats["reconnects"]
            self._interrupt()

    async def run(self) -> None:
        """Make a step at every tick of the clock, until cancelled."""
        while True:
            self._look_for_interruptions()
            self._stepped_ms = _now_ms()
            self._step(Tick())
            await asyncio.sleep(tick_s)

    def _step(self, observation: Observation) -> None:
        own, before, now_ms = self._replica.own(), self.state, _now_ms()
        self.state = state = step(before, observation, own, now_ms, self._timing)
        if state.fault != before.fault:
            log.info("fault", fault=state.fault or "none", size=own.size, because=type(observation).__name__)
        self._stepped.set()
        if self._job is not None and not self._job.done():
            return
        if state.may_rebuild(own, now_ms, self._timing):
            self._job = asyncio.create_task(self._rebuild())
        elif state.reported != self._scrubbed_for:
            self._scrubbed_for = state.reported
            self._job = asyncio.create_task(self._scrub())

    async def _attempt(self, work: Awaitable[T]) -> T | None:
        """Follow, scrub or rebuild, and return the result; None after an error, which is logged or makes a step."""
        try:
            return await work
        except DamagedError as error:
            self._found(error)
        except ForkedError as error:
            log.error("this log has other entries than the stream", error=str(error))
            self._step(LogForked(str(error)))
        except DeedbookError as error:
            log.info("waiting for the stream", code=error.code, error=error.message)
        return None

    def _found(self, error: DamagedError) -> None:
        log.error("stream degraded", error=str(error))
        self._replica.forget_stream()
        self._step(StreamDamaged(str(error), error.generation if error.is_hidden else 0))

    async def _rebuild(self) -> None:
        try:
            await self._attempt(self._generations.rebuild(self.state.damaged))
        except Exception:
            log.exception("rebuild failed")
        self._wake.set()
        await asyncio.sleep(rebuild_pause_s)

    async def _scrub(self, pause_s: float = 0.0) -> bool:
        """Compare the whole stream with the log; return whether each message equals its entry."""
        generation = await self._attempt(self._replica.scrub(pause_s))
        if generation:
            self._step(Scrubbed(generation))
        return bool(generation)

    async def scrub(self) -> None:
        """Scrub at start and every hour, until cancelled."""
        while True:
            is_sound = await self._scrub(scrub_pause_s)
            await asyncio.sleep(scrub_every_s if is_sound else scrub_again_s)

    async def follow(self) -> None:
        """Follow the stream, at once when another node announces entries, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(follow_every_s):
                    await self._wake.wait()
            self._wake.clear()
            if generation := await self._attempt(self._replica.follow()):
                self._watcher.look()
                self._step(Followed(generation))
            else:
                await asyncio.sleep(follow_every_s if self.state.fault else tick_s)

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
                    self._found(self._generations.replace_erased())
            elif generation.number != cleared and self.admits:
                await self._generations.delete_erased()
                cleared = generation.number

    async def do_duties(self) -> None:
        """Choose which requests are answered, and start and stop the workers, as the state says, until cancelled."""
        answered = False, False
        while True:
            await self._stepped.wait()
            self._stepped.clear()
            now_ms, is_here = _now_ms(), not self._is_leaving
            answers = self.admits and is_here, self.state.reads(now_ms, self._timing)
            works = is_here and self.state.has_duties(self._replica.own(), now_ms, self._timing)
            try:
                if answers != answered:
                    await self._answer(*answers)
                    answered = answers
                if works != self.works:
                    await self._work(works)
                    self.works = works
            except DeedbookError as error:  # the next step tries again
                log.warning("duty failed", code=error.code, error=error.message)

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
            state.fault or self._silence(),
            known.number if known else 0,
            state.is_apart,
            self._is_leaving,
        )

    def _silence(self) -> str:
        """Return advice about a log stream that was not reached for a long time; empty while it is."""
        reached_ms = self._began_ms if self.state.reached_ms is None else self.state.reached_ms
        silent_s = (_now_ms() - reached_ms) / 1000
        if silent_s <= stream_silent_max_s:
            return ""
        return f"the log stream has had no leader for {silent_s:.0f} s: see `Rebuild a stream` in deploy/runbook.md"

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
