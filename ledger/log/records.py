"""What the table of states holds: records of streams, agents, keys and counts, under keys of ``ledger.log.tables``."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from deedbook.ledger.home.quota import Spent
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord, Term
from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.reasoning import ReasoningState
from deedbook.ledger.lifecycle.review import ReviewState
from deedbook.ledger.lifecycle.session import SessionState
from deedbook.ledger.lifecycle.snapshot import SnapshotState
from deedbook.ledger.lifecycle.tot import TotState
from deedbook.ledger.log.tables import (
    CHECKPOINT_KEYS_KEY,
    QUARANTINE_PREFIX,
    QUOTA_PREFIX,
    SHARED_KEY,
    TERM_KEY,
    Shared,
)

# Where one stream stands, by what it is of; streams of agents and kept-aside records have no state.
StreamState: TypeAlias = HandoffState | ReasoningState | ReviewState | SessionState | SnapshotState | TotState


class StreamRecord(msgspec.Struct, frozen=True, array_like=True):
    """One stream: how many entries it has, the last one, and the state of its life.

    An entry that a rule refuses (``deed fsck --repair``) is counted and changes nothing else.
    """

    version: int
    last_index: int
    state: StreamState | None = None


class IdempotencyRecord(msgspec.Struct, frozen=True, array_like=True):
    """What an author first used an idempotency key for: digest of (kind, stream, data) and the entry's index."""

    digest: bytes
    index: int


TYPES: Final[dict[bytes, type]] = {
    b"s": StreamRecord,
    b"a": AgentRecord,
    b"k": KeyRecord,
    b"i": IdempotencyRecord,
    b"v": InvitationRecord,
    TERM_KEY: Term,
    CHECKPOINT_KEYS_KEY: CheckpointKeys,
    b"n": str,
    SHARED_KEY: Shared,
    QUOTA_PREFIX: Spent,
    QUARANTINE_PREFIX: str,
}
"""By the first letter of the key."""
