"""Which entry is not the one that the tree holds: stored hashes against entries, 256 at a time.

A full tile names the damaged entry. In the last, unfinished tile only the frontier is stored: a few roots over up to
128 entries each. There, whatever a signature covers is named by the signature; what it does not cover (the ledger's
clock, the numbers of the batch) is found by trying: which single byte, put back, gives the stored root?
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.envelope import decode_entry
from ledger.errors import Refused
from ledger.log.tiles import HASH_SIZE, TILE_WIDTH, tile_key
from ledger.merkle import Frontier, inclusion_path, leaf_hash, node_hash, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from consumers.auditor.report import Findings


# What the search for one changed byte may hash: some seconds.
search_hashed_max_bytes: Final = 4 * 1024**3


class TreeCheck:
    """Compares the entries, chunk by chunk, with the tiles that were stored for them."""

    def __init__(self, tiles: dict[bytes, bytes], findings: Findings) -> None:
        """Compare with ``tiles`` (by key)."""
        self.tiles = tiles
        self._findings = findings
        self._roots: list[bytes | None] = []

    def damaged(self, number: int, entries: Sequence[bytes | None]) -> set[int]:
        """Report and return the indexes of a full chunk whose entries are not those of the tree."""
        stored = self.tiles.get(tile_key(0, number), b"")
        above = self.tiles.get(tile_key(1, number // TILE_WIDTH), b"")
        at = number % TILE_WIDTH * HASH_SIZE
        wanted_root = above[at : at + HASH_SIZE]
        leaves = [None if one is None else leaf_hash(one) for one in entries]
        known = [leaf for leaf in leaves if leaf is not None]
        if len(known) == len(entries) and root_of(known) == wanted_root:
            self._roots.append(wanted_root)
            if b"".join(known) != stored:
                self._bad_tile(0, number)
            return set()
        start = number * TILE_WIDTH
        hashes = [stored[place : place + HASH_SIZE] for place in range(0, len(stored), HASH_SIZE)]
        if len(stored) != TILE_WIDTH * HASH_SIZE:
            self._bad_tile(0, number)
            self._roots.append(root_of(known) if len(known) == len(entries) else None)
            return set()
        self._roots.append(root_of(hashes) if root_of(hashes) == wanted_root or None in leaves else root_of(known))
        found = {start + place for place, leaf in enumerate(leaves) if leaf is not None and leaf != hashes[place]}
        for index in sorted(found):
            self._findings.problem(index, "CORRUPTED", f"entry {index} is not the one whose hash is in the tree")
        return found

    def check_upper(self) -> None:
        """Compare the tiles above level 0, after the last full chunk, and look for tiles that belong nowhere."""
        expected = {tile_key(0, number) for number in range(len(self._roots))}
        level, hashes = 1, self._roots
        while hashes:
            for number, start in enumerate(range(0, len(hashes), TILE_WIDTH)):
                wanted = [one for one in hashes[start : start + TILE_WIDTH] if one is not None]
                key = tile_key(level, number)
                expected.add(key)
                is_known = None not in hashes[start : start + TILE_WIDTH]
                if is_known and self.tiles.get(key) != b"".join(wanted):
                    self._bad_tile(level, number)
            groups = [hashes[at : at + TILE_WIDTH] for at in range(0, len(hashes) - TILE_WIDTH + 1, TILE_WIDTH)]
            hashes = [None if None in group else root_of([one for one in group if one]) for group in groups]
            level += 1
        for key in sorted(self.tiles.keys() - expected):
            self._findings.problem(None, "CORRUPTED", f"the tile {key.hex()} does not belong to this log")

    def _bad_tile(self, level: int, number: int) -> None:
        width = TILE_WIDTH ** (level + 1)
        start = number * width
        self._findings.problem(
            start,
            "CORRUPTED",
            f"tile {number} of level {level} is not what entries {start} to {start + width - 1} give",
            end=start + width,
        )


def mismatching_subtrees(
    size: int, frontier: bytes, entries: Sequence[bytes | None]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (start, end, stored root) of the unfinished tile's subtrees that the last ``entries`` do not give."""
    rest = len(entries)
    roots = Frontier.from_bytes(size, frontier).roots
    start = 0
    for root in roots[len(roots) - rest.bit_count() :]:
        width = 1 << ((rest - start).bit_length() - 1)
        inside = entries[start : start + width]
        leaves = [leaf_hash(one) for one in inside if one is not None]
        if len(leaves) == width and root_of(leaves) != root:
            yield size - rest + start, size - rest + start + width, root
        start += width


def find_changed_byte(entries: Sequence[bytes], root: bytes) -> tuple[int, int] | None:
    """Return (entry, byte) where another byte, outside body, key and signature, gives the root; None if nowhere."""
    if 256 * sum(len(entry) * len(_unsigned_bytes(entry)) for entry in entries) > search_hashed_max_bytes:
        return None  # the range is named, which is less, but soon
    leaves = [leaf_hash(entry) for entry in entries]
    for position, entry in enumerate(entries):
        path = inclusion_path(leaves, position)
        for byte in _unsigned_bytes(entry):
            for value in range(256):
                changed = entry[:byte] + bytes((value,)) + entry[byte + 1 :]
                if _climb(leaf_hash(changed), position, path) == root:
                    return position, byte
    return None


def _climb(node: bytes, position: int, path: list[bytes]) -> bytes:
    """Return the root of a perfect subtree from one leaf and its path."""
    for sibling in path:
        node = node_hash(sibling, node) if position & 1 else node_hash(node, sibling)
        position >>= 1
    return node


def _unsigned_bytes(data: bytes) -> list[int]:
    try:
        entry = decode_entry(data)
    except Refused:
        return []  # named already
    body = data.index(entry.body)
    key = data.index(entry.key, body + len(entry.body))
    sig = data.index(entry.sig, key + len(entry.key))
    covered = (range(body, body + len(entry.body)), range(key, key + len(entry.key)), range(sig, sig + len(entry.sig)))
    return [place for place in range(len(data)) if not any(place in one for one in covered)]
