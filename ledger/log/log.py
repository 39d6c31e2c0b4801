"""One open log: its tables, its blobs, and the appender, which writes entries that the gate accepted.

If we crash in a write, LMDB drops the whole transaction, and the next writer starts from the last committed head. The
partial tile in memory belongs to one committed size. If the head has another size, the appender reads it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import lmdb
import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.log.blobs import Blobs
from deedbook.ledger.log.environment import remove_old
from deedbook.ledger.log.keys import HEAD_KEY, REWRITE_KEY, SHARED_KEY, index_key
from deedbook.ledger.log.reader import LogReader
from deedbook.ledger.log.records import ClusterRecord
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.log.tables import Head, Tables
from deedbook.ledger.log.tiles import TILE_WIDTH, read_leaves, store_leaves


class Log(LogReader):
    """The log in a folder, with its state and blobs, for reading and writing.

    ``map_size`` limits the bytes of the log: it reserves address space, not disk. ``blobs_size_max`` limits the bytes
    of all blobs together. Their files are in ``blobs_home`` if that is another folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        map_size: int = limits.map_size_bytes,
        blobs_size_max: int = limits.blobs_size_max_bytes,
        blobs_home: Path | None = None,
        create: bool = False,
    ) -> None:
        """Open the log and check that its head, tree and entries end at the same position.

        Raises Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE`` or ``STORE_FULL``. Corrupted: head and entries
        disagree.
        """
        super().__init__(folder, map_size=map_size, create=create)
        remove_old(self.tables.path)
        self.appender = Appender(self.tables)
        self.blobs = Blobs(blobs_home or folder, self.tables, size_max=blobs_size_max)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a snapshot of the log; keep the block short."""
        with self.tables.reading() as txn:
            yield Snapshot(self.tables, txn)

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[lmdb.Transaction, Snapshot]]:
        """Open the write transaction, with a snapshot of the state before it. A block that raises writes nothing."""
        try:
            with self.tables.writing() as txn:
                yield txn, Snapshot(self.tables, txn)
        except BaseException:
            self.appender.forget()
            raise

    def set_shared(self, shared: ClusterRecord | None) -> None:
        """From the next write on, treat this log as one of several nodes; None makes it independent again."""
        with self.tables.writing() as txn:
            if shared is None:
                txn.delete(SHARED_KEY, db=self.tables.state)
            else:
                txn.put(SHARED_KEY, msgspec.msgpack.encode(shared), db=self.tables.state)


class PendingEntries(msgspec.Struct):
    """The changes of one write transaction: entries in order with their leaf hashes and ids, and changed state.

    ``erased`` are earlier entries by index, as they are stored without their bodies.
    """

    entries: list[bytes] = []
    leaves: list[bytes] = []
    id_keys: list[bytes] = []
    state: dict[bytes, bytes] = {}
    accepted_ms: int = 0
    authority_version: int = 0
    erased: dict[int, bytes] = {}


class Appender:
    """Appends to one log, and caches the leaf hashes of its last, partial tile."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._partial_size = -1
        self._partial: list[bytes] = []

    def append(self, txn: lmdb.Transaction, head: Head, pending: PendingEntries) -> Head:
        """Write ``pending`` after ``head``; return the new head.

        Raises Corrupted: an entry is already stored where the head says the log ends.
        """
        self._write_entries(txn, head.size, pending)
        if self._partial_size != head.size:
            self._partial = read_leaves(self._tables, txn, head.size - head.size % TILE_WIDTH, head.size)
        frontier = Frontier.from_bytes(head.size, head.frontier)
        frontier, self._partial = store_leaves(self._tables, txn, frontier, self._partial, pending.leaves)
        self._partial_size = frontier.size
        new_head = msgspec.structs.replace(
            head,
            size=frontier.size,
            frontier=frontier.to_bytes(),
            accepted_ms=pending.accepted_ms,
            authority_version=pending.authority_version,
        )
        for index, entry in pending.erased.items():
            txn.put(index_key(index), entry, db=self._tables.entries)
            txn.put(REWRITE_KEY, msgspec.msgpack.encode(index), db=self._tables.state)
        for key, value in sorted(pending.state.items()):
            txn.put(key, value, db=self._tables.state)
        txn.put(HEAD_KEY, msgspec.msgpack.encode(new_head), db=self._tables.state)
        return new_head

    def forget(self) -> None:
        """Drop the cached partial tile, because a transaction did not commit."""
        self._partial_size = -1

    def _write_entries(self, txn: lmdb.Transaction, size: int, pending: PendingEntries) -> None:
        entries = [(index_key(size + offset), entry) for offset, entry in enumerate(pending.entries)]
        cursor = txn.cursor(db=self._tables.entries)
        _, written = cursor.putmulti(entries, append=True, overwrite=False)
        if written != len(entries):
            raise Corrupted("CORRUPTED", f"the log has an entry beyond its end at {size}: run `deed fsck`", index=size)
        keys = [(key, index_key(size + offset)) for offset, key in enumerate(pending.id_keys)]
        # Sorted, because neighbours share a page. A repeated id keeps its first index: only a damaged log repeats one.
        txn.cursor(db=self._tables.ids).putmulti(sorted(keys), overwrite=False)
