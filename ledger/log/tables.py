"""The tables of a log in LMDB, their keys and codecs.

| table   | key                                  | value                                                    |
|---------|--------------------------------------|----------------------------------------------------------|
| entries | index, u64 big endian                | the entry's bytes                                        |
| ids     | BLAKE3(stream)[:16] + digest of id   | index, u64 big endian                                    |
| state   | a letter and a name (``log.keys``)   | msgpack: head, streams, dependents, agents, keys, quota … |
| tiles   | level u8 + number u64                | up to 256 hashes of 32 bytes                      |
| blobs   | a letter and more                    | what is known of blobs (``log.blob_table``)       |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted, newer_version
from deedbook.ledger.format.codec import UNREADABLE, msgpack_decoder
from deedbook.ledger.format.merkle import SubtreeReader
from deedbook.ledger.log.environment import Environment
from deedbook.ledger.log.keys import HEAD_KEY, PREDECESSORS_KEY

if TYPE_CHECKING:
    import lmdb

FORMAT: Final = 1
DATABASE: Final = "log"


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The end of the log: every write transaction starts from it and replaces it.

    ``accepted_ms`` and ``authority_version`` are those of the last entry.
    """

    format: int
    ledger: str
    size: int
    frontier: bytes
    accepted_ms: int
    authority_version: int


head_decoder: Final = msgpack_decoder(Head)
predecessors_decoder: Final = msgpack_decoder(list[tuple[int, int]])
_NAMES: Final = ("entries", "ids", "state", "tiles", "blobs")


class HashCache(msgspec.Struct, frozen=True):
    """Hashes that proofs computed from the log with this ``head``; with another head they are invalid.

    ``tiles`` are by level and number, signed ``batches`` by the index of their first entry.
    """

    head: Head | None
    tiles: dict[tuple[int, int], SubtreeReader]
    batches: dict[int, SubtreeReader]


class Tables(Environment):
    """The tables of the log."""

    def __init__(
        self, folder: Path, *, database: str = DATABASE, map_size: int = limits.map_size_bytes, create: bool = False
    ) -> None:
        """Open the log in ``folder``; with ``create``, create it if it is missing. Raises as ``Environment``."""
        super().__init__(folder / database, _NAMES, map_size=map_size, setting="map_size_bytes", create=create)

    def _open(self, *, create: bool = False) -> None:
        super()._open(create=create)
        self.entries, self.ids, self.state, self.tiles, self.blobs = (self.tables[name] for name in _NAMES)
        self.hash_cache = HashCache(None, {}, {})

    def predecessors(self, txn: lmdb.Transaction) -> list[tuple[int, int]]:
        """Return the device and inode numbers of the files from which this one was rewritten, the first one first."""
        data = self.get(txn, self.state, PREDECESSORS_KEY)
        return [] if data is None else predecessors_decoder.decode(data)

    def read_head(self, txn: lmdb.Transaction) -> Head | None:
        """Return the head, or None in a log without entries.

        Raises Refused: ``UNSUPPORTED_VERSION`` if newer software wrote this log. Corrupted: it cannot be decoded.
        """
        data = self.get(txn, self.state, HEAD_KEY)
        if data is None:
            return None
        try:
            head = head_decoder.decode(data)
        except UNREADABLE as error:
            raise Corrupted("CORRUPTED", f"the head of the log cannot be decoded ({error}): run `deed fsck`") from error
        if head.format != FORMAT:
            raise newer_version("the log", head.format, FORMAT)
        return head
