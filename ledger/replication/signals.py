"""The observations of a node (other nodes, the stream, its own work) and its actions (see ``role``)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from deedbook.ledger.replication.lease import Lease

# Observations.


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. It comes several times within each time of ``Timing``."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's heartbeat: the size of its log, and whether it leads. ``successor``: the node that its leader appoints.

    ``fault`` is an error that the sender found in the stream, or in its log compared with the stream. ``generation`` is
    the number of the stream that it knows. A node that ``leaves`` cannot be a successor.
    """

    node: str
    term: int
    size: int
    leads: bool = False
    successor: str = ""
    url: str = ""
    fault: str = ""
    generation: int = 0
    leaves: bool = False


class LeaseRead(msgspec.Struct, frozen=True):
    """The lease was read. Revision 0: there is none."""

    lease: Lease | None
    revision: int


class LeasePut(msgspec.Struct, frozen=True):
    """The lease was replaced as requested at ``requested_ms``, and has this revision now."""

    lease: Lease
    revision: int
    requested_ms: int = 0


class LeaseRefused(msgspec.Struct, frozen=True):
    """The lease had another revision and was not replaced. It may still be ours, if an answer was lost."""

    lease: Lease | None
    revision: int
    requested_ms: int = 0


class LogCaughtUp(msgspec.Struct, frozen=True):
    """The log has all entries that the stream had when its leader was asked."""


class TermBegun(msgspec.Struct, frozen=True):
    """This node's term is in the stream and in the log."""

    term: int


class TermOvertaken(msgspec.Struct, frozen=True):
    """The log has a later term of another node, or the stream has one at the position of ours."""

    term: int


class ActionFailed(msgspec.Struct, frozen=True):
    """The action failed and may be tried again."""


class StreamDamaged(msgspec.Struct, frozen=True):
    """The stream differs from what was published, or does not match this log."""

    reason: str


class StreamRebuilt(msgspec.Struct, frozen=True):
    """The stream is repaired and agrees with this log."""


class HandOver(msgspec.Struct, frozen=True):
    """This node must hand over to the node ``to``."""

    to: str


Observation: TypeAlias = (
    Tick
    | Beat
    | LeaseRead
    | LeasePut
    | LeaseRefused
    | LogCaughtUp
    | TermBegun
    | TermOvertaken
    | ActionFailed
    | StreamDamaged
    | StreamRebuilt
    | HandOver
)


# Actions.


class ReadLease(msgspec.Struct, frozen=True):
    """Read the lease; answered by ``LeaseRead`` or nothing."""


class PutLease(msgspec.Struct, frozen=True):
    """Replace the lease if it has this revision; answered by ``LeasePut``, ``LeaseRefused`` or ``ActionFailed``."""

    revision: int
    lease: Lease


class CatchUp(msgspec.Struct, frozen=True):
    """Apply the stream up to its end as its leader knows it.

    Answered by ``LogCaughtUp``, ``TermOvertaken``, ``StreamDamaged`` or ``ActionFailed``.
    """


class StartTerm(msgspec.Struct, frozen=True):
    """Publish ``ledger.term_started`` at the end of the log, then append it; ``TermBegun``, or as ``CatchUp``."""

    term: int


class Lead(msgspec.Struct, frozen=True):
    """From now on admit, acknowledge and run the workers."""


class Pause(msgspec.Struct, frozen=True):
    """Acknowledge nothing until ``Resume``."""


class Resume(msgspec.Struct, frozen=True):
    """Acknowledge again."""


class StepDown(msgspec.Struct, frozen=True):
    """Admit nothing more, end the workers, and follow."""


class Rebuild(msgspec.Struct, frozen=True):
    """Retire the stream and fill the next generation from the log; ``StreamRebuilt`` or ``ActionFailed``."""


class Scrub(msgspec.Struct, frozen=True):
    """Compare the whole stream with the log, because a node reported a fault; ``StreamDamaged`` if there is one."""


Action: TypeAlias = ReadLease | PutLease | CatchUp | StartTerm | Lead | Pause | Resume | StepDown | Rebuild | Scrub
