"""The tables of a log in LMDB, their keys and codecs, and the translation of LMDB's errors.

| table   | key                                  | value                                             |
|---------|--------------------------------------|---------------------------------------------------|
| entries | index, u64 big endian                | the entry's bytes                                 |
| ids     | BLAKE3(stream)[:16] + digest of id   | index, u64 big endian                             |
| state   | one letter and a name (see below)    | msgpack: head, streams, agents, keys, idempotency |
| tiles   | level u8 + number u64                | up to 256 hashes of 32 bytes                      |
| blobs   | digest + chunk u32                   | a chunk; ``ffffffff`` holds the blob's record     |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import lmdb
import msgspec
from blake3 import blake3

from ledger import limits
from ledger.errors import BatonError, Corrupted, Refused, Unavailable
from ledger.lifecycle.authority import AgentRecord, KeyRecord
from ledger.lifecycle.handoff import HandoffState
from ledger.lifecycle.reasoning import ReasoningState
from ledger.lifecycle.review import ReviewState
from ledger.lifecycle.session import SessionState
from ledger.lifecycle.snapshot import SnapshotState
from ledger.lifecycle.tot import TotState

StreamState: TypeAlias = HandoffState | ReasoningState | ReviewState | SessionState | SnapshotState | TotState
"""Where one stream stands, by what it is of; streams of agents and kept-aside records have no state."""

FORMAT: Final = 1
DATABASE: Final = "log"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Where the log ends: what every write transaction starts from and replaces.

    ``accepted_ms``: the last entry's clock (Unix ms); ``authority_index``: the last one that changed who may sign.
    """

    format: int
    ledger: str
    size: int
    frontier: bytes
    accepted_ms: int
    authority_index: int


class StreamRecord(msgspec.Struct, frozen=True, array_like=True):
    """One stream: how many events it has, its last one, and the state of its life."""

    version: int
    last_index: int
    state: StreamState | None = None


class IdempotencyRecord(msgspec.Struct, frozen=True, array_like=True):
    """What an author first used an idempotency key for: digest of (kind, stream, data) and the entry's index."""

    digest: bytes
    index: int


def index_key(index: int) -> bytes:
    """Return the key of an entry."""
    return index.to_bytes(8, "big")


def stream_digest(stream: str) -> bytes:
    """Return the 16 bytes that stand for a stream in keys and in bus subjects."""
    return blake3(stream.encode()).digest(length=16)


def id_key(stream: str, event_id: str) -> bytes:
    """Return the key of the duplicate check: events of one stream lie together, so a batch touches few pages."""
    return stream_digest(stream) + bytes.fromhex(event_id[7:])


HEAD_KEY: Final = b"h"


def stream_key(stream: str) -> bytes:
    """Return the state key of a stream's record."""
    return b"s" + stream.encode()


def agent_key(name: str) -> bytes:
    """Return the state key of an agent's record."""
    return b"a" + name.encode()


def key_key(public_key: str) -> bytes:
    """Return the state key of a signing key's record (``public_key`` in hex)."""
    return b"k" + bytes.fromhex(public_key)


def idempotency_key(author: str, idem: str) -> bytes:
    """Return the state key of an idempotency record: of bounded length, whatever the author chose."""
    return b"i" + blake3(f"{author}\0{idem}".encode()).digest(length=24)


head_decoder: Final = msgspec.msgpack.Decoder(Head)
stream_decoder: Final = msgspec.msgpack.Decoder(StreamRecord)
agent_decoder: Final = msgspec.msgpack.Decoder(AgentRecord)
key_decoder: Final = msgspec.msgpack.Decoder(KeyRecord)
idempotency_decoder: Final = msgspec.msgpack.Decoder(IdempotencyRecord)
_DECODERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    b"s": stream_decoder.decode,
    b"a": agent_decoder.decode,
    b"k": key_decoder.decode,
    b"i": idempotency_decoder.decode,
}


def decode_record(key: bytes, stored: bytes) -> Any:
    """Return the record stored under a state key, by the key's first letter."""
    return _DECODERS[key[:1]](stored)


