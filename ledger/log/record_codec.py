"""Decoding the records of the table of states: each by the first letter of its key."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec

from deedbook.ledger.home.quota import QuotaUsage
from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord, Term
from deedbook.ledger.log.keys import CHECKPOINT_KEYS_KEY, QUOTA_PREFIX, SHARED_KEY, SKIPPED_PREFIX, TERM_KEY
from deedbook.ledger.log.records import ClusterRecord, IdempotencyRecord, StreamRecord


@cache
def _decoder_of(letter: bytes) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(TYPES[letter]).decode


def decode_record(key: bytes, stored: bytes) -> Any:
    """Return the record stored under a state key, by the key's first letter."""
    return _decoder_of(key[:1])(stored)


TYPES: Final[dict[bytes, type]] = {
    b"s": StreamRecord,
    b"a": AgentRecord,
    b"k": KeyRecord,
    b"i": IdempotencyRecord,
    b"v": InvitationRecord,
    TERM_KEY: Term,
    CHECKPOINT_KEYS_KEY: CheckpointKeys,
    b"n": str,
    SHARED_KEY: ClusterRecord,
    QUOTA_PREFIX: QuotaUsage,
    SKIPPED_PREFIX: str,
}
"""By the first letter of the key."""
