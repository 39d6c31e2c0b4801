"""A node's state, which decides what it may do: read, take submissions, rebuild a damaged stream. Pure.

``step`` takes an observation, the state of the node's own log, and the time of its own monotonic clock, and returns the
next state. The driver passes a ``Tick`` several times a second, and does what the state says (``reads``, ``admits``,
``has_duties``, ``may_rebuild``, ``reported``), however long that takes.

The stream's compare-and-set orders all entries, so nothing here is needed while the stream is sound. These rules are
for a stream that lost its newest entries at all its servers. Then a node that has them must rebuild the stream before a
node that lacks them writes other entries at their positions:

- **Contact.** A node that was not connected publishes only after it has heard every node that it knew then, or has
  waited for them for ``missed_ms``. A node that has just started knows none, so it always waits. No server loses
  entries without a restart, which breaks its connections.
- **The longest log.** A node publishes and rebuilds only while it knows of no longer log. A node that ``is_apart``
  does not count.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from deedbook.ledger import limits

# Observations.


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. The driver sends several of these within the shortest waiting time of ``Timing``."""


class Interrupted(msgspec.Struct, frozen=True):
    """The node was not connected, or did not run, for a while: others may have entries of which it has not heard."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's heartbeat: the size of its log, and whether it takes submissions (``admits``).

    ``fault`` is an error that the sender found in the stream, or in its log compared with the stream. ``is_apart``: its
    log has other entries than the stream, so nobody waits for them. ``generation`` is the number of the stream that it
    knows. A node that ``leaves`` is not waited for.
    """

    node: str
    size: int
    admits: bool = False
    url: str = ""
    fault: str = ""
    generation: int = 0
    is_apart: bool = False
    leaves: bool = False


class Followed(msgspec.Struct, frozen=True):
    """The log has all entries that this generation of the stream had when its leader was asked."""

    generation: int


class Scrubbed(msgspec.Struct, frozen=True):
    """Every message of this generation equals the log's entry."""

    generation: int


class StreamDamaged(msgspec.Struct, frozen=True):
    """The stream differs from what was published, or does not match this log.

    ``generation`` is the generation in which ``scrub`` found damage that the follower cannot see, else 0.
    """

    reason: str
    generation: int = 0


class LogForked(msgspec.Struct, frozen=True):
    """This log and the stream hold different entries at one index: only a person can decide which are kept."""

    reason: str


Observation: TypeAlias = Tick | Interrupted | Beat | Followed | Scrubbed | StreamDamaged | LogForked


class Timing(msgspec.Struct, frozen=True):
    """The waiting times in milliseconds. A node that does not ``write`` only follows.

    ``missed_ms``: a node without a heartbeat for this time counts as dead. ``lag_ms``: a node that has lacked entries
    of others for longer than this time answers no reads. ``silent_ms``: neither does a node that has not reached the
    stream for longer than this time.
    """

    missed_ms: int = int(limits.heartbeats_missed_s * 1000)
    lag_ms: int = int(limits.follower_lag_max_s * 1000)
    silent_ms: int = int(limits.stream_silent_max_s * 1000)
    writes: bool = True


class OwnLog(msgspec.Struct, frozen=True):
    """This node's name, and the size of its log."""

    node: str
    size: int = 0


class Peer(msgspec.Struct, frozen=True):
    """Another node: its last heartbeat, and the time at which this node heard it."""

    beat: Beat
    heard_ms: int


class NodeState(msgspec.Struct, frozen=True):
    """Everything that a node knows about the other nodes and about the stream.

    - ``interrupted_ms``: since this time, the node has run and has been connected.
    - ``awaited``: the nodes that it knew at that time.
    - ``level_ms``: the last time at which its log was as long as the longest log it knows of.
    - ``reached_ms``: the last time at which it reached the end of the stream.
    - ``fault``: the fault because of which it answers no request; empty if there is none.
    - ``damaged``: the generation of the stream in which scrubbing found the fault.
    - ``reported``: the last fault that another node reported, and for which this node must scrub.
    """

    interrupted_ms: int
    awaited: frozenset[str] = frozenset()
    level_ms: int = 0
    reached_ms: int | None = None
    peers: dict[str, Peer] = {}
    fault: str = ""
    damaged: int = 0
    is_apart: bool = False
    reported: str = ""

    @property
    def head(self) -> int:
        """The largest log size that another node last reported. Silent nodes count; nodes that are apart do not."""
        return max((peer.beat.size for peer in self.peers.values() if not peer.beat.is_apart), default=0)

    def is_in_contact(self, now_ms: int, timing: Timing) -> bool:
        """Return whether this node has heard all other live nodes since it was interrupted."""
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

    def may_rebuild(self, own: OwnLog, now_ms: int, timing: Timing) -> bool:
        """Return whether this node has to retire the damaged stream and make the next generation."""
        is_damaged = bool(self.fault) and not self.is_apart
        return is_damaged and timing.writes and 0 < own.size >= self.head and self.is_in_contact(now_ms, timing)


_default_timing: Final = Timing()


def step(
    state: NodeState, signal: Observation, own: OwnLog, now_ms: int, timing: Timing = _default_timing
) -> NodeState:
    """Return the state of a node after an observation; ``now_ms`` never goes back."""
    match signal:
        case Tick():
            pass
        case Interrupted():
            # A node that never was in contact does not know whom to wait for.
            knows = bool(state.awaited) or state.is_in_contact(now_ms, timing)
            state = replace(state, interrupted_ms=now_ms, awaited=frozenset(state.peers if knows else ()))
        case Beat():
            state = _hear(state, signal, own, now_ms)
        case Followed():
            state = replace(_cleared(state, is_over=state.damaged != signal.generation), reached_ms=now_ms)
        case Scrubbed():
            state = _cleared(state, is_over=state.damaged == signal.generation)
        case StreamDamaged():
            if not state.is_apart:
                damaged = signal.generation or state.damaged
                state = replace(state, fault=signal.reason, damaged=damaged)
        case LogForked():
            state = replace(state, fault=signal.reason, is_apart=True)
        case _:
            assert_never(signal)
    return replace(state, level_ms=now_ms) if own.size >= state.head else state


def _cleared(state: NodeState, *, is_over: bool) -> NodeState:
    return state if state.is_apart or not is_over else replace(state, fault="", damaged=0)


def _hear(state: NodeState, beat: Beat, own: OwnLog, now_ms: int) -> NodeState:
    state = replace(state, peers=state.peers | {beat.node: Peer(beat, now_ms)})
    # A node with a shorter log may not rebuild the stream, so a node with a longer log must see the damage, too.
    is_new = bool(beat.fault) and not beat.is_apart and not state.fault and beat.size <= own.size
    return replace(state, reported=f"{beat.generation}: {beat.fault}") if is_new else state
