"""A node among the nodes of its ledger: it hears them, steps from role to role, and carries out each step's actions.

``ledger.replication.role.step`` makes every decision; this module does the work that takes time. Its tasks never wait
for each other: heartbeats (``beat``), steps (``run``), following (``follow``), and the duties in their order (start and
stop the workers of a leader, choose which requests are answered).

The node writes the heartbeats that it heard to a file for this machine, and looks for the operator's file (``peers``).
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
from msgspec.structs import replace
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from deedbook.consumers.interfaces.node.peers import HAND_OVER_FILE, NODES_FILE, NodesView, silent_max_s, view_of
from deedbook.consumers.interfaces.node.publication import scrub_every_s, scrub_pause_s
from deedbook.consumers.interfaces.node.replica import DamagedError, Replica
from deedbook.ledger import limits
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.connection import bus_errors
from deedbook.ledger.bus.stream import HOLDS_ERASED
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.events.authority import TermStarted as TermEvent
from deedbook.ledger.format.codec import UNREADABLE, read_json
from deedbook.ledger.format.identity import Key
from deedbook.ledger.log.records import ClusterRecord
from deedbook.ledger.replication.lease import Timing
from deedbook.ledger.replication.role import Candidate, DegradedNode, Follower, Leader, State, has_complete_log, step
from deedbook.ledger.replication.signals import (
    Action,
    ActionFailed,
    Beat,
    CatchUp,
    HandOver,
    Lead,
    LeaseRead,
    LogCaughtUp,
    Observation,
    Pause,
    PutLease,
    ReadLease,
    Rebuild,
    Resume,
    Scrub,
    StartTerm,
    StepDown,
    StreamDamaged,
    StreamRebuilt,
    TermBegun,
    TermOvertaken,
    Tick,
)
from deedbook.ledger.service.nodes import LeaseBucket
from deedbook.ledger.service.service import LogWatcher
from deedbook.ledger.system.files import replacing

log = structlog.get_logger("deedbook.nodes")

tick_s: Final = 0.1
beat_pause_s: Final = 0.02
follow_every_s: Final = 1.0
hand_over_wait_max_s: Final = 10.0


class Membership:
    """One node of several. ``answer(leads, reads)`` admits requests, ``lead(does)`` starts and stops the workers."""

    def __init__(
        self,
        nats: Callable[[], NatsClient],
        replica: Replica,
        watcher: LogWatcher,
        *,
        folder: Path,
        url: str,
        key: Key,
        replicas: int,
        answer: Callable[[bool, bool], Awaitable[None]],
        lead: Callable[[bool], Awaitable[None]],
        timing: Timing,
    ) -> None:
        self.state: State = Follower(_now_ms())
        self.peers: dict[str, tuple[Beat, int]] = {}
        self._nats, self._replica, self._watcher, self._folder, self._url = nats, replica, watcher, folder, url
        self._key, self._timing = key, timing
        self._answer, self._lead = answer, lead
        self._lease = LeaseBucket(nats, replica.ledger, replicas)
        self._observations: asyncio.Queue[Observation] = asyncio.Queue()
        self._duties: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._job: asyncio.Task[None] | None = None
        self._lease_job: tuple[PutLease | ReadLease, asyncio.Task[None]] | None = None
        self._answered = (False, False)
        self._is_leaving = False
        self._level_ms = 0
        self._successor = ""
        self._shared: ClusterRecord | None = None

    async def start(self) -> None:
        """Subscribe to the others' heartbeats on the present connection. Raises Unavailable: ``BUS_UNAVAILABLE``."""
        with bus_errors("hearing the other nodes"):
            await self._nats().subscribe(subjects.node_pattern(self._replica.ledger), cb=self._hear)

    @property
    def leads(self) -> bool:
        """Whether this node leads, paused or not."""
        return isinstance(self.state, Leader)

    @property
    def stream(self) -> str | None:
        """The name of the log stream in use; None before it is known."""
        return None if self._replica.generation is None else self._replica.generation.name

    @property
    def has_complete_log(self) -> bool:
        """Whether no other node can have a longer log than this one; callable in any thread."""
        return has_complete_log(self.state, _now_ms(), self._timing) and self._replica.has_all

    async def run(self) -> None:
        """Step from role to role until cancelled."""
        while True:
            late = asyncio.get_running_loop().call_later(tick_s, self._observations.put_nowait, Tick())
            observation = await self._observations.get()
            late.cancel()
            for item in (observation,) if isinstance(observation, Tick) else (observation, Tick()):
                if self.leads or not self._is_leaving:  # a node that leaves does not become a candidate again
                    self._step(item)

    def _step(self, observation: Observation) -> None:
        own, before, now_ms = self._replica.own(), self.state, _now_ms()
        self.state, actions = step(before, observation, own, now_ms, self._timing)
        if type(before) is not type(self.state):
            log.info(
                "role", role=_role(self.state), size=own.size, term=own.term.number, because=type(observation).__name__
            )
        if isinstance(self.state, Follower) and not isinstance(before, Follower) and self._job:
            self._job.cancel()  # no longer our job: the new leader may have done it already
            self._replica.close()
        for action in actions:
            self._do(action)
        if not isinstance(self.state, Follower) or own.size >= self.state.head:
            self._level_ms = now_ms
        match self.state:
            case Leader():
                answered = (not self.state.is_paused, True)
            case Follower():
                is_near = now_ms - self._level_ms <= limits.follower_lag_max_s * 1000
                is_led = bool(self.state.leader) and now_ms - self.state.heard_ms <= limits.lease_s * 1000
                answered = (False, is_near and is_led and not self.state.fault)
            case Candidate() | DegradedNode():
                answered = (False, False)
            case _:
                assert_never(self.state)
        if answered != self._answered:
            self._answered = answered
            self._duties.put_nowait(lambda: self._answer(*answered))

    def _do(self, action: Action) -> None:
        match action:
            case ReadLease() | PutLease():
                self._ask_lease(action)
            case CatchUp():
                self._begin(self._catch_up)
            case StartTerm():
                self._begin(lambda: self._start_term(action.term))
            case Rebuild():
                self._begin(self._rebuild)
            case Scrub():
                self._begin(lambda: self._replica.scrub(0.0))
            case Lead():
                self._replica.is_open = True
                self._duties.put_nowait(lambda: self._lead(True))  # noqa: FBT003 - it does lead
            case Resume():
                self._replica.is_open = True
            case Pause():
                self._replica.close()
            case StepDown():
                self._replica.close()
                self._duties.put_nowait(lambda: self._lead(False))  # noqa: FBT003 - it does not lead
            case _:
                assert_never(action)

    # The lease.

    def _ask_lease(self, action: PutLease | ReadLease) -> None:
        if self._lease_job is not None and not self._lease_job[1].done():
            under_way = self._lease_job[0]
            if isinstance(action, ReadLease) or (isinstance(under_way, PutLease) and under_way.lease == action.lease):
                return  # its answer is for both
            self._lease_job[1].cancel()
        self._lease_job = action, asyncio.create_task(self._use_lease(action))

    async def _use_lease(self, action: PutLease | ReadLease) -> None:
        requested_ms = _now_ms()  # a node that was suspended meanwhile holds the lease only since then
        try:
            observation = await (self._lease.read() if isinstance(action, ReadLease) else self._lease.put(action))
        except Unavailable as error:
            log.debug("lease", error=error.message)
            is_awaited = isinstance(self.state, Candidate) and isinstance(self.state.action, PutLease)
            if isinstance(action, PutLease) and (is_awaited or action.lease.node != self._replica.name):
                self._observations.put_nowait(ActionFailed())
        else:
            self._observations.put_nowait(
                observation if isinstance(observation, LeaseRead) else replace(observation, requested_ms=requested_ms)
            )

    # Longer work.

    def _begin(self, work: Callable[[], Awaitable[Observation | None]]) -> None:
        """Begin the job of a step and cancel the job of the step before; a job that fails may be requested again."""

        async def report() -> None:
            try:
                observation = await work()
            except DamagedError as error:
                self._replica.forget_stream()
                observation = StreamDamaged(str(error))
                log.error("stream degraded", error=str(error))
            except DeedbookError as error:
                log.warning("job failed", role=_role(self.state), code=error.code, error=error.message)
                observation = ActionFailed()
            except Exception:
                log.exception("step failed", role=_role(self.state))
                observation = ActionFailed()
            if observation is not None:
                self._observations.put_nowait(observation)

        if self._job is not None:
            self._job.cancel()
        self._job = asyncio.create_task(report())

    async def _catch_up(self) -> Observation:
        await self._replica.follow(must_reach=True)
        self._watcher.look()
        return LogCaughtUp()

    async def _start_term(self, term: int) -> Observation:
        own, name = self._replica.own(), self._replica.name
        draft = Draft(stream="ledger", data=TermEvent(term=term, node=name))
        submission = draft_and_sign([draft], self._key, ledger=self._replica.ledger, author=name, at=now())
        gate = Gate(self._replica.log, publish=lambda *group: self._replica.publish(*group, is_term=True))
        try:
            await asyncio.to_thread(gate.submit, submission)
        except Unavailable as error:
            log.info("term not started", term=term, error=error.message)
            await self._replica.follow()  # the answer may have been lost, or another node was quicker
        after = self._replica.own()
        if after.term.node == name and after.term.number >= term:
            self._watcher.look()
            return TermBegun(after.term.number)
        return TermOvertaken(after.term.number) if after.size > own.size else ActionFailed()

    async def _rebuild(self) -> Observation:
        await self._replica.rebuild()
        log.warning("rebuilt the log stream", stream=self._replica.generation)
        return StreamRebuilt()

    async def scrub(self) -> None:
        """Compare the whole stream with the log, at start and every hour, until cancelled."""
        while True:
            try:
                await self._replica.scrub(scrub_pause_s)
            except DamagedError as error:
                self._observations.put_nowait(StreamDamaged(str(error)))
            await asyncio.sleep(
                scrub_every_s if self._replica.generation else tick_s
            )  # at the start no generation is known yet

    async def follow(self) -> None:
        """Follow the stream while another node leads, and as a leader after a publish of unknown outcome."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(follow_every_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if isinstance(self.state, Follower) or (self.leads and self._replica.is_behind):
                    await self._follow_once()
            except DamagedError as error:
                self._replica.forget_stream()
                self._observations.put_nowait(StreamDamaged(str(error)))
                await asyncio.sleep(follow_every_s)
            except DeedbookError as error:
                log.info("cannot follow", code=error.code, error=error.message)
                await asyncio.sleep(tick_s)

    async def _follow_once(self) -> None:
        await self._replica.follow(must_reach=self.leads)
        self._watcher.look()
        own = self._replica.own()
        if isinstance(self.state, Follower) and self.state.fault:
            self._observations.put_nowait(StreamRebuilt())
        elif isinstance(self.state, Leader) and own.term.node != own.node:
            self._observations.put_nowait(TermOvertaken(own.term.number))

    async def erase(self) -> None:
        """While this node leads, replace a stream that holds an erased body, and delete the replaced ones."""
        erased, cleared = 0, 0
        while True:
            await asyncio.sleep(follow_every_s)
            generation = self._replica.generation
            if not self.leads or generation is None:
                continue
            before, erased = erased, self._replica.erased_count()
            if erased > generation.redactions:
                if erased == before:  # one new stream is enough for several redactions in a row
                    # As for a damaged stream: nobody publishes to the next one before it holds the whole log.
                    self._observations.put_nowait(StreamDamaged(HOLDS_ERASED))
            elif generation.number != cleared:
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
        self.peers.pop(beat.node, None)
        if not self._replica.knows(beat.node):
            return  # only registered nodes are stored
        if not beat.leaves:
            self.peers[beat.node] = beat, _now_ms()
        if beat.leads:
            known = self._replica.generation
            if known is not None and beat.generation not in (0, known.number) and isinstance(self.state, Follower):
                self._replica.forget_stream()
            self._wake.set()
        self._observations.put_nowait(beat)

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
        successor = state.successor if isinstance(state, Leader) else ""
        fault = state.fault if isinstance(state, Follower) else ""
        return Beat(
            own.node,
            own.term.number,
            own.size,
            self.leads,
            successor,
            self._url,
            fault or self._replica.silence,
            known.number if known else 0,
            self._is_leaving,
        )

    async def _write_view(self) -> None:
        """Write the view for this machine, and carry out a hand-over that its operator requested."""
        view = self.view()
        with replacing(self._folder / NODES_FILE, is_durable=False) as file:
            file.write(msgspec.json.encode(view))
        url = next((node.url for node in view.nodes if node.node == view.leader), "")
        shared = ClusterRecord(view.node, view.leader, url)
        if shared != self._shared:
            self._shared = shared
            await asyncio.to_thread(self._replica.log.set_shared, shared)
        request = self._folder / HAND_OVER_FILE
        if request.exists():
            to = request.read_bytes().decode(errors="replace").strip()
            request.unlink()
            self.hand_over(to)

    def view(self) -> NodesView:
        """Return the view of all nodes, this one first."""
        return view_of(self._beat(), _role(self.state), self.peers.values(), _now_ms())

    # Handing over.

    def hand_over(self, to: str = "") -> bool:
        """Begin to hand over to the named node or to the most caught-up one; return whether such a node is ready."""
        ready = [node for node in self.view().nodes[1:] if node.heard_s < silent_max_s and not node.fault]
        if to:
            ready = [node for node in ready if node.node == to]
        if not ready or not self.leads:
            log.warning("cannot hand over: no other node is ready, or this node does not lead", to=to)
            return False
        self._successor = max(ready, key=lambda node: node.size).node
        self._observations.put_nowait(HandOver(self._successor))
        return True

    async def leave(self) -> None:
        """Hand over to a ready node before this one stops; wait no longer than a failover takes."""
        self._is_leaving = True
        with contextlib.suppress(nats.errors.Error, OSError):  # otherwise the others find out by themselves
            await self._send_beat()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(hand_over_wait_max_s):
                while not any(beat.leads and beat.term >= self._beat().term for beat, _ in self.peers.values()):
                    # Try again if the lease was not written; give up if the other node leaves, too.
                    is_begun = not self.leads or self._beat().successor
                    if not (self._successor in self.peers if is_begun else self.hand_over()):
                        return
                    await asyncio.sleep(tick_s)


def _role(state: State) -> str:
    return type(state).__name__.lower()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
