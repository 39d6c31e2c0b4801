"""A node's state, and so what it may do: read, take submissions, rebuild a damaged stream. One pure step at a time.

``step`` takes an observation, the state of the node's own log, and the time of its own monotonic clock. It returns the
next state and the actions. The driver runs the actions, however long they take, and passes the results as
observations; meanwhile it passes a ``Tick`` several times a second.

The stream's compare-and-set orders all entries, so nothing here is needed while the stream is sound. These rules are
for a stream that lost its newest entries at all its servers. Then a node that has them must rebuild it before a node
that lacks them writes others in their place:

- **Contact.** A node that was not connected publishes only after it has heard every node that it knew then, or has
  waited for them for ``missed_ms``. A node that has just started knows none, so it always waits. No server loses
  entries without a restart, which breaks its connections.
- **The longest log.** A node publishes and rebuilds only while it knows of no longer log. A node that ``is_apart``
  does not count.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger import limits
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

_spread_max_ms: Final = 400
"""Nodes with equal logs begin to rebuild at different times, derived from their names, within this span."""


class Timing(msgspec.Struct, frozen=True):
    """The waiting times in milliseconds. A node that does not ``write`` only follows.

    ``missed_ms``: a node without a heartbeat for this time counts as dead. ``lag_ms``: how long a node may lack entries
    that others have and still answer. ``silent_ms``: how long it answers without an answer of the stream.
    """

    missed_ms: int = int(limits.heartbeats_missed_s * 1000)
    lag_ms: int = int(limits.follower_lag_max_s * 1000)
    silent_ms: int = int(limits.stream_silent_max_s * 1000)
    retry_ms: int = 100
    writes: bool = True


class OwnLog(msgspec.Struct, frozen=True):
    """This node's name, and the size of its log."""

    node: str
    size: int = 0


class Peer(msgspec.Struct, frozen=True):
    """Another node: its last heartbeat, and when that was heard."""

    beat: Beat
    heard_ms: int


class NodeState(msgspec.Struct, frozen=True):
    """All that a node knows of the others and of the stream.

    ``interrupted_ms``: since when it has been connected and has run. ``awaited``: the nodes that it knew at that time.
    ``level_ms``: when its log was last as long as the longest known. ``reached_ms``: when it last reached the stream's
    end. With a ``fault`` it answers nothing.
    """

    interrupted_ms: int
    awaited: frozenset[str] = frozenset()
    level_ms: int = 0
    reached_ms: int | None = None
    peers: dict[str, Peer] = {}
    fault: str = ""
    damaged: int = 0
    is_apart: bool = False
    retry_ms: int | None = None
    scrubbed_for: str = ""

    @property
    def head(self) -> int:
        """The size of the longest log of another node, as last heard, also of one that is silent now."""
        return max((peer.beat.size for peer in self.peers.values() if not peer.beat.is_apart), default=0)

    def is_in_contact(self, now_ms: int, timing: Timing) -> bool:
        """Return whether this node has heard, since it was interrupted, all the others that live."""
        if now_ms - self.interrupted_ms >= timing.missed_ms:
            return True
        awaited = [self.peers[node] for node in self.awaited]
        return bool(awaited) and all(peer.beat.leaves or peer.heard_ms > self.interrupted_ms for peer in awaited)

    def reads(self, now_ms: int, timing: Timing) -> bool:
        """Return whether this node answers reads: its log is new enough, and it reaches the stream."""
        is_reached = self.reached_ms is not None and now_ms - self.reached_ms <= timing.silent_ms
        return not self.fault and is_reached and now_ms - self.level_ms <= timing.lag_ms

    def admits(self, now_ms: int, timing: Timing) -> bool:
        """Return whether this node takes submissions."""
        return timing.writes and self.reads(now_ms, timing) and self.is_in_contact(now_ms, timing)

    def has_duties(self, own: OwnLog, now_ms: int, timing: Timing) -> bool:
        """Return whether this node runs the workers: of the nodes that take submissions, its name is the first.

        Two nodes may run them at once for a moment. Each worker recognises what another one has done already.
        """
        present = (peer.beat for peer in self.peers.values() if now_ms - peer.heard_ms < timing.missed_ms)
        return self.admits(now_ms, timing) and not any(beat.admits and beat.node < own.node for beat in present)


Step: TypeAlias = tuple[NodeState, tuple[Action, ...]]
_default_timing: Final = Timing()


def step(state: NodeState, signal: Observation, own: OwnLog, now_ms: int, timing: Timing = _default_timing) -> Step:
    """Return the state of a node after an observation, and its actions; ``now_ms`` never goes back."""
    actions: tuple[Action, ...] = ()
    match signal:
        case Tick():
            state, actions = _rebuild_if_due(state, own, now_ms, timing)
        case Interrupted():
            state = _interrupted(state, now_ms, timing)
        case Beat():
            state, actions = _hear(state, signal, own, now_ms)
        case Followed():
            state = replace(_cleared(state, is_over=state.damaged != signal.generation), reached_ms=now_ms)
        case Scrubbed():
            state = _cleared(state, is_over=state.damaged == signal.generation)
        case StreamDamaged():
            state = _damaged(state, signal, own, now_ms)
        case LogForked():
            state = replace(state, fault=signal.reason, is_apart=True, retry_ms=None)
        case ActionFailed():
            state = replace(state, retry_ms=now_ms + timing.retry_ms)
        case _:
            assert_never(signal)
    return replace(state, level_ms=now_ms) if own.size >= state.head else state, actions


def _interrupted(state: NodeState, now_ms: int, timing: Timing) -> NodeState:
    # A node that never was in contact does not know whom to wait for.
    knows = bool(state.awaited) or state.is_in_contact(now_ms, timing)
    return replace(state, interrupted_ms=now_ms, awaited=frozenset(state.peers) if knows else frozenset())


def _cleared(state: NodeState, *, is_over: bool) -> NodeState:
    return state if state.is_apart or not is_over else replace(state, fault="", damaged=0, retry_ms=None)


def _damaged(state: NodeState, signal: StreamDamaged, own: OwnLog, now_ms: int) -> NodeState:
    if state.is_apart:
        return state
    retry_ms = now_ms + spread_ms(own) if state.retry_ms is None else state.retry_ms
    return replace(state, fault=signal.reason, damaged=signal.generation or state.damaged, retry_ms=retry_ms)


def spread_ms(own: OwnLog) -> int:
    """Return how long this node waits before it rebuilds a stream that others find damaged at the same time."""
    return int.from_bytes(blake3(own.node.encode()).digest(length=2), "big") % _spread_max_ms


def _rebuild_if_due(state: NodeState, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    if not state.fault or state.is_apart or state.retry_ms is None or now_ms < state.retry_ms:
        return state, ()
    may_rebuild = timing.writes and 0 < own.size >= state.head and state.is_in_contact(now_ms, timing)
    # Again, if the fault is still there then.
    return (replace(state, retry_ms=now_ms + timing.missed_ms), (Rebuild(),)) if may_rebuild else (state, ())


def _hear(state: NodeState, beat: Beat, own: OwnLog, now_ms: int) -> Step:
    state = replace(state, peers=state.peers | {beat.node: Peer(beat, now_ms)})
    # A node whose log is shorter may not rebuild the stream, so one that has more must see the damage, too.
    reported = f"{beat.generation}: {beat.fault}"
    if not beat.fault or beat.is_apart or state.fault or beat.size > own.size or reported == state.scrubbed_for:
        return state, ()
    return replace(state, scrubbed_for=reported), (Scrub(),)
