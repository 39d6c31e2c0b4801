"""Decodes the records of the state table, by the first letter of their keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from deedbook.ledger.format.codec import msgpack_decoder
from deedbook.ledger.home.quota import QuotaUsage
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord
from deedbook.ledger.lifecycle.declared import KindRecord
from deedbook.ledger.lifecycle.gate_state import GateState
from deedbook.ledger.lifecycle.redaction import RedactionRecord
from deedbook.ledger.log.keys import (
    CHECKPOINT_KEYS_KEY,
    DECLARED_KINDS_KEY,
    GATE_STATE_KEY,
    PREDECESSORS_KEY,
    QUOTA_PREFIX,
    REWRITE_KEY,
    SHARED_KEY,
    SKIPPED_PREFIX,
)
from deedbook.ledger.log.records import ClusterRecord, IdempotencyRecord, StreamRecord


@cache
def _decoder_of(letter: bytes) -> Callable[[bytes], Any]:
    return msgpack_decoder(TYPES[letter]).decode


def decode_record(key: bytes, stored: bytes) -> Any:
    """Return the record under a state key, decoded as the type for the key's first letter."""
    return _decoder_of(key[:1])(stored)


TYPES: Final[dict[bytes, Any]] = {
    b"s": StreamRecord,
    b"a": AgentRecord,
    b"k": KeyRecord,
    b"i": IdempotencyRecord,
    b"v": InvitationRecord,
    CHECKPOINT_KEYS_KEY: CheckpointKeys,
    GATE_STATE_KEY: GateState,
    b"r": RedactionRecord,
    b"n": str,
    b"d": int,
    b"y": KindRecord,
    DECLARED_KINDS_KEY: tuple[str, ...],
    SHARED_KEY: ClusterRecord,
    REWRITE_KEY: int,
    PREDECESSORS_KEY: list[tuple[int, int]],
    QUOTA_PREFIX: QuotaUsage,
    SKIPPED_PREFIX: str,
}
"""The types of records, by the first letter of their keys."""
