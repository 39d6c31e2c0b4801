"""What a node is to the others (follower, candidate, leader, degraded) and what it does next: one pure step at a time.

``step`` is told what was observed, what the node's own log says, and the time of its own monotonic clock; it returns
the next state and what to do. Whoever drives it does that, however long it takes, and comes back with what became of
it; between that he comes with a ``Tick`` several times a second. An observation that came too late changes nothing.

    follower --no heartbeat, lease free--> candidate --lease, caught up, term published--> leader
       ^                                      |                                              |
       +-----lease lost, fenced---------------+------lease lost, fenced, handed over---------+
    each of them --the stream is damaged--> degraded --next generation--> candidate, or follower

A leader whose lease cannot be renewed for as long as it lasts *pauses*: it acknowledges nothing, and leads on when it
can. It loses nothing by that: the next leader's term stands in the stream, and no publish of its own fits any more.
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
    LeaseRefused,
    LeaseSeen,
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
"""So much later than the first do others that are as far ahead try: each at its own time, by its name."""

behind_wait_ms: Final = 1_000
"""So much later does a node try that is known to lack entries: one that has them is quicker to lead."""


class NodeTerm(msgspec.Struct, frozen=True):
    """The time of one leader: its number, from 1, and whose it is. 0 and nobody's before the first."""

    number: int = 0
    node: str = ""


class OwnLog(msgspec.Struct, frozen=True):
    """What this node's own log says now: its size, and the last term in it."""

    node: str
    size: int = 0
    term: NodeTerm = NodeTerm()


# What a node is.


class Follower(msgspec.Struct, frozen=True):
    """It applies what the stream holds. ``heard_ms``: when a leader was heard last; ``head``: how far any log is.

    With a ``fault`` it applies and answers nothing until the stream is sound, or its own log is made anew.
    """

    heard_ms: int
    head: int = 0
    leader: str = ""
    seen: LeaseObservation = LeaseObservation()
    asked_ms: int | None = None
    fault: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """It wants to lead, and has ``doing`` under way, again at ``retry_ms``; with a ``revision`` it holds the lease."""

    doing: PutLease | CatchUp | StartTerm
    head: int = 0
    revision: int | None = None
    asked_ms: int = 0
    retry_ms: int | None = None
    renewed_ms: int = 0


class Leader(msgspec.Struct, frozen=True):
    """It leads ``term``. ``renewed_ms``: when the renewal that was granted last was asked for; ``head``: of any log."""

    term: int
    revision: int = 0
    renewed_ms: int = 0
    asked_ms: int = 0
    is_paused: bool = False
    successor: str = ""
    head: int = 0


class DegradedNode(msgspec.Struct, frozen=True):
    """The stream is damaged. It holds the lease and the log with most entries, and fills the next generation."""

    reason: str
    revision: int = 0
    asked_ms: int = 0
    retry_ms: int | None = None


State: TypeAlias = Follower | Candidate | Leader | DegradedNode
Step: TypeAlias = tuple[State, tuple[Action, ...]]


_usual: Final = Timing()


def step(state: State, seen: Observation, own: OwnLog, now_ms: int, timing: Timing = _usual) -> Step:
    """Return what a node is after an observation, and what it does now; ``now_ms`` never goes back."""
    match state:
        case Follower():
            return _follow(state, seen, own, now_ms, timing)
        case Candidate():
            return _stand(state, seen, own, now_ms, timing)
        case Leader():
            return _lead(state, seen, own, now_ms, timing)
        case DegradedNode():
            return _mend(state, seen, own, now_ms, timing)
        case _:
            assert_never(state)


def patience_ms(own: OwnLog, head: int, timing: Timing) -> int:
    """Return how long a node waits for a heartbeat before it stands: the most caught-up one the shortest."""
    spread = int.from_bytes(blake3(own.node.encode()).digest(length=2), "big") % _spread_max_ms
    return timing.missed_ms + spread + (behind_wait_ms if own.size < head else 0)


