"""The role of a node (follower, candidate, leader, degraded) and its next actions, one pure step at a time.

``step`` takes an observation, the state of the node's own log, and the time of its own monotonic clock. It returns the
next state and the actions. The driver runs the actions, however long they take, and passes the results as
observations; meanwhile it passes a ``Tick`` several times a second. A late observation changes nothing.

    follower --no heartbeat, lease free--> candidate --lease, caught up, term published--> leader
       ^                                      |                                              |
       +-----lease lost, fenced---------------+------lease lost, fenced, handed over---------+
    each of them --the stream is damaged--> degraded --next generation--> candidate, or follower

A leader that cannot renew its lease for the length of the lease *pauses*: it acknowledges nothing until it can renew.
It loses nothing by that: if another node leads, its term is in the stream, and no publish of the old leader fits.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.replication.lease import Lease, LeaseObservation, Timing
from deedbook.ledger.replication.signals import (
    Action,
    ActionFailed,
    Beat,
    CatchUp,
    HandOver,
    Lead,
    LeasePut,
    LeaseRead,
    LeaseRefused,
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

_spread_max_ms: Final = 400
"""Nodes with equal logs try at different times, derived from their names, within this span."""

behind_wait_ms: Final = 1_000
"""A node that lacks entries tries this much later, so that a node that has them leads first."""


class NodeTerm(msgspec.Struct, frozen=True):
    """A term as a node knows it: its number, from 1, and its leader. 0 and empty before the first term."""

    number: int = 0
    node: str = ""


class OwnLog(msgspec.Struct, frozen=True):
    """The state of this node's own log: its size, and the last term in it."""

    node: str
    size: int = 0
    term: NodeTerm = NodeTerm()


# The states of a node.


class Follower(msgspec.Struct, frozen=True):
    """It applies the stream. ``heard_ms``: the time of the last heartbeat of a leader; ``head``: the longest known log.

    With a ``fault`` it applies and answers nothing until the stream is repaired, or its own log is recreated.
    """

    heard_ms: int
    head: int = 0
    leader: str = ""
    lease: LeaseObservation = LeaseObservation()
    requested_ms: int | None = None
    fault: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """It wants to lead. ``action`` is in progress, repeated at ``retry_ms``. With a ``revision`` it has the lease."""

    action: PutLease | CatchUp | StartTerm
    head: int = 0
    revision: int | None = None
    requested_ms: int = 0
    retry_ms: int | None = None
    renewed_ms: int = 0


class Leader(msgspec.Struct, frozen=True):
    """It leads ``term``. ``renewed_ms``: when it requested its last renewal; ``head``: the longest known log."""

    term: int
    revision: int = 0
    renewed_ms: int = 0
    requested_ms: int = 0
    is_paused: bool = False
    successor: str = ""
    head: int = 0


class DegradedNode(msgspec.Struct, frozen=True):
    """The stream is damaged. The node has the lease and the longest log, and fills the next generation."""

    reason: str
    revision: int = 0
    requested_ms: int = 0
    retry_ms: int | None = None


State: TypeAlias = Follower | Candidate | Leader | DegradedNode
Step: TypeAlias = tuple[State, tuple[Action, ...]]


_default_timing: Final = Timing()


def step(state: State, signal: Observation, own: OwnLog, now_ms: int, timing: Timing = _default_timing) -> Step:
    """Return the state of a node after an observation, and its actions; ``now_ms`` never goes back."""
    match state:
        case Follower():
            return _follow(state, signal, own, now_ms, timing)
        case Candidate():
            return _campaign(state, signal, own, now_ms, timing)
        case Leader():
            return _lead(state, signal, own, now_ms, timing)
        case DegradedNode():
            return _repair(state, signal, own, now_ms, timing)
        case _:
            assert_never(state)


def patience_ms(own: OwnLog, head: int, timing: Timing) -> int:
    """Return how long a node waits for a heartbeat before it becomes a candidate: the longest log waits least."""
    spread = int.from_bytes(blake3(own.node.encode()).digest(length=2), "big") % _spread_max_ms
    return timing.missed_ms + spread + (behind_wait_ms if own.size < head else 0)


