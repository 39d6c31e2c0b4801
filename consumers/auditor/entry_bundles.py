"""Taking an entry bundle apart by the tile beside it, so that damage stays with the entry that has it.

Entries stand one after the other, each behind its length (C2SP tlog-tiles, Log entries): one wrong length would shift
all that follow. The tile says which hash each must have, so a length with one byte changed is found by trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.merkle import leaf_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.auditor.report import Findings

_LENGTH = 2


def split_entries(
    content: bytes, tile: Sequence[bytes], start: int, findings: Findings
) -> tuple[list[bytes | None], set[int]]:
    """Return the entries of a bundle, None for those that are lost, and the indexes whose hash is not the tile's."""
    entries: list[bytes | None] = []
    damaged: set[int] = set()
    at = 0
    for position, wanted in enumerate(tile):
        index = start + position
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if leaf_hash(entry) != wanted or len(entry) != size:
            damaged.add(index)
            true_size = _true_size(content, at, wanted, tile[position + 1 :])
            if true_size is None:
                message = f"entries {index} to {start + len(tile) - 1} cannot be told apart"
                findings.problem(index, "CORRUPTED", message, end=start + len(tile))
                return entries + [None] * (len(tile) - position), damaged
            where = "the length before entry" if true_size != size else "entry"
            findings.problem(index, "CORRUPTED", f"{where} {index} is not the one whose hash is in the tree")
            size = true_size
            entry = content[at + _LENGTH : at + _LENGTH + size]
        entries.append(entry)
        at += _LENGTH + size
    if at != len(content):
        findings.problem(start, "CORRUPTED", f"bytes follow entry {start + len(tile) - 1}", end=start + len(tile))
    return entries, damaged


def _true_size(content: bytes, at: int, wanted: bytes, later: Sequence[bytes]) -> int | None:
    """Return the length of the entry at ``at``: the one in front of it, or that with one byte changed."""
    stored = content[at : at + _LENGTH]
    if len(stored) < _LENGTH:
        return None
    high, low = stored
    changed = [byte << 8 | low for byte in range(256)] + [high << 8 | byte for byte in range(256)]
    for size in changed:
        entry = content[at + _LENGTH : at + _LENGTH + size]
        if len(entry) == size and leaf_hash(entry) == wanted:
            return size
    size = int.from_bytes(stored, "big")
    return size if _continues(content, at + _LENGTH + size, later) else None


def _continues(content: bytes, at: int, later: Sequence[bytes]) -> bool:
    """Whether what begins at ``at`` is the end, or one of the next entries has the hash it must have."""
    for wanted in later:
        size = int.from_bytes(content[at : at + _LENGTH], "big")
        if len(content) < at + _LENGTH + size:
            return False
        if leaf_hash(content[at + _LENGTH : at + _LENGTH + size]) == wanted:
            return True
        at += _LENGTH + size
    return at == len(content)