def _follow(state: Follower, seen: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    is_ours = False
    match seen:
        case Beat() if seen.successor == own.node and seen.term >= own.term.number:
            return replace(state, heard_ms=now_ms, asked_ms=now_ms), (ReadLease(),)
        case Beat() if seen.leads and seen.term >= own.term.number and seen.node != own.node:
            state = replace(state, heard_ms=now_ms, head=max(state.head, seen.size), leader=seen.node)
        case Beat():
            return replace(state, head=max(state.head, seen.size)), ()
        case LeaseSeen():
            state = replace(state, seen=state.seen.after(seen.lease, seen.revision, now_ms))
            # Handed over; or we led, or meant to, before we were started again, and nobody has replaced us since.
            # Or nobody has ever led.
            is_named = own.term.number == 0 if seen.lease is None else seen.lease.node == own.node
            is_ours = is_named and own.size >= state.head
        case Tick():
            is_late = now_ms - state.heard_ms >= patience_ms(own, state.head, timing)
            is_ours = is_late and (not timing.has_lease or state.seen.is_free(own.node, now_ms, timing))
        case StreamDamaged():
            return replace(state, fault=seen.reason), ()
        case StreamRebuilt():
            return replace(state, fault=""), ()
        case HandOver() | LeasePut() | LeaseRefused() | LogCaughtUp() | TermBegun() | TermOvertaken() | ActionFailed():
            return state, ()
        case _:
            assert_never(seen)
    if is_ours and own.size and timing.stands:
        doing = PutLease(state.seen.revision, Lease(own.node, own.term.number + 1)) if timing.has_lease else CatchUp()
        return Candidate(doing, state.head, None if timing.has_lease else 0, now_ms), (doing,)
    if timing.has_lease and (state.asked_ms is None or now_ms - state.asked_ms >= timing.renew_ms):
        return replace(state, asked_ms=now_ms), (ReadLease(),)
    return state, ()


def is_last_word(state: State, now_ms: int, timing: Timing) -> bool:
    """Whether no other node can have more of the log: this one leads, and renewed its lease since others might take it.

    Who was cut off, or stopped, or hands over, believes for a while that it leads: what it lacks of what its callers
    saw is not lost.
    """
    if not isinstance(state, Leader) or state.successor:
        return False
    return timing.has_lease and _is_renewed(state, now_ms, timing)


def _is_renewed(state: Candidate | Leader, now_ms: int, timing: Timing) -> bool:
    """Whether its lease, if there are any, was renewed since others might take it."""
    return not timing.has_lease or now_ms - state.renewed_ms < timing.missed_ms


def _stand(state: Candidate, seen: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match seen:
        case Tick():
            return _try_again(state, state.doing, own, now_ms, timing)
        case Beat() if seen.leads and seen.node != own.node:
            # An old leader that lives: once we have its lease it steps down, before that it is who leads.
            is_later = seen.term > own.term.number or state.revision is None
            head = max(state.head, seen.size)
            return (Follower(now_ms, head, seen.node) if is_later else replace(state, head=head)), ()
        case Beat():
            return replace(state, head=max(state.head, seen.size)), ()
        case LeasePut() | LeaseRefused():
            if seen.lease is None or seen.lease.node != own.node:
                return Follower(now_ms, state.head), ()
            is_first = state.revision is None
            if isinstance(seen, LeaseRefused):  # it may have stood still for so long that others replace it now
                doing = PutLease(seen.revision, Lease(own.node, own.term.number + 1))
                state = replace(state, asked_ms=now_ms)
                return (replace(state, doing=doing) if is_first else replace(state, revision=seen.revision)), (doing,)
            state = replace(state, revision=seen.revision, renewed_ms=seen.asked_ms)
            return _do(state, CatchUp()) if is_first else (state, ())
        case LogCaughtUp() if own.size < state.head:
            # A log is never ahead of the stream: it has lost its end since, and who still has that is to mend it. Or
            # what was heard of was published after we looked: then we follow it, and stand again.
            return Follower(now_ms, state.head), ()
        case LogCaughtUp() if isinstance(state.doing, CatchUp):
            state = replace(state, doing=StartTerm(own.term.number + 1), retry_ms=now_ms)
            return _try_again(state, state.doing, own, now_ms, timing)
        case TermBegun():
            return Leader(seen.term, state.revision or 0, state.renewed_ms, state.asked_ms), (Lead(),)
        case TermOvertaken():
            # By entries that were under way when we asked where the stream ends, or by who was quicker.
            is_late = isinstance(state.doing, StartTerm) and seen.term < state.doing.term
            return _do(state, CatchUp()) if is_late else (Follower(now_ms, state.head), ())
        case ActionFailed():
            return replace(state, retry_ms=now_ms + timing.retry_ms), ()
        case StreamDamaged():
            if state.revision is None or own.size < state.head:
                # Who is further on builds it: this log may lack what was acknowledged.
                return Follower(now_ms, state.head, fault=seen.reason), ()
            return DegradedNode(seen.reason, state.revision, state.asked_ms), (Rebuild(),)
        case HandOver() | LeaseSeen() | LogCaughtUp() | StreamRebuilt():
            return state, ()
        case _:
            assert_never(seen)


def _do(state: Candidate, doing: CatchUp | StartTerm) -> Step:
    return replace(state, doing=doing, retry_ms=None), (doing,)


def _try_again(state: Candidate | DegradedNode, doing: Action, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    actions: list[Action] = []
    # Others may have taken a lease that was not renewed for so long: no term is started before that is known.
    waits = isinstance(state, Candidate) and isinstance(doing, StartTerm) and not _is_renewed(state, now_ms, timing)
    if state.retry_ms is not None and now_ms >= state.retry_ms and not waits:
        actions.append(doing)
        state = replace(state, retry_ms=None, asked_ms=now_ms if isinstance(doing, PutLease) else state.asked_ms)
    if timing.has_lease and state.revision is not None and now_ms - state.asked_ms >= timing.renew_ms:
        actions.append(PutLease(state.revision, Lease(own.node, own.term.number + 1)))
        state = replace(state, asked_ms=now_ms)
    return state, tuple(actions)


def _lead(state: Leader, seen: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match seen:
        case Tick():
            return _renew(state, own, now_ms, timing)
        case LeasePut() | LeaseRefused() if seen.lease is None or seen.lease.node != own.node:
            return Follower(now_ms, own.size, "" if seen.lease is None else seen.lease.node), (StepDown(),)
        case LeaseRefused() if seen.lease is not None and seen.lease.term > state.term:
            # Others led since, and handed over to us, who lack their entries.
            return Candidate(CatchUp(), state.head, seen.revision, state.asked_ms), (StepDown(), CatchUp())
        case LeaseRefused():  # a renewal was granted whose answer was lost, and nobody knows when
            lease = Lease(state.successor, state.term + 1) if state.successor else Lease(own.node, state.term)
            return replace(state, revision=seen.revision, asked_ms=now_ms), (PutLease(seen.revision, lease),)
        case LeasePut():
            state = replace(state, revision=seen.revision, renewed_ms=seen.asked_ms)
            resumes = state.is_paused and not state.successor
            return replace(state, is_paused=state.is_paused and not resumes), (Resume(),) if resumes else ()
        case Beat() if seen.leads and seen.node != own.node and seen.term > state.term:
            return Follower(now_ms, seen.size, seen.node), (StepDown(),)
        case Beat():
            return replace(state, head=max(state.head, seen.size)), (Scrub(),) if seen.fault else ()
        case TermOvertaken():
            return (state, ()) if seen.term <= state.term else (Follower(now_ms, own.size), (StepDown(),))
        case StreamDamaged() if own.size < state.head:  # somebody followed what was published here and never answered
            return Follower(now_ms, state.head, fault=seen.reason), (StepDown(),)
        case StreamDamaged():
            return DegradedNode(seen.reason, state.revision, state.asked_ms), (StepDown(), Rebuild())
        case HandOver():
            state = replace(state, successor=seen.to, is_paused=True, asked_ms=now_ms)
            if not timing.has_lease:
                return Follower(now_ms, own.size, seen.to), (StepDown(),)
            return state, (Pause(), PutLease(state.revision, Lease(seen.to, state.term + 1)))
        case ActionFailed() if state.successor:  # or not: the answer may be what was lost, and the other one leads
            renewed_ms = min(state.renewed_ms, now_ms - timing.missed_ms)
            return replace(state, successor="", is_paused=False, renewed_ms=renewed_ms), (Resume(),)
        case ActionFailed() | LeaseSeen() | LogCaughtUp() | TermBegun() | StreamRebuilt():
            return state, ()
        case _:
            assert_never(seen)


def _renew(state: Leader, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    if not timing.has_lease or state.successor:
        return state, ()
    actions: list[Action] = []
    if now_ms - state.asked_ms >= timing.renew_ms:
        actions.append(PutLease(state.revision, Lease(own.node, state.term)))
        state = replace(state, asked_ms=now_ms)
    if not state.is_paused and now_ms - state.renewed_ms >= timing.lease_ms:
        actions.append(Pause())
        state = replace(state, is_paused=True)
    return state, tuple(actions)


def _mend(state: DegradedNode, seen: Observation, own: OwnLog, now_ms: int, timing: Timing) -> Step:
    match seen:
        case StreamRebuilt():
            return _do(Candidate(CatchUp(), own.size, state.revision, state.asked_ms), CatchUp())
        case LeasePut() | LeaseRefused():
            if seen.lease is None or seen.lease.node != own.node:
                return Follower(now_ms, own.size, fault=state.reason), ()
            return replace(state, revision=seen.revision), ()
        case Beat() if seen.leads and seen.node != own.node and seen.term > own.term.number:
            return Follower(now_ms, seen.size, seen.node, fault=state.reason), ()
        case ActionFailed():
            return replace(state, retry_ms=now_ms + timing.retry_ms), ()
        case Tick():
            return _try_again(state, Rebuild(), own, now_ms, timing)
        case Beat() | HandOver() | LeaseSeen() | LogCaughtUp() | TermBegun() | TermOvertaken() | StreamDamaged():
            return state, ()
        case _:
            assert_never(seen)
