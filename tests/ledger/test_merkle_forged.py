"""Merkle proofs against forgery: a flipped, cut, moved or rewritten proof proves nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_tree import LEAVES, SUBTREES, reference_path, reference_root, reference_subproof

from deedbook.ledger.format.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    subtrees_of,
    verify_consistency,
    verify_inclusion,
)


def flip(data: bytes, bit: int) -> bytes:
    """Change one bit."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_inclusion_fails_when_any_bit_is_flipped(size: int) -> None:
    """The bit is in the leaf, in the root, or in any hash of the path."""
    root = reference_root(0, size)
    for index in range(size):
        leaf, path = LEAVES[index], inclusion_proof(index, size, SUBTREES)
        for bit in range(256):
            assert not verify_inclusion(flip(leaf, bit), index, size, path, root)
            assert not verify_inclusion(leaf, index, size, path, flip(root, bit))
            for at, sibling in enumerate(path):
                changed = [*path[:at], flip(sibling, bit), *path[at + 1 :]]
                assert not verify_inclusion(leaf, index, size, changed, root)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (3, 4), (4, 8), (5, 8), (6, 13), (8, 13), (13, 21)])
def test_consistency_fails_when_any_bit_is_flipped(old: int, new: int) -> None:
    """The bit is in either root, or in any hash of the path."""
    old_root, new_root = reference_root(0, old), reference_root(0, new)
    path = consistency_proof(old, new, SUBTREES)
    for bit in range(256):
        assert not verify_consistency(old, flip(old_root, bit), new, new_root, path)
        assert not verify_consistency(old, old_root, new, flip(new_root, bit), path)
        for at, sibling in enumerate(path):
            changed = [*path[:at], flip(sibling, bit), *path[at + 1 :]]
            assert not verify_consistency(old, old_root, new, new_root, changed)


def test_inclusion_fails_at_every_other_index() -> None:
    """The index is inside the tree or outside. Index -1 has only set bits, like the last leaf of a perfect tree."""
    for size in range(1, 34):
        root = reference_root(0, size)
        for index in range(size):
            path = inclusion_proof(index, size, SUBTREES)
            for other in range(-3, size + 3):
                assert verify_inclusion(LEAVES[index], other, size, path, root) == (other == index)


def test_inclusion_fails_at_every_size_whose_path_has_another_length() -> None:
    """If paths have the same form, only the signed checkpoint distinguishes sizes: a root does not contain the size."""
    for size in range(1, 34):
        root = reference_root(0, size)
        for index in range(size):
            path = inclusion_proof(index, size, SUBTREES)
            for other in range(70):
                if index >= other or len(reference_path(index, 0, other)) != len(path):
                    assert not verify_inclusion(LEAVES[index], index, other, path, root)


def test_consistency_fails_at_every_size_whose_path_has_another_length() -> None:
    """Otherwise a log could show a short tree to one client, and present it as a longer one to the next."""
    for new in range(2, 34):
        new_root = reference_root(0, new)
        for old in range(1, new):
            old_root, path = reference_root(0, old), consistency_proof(old, new, SUBTREES)
            for other in range(old + 1, 70):
                if len(reference_subproof(old, 0, other, complete=True)) != len(path):
                    assert not verify_consistency(old, old_root, other, new_root, path)


def test_proofs_of_another_length_fail() -> None:
    """One hash is missing at either end, doubled, or added."""
    for size in range(2, 34):
        root = reference_root(0, size)
        for index in range(size):
            path = inclusion_proof(index, size, SUBTREES)
            for changed in (path[1:], path[:-1], [*path, root], [root, *path], [path[0], *path]):
                assert not verify_inclusion(LEAVES[index], index, size, changed, root)
        for old in range(1, size):
            path = consistency_proof(old, size, SUBTREES)
            for changed in ([], path[1:], path[:-1], [*path, root], [root, *path], [path[0], *path]):
                assert not verify_consistency(old, reference_root(0, old), size, root, changed)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 300), st.data())
def test_a_rewritten_history_is_caught(new: int, data: st.DataObject) -> None:
    """After a change of any old entry, no proof of the new tree matches the old root."""
    old = data.draw(st.integers(1, new))
    changed = data.draw(st.integers(0, old - 1))
    forged = [*LEAVES[:changed], leaf_hash(b"forged"), *LEAVES[changed + 1 : new]]
    path = consistency_proof(old, new, subtrees_of(forged))
    assert not verify_consistency(old, reference_root(0, old), new, root_of(forged), path)


def test_every_tree_begins_with_the_empty_one() -> None:
    """A first checkpoint needs no proof, but it must have the empty root and no path."""
    root = reference_root(0, 5)
    assert consistency_proof(0, 5, SUBTREES) == []
    assert verify_consistency(0, EMPTY_ROOT, 5, root, [])
    assert verify_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    assert not verify_consistency(0, root, 5, root, [])
    assert not verify_consistency(0, EMPTY_ROOT, 0, root, [])
    assert not verify_consistency(0, EMPTY_ROOT, 5, root, [root])


def test_equal_sizes_are_consistent_only_with_equal_roots() -> None:
    """Two roots of one size are a fork."""
    root = reference_root(0, 5)
    assert verify_consistency(5, root, 5, root, [])
    assert not verify_consistency(5, root, 5, flip(root, 0), [])
    assert not verify_consistency(5, root, 5, root, [root])


def test_a_smaller_tree_never_continues_a_larger_one() -> None:
    """A rollback is refused, even with the reversed honest path."""
    path = consistency_proof(5, 9, SUBTREES)
    assert not verify_consistency(9, reference_root(0, 9), 5, reference_root(0, 5), path)


@settings(deadline=None, max_examples=300)
@given(
    first=st.integers() | st.integers(-3, 70) | st.just(2**4096),
    second=st.integers() | st.integers(-3, 70) | st.just(2**4096),
    path=st.lists(st.binary(max_size=40) | st.sampled_from(LEAVES), max_size=70),
    root=st.binary(max_size=40) | st.sampled_from(LEAVES),
)
def test_hostile_proofs_are_false_and_never_raise(first: int, second: int, path: list[bytes], root: bytes) -> None:
    """The test uses any numbers, and any number of hashes of any length."""
    leaf = leaf_hash(b"never in the tree")
    assert not verify_inclusion(leaf, first, second, path, root)
    assert not verify_inclusion(leaf[:31], 0, 1, [], leaf[:31])
    assert not verify_consistency(first, leaf, second, root, path)


def test_hashes_of_another_length_prove_nothing() -> None:
    """Otherwise two short hashes could be split elsewhere and still give the same node."""
    left, right = LEAVES[0][:31], LEAVES[0][31:] + LEAVES[1]
    assert node_hash(left, right) == reference_root(0, 2)
    assert not verify_inclusion(left, 0, 2, [right], reference_root(0, 2))
    assert not verify_consistency(1, left, 2, reference_root(0, 2), [right])
