"""The tables of a log in LMDB, their keys and codecs.

| table   | key                                  | value                                                    |
|---------|--------------------------------------|----------------------------------------------------------|
| entries | index, u64 big endian                | the entry's bytes                                 |
| ids     | BLAKE3(stream)[:16] + digest of id   | index, u64 big endian                             |
| state   | one letter and a name (see below)    | msgpack: head, streams, agents, keys, idempotency, quota |
| tiles   | level u8 + number u64                | up to 256 hashes of 32 bytes                      |

Blobs lie in an environment of their own (``ledger.log.blobs``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec
from blake3 import blake3

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.merkle import SubtreeReader
from deedbook.ledger.log.environment import Environment
from deedbook.ledger.log.records import TYPES

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.home.quota import Spent
    from deedbook.ledger.lifecycle.authority import AgentRecord, CheckpointKeys, InvitationRecord, KeyRecord, Term
    from deedbook.ledger.log.records import IdempotencyRecord, StreamRecord

    R = TypeVar("R")

    class Key(bytes, Generic[R]):
        """A state key: bytes, of which a type checker knows what record lies under them."""


FORMAT: Final = 1
DATABASE: Final = "log"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Where the log ends: what every write transaction starts from and replaces.

    ``accepted_ms`` and ``authority_version`` are those of the last entry.
    """

    format: int
    ledger: str
    size: int
    frontier: bytes
    accepted_ms: int
    authority_version: int


class Shared(msgspec.Struct, frozen=True, array_like=True):
    """This log is that of ``node``, one of several: nothing is appended that is not published first.

    ``leader`` and where agents reach it are what was heard last.
    """

    node: str
    leader: str = ""
    url: str = ""


streams_known_max: Final = 4_096
"""Events come many to a stream: its name's bytes and digest are kept of so many."""


def index_key(index: int) -> bytes:
    """Return the key of an entry."""
    return index.to_bytes(8, "big")


@lru_cache(streams_known_max)
def stream_digest(stream: str) -> bytes:
    """Return the 16 bytes that stand for a stream in keys and in bus subjects."""
    return blake3(stream.encode()).digest(length=16)


def id_key(stream: str, event_id: str) -> bytes:
    """Return the key of the duplicate check: events of one stream lie together, so a batch touches few pages."""
    return stream_digest(stream) + bytes.fromhex(event_id[7:])


HEAD_KEY: Final = b"h"
QUARANTINE_PREFIX: Final = b"x"
CHECKPOINT_KEYS_KEY: Final = cast("Key[CheckpointKeys]", b"c")
QUOTA_PREFIX: Final = b"q"
TERM_KEY: Final = cast("Key[Term]", b"t")
SHARED_KEY: Final = cast("Key[Shared]", b"m")
# What follows from no entry: what gates count, and whether this log is one of several nodes'.
OF_NO_ENTRY: Final = frozenset({QUOTA_PREFIX, SHARED_KEY})


@lru_cache(streams_known_max)
def stream_key(stream: str) -> Key[StreamRecord]:
    """Return the state key of a stream's record."""
    return cast("Key[StreamRecord]", b"s" + stream.encode())


@lru_cache(streams_known_max)
def agent_key(name: str) -> Key[AgentRecord]:
    """Return the state key of an agent's record."""
    return cast("Key[AgentRecord]", b"a" + name.encode())


def invitation_key(name: str) -> Key[InvitationRecord]:
    """Return the state key of the last invitation of a name."""
    return cast("Key[InvitationRecord]", b"v" + name.encode())


@lru_cache(streams_known_max)
def key_key(public_key: str) -> Key[KeyRecord]:
    """Return the state key of a signing key's record (``public_key`` in hex)."""
    return cast("Key[KeyRecord]", b"k" + bytes.fromhex(public_key))


def bus_key_key(nkey: str) -> Key[str]:
    """Return the state key of the owner of a bus key."""
    return cast("Key[str]", b"n" + nkey.encode())


def quarantine_key(index: int) -> bytes:
    """Return the state key that says of an entry that its rule refuses it; its value is the code."""
    return QUARANTINE_PREFIX + index_key(index)


def idempotency_key(author: str, idem: str) -> Key[IdempotencyRecord]:
    """Return the state key of an idempotency record: of bounded length, whatever the author chose."""
    return cast("Key[IdempotencyRecord]", b"i" + blake3(f"{author}\0{idem}".encode()).digest(length=24))


def quota_key(author: str) -> Key[Spent]:
    """Return the state key of what an agent has spent of its quota: known to gates, and to no replay."""
    return cast("Key[Spent]", QUOTA_PREFIX + author.encode())


head_decoder: Final = msgspec.msgpack.Decoder(Head)


@cache
def _decoder_of(letter: bytes) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(TYPES[letter]).decode


def decode_record(key: bytes, stored: bytes) -> Any:
    """Return the record stored under a state key, by the key's first letter."""
    return _decoder_of(key[:1])(stored)


class Hashed(msgspec.Struct, frozen=True):
    """What was hashed for proofs of the log that has this head, and is the same as long as it has.

    ``tiles`` are by level and number, signed ``batches`` by the index of their first entry.
    """

    head: Head | None
    tiles: dict[tuple[int, int], SubtreeReader]
    batches: dict[int, SubtreeReader]


class Tables(Environment):
    """The tables of the log."""

    def __init__(self, folder: Path, *, map_size: int = limits.map_size_bytes, create: bool = False) -> None:
        """Open the log in ``folder``; with ``create``, make it. Raises as ``Environment``."""
        names = ("entries", "ids", "state", "tiles")
        super().__init__(folder / DATABASE, names, map_size=map_size, setting="map_size_bytes", create=create)
        self.entries, self.ids, self.state, self.tiles = (self.tables[name] for name in names)
        self.hashed = Hashed(None, {}, {})

    def read_head(self, txn: lmdb.Transaction) -> Head | None:
        """Return the head, or None in a log without entries.

        Raises Refused: ``UNSUPPORTED_VERSION`` when newer software wrote this log.
        """
        data = self.get(txn, self.state, HEAD_KEY)
        if data is None:
            return None
        try:
            head = head_decoder.decode(data)
        except UNREADABLE as error:
            raise Corrupted("CORRUPTED", f"the head of the log cannot be read: {error}") from error
        if head.format != FORMAT:
            message = f"the log has format {head.format}, this software reads {FORMAT}: upgrade deedbook"
            raise Refused("UNSUPPORTED_VERSION", message, format=head.format)
        return head
