"""Records of the state table: streams, idempotency keys and the node (see ``ledger.log.keys`` for all of them)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from deedbook.ledger.lifecycle.handoff import HandoffState
from deedbook.ledger.lifecycle.machine import FamilyState, OwnedState
from deedbook.ledger.lifecycle.reasoning import ReasoningState

# The state of a stream, by its type; streams of agents have no state.
StreamState: TypeAlias = HandoffState | OwnedState | ReasoningState | FamilyState


class StreamRecord(msgspec.Struct, frozen=True, array_like=True):
    """One stream: its number of entries, the index of the last one, and the state of its state machine.

    An entry that a rule refuses (``deed fsck --repair``) counts in ``version`` and changes nothing else.
    """

    version: int
    last_index: int
    state: StreamState | None = None


class IdempotencyRecord(msgspec.Struct, frozen=True, array_like=True):
    """The first use of an idempotency key by an author: digest of (kind, stream, data), and the entry's index."""

    digest: bytes
    index: int


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True):
    """Marks the log of ``node``, one of several nodes: an entry is published before it is appended.

    Agents reach the node at ``url``.
    """

    node: str
    url: str
