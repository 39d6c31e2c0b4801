"""Stores the tree's hashes in tiles of 256 (C2SP tlog-tiles, height 8), so that a proof reads only a few tiles.

A tile of level 0 is stored when it is full; until then proofs hash its leaves from the entries. A tile of a higher
level is written each time a tile below it becomes full. So 255 of 256 entries write no tile. With the hashes of level 0
an audit finds a damaged entry.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import lmdb

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.envelope import entry_leaf
from deedbook.ledger.format.merkle import Frontier, SubtreeReader, root_of, subtrees_of
from deedbook.ledger.log.keys import index_key
from deedbook.ledger.log.tables import Tables

TILE_HEIGHT: Final = 8
TILE_WIDTH: Final = 1 << TILE_HEIGHT
HASH_SIZE: Final = 32


def tile_key(level: int, number: int) -> bytes:
    """Return the key of a tile."""
    return level.to_bytes(1, "big") + number.to_bytes(8, "big")


def read_tile(tables: Tables, txn: lmdb.Transaction, level: int, number: int) -> list[bytes]:
    """Return the hashes of a stored tile, up to 256; an empty list if it is not stored."""
    stored = tables.get(txn, tables.tiles, tile_key(level, number)) or b""
    return [stored[start : start + HASH_SIZE] for start in range(0, len(stored), HASH_SIZE)]


def read_leaves(tables: Tables, txn: lmdb.Transaction, start: int, end: int) -> list[bytes]:
    """Return the leaf hashes of the entries from ``start`` up to, but without, ``end``; it hashes the entries.

    Raises Corrupted: an entry is missing.
    """
    entries = tables.values(txn, tables.entries, index_key(start))
    leaves = [entry_leaf(entry) for entry in islice(entries, end - start)]
    if len(leaves) != end - start:
        missing = start + len(leaves)
        raise Corrupted("CORRUPTED", f"entry {missing} is missing: run `deed fsck`", index=missing)
    return leaves


def store_leaves(
    tables: Tables, txn: lmdb.Transaction, frontier: Frontier, partial: list[bytes], leaves: list[bytes]
) -> tuple[Frontier, list[bytes]]:
    """Append ``leaves`` after ``frontier``, and store the tiles that become full; return the new frontier and partial.

    ``partial`` are the leaves of the last tile, which is not full. Each node is hashed once, for tiles and frontier.
    """
    first = frontier.size - len(partial)
    above = Frontier(first, frontier.roots[: first.bit_count()])
    within = Frontier(len(partial), frontier.roots[first.bit_count() :])
    start = 0
    while start < len(leaves):
        added = leaves[start : start + TILE_WIDTH - len(partial)]
        start += len(added)
        partial, within = partial + added, within.extend(added)
        if within.size == TILE_WIDTH:
            _store_complete(tables, txn, 0, above.size // TILE_WIDTH, partial, root=within.root())
            above = above.extend(within.roots, TILE_HEIGHT)
            partial, within = [], Frontier.empty()
    return Frontier(above.size + within.size, above.roots + within.roots), partial


def _store_complete(
    tables: Tables, txn: lmdb.Transaction, level: int, number: int, hashes: list[bytes], *, root: bytes
) -> None:
    txn.put(tile_key(level, number), b"".join(hashes), db=tables.tiles)
    above, position = divmod(number, TILE_WIDTH)
    parent = [*read_tile(tables, txn, level + 1, above)[:position], root]
    if len(parent) == TILE_WIDTH:
        _store_complete(tables, txn, level + 1, above, parent, root=root_of(parent))
    else:
        txn.put(tile_key(level + 1, above), b"".join(parent), db=tables.tiles)


def subtree_reader(
    tables: Tables, txn: lmdb.Transaction, size: int, cached: dict[tuple[int, int], SubtreeReader]
) -> SubtreeReader:
    """Return a function that gives the hash of any subtree over the first ``size`` entries, and reads each tile once.

    ``cached`` are tiles that were hashed before, by level and number; the function adds the tiles that it hashes.
    """

    def subtree(level: int, number: int) -> bytes:
        tile_level, height = divmod(level, TILE_HEIGHT)
        tile, offset = divmod(number << height, TILE_WIDTH)
        if (tile_level, tile) not in cached:
            cached[tile_level, tile] = subtrees_of(tile_hashes(tables, txn, tile_level, tile, size))
        try:
            return cached[tile_level, tile](height, offset >> height)
        except IndexError:
            raise Corrupted(
                "CORRUPTED", f"tile {tile} of level {tile_level} is incomplete: run `deed fsck`", level=level
            ) from None

    return subtree


def tile_hashes(tables: Tables, txn: lmdb.Transaction, level: int, number: int, size: int) -> list[bytes]:
    """Return the hashes of a tile; for level 0, hash the first ``size`` entries if the tile is not stored yet."""
    hashes = read_tile(tables, txn, level, number)
    if not hashes and level == 0:
        start = number * TILE_WIDTH
        hashes = read_leaves(tables, txn, start, min(start + TILE_WIDTH, size))
    return hashes
