"""What a node observes of the others, of the stream and of its own work, and what it is to do (``role``)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from deedbook.ledger.replication.lease import Lease

# What is observed.


class Tick(msgspec.Struct, frozen=True):
    """Time went by. It comes several times in each time that ``Timing`` names."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's heartbeat: how far its log is, and whether it leads. ``successor``: to whom its leader hands over.

    ``fault`` is what its sender finds wrong with the stream, or with its log beside it; ``generation`` the number of
    the stream that it knows; and a node that ``leaves`` is no successor.
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


class LeaseSeen(msgspec.Struct, frozen=True):
    """The lease was looked at; revision 0: there is none."""

    lease: Lease | None
    revision: int


class LeasePut(msgspec.Struct, frozen=True):
    """The lease is what was asked for at ``asked_ms``, under this revision."""

    lease: Lease
    revision: int
    asked_ms: int = 0


class LeaseRefused(msgspec.Struct, frozen=True):
    """The lease had another revision, and is this one. It may be ours all the same, if an answer was lost."""

    lease: Lease | None
    revision: int
    asked_ms: int = 0


class LogCaughtUp(msgspec.Struct, frozen=True):
    """The log holds all that the stream held when its leader was asked."""


class TermBegun(msgspec.Struct, frozen=True):
    """The stream and the log hold this node's term."""

    term: int


class TermOvertaken(msgspec.Struct, frozen=True):
    """The log holds another node's later term, or the stream does where ours should stand."""

    term: int


class ActionFailed(msgspec.Struct, frozen=True):
    """What was to be done could not be, and may be tried again."""


class StreamDamaged(msgspec.Struct, frozen=True):
    """The stream is not what was published, or not what this log continues."""

    reason: str


class StreamRebuilt(msgspec.Struct, frozen=True):
    """There is a sound stream again: this log and it agree."""


class HandOver(msgspec.Struct, frozen=True):
    """This node is to give up leading, to whom it names."""

    to: str


Observation: TypeAlias = (
    Tick
    | Beat
    | LeaseSeen
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


# What is to be done.


class ReadLease(msgspec.Struct, frozen=True):
    """Look at the lease; answered by ``LeaseSeen`` or nothing."""


class PutLease(msgspec.Struct, frozen=True):
    """Replace the lease if it has this revision; answered by ``LeasePut``, ``LeaseRefused`` or ``ActionFailed``."""

    revision: int
    lease: Lease


class CatchUp(msgspec.Struct, frozen=True):
    """Follow the stream to where its leader says that it ends; ``LogCaughtUp``, ``TermOvertaken``, ``StreamDamaged``, ``ActionFailed``."""


class StartTerm(msgspec.Struct, frozen=True):
    """Publish ``ledger.term_started`` where the log ends, then append it; ``TermBegun``, or as ``CatchUp``."""

    term: int


class Lead(msgspec.Struct, frozen=True):
    """Admit, acknowledge and run the workers, from now on."""


class Pause(msgspec.Struct, frozen=True):
    """Acknowledge nothing, until told to resume."""


class Resume(msgspec.Struct, frozen=True):
    """Acknowledge again."""


class StepDown(msgspec.Struct, frozen=True):
    """Admit nothing more, end the workers, and follow."""


class Rebuild(msgspec.Struct, frozen=True):
    """Retire the stream and fill the next generation from the log; ``StreamRebuilt`` or ``ActionFailed``."""


class Scrub(msgspec.Struct, frozen=True):
    """Compare the whole stream with the log, because somebody finds it wrong; ``StreamDamaged`` if it is."""


Action: TypeAlias = ReadLease | PutLease | CatchUp | StartTerm | Lead | Pause | Resume | StepDown | Rebuild | Scrub
