"""Writing decided entries: the only place that changes the log.

What happens if we crash here: LMDB drops the whole transaction, and the next writer starts from the head that
was committed before. The partial tile kept in memory belongs to one committed size and is thrown away when the
head has another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ledger.errors import Corrupted
from ledger.log.tables import HEAD_KEY, Head, index_key
from ledger.log.tiles import TILE_WIDTH, read_leaves, store_leaves
from ledger.merkle import Frontier, leaf_hash

if TYPE_CHECKING:
    import lmdb

    from ledger.log.tables import Tables


class Pending(msgspec.Struct):
    """What one write transaction adds: entries in order, the keys of their duplicate check, changed state."""

    entries: list[bytes] = []
    id_keys: list[bytes] = []
    state: dict[bytes, bytes] = {}
    accepted_ms: int = 0
    authority_index: int | None = None


class Appender:
    """Appends to one log; keeps the leaf hashes of the tile that is being filled."""

    def __init__(self, tables: Tables) -> None:
        """Start without memory: the first append reads what it needs."""
        self._tables = tables
        self._partial_size = -1
        self._partial: list[bytes] = []

    def append(self, txn: lmdb.Transaction, head: Head, pending: Pending) -> tuple[Head, list[bytes]]:
        """Write ``pending`` after ``head``; return the new head and the leaf hash of each entry.

        Raises:
            Corrupted: an entry is already stored where the head says the log ends.
        """
        leaves = [leaf_hash(entry) for entry in pending.entries]
        self._write_entries(txn, head.size, pending)
        unfinished = self._unfinished(txn, head.size) + leaves
        store_leaves(self._tables, txn, head.size - head.size % TILE_WIDTH, unfinished)
        frontier = Frontier.from_bytes(head.size, head.frontier).extend(leaves)
        new_head = msgspec.structs.replace(
            head,
            size=frontier.size,
            frontier=frontier.to_bytes(),
            accepted_ms=pending.accepted_ms,
            authority_index=head.authority_index if pending.authority_index is None else pending.authority_index,
        )
        for key, value in sorted(pending.state.items()):
            txn.put(key, value, db=self._tables.state)
        txn.put(HEAD_KEY, msgspec.msgpack.encode(new_head), db=self._tables.state)
        self._partial = unfinished[len(unfinished) - frontier.size % TILE_WIDTH :]
        self._partial_size = frontier.size
        return new_head, leaves

    def forget(self) -> None:
        """Forget the partial tile, after a transaction that did not commit."""
        self._partial_size = -1

    def _unfinished(self, txn: lmdb.Transaction, size: int) -> list[bytes]:
        if self._partial_size == size:
            return self._partial
        return read_leaves(self._tables, txn, size - size % TILE_WIDTH, size)

    def _write_entries(self, txn: lmdb.Transaction, size: int, pending: Pending) -> None:
        entries = [(index_key(size + offset), entry) for offset, entry in enumerate(pending.entries)]
        cursor = txn.cursor(db=self._tables.entries)
        _, written = cursor.putmulti(entries, append=True, overwrite=False)
        if written != len(entries):
            raise Corrupted("CORRUPTED", f"an entry lies beyond the log's end at {size}: run `baton fsck`", index=size)
        keys = [(key, index_key(size + offset)) for offset, key in enumerate(pending.id_keys)]
        txn.cursor(db=self._tables.ids).putmulti(sorted(keys))  # in order, neighbours share a page
