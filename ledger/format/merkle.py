"""The Merkle tree over the log (RFC 6962 §2.1 with SHA-256): hashes, the append frontier, and proofs. Pure arithmetic.

Terms: a *leaf hash* is the hash of one entry; a *perfect subtree* of level L covers 2**L leaves, starting at a
multiple of 2**L; a *path* is the list of hashes of a proof, 32 bytes each, from the leaf upwards.

Proofs are made with the recursive definitions of RFC 9162 (§2.1.3.1, §2.1.4.1), unrolled, and checked with its
separate verification algorithms (§2.1.3.2, §2.1.4.2), so that one detects a mistake in the other. Making a proof
trusts the stored hashes. Checking one trusts nothing, never raises, and returns only True or False.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Self, TypeAlias

import msgspec

from deedbook.ledger.errors import Corrupted, Refused

# (level, n) -> the root of the perfect subtree of 2**level leaves that starts at leaf n * 2**level.
SubtreeReader: TypeAlias = Callable[[int, int], bytes]

hash_size_bytes: Final = 32
# Other implementations of the C2SP formats hold a tree size in a signed 64-bit number.
tree_size_max: Final = 2**63 - 1

EMPTY_ROOT: Final = sha256(b"").digest()

# The prefixes keep a leaf from being passed off as a node, and a node as a leaf (RFC 6962 §2.1).
_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"


def leaf_hash(entry: bytes) -> bytes:
    """Return the 32-byte hash of one entry's exact bytes (RFC 6962 §2.1)."""
    return sha256(_LEAF + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the 32-byte hash of the node above two subtrees (RFC 6962 §2.1)."""
    return sha256(_NODE + left + right).digest()


class Frontier(msgspec.Struct, frozen=True):
    """The part of a tree that appending needs: the roots of its maximal perfect subtrees, from left to right.

    One root for each set bit of ``size``. ``extend`` returns a new frontier, so a writer can drop an uncommitted one.
    """

    size: int
    roots: tuple[bytes, ...]

    @classmethod
    def empty(cls) -> Self:
        """Return the frontier of the tree without leaves."""
        return cls(0, ())

    @classmethod
    def from_bytes(cls, size: int, stored: bytes) -> Self:
        """Return the frontier of ``size`` leaves that ``to_bytes`` stored.

        Raises Corrupted: the length is not that of a frontier of this size.
        """
        if not 0 <= size <= tree_size_max or len(stored) != size.bit_count() * hash_size_bytes:
            message = f"the stored tree of {size} entries has {len(stored)} bytes, which is wrong: run `deed fsck`"
            raise Corrupted("CORRUPTED", message, size=size, length_bytes=len(stored))
        starts = range(0, len(stored), hash_size_bytes)
        return cls(size, tuple(stored[start : start + hash_size_bytes] for start in starts))

    def to_bytes(self) -> bytes:
        """Return the roots joined, 32 bytes each; the size is stored beside them."""
        return b"".join(self.roots)

    def extend(self, leaves: Iterable[bytes], level: int = 0) -> Self:
        """Return the frontier with these leaf hashes added in order, for about one hash a leaf.

        With a ``level``, they are roots of perfect subtrees, and the size is a multiple of ``2**level``.
        """
        size = self.size >> level
        roots = list(self.roots)
        for leaf in leaves:
            # Adding is counting: each trailing 1 bit of the size is a subtree that the new one completes.
            completed, carry = leaf, size
            while carry & 1:
                completed = sha256(_NODE + roots.pop() + completed).digest()  # ``node_hash``, without a call
                carry >>= 1
            roots.append(completed)
            size += 1
        return type(self)(size << level, tuple(roots))

    def root(self) -> bytes:
        """Return the 32-byte root of the tree (RFC 6962 §2.1)."""
        return _join(self.roots) if self.roots else EMPTY_ROOT


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the 32-byte root of the tree with these leaf hashes."""
    return Frontier.empty().extend(leaves).root()


def subtrees_of(leaves: Sequence[bytes]) -> SubtreeReader:
    """Return a reader over leaf hashes in memory. It hashes them once, for any number of proofs."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        nodes = levels[-1]  # hashed in pairs; an odd last node is left out
        levels.append([node_hash(left, right) for left, right in zip(nodes[::2], nodes[1::2], strict=False)])
    return lambda level, n: levels[level][n]


def inclusion_proof(index: int, size: int, subtree: SubtreeReader) -> list[bytes]:
    """Return the path that proves leaf ``index`` in the tree of ``size`` leaves (RFC 9162 §2.1.3.1).

    Raises Refused: the tree has no such leaf.
    """
    if not 0 <= index < size:
        raise Refused("NOT_FOUND", f"A tree of {size} leaves has no leaf {index}.", index=index, size=size)
    path, _ = _descend(size, subtree, lambda start, end: end - start == 1, lambda middle: index < middle)
    return path[::-1]


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path of one leaf, given all the leaf hashes of a tree, for example of a batch.

    Raises Refused: the tree has no such leaf.
    """
    return inclusion_proof(index, len(leaves), subtrees_of(leaves))


def shared_hashes(paths: Mapping[int, Sequence[bytes]], size: int) -> list[bytes]:
    """Return the hashes that several inclusion paths of one tree need beside their leaves, from left to right.

    ``paths`` are by index, at least one. ``shared_paths`` makes the paths again.
    """
    hashes: list[bytes] = []

    def walk(start: int, end: int, indexes: list[int], depth: int) -> None:
        if end - start == 1:
            return
        middle = start + _left_size(end - start)
        left, right = _split(indexes, middle)
        for (first, last), inside in (((start, middle), left), ((middle, end), right)):
            if inside:
                walk(first, last, inside, depth + 1)
            else:
                hashes.append(paths[indexes[0]][-1 - depth])

    walk(0, size, sorted(paths), 0)
    return hashes


def shared_paths(leaves: Mapping[int, bytes], size: int, hashes: Sequence[bytes]) -> dict[int, list[bytes]]:
    """Return the inclusion paths of these leaf hashes, from the ``shared_hashes`` of their paths.

    They prove nothing before ``verify_inclusion``. Raises Refused: ``INVALID_FORMAT`` if the number of hashes is wrong,
    or the tree has no such leaf.
    """
    paths: dict[int, list[bytes]] = {index: [] for index in leaves}
    left_over = iter(hashes)

    def walk(start: int, end: int, indexes: list[int]) -> bytes:
        if not indexes:
            return next(left_over, b"")
        if end - start == 1:
            return leaves[start]
        middle = start + _left_size(end - start)
        left, right = _split(indexes, middle)
        roots = walk(start, middle, left), walk(middle, end, right)
        for sibling, inside in ((roots[1], left), (roots[0], right)):
            for index in inside:
                paths[index].append(sibling)
        return node_hash(*roots)

    if not leaves or not 0 <= min(leaves) <= max(leaves) < size <= tree_size_max:
        raise Refused("INVALID_FORMAT", f"these are no leaves of a tree of {size}")
    walk(0, size, sorted(leaves))
    if next(left_over, None) is not None or any(b"" in path for path in paths.values()):
        raise Refused("INVALID_FORMAT", "the number of hashes is not that of the paths of these leaves")
    return paths


def _split(indexes: list[int], middle: int) -> tuple[list[int], list[int]]:
    count = bisect_left(indexes, middle)
    return indexes[:count], indexes[count:]


def consistency_proof(old_size: int, new_size: int, subtree: SubtreeReader) -> list[bytes]:
    """Return the path that proves that the new tree begins with the old one (RFC 9162 §2.1.4.1).

    It is empty where no proof is needed: for equal sizes, and for an empty old tree. Raises Refused: the old tree is
    larger than the new one, or a size is negative.
    """
    if not 0 <= old_size <= new_size:
        message = f"A tree of {new_size} leaves does not begin with one of {old_size}."
        raise Refused("NOT_FOUND", message, old_size=old_size, new_size=new_size)
    if old_size == 0:
        return []
    path, start = _descend(new_size, subtree, lambda _, end: end == old_size, lambda middle: old_size <= middle)
    if start > 0:  # Otherwise the rest is the old tree itself, and the verifier has its root.
        path.append(_range_root(start, old_size, subtree))
    return path[::-1]


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Return whether the path proves the leaf hash at ``index`` under this root (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size <= tree_size_max or not _are_hashes(leaf, root, *path):
        return False
    return root_of_path(leaf, index, size, path) == root


def verify_consistency(old_size: int, old_root: bytes, new_size: int, new_root: bytes, path: Sequence[bytes]) -> bool:
    """Return whether the path proves that the new tree begins with the old one (RFC 9162 §2.1.4.2)."""
    if not 0 <= old_size <= new_size <= tree_size_max or not _are_hashes(old_root, new_root, *path):
        return False
    if old_size == 0:
        return not path and old_root == EMPTY_ROOT and (new_size > 0 or new_root == EMPTY_ROOT)
    if old_size == new_size:
        return not path and old_root == new_root
    if not path:
        return False
    # A perfect old tree is a node of the new one, and the proof leaves it out because the verifier has it.
    first, *rest = (old_root, *path) if old_size.bit_count() == 1 else path
    node, last = old_size - 1, new_size - 1
    while node & 1:
        node >>= 1
        last >>= 1
    sides = _climb(node, last, rest)
    if sides is None:
        return False
    # Nodes to the right of the old tree's last node are in the new tree only.
    old = _root_above(first, [(sibling, is_left) for sibling, is_left in sides if is_left])
    return old == old_root and _root_above(first, sides) == new_root


def root_of_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a path gives for leaf ``index`` of ``size``; None if the path has the wrong length."""
    sides = _climb(index, size - 1, path)
    return None if sides is None else _root_above(leaf, sides)


def _climb(node: int, last: int, path: Sequence[bytes]) -> list[tuple[bytes, bool]] | None:
    """Return each sibling and whether it is on the left; None if the path does not end at the root."""
    sides: list[tuple[bytes, bool]] = []
    for sibling in path:
        if last == 0:
            return None
        is_left = node & 1 == 1 or node == last
        sides.append((sibling, is_left))
        # A node at the right border may have no sibling on some levels: climb to the next level with one.
        while is_left and not node & 1:
            node >>= 1
            last >>= 1
        node >>= 1
        last >>= 1
    return sides if last == 0 else None


def _root_above(node: bytes, sides: list[tuple[bytes, bool]]) -> bytes:
    for sibling, is_left in sides:
        node = node_hash(sibling, node) if is_left else node_hash(node, sibling)
    return node


def _descend(
    size: int, subtree: SubtreeReader, is_there: Callable[[int, int], bool], is_left: Callable[[int], bool]
) -> tuple[list[bytes], int]:
    """Return the roots that the descent splits off, the highest first, and the start of its last range."""
    path: list[bytes] = []
    start, end = 0, size
    while not is_there(start, end):
        middle = start + _left_size(end - start)
        if is_left(middle):
            path.append(_range_root(middle, end, subtree))
            end = middle
        else:
            path.append(_range_root(start, middle, subtree))
            start = middle
    return path, start


def _join(roots: Sequence[bytes]) -> bytes:
    """Return the root over adjacent perfect subtrees, the largest first. There must be at least one."""
    *larger, joined = roots
    for root in reversed(larger):
        joined = node_hash(root, joined)
    return joined


def _range_root(start: int, end: int, subtree: SubtreeReader) -> bytes:
    """Return the root over leaves ``start`` to ``end``, a range that a proof's recursion splits off."""
    roots: list[bytes] = []
    while start < end:
        level = (end - start).bit_length() - 1
        roots.append(subtree(level, start >> level))
        start += 1 << level
    return _join(roots)


def _left_size(size: int) -> int:
    """Return the largest power of two smaller than ``size``, which is at least two (RFC 6962 §2.1)."""
    return 1 << ((size - 1).bit_length() - 1)


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == hash_size_bytes for value in values)