def _follow(state: Follower, signal: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    wants_to_lead = False
    match signal:
        case Beat() if signal.successor == own.node and signal.term >= own.term.number:
            return replace(state, heard_ms=now_ms, requested_ms=now_ms), (ReadLease(),)
        case Beat() if signal.leads and signal.term >= own.term.number and signal.node != own.node:
            state = replace(state, heard_ms=now_ms, head=max(state.head, signal.size), leader=signal.node)
        case Beat():
            return replace(state, head=max(state.head, signal.size)), ()
        case LeaseRead():
            state = replace(state, lease=state.lease.after(signal.lease, signal.revision, now_ms))
            # The lease names this node: a leader handed over to it, or it had the lease before a restart and no other
            # node has taken it since. Without a lease: this node may be the first leader if the log has no term yet.
            is_named = own.term.number == 0 if signal.lease is None else signal.lease.node == own.node
            wants_to_lead = is_named and own.size >= state.head
        case Tick():
            is_late = now_ms - state.heard_ms >= patience_ms(own, state.head, timing)
            wants_to_lead = is_late and (not timing.has_lease or state.lease.is_free(own.node, now_ms, timing))
        case StreamDamaged():
            return replace(state, fault=signal.reason), ()
        case StreamRebuilt():
            return replace(state, fault=""), ()
        case HandOver() | LeasePut() | LeaseRefused() | LogCaughtUp() | TermBegun() | TermOvertaken() | ActionFailed():
            return state, ()
        case _:
            assert_never(signal)
    if wants_to_lead and own.size and timing.may_lead:
        action = PutLease(state.lease.revision, Lease(own.node, own.term.number + 1)) if timing.has_lease else CatchUp()
        return Candidate(action, state.head, None if timing.has_lease else 0, now_ms), (action,)
    if timing.has_lease and (state.requested_ms is None or now_ms - state.requested_ms >= timing.renew_ms):
        return replace(state, requested_ms=now_ms), (ReadLease(),)
    return state, ()


def has_complete_log(state: State, now_ms: int, timing: Timing) -> bool:
    """Return whether no other node can have a longer log: this node leads, and no other could take its lease yet.

    A node that was disconnected or stopped, or that hands over, may believe for a while that it leads. Then this is
    False: entries that it lacks are not lost, because the next leader has them.
    """
    if not isinstance(state, Leader) or state.successor:
        return False
    return timing.has_lease and _is_renewed(state, now_ms, timing)


def _is_renewed(state: Candidate | Leader, now_ms: int, timing: Timing) -> bool:
    """Return whether this node's lease was renewed so recently that others cannot take it; True without leases."""
    return not timing.has_lease or now_ms - state.renewed_ms < timing.missed_ms


def _campaign(state: Candidate, signal: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match signal:
        case Tick():
            return _try_again(state, state.action, own, now_ms, timing)
        case Beat() if signal.leads and signal.node != own.node:
            # An old leader is alive. If this node has its lease, the old leader will step down; else it still leads.
            is_later = signal.term > own.term.number or state.revision is None
            head = max(state.head, signal.size)
            return (Follower(now_ms, head, signal.node) if is_later else replace(state, head=head)), ()
        case Beat():
            return replace(state, head=max(state.head, signal.size)), ()
        case LeasePut() | LeaseRefused():
            if signal.lease is None or signal.lease.node != own.node:
                return Follower(now_ms, state.head), ()
            is_first = state.revision is None
            if isinstance(signal, LeaseRefused):
                # The lease is ours, but unchanged for an unknown time. Others may take it: renew it before all else.
                action = PutLease(signal.revision, Lease(own.node, own.term.number + 1))
                state = replace(state, requested_ms=now_ms)
                changed = replace(state, action=action) if is_first else replace(state, revision=signal.revision)
                return changed, (action,)
            state = replace(state, revision=signal.revision, renewed_ms=signal.requested_ms)
            return _do(state, CatchUp()) if is_first else (state, ())
        case LogCaughtUp() if own.size < state.head:
            # Another node has more entries than this node found in the stream. Either the stream lost its end, and that
            # node must rebuild it. Or they were published later: this node follows, and tries again.
            return Follower(now_ms, state.head), ()
        case LogCaughtUp() if isinstance(state.action, CatchUp):
            state = replace(state, action=StartTerm(own.term.number + 1), retry_ms=now_ms)
            return _try_again(state, state.action, own, now_ms, timing)
        case TermBegun():
            return Leader(signal.term, state.revision or 0, state.renewed_ms, state.requested_ms), (Lead(),)
        case TermOvertaken():
            # Either entries were in flight when this node read the stream's end, or another node was faster.
            is_late = isinstance(state.action, StartTerm) and signal.term < state.action.term
            return _do(state, CatchUp()) if is_late else (Follower(now_ms, state.head), ())
        case ActionFailed():
            return replace(state, retry_ms=now_ms + timing.retry_ms), ()
        case StreamDamaged():
            if state.revision is None or own.size < state.head:
                # This log may lack acknowledged entries, so a node with a longer log must rebuild the stream.
                return Follower(now_ms, state.head, fault=signal.reason), ()
            return DegradedNode(signal.reason, state.revision, state.requested_ms), (Rebuild(),)
        case HandOver() | LeaseRead() | LogCaughtUp() | StreamRebuilt():
            return state, ()
        case _:
            assert_never(signal)


def _do(state: Candidate, action: CatchUp | StartTerm) -> Step:
    return replace(state, action=action, retry_ms=None), (action,)


def _try_again(state: Candidate | DegradedNode, action: Action, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    actions: list[Action] = []
    # Others may have taken a lease that was not renewed for so long. Start no term until the next answer shows it.
    waits = isinstance(state, Candidate) and isinstance(action, StartTerm) and not _is_renewed(state, now_ms, timing)
    if state.retry_ms is not None and now_ms >= state.retry_ms and not waits:
        actions.append(action)
        state = replace(
            state, retry_ms=None, requested_ms=now_ms if isinstance(action, PutLease) else state.requested_ms
        )
    if timing.has_lease and state.revision is not None and now_ms - state.requested_ms >= timing.renew_ms:
        actions.append(PutLease(state.revision, Lease(own.node, own.term.number + 1)))
        state = replace(state, requested_ms=now_ms)
    return state, tuple(actions)


def _lead(state: Leader, signal: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match signal:
        case Tick():
            return _renew(state, own, now_ms, timing)
        case LeasePut() | LeaseRefused() if signal.lease is None or signal.lease.node != own.node:
            return Follower(now_ms, own.size, "" if signal.lease is None else signal.lease.node), (StepDown(),)
        case LeaseRefused() if signal.lease is not None and signal.lease.term > state.term:
            # Other nodes led since then and handed over to this node, which lacks their entries.
            return Candidate(CatchUp(), state.head, signal.revision, state.requested_ms), (StepDown(), CatchUp())
        case LeaseRefused():  # the lease was renewed at an unknown time, and the answer was lost
            lease = Lease(state.successor, state.term + 1) if state.successor else Lease(own.node, state.term)
            return replace(state, revision=signal.revision, requested_ms=now_ms), (PutLease(signal.revision, lease),)
        case LeasePut():
            state = replace(state, revision=signal.revision, renewed_ms=signal.requested_ms)
            resumes = state.is_paused and not state.successor
            return replace(state, is_paused=state.is_paused and not resumes), (Resume(),) if resumes else ()
        case Beat() if signal.leads and signal.node != own.node and signal.term > state.term:
            return Follower(now_ms, signal.size, signal.node), (StepDown(),)
        case Beat():
            return replace(state, head=max(state.head, signal.size)), (Scrub(),) if signal.fault else ()
        case TermOvertaken():
            return (state, ()) if signal.term <= state.term else (Follower(now_ms, own.size), (StepDown(),))
        case StreamDamaged() if own.size < state.head:
            # Another node applied entries that this node published without ever getting an acknowledgement.
            return Follower(now_ms, state.head, fault=signal.reason), (StepDown(),)
        case StreamDamaged():
            return DegradedNode(signal.reason, state.revision, state.requested_ms), (StepDown(), Rebuild())
        case HandOver():
            state = replace(state, successor=signal.to, is_paused=True, requested_ms=now_ms)
            if not timing.has_lease:
                return Follower(now_ms, own.size, signal.to), (StepDown(),)
            return state, (Pause(), PutLease(state.revision, Lease(signal.to, state.term + 1)))
        case ActionFailed() if state.successor:  # perhaps only the answer was lost, and the successor leads
            renewed_ms = min(state.renewed_ms, now_ms - timing.missed_ms)
            return replace(state, successor="", is_paused=False, renewed_ms=renewed_ms), (Resume(),)
        case ActionFailed() | LeaseRead() | LogCaughtUp() | TermBegun() | StreamRebuilt():
            return state, ()
        case _:
            assert_never(signal)


def _renew(state: Leader, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    if not timing.has_lease or state.successor:
        return state, ()
    actions: list[Action] = []
    if now_ms - state.requested_ms >= timing.renew_ms:
        actions.append(PutLease(state.revision, Lease(own.node, state.term)))
        state = replace(state, requested_ms=now_ms)
    if not state.is_paused and now_ms - state.renewed_ms >= timing.lease_ms:
        actions.append(Pause())
        state = replace(state, is_paused=True)
    return state, tuple(actions)


def _repair(state: DegradedNode, signal: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match signal:
        case StreamRebuilt():
            return _do(Candidate(CatchUp(), own.size, state.revision, state.requested_ms), CatchUp())
        case LeasePut() | LeaseRefused():
            if signal.lease is None or signal.lease.node != own.node:
                return Follower(now_ms, own.size, fault=state.reason), ()
            return replace(state, revision=signal.revision), ()
        case Beat() if signal.leads and signal.node != own.node and signal.term > own.term.number:
            return Follower(now_ms, signal.size, signal.node, fault=state.reason), ()
        case ActionFailed():
            return replace(state, retry_ms=now_ms + timing.retry_ms), ()
        case Tick():
            return _try_again(state, Rebuild(), own, now_ms, timing)
        case Beat() | HandOver() | LeaseRead() | LogCaughtUp() | TermBegun() | TermOvertaken() | StreamDamaged():
            return state, ()
        case _:
            assert_never(signal)
