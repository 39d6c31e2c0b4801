"""The keys of a log's tables, and the type of the record under each state key."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from blake3 import blake3

if TYPE_CHECKING:
    from deedbook.ledger.home.quota import QuotaUsage
    from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord
    from deedbook.ledger.lifecycle.declared import KindRecord
    from deedbook.ledger.lifecycle.gate_state import GateState
    from deedbook.ledger.lifecycle.redaction import RedactionRecord
    from deedbook.ledger.log.records import ClusterRecord, IdempotencyRecord, StreamRecord

    R = TypeVar("R")

    class Key(bytes, Generic[R]):
        """A state key: bytes, with the type of its record for the type checker."""


streams_cached_max: Final = 4_096
"""A stream has many events, so the keys of this many streams, agents and signing keys are cached."""


def index_key(index: int) -> bytes:
    """Return the key of an entry."""
    return index.to_bytes(8, "big")


@lru_cache(streams_cached_max)
def stream_digest(stream: str) -> bytes:
    """Return the 16 bytes that identify a stream in keys and in bus subjects."""
    return blake3(stream.encode()).digest(length=16)


def id_key(stream: str, event_id: str) -> bytes:
    """Return the key of the duplicate check. Events of one stream are neighbours, so a batch touches few pages."""
    return stream_digest(stream) + bytes.fromhex(event_id.partition(":")[2])


HEAD_KEY: Final = b"h"


SKIPPED_PREFIX: Final = b"x"


CHECKPOINT_KEYS_KEY: Final = cast("Key[CheckpointKeys]", b"c")


GATE_STATE_KEY: Final = cast("Key[GateState]", b"g")


DECLARED_KINDS_KEY: Final = cast("Key[tuple[str, ...]]", b"u")
"""The names of all declared kinds, in the order of their declarations."""


QUOTA_PREFIX: Final = b"q"


SHARED_KEY: Final = cast("Key[ClusterRecord]", b"m")


REWRITE_KEY: Final = b"w"
"""The mark of a log whose file still holds an erased body, until ``log.rewrite`` has rewritten it."""


PREDECESSORS_KEY: Final = b"p"


# These records do not follow from entries: the counts of gates, the record of a node, and the history of the file. So a
# replay does not compare them.
NOT_REPLAYED: Final = frozenset({QUOTA_PREFIX, SHARED_KEY, REWRITE_KEY, PREDECESSORS_KEY})


@lru_cache(streams_cached_max)
def stream_key(stream: str) -> Key[StreamRecord]:
    """Return the state key of a stream's record."""
    return cast("Key[StreamRecord]", b"s" + stream.encode())


@lru_cache(streams_cached_max)
def agent_key(name: str) -> Key[AgentRecord]:
    """Return the state key of an agent's record."""
    return cast("Key[AgentRecord]", b"a" + name.encode())


def invitation_key(name: str) -> Key[InvitationRecord]:
    """Return the state key of the latest invitation for an agent's name."""
    return cast("Key[InvitationRecord]", b"v" + name.encode())


@lru_cache(streams_cached_max)
def key_key(public_key: str) -> Key[KeyRecord]:
    """Return the state key of a signing key's record (``public_key`` in hex)."""
    return cast("Key[KeyRecord]", b"k" + bytes.fromhex(public_key))


def bus_key_key(nkey: str) -> Key[str]:
    """Return the state key of the owner of a bus key."""
    return cast("Key[str]", b"n" + nkey.encode())


def dependents_key(handoff: str) -> Key[int]:
    """Return the state key of the number of handoffs that depend on a handoff now, which may not exist."""
    return cast("Key[int]", b"d" + stream_digest(f"handoff/{handoff}"))


def kind_key(name: str) -> Key[KindRecord]:
    """Return the state key of a declared kind."""
    return cast("Key[KindRecord]", b"y" + name.encode())


def skipped_key(index: int) -> bytes:
    """Return the state key that marks an entry as refused by its rule; the value is the error code."""
    return SKIPPED_PREFIX + index_key(index)


def redaction_key(index: int) -> Key[RedactionRecord]:
    """Return the state key of the redaction of an entry."""
    return cast("Key[RedactionRecord]", b"r" + index_key(index))


def idempotency_key(author: str, idem: str) -> Key[IdempotencyRecord]:
    """Return the state key of an idempotency record; its length does not depend on the author's ``idem``."""
    return cast("Key[IdempotencyRecord]", b"i" + blake3(f"{author}\0{idem}".encode()).digest(length=24))


def quota_key(author: str) -> Key[QuotaUsage]:
    """Return the state key of an agent's used quota, which only gates read and write."""
    return cast("Key[QuotaUsage]", QUOTA_PREFIX + author.encode())
