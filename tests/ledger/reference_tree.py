"""The Merkle tree of RFC 6962 §2.1, with the recursive definitions of its text.

It is slow, and written differently from the tested code.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from deedbook.ledger.format.merkle import Frontier, leaf_hash, node_hash, subtrees_of

LEAVES: Final = [leaf_hash(f"entry {index}".encode()) for index in range(300)]
SUBTREES: Final = subtrees_of(LEAVES)


@cache
def reference_root(start: int, end: int) -> bytes:
    """MTH of RFC 6962 §2.1 over ``LEAVES[start:end]``."""
    if end - start == 1:
        return LEAVES[start]
    middle = start + reference_split(end - start)
    return node_hash(reference_root(start, middle), reference_root(middle, end))


def reference_split(size: int) -> int:
    """Return the k of RFC 6962 §2.1: the power of two with k < n ≤ 2k."""
    k = 1
    while 2 * k < size:
        k *= 2
    return k


def reference_path(index: int, start: int, end: int) -> list[bytes]:
    """PATH of RFC 6962 §2.1.1."""
    if end - start == 1:
        return []
    middle = start + reference_split(end - start)
    if index < middle:
        return [*reference_path(index, start, middle), reference_root(middle, end)]
    return [*reference_path(index, middle, end), reference_root(start, middle)]


def reference_subproof(old: int, start: int, end: int, *, complete: bool) -> list[bytes]:
    """SUBPROOF of RFC 6962 §2.1.2."""
    if old == end:
        return [] if complete else [reference_root(start, end)]
    middle = start + reference_split(end - start)
    if old <= middle:
        return [*reference_subproof(old, start, middle, complete=complete), reference_root(middle, end)]
    return [*reference_subproof(old, middle, end, complete=False), reference_root(start, middle)]


@cache
def uniform_root(level: int) -> bytes:
    """Return the root of 2**level equal leaves, so that a test can use a tree that is too large to build."""
    return LEAVES[0] if level == 0 else node_hash(uniform_root(level - 1), uniform_root(level - 1))


def uniform_subtree(level: int, n: int) -> bytes:
    """Return the root of a subtree of the tree of equal leaves."""
    assert n >= 0
    return uniform_root(level)


def uniform_tree_root(size: int) -> bytes:
    """Return the root of ``size`` equal leaves."""
    levels = [level for level in reversed(range(size.bit_length())) if size >> level & 1]
    return Frontier(size, tuple(uniform_root(level) for level in levels)).root()
