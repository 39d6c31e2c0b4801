"""Reads the log's entries within one short transaction: entries, look-ups and proofs of one snapshot."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final, TypeVar

import lmdb

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format import merkle
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.envelope import decode_entry, event_id, head_of
from deedbook.ledger.log import keys
from deedbook.ledger.log import tables as layout
from deedbook.ledger.log.tables import Head, Tables
from deedbook.ledger.log.tiles import TILE_HEIGHT, TILE_WIDTH, subtree_reader, tile_hashes
from deedbook.ledger.trust.history import ConsistencyProof, ProvenEntry, StreamPage, StreamRequest

R = TypeVar("R")
cached_hashes_max: Final = 256  # tiles and batches of up to 511 hashes each, about 10 MB


class EntrySnapshot:
    """The log's entries as one open transaction sees them. ``head`` is None while the log has no entry."""

    def __init__(self, tables: Tables, txn: lmdb.Transaction) -> None:
        self._tables = tables
        self._txn = txn
        self.head: Head | None = tables.read_head(txn)

    @property
    def size(self) -> int:
        """The number of entries."""
        return 0 if self.head is None else self.head.size

    def entry(self, index: int) -> bytes:
        """Return the bytes of an entry.

        Raises Refused: ``NOT_FOUND`` beyond the end. Corrupted: the entry is missing.
        """
        if not 0 <= index < self.size:
            message = f"there is no entry {index}: the log has the entries 0 to {self.size - 1}"
            raise Refused("NOT_FOUND", message, index=index, size=self.size)
        data = self._get(self._tables.entries, keys.index_key(index))
        if data is None:
            raise Corrupted("CORRUPTED", f"entry {index} is missing: run `deed fsck`", index=index)
        return data

    def entries(self, start: int, *, limit: int, size_max_bytes: int) -> list[bytes]:
        """Return entries from index ``start`` on: up to ``limit`` and ``size_max_bytes`` in all, but at least one."""
        entries: list[bytes] = []
        total = 0
        if start >= self.size:
            return entries
        for data in self._tables.values(self._txn, self._tables.entries, keys.index_key(start)):
            total += len(data)
            if entries and total > size_max_bytes:
                break
            entries.append(data)
            if len(entries) == limit:
                break
        return entries

    def entries_of(
        self, stream: str, start: int, *, limit: int, size_max_bytes: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Return entries of a stream as ``entries`` does, each with its index, and the index to read from next."""
        entries: list[tuple[int, bytes]] = []
        total = 0
        for index, _ in self.stream_indexes(stream):
            if index >= start:
                data = self.entry(index)
                total += len(data)
                if entries and (len(entries) == limit or total > size_max_bytes):
                    return entries, index
                entries.append((index, data))
        return entries, max(start, self.size)

    def has_entry_beyond_end(self) -> bool:
        """Return whether the table has an entry at the index at which the log ends according to its head."""
        return self._get(self._tables.entries, keys.index_key(self.size)) is not None

    def index_of(self, stream: str, event_id: str) -> int | None:
        """Return the index of an event of a stream, or None if the log does not have it."""
        index = self._get(self._tables.ids, keys.id_key(stream, event_id))
        return None if index is None else int.from_bytes(index, "big")

    def stream_indexes(self, stream: str) -> list[tuple[int, bytes]]:
        """Return the index and the id's digest of each event of a stream, in the order of indexes."""
        prefix = keys.stream_digest(stream)
        rows = self._tables.items(self._txn, self._tables.ids, prefix)
        return sorted((int.from_bytes(index, "big"), key[len(prefix) :]) for key, index in rows)

    def stream_entries(self, stream: str) -> Iterator[tuple[int, bytes]]:
        """Yield the index and the bytes of each entry of a stream, in the order of indexes.

        Raises Refused: ``NOT_FOUND`` beyond the end. Corrupted: an entry is missing.
        """
        return ((index, self.entry(index)) for index, _ in self.stream_indexes(stream))

    def root(self) -> bytes:
        """Return the root of the tree over all entries."""
        if self.head is None:
            return merkle.EMPTY_ROOT
        return merkle.Frontier.from_bytes(self.head.size, self.head.frontier).root()

    def frontier(self, size: int) -> merkle.Frontier:
        """Return the frontier of the tree over the first ``size`` entries.

        Raises Refused: ``NOT_FOUND`` beyond the end.
        """
        self._check_size(size)
        subtree = self._subtree()
        levels = [level for level in reversed(range(size.bit_length())) if size >> level & 1]
        return merkle.Frontier(size, tuple(subtree(level, (size >> level) - 1) for level in levels))

    def inclusion_proof(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the path of an entry in the tree of ``size`` entries (default: all).

        Raises Refused: ``NOT_FOUND`` beyond the end.
        """
        size = self.size if size is None else size
        self._check_size(size)
        return merkle.inclusion_proof(index, size, self._subtree())

    def consistency_proof(self, old_size: int, new_size: int | None = None) -> list[bytes]:
        """Return the path from the tree of ``old_size`` entries to that of ``new_size`` (default: all).

        Raises Refused: ``NOT_FOUND`` beyond the end.
        """
        new_size = self.size if new_size is None else new_size
        self._check_size(new_size)
        return merkle.consistency_proof(old_size, new_size, self._subtree())

    def tile(self, level: int, number: int, width: int) -> bytes:
        """Return the first ``width`` hashes of a tile of the tree, joined (C2SP tlog-tiles, Merkle Tree).

        Raises Refused: ``NOT_FOUND`` if the tile has fewer hashes.
        """
        self._check_tile(self.size >> TILE_HEIGHT * level, number, width)
        return b"".join(tile_hashes(self._tables, self._txn, level, number, self.size)[:width])

    def entries_under(self, number: int, width: int) -> list[bytes]:
        """Return the entries under a tile of level 0. Raises Refused: ``NOT_FOUND`` if the tile has fewer hashes."""
        self._check_tile(self.size, number, width)
        entries = self._tables.values(self._txn, self._tables.entries, keys.index_key(number * TILE_WIDTH))
        return list(islice(entries, width))

    def _check_tile(self, count: int, number: int, width: int) -> None:
        if not 0 < width <= min(TILE_WIDTH, count - number * TILE_WIDTH):
            raise Refused("NOT_FOUND", f"the log has {self.size} entries and no such tile", size=self.size)

    def consistency(self, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """Return size, root and resets of the log at ``new_size`` (default: all), with the path from ``old_size``.

        If ``old_size`` is larger, the path is empty. Raises Refused: ``NOT_FOUND`` beyond the end.
        """
        size = self.size if new_size is None else new_size
        root = self.root() if size == self.size else self.frontier(size).root()
        path = self.consistency_proof(old_size, size) if 0 <= old_size <= size else []
        return ConsistencyProof(size, root.hex(), path, [id_ for id_, index in self.resets() if index < size])

    def stream_page(self, request: StreamRequest) -> StreamPage:
        """Return a page of entries of a stream and of authority, each with its inclusion proof.

        Raises Refused: ``NOT_FOUND`` beyond the end. Corrupted: an entry is missing.
        """
        size = self.size if request.size is None else request.size
        self._check_size(size)
        own = (index for index, _ in self.stream_indexes(request.stream) if request.start <= index < size)
        prove = partial(self._proven, size, self._subtree(), self._hash_cache().batches)
        entries: list[ProvenEntry] = []
        total, following = 0, None
        for index in merge(own, self._authority_indexes(request.authority_start, size)):
            if entries and index == entries[-1].index:
                continue  # an event of authority that is also in the requested stream
            proven = prove(index)
            total += len(proven.data) + merkle.hash_size_bytes * (len(proven.path) + len(proven.batch_path))
            if len(entries) == limits.range_events_max or (entries and total > limits.range_size_max_bytes):
                following = index
                break
            entries.append(proven)
        known_path = self.consistency_proof(request.known_size, size) if 0 <= request.known_size <= size else []
        return StreamPage(self.consistency(request.old_size, size), known_path, entries, prove(size - 1), following)

    def _authority_indexes(self, start: int, end: int) -> Iterator[int]:
        """Yield the indexes of the events of authority: there the ``authority_version`` of the entries grows."""
        count = self._authority_version(start - 1) if start else 0
        while start < end and self._authority_version(end - 1) > count:
            count += 1
            start += bisect_left(range(start, end), count, key=self._authority_version)
            yield start
            start += 1

    def _authority_version(self, index: int) -> int:
        return decode_entry(self.entry(index)).authority_version

    def _proven(
        self, size: int, subtree: merkle.SubtreeReader, batches: dict[int, merkle.SubtreeReader], index: int
    ) -> ProvenEntry:
        data = self.entry(index)
        entry, batch_path = decode_entry(data), []
        if entry.batch_size > 1:
            first = index - entry.batch_index
            if first not in batches:
                stored = self._tables.values(self._txn, self._tables.entries, keys.index_key(first))
                commitments = [decode_entry(member).commitment for member in islice(stored, entry.batch_size)]
                if len(commitments) < entry.batch_size:
                    missing = first + len(commitments)
                    raise Corrupted("CORRUPTED", f"entry {missing} is missing: run `deed fsck`", index=missing)
                batches[first] = merkle.subtrees_of(commitments)
            batch_path = merkle.inclusion_proof(entry.batch_index, entry.batch_size, batches[first])
        return ProvenEntry(index, data, merkle.inclusion_proof(index, size, subtree), batch_path)

    def _subtree(self) -> merkle.SubtreeReader:
        return subtree_reader(self._tables, self._txn, self.size, self._hash_cache().tiles)

    def _hash_cache(self) -> layout.HashCache:
        """Return the cached hashes of this log; if the log has changed or the cache is full, an empty cache."""
        cache = self._tables.hash_cache
        if cache.head != self.head or len(cache.tiles) + len(cache.batches) > cached_hashes_max:
            cache = self._tables.hash_cache = layout.HashCache(self.head, {}, {})
        return cache

    def resets(self) -> list[tuple[str, int]]:
        """Return the id and index of each ``ledger.history_reset``, in order.

        This is cheap: the ids table keeps the events of a stream together, and the ledger's stream has few events.
        """
        events = self.stream_indexes("ledger")
        return [(event_id(digest), index) for index, digest in events if _is_reset(self.entry(index))]

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self.size:
            raise Refused("NOT_FOUND", f"the log has {self.size} entries, not {size}", size=self.size)

    def _get(self, table: lmdb._Database, key: bytes) -> bytes | None:
        return self._tables.get(self._txn, table, key)


def _is_reset(data: bytes) -> bool:
    try:
        return head_of(decode_entry(data).body).kind == "ledger.history_reset"
    except (Refused, *UNREADABLE):
        return False  # for a damaged entry: `deed fsck` reports it, and opening the log must not fail here