class Tables:
    """An open LMDB environment with its tables. One a process: LMDB's locks are per process."""

    def __init__(self, folder: Path, *, map_size: int = limits.map_size_bytes, create: bool = False) -> None:
        """Open the environment in ``folder``; with ``create``, make it.

        Raises:
            Unavailable: ``NO_LEDGER`` when there is none and ``create`` is false; ``STORE_UNAVAILABLE`` when it cannot
                be opened (permissions, opened twice); ``STORE_FULL``.
            Corrupted: the file is no store, or a damaged one.
        """
        self.folder = folder
        path = folder / DATABASE
        with translated(folder):
            is_there = (path / "data.mdb").is_file()
        if not create and not is_there:
            raise Unavailable("NO_LEDGER", f"there is no log in {folder}: run `baton init` first", folder=str(folder))
        with translated(folder):
            self.env = lmdb.open(
                str(path),
                map_size=map_size,
                max_dbs=8,
                max_readers=limits.readers_max,
                metasync=True,
                sync=True,
                writemap=False,
                max_spare_txns=4,
            )
            try:
                self.env.reader_check()
                self.entries = self.env.open_db(b"entries")
                self.ids = self.env.open_db(b"ids")
                self.state = self.env.open_db(b"state")
                self.tiles = self.env.open_db(b"tiles")
                self.blobs = self.env.open_db(b"blobs")
            except BaseException:
                self.env.close()  # else nobody in this process could open it again
                raise

    def close(self) -> None:
        """Close the environment; every transaction must have ended."""
        self.env.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: keep it short."""
        with translated(self.folder), self.env.begin() as txn:
            yield txn

    @contextlib.contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction: commits when the block ends, aborts when it raises.

        An error of the commit itself is ``Unavailable``: LMDB has then kept the previous head.
        """
        with translated(self.folder), self.env.begin(write=True) as txn:
            yield txn

    def get(self, txn: lmdb.Transaction, table: lmdb._Database, key: bytes) -> bytes | None:
        """Return the value under ``key``: bytes, because no transaction here is opened with buffers."""
        return cast("bytes | None", txn.get(key, db=table))

    def values(self, txn: lmdb.Transaction, table: lmdb._Database, start: bytes) -> Iterator[bytes]:
        """Yield the values from the key ``start`` on; none when there is no such key."""
        cursor = txn.cursor(db=table)
        if cursor.set_key(start):
            yield from cast("Iterator[bytes]", cursor.iternext(keys=False, values=True))

    def items(self, txn: lmdb.Transaction, table: lmdb._Database, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values whose key begins with ``prefix``, in the order of keys."""
        cursor = txn.cursor(db=table)
        if cursor.set_range(prefix):
            for key, value in cast("Iterator[tuple[bytes, bytes]]", cursor.iternext()):
                if not key.startswith(prefix):
                    return
                yield key, value

    def last_transaction(self) -> int:
        """Return the number of the last write transaction that readers can see: changes whenever anything was written.

        Not ``env.info()``, which tells of a transaction while it is still being synced: who remembers that number, and
        then looks at the log as it was before it, would not look again (measured: one waiting read in forty).
        """
        with self.reading() as txn:
            return txn.id()

    def used_ratio(self) -> float:
        """Return the part of the map in use, 0 to 1; above ``limits.map_alarm_ratio`` the operator must act."""
        info = self.env.info()
        page = int(self.env.stat()["psize"])
        return float((info["last_pgno"] + 1) * page / info["map_size"])

    def read_head(self, txn: lmdb.Transaction) -> Head | None:
        """Return the head, or None in a log without entries.

        Raises:
            Refused: ``UNSUPPORTED_VERSION`` when newer software wrote this log.
        """
        data = self.get(txn, self.state, HEAD_KEY)
        if data is None:
            return None
        try:
            head = head_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Corrupted("CORRUPTED", f"the head of the log cannot be read: {error}") from error
        if head.format != FORMAT:
            message = f"the log has format {head.format}, this software reads {FORMAT}: upgrade baton"
            raise Refused("UNSUPPORTED_VERSION", message, format=head.format)
        return head


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn LMDB's and the file system's errors into ours, saying what to do."""
    try:
        yield
    except BatonError:
        raise
    except (lmdb.MapFullError, lmdb.DiskError) as error:
        message = f"the store in {folder} is full ({error}): free disk space, or raise map_size_bytes in config.toml"
        raise Unavailable("STORE_FULL", message) from error
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError) as error:
        message = f"the store in {folder} is damaged ({error}): run `baton fsck`, restore a copy"
        raise Corrupted("CORRUPTED", message) from error
    except (lmdb.Error, OSError) as error:
        raise Unavailable("STORE_UNAVAILABLE", f"the store in {folder} cannot be used: {error}") from error
