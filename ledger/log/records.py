"""What the table of states holds: records of streams, agents, keys and counts, under keys of ``ledger.log.tables``."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.reasoning import ReasoningState
from deedbook.ledger.lifecycle.review import ReviewState
from deedbook.ledger.lifecycle.session import SessionState
from deedbook.ledger.lifecycle.snapshot import SnapshotState
from deedbook.ledger.lifecycle.tot import TotState

# Where one stream stands, by what it is of; streams of agents and unmapped records have no state.
StreamState: TypeAlias = HandoffState | ReasoningState | ReviewState | SessionState | SnapshotState | TotState


class StreamRecord(msgspec.Struct, frozen=True, array_like=True):
    """One stream: how many entries it has, its last entry, and the state of its state machine.

    An entry that a rule refuses (``deed fsck --repair``) is counted and changes nothing else.
    """

    version: int
    last_index: int
    state: StreamState | None = None


class IdempotencyRecord(msgspec.Struct, frozen=True, array_like=True):
    """What an author first used an idempotency key for: digest of (kind, stream, data) and the entry's index."""

    digest: bytes
    index: int


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True):
    """This log is that of ``node``, one of several: nothing is appended that is not published first.

    ``leader`` and where agents reach it are what was heard last.
    """

    node: str
    leader: str = ""
    url: str = ""
