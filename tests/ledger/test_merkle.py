"""The Merkle tree agrees with reference vectors and with the RFC's recursive definitions.

The vectors are the eight leaves that implementations of Certificate Transparency share.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_tree import (
    LEAVES,
    SUBTREES,
    reference_path,
    reference_root,
    reference_subproof,
    uniform_subtree,
    uniform_tree_root,
)

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_path,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    shared_hashes,
    shared_paths,
    subtrees_of,
    tree_size_max,
    verify_consistency,
    verify_inclusion,
)

REFERENCE_ENTRIES: Final = [
    bytes.fromhex(entry)
    for entry in ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
]
REFERENCE_ROOTS: Final = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PAIR_1: Final = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
PAIR_3: Final = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
LEAF_1: Final = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
LEAF_4: Final = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
PAIR_2: Final = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
RIGHT_HALF: Final = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"

sizes = st.integers(1, tree_size_max)


def test_roots_are_those_of_the_reference_tree() -> None:
    """This includes size 0, whose root is the hash of no bytes."""
    leaves = [leaf_hash(entry) for entry in REFERENCE_ENTRIES]
    assert [root_of(leaves[:size]).hex() for size in range(9)] == REFERENCE_ROOTS


@pytest.mark.parametrize(
    ("index", "size", "path"),
    [
        (0, 1, []),
        (0, 8, [LEAF_1, PAIR_1, RIGHT_HALF]),
        (5, 8, [LEAF_4, PAIR_3, REFERENCE_ROOTS[4]]),
        (2, 3, [REFERENCE_ROOTS[2]]),
        (1, 5, [REFERENCE_ROOTS[1], PAIR_1, LEAF_4]),
    ],
)
def test_inclusion_paths_are_those_of_the_reference_tree(index: int, size: int, path: list[str]) -> None:
    """Our proofs and our verifier agree with other implementations."""
    leaves = [leaf_hash(entry) for entry in REFERENCE_ENTRIES[:size]]
    expected = [bytes.fromhex(sibling) for sibling in path]
    assert inclusion_path(leaves, index) == expected
    assert verify_inclusion(leaves[index], index, size, expected, bytes.fromhex(REFERENCE_ROOTS[size]))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (1, 1, []),
        (1, 8, [LEAF_1, PAIR_1, RIGHT_HALF]),
        (6, 8, [PAIR_2, PAIR_3, REFERENCE_ROOTS[4]]),
        (2, 5, [PAIR_1, LEAF_4]),
    ],
)
def test_consistency_paths_are_those_of_the_reference_tree(old: int, new: int, path: list[str]) -> None:
    """Our proofs and our verifier agree with other implementations."""
    subtrees = subtrees_of([leaf_hash(entry) for entry in REFERENCE_ENTRIES])
    expected = [bytes.fromhex(sibling) for sibling in path]
    old_root, new_root = bytes.fromhex(REFERENCE_ROOTS[old]), bytes.fromhex(REFERENCE_ROOTS[new])
    assert consistency_proof(old, new, subtrees) == expected
    assert verify_consistency(old, old_root, new, new_root, expected)


def test_a_leaf_never_hashes_like_a_node() -> None:
    """Otherwise an entry of 64 bytes could pass for the hashes of two subtrees (RFC 6962 §2.1)."""
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != node_hash(LEAVES[0], LEAVES[1])


def test_frontier_has_the_root_of_the_recursive_definition_at_every_size() -> None:
    """The frontier grows leaf by leaf, and has one root for each set bit of the size."""
    frontier = Frontier.empty()
    assert frontier.root() == EMPTY_ROOT
    for size, leaf in enumerate(LEAVES, start=1):
        frontier = frontier.extend((leaf,))
        assert (frontier.size, len(frontier.roots)) == (size, size.bit_count())
        assert frontier.root() == reference_root(0, size)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, len(LEAVES)), max_size=8))
def test_frontier_does_not_depend_on_how_leaves_were_grouped(cuts: list[int]) -> None:
    """``extend`` does not change a frontier, so an aborted transaction keeps the old one."""
    frontier = Frontier.empty()
    bounds = [0, *sorted(cuts), len(LEAVES)]
    for start, end in pairwise(bounds):
        before = frontier.to_bytes()
        grown = frontier.extend(LEAVES[start:end])
        assert (frontier.size, frontier.to_bytes()) == (start, before)
        frontier = Frontier.from_bytes(grown.size, grown.to_bytes())
        assert frontier == grown
    assert frontier == Frontier.empty().extend(LEAVES)
    assert frontier.root() == reference_root(0, len(LEAVES))


@pytest.mark.parametrize(
    ("size", "length"), [(0, 32), (1, 0), (1, 31), (1, 64), (3, 32), (5, 65), (-1, 32), (tree_size_max + 1, 32)]
)
def test_stored_frontier_of_wrong_length_is_corrupted(size: int, length: int) -> None:
    """With a truncated frontier, the log would silently sign another tree."""
    with pytest.raises(Corrupted) as caught:
        Frontier.from_bytes(size, bytes(length))
    assert caught.value.code == "CORRUPTED"


def test_inclusion_is_proven_for_every_leaf_of_every_small_tree() -> None:
    """The path is exactly that of the recursive definition. To make it, only perfect subtrees of the tree are read."""
    for size in range(1, 71):

        def subtree(level: int, n: int, size: int = size) -> bytes:
            assert (n + 1) << level <= size
            return SUBTREES(level, n)

        root = reference_root(0, size)
        for index in range(size):
            path = inclusion_proof(index, size, subtree)
            assert path == reference_path(index, 0, size)
            assert verify_inclusion(LEAVES[index], index, size, path, root)


def test_consistency_is_proven_for_every_pair_of_small_trees() -> None:
    """The path is exactly that of the recursive definition. To make it, only perfect subtrees of the tree are read."""
    for new in range(1, 71):

        def subtree(level: int, n: int, new: int = new) -> bytes:
            assert (n + 1) << level <= new
            return SUBTREES(level, n)

        for old in range(1, new + 1):
            path = consistency_proof(old, new, subtree)
            assert path == reference_subproof(old, 0, new, complete=True)
            assert verify_consistency(old, reference_root(0, old), new, reference_root(0, new), path)


@settings(deadline=None)
@given(size=sizes, at=st.floats(0, 1, exclude_max=True))
def test_inclusion_is_proven_in_trees_of_any_size(size: int, at: float) -> None:
    """Trees have up to 2**63-1 leaves; a path has at most one hash for each bit of the size."""
    index = min(int(at * size), size - 1)
    path = inclusion_proof(index, size, uniform_subtree)
    assert len(path) <= size.bit_length()
    assert verify_inclusion(LEAVES[0], index, size, path, uniform_tree_root(size))
    assert not verify_inclusion(LEAVES[1], index, size, path, uniform_tree_root(size))


@settings(deadline=None)
@given(sizes, sizes)
def test_consistency_is_proven_between_trees_of_any_size(first: int, second: int) -> None:
    """Trees have up to 2**63-1 leaves; a path has at most one hash more than the size has bits."""
    old, new = sorted((first, second))
    path = consistency_proof(old, new, uniform_subtree)
    assert len(path) <= new.bit_length() + 1
    assert verify_consistency(old, uniform_tree_root(old), new, uniform_tree_root(new), path)
    assert not verify_consistency(old, LEAVES[1], new, uniform_tree_root(new), path)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 5), (5, 5), (2**70, 5)])
def test_inclusion_of_a_leaf_that_is_not_there_is_refused(index: int, size: int) -> None:
    """The refusal has a code."""
    with pytest.raises(Refused) as caught:
        inclusion_proof(index, size, SUBTREES)
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(Refused):
        inclusion_path(LEAVES[:size], index)


@pytest.mark.parametrize(("old", "new"), [(1, 0), (6, 5), (-1, 5), (-2, -1), (2**70, 5)])
def test_consistency_with_a_tree_that_never_was_is_refused(old: int, new: int) -> None:
    """The refusal has a code."""
    with pytest.raises(Refused) as caught:
        consistency_proof(old, new, SUBTREES)
    assert caught.value.code == "NOT_FOUND"


@given(st.data(), st.integers(1, 200))
def test_shared_hashes_give_each_path_back(data: st.DataObject, size: int) -> None:
    leaves = [leaf_hash(number.to_bytes(2, "big")) for number in range(size)]
    indexes = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    paths = {index: inclusion_path(leaves, index) for index in indexes}
    hashes = shared_hashes(paths, size)
    assert len(hashes) <= sum(map(len, paths.values()))
    assert shared_paths({index: leaves[index] for index in indexes}, size, hashes) == paths
    if hashes:
        with pytest.raises(Refused, match="number of hashes"):
            shared_paths({index: leaves[index] for index in indexes}, size, hashes[:-1])
    with pytest.raises(Refused, match="number of hashes"):
        shared_paths({index: leaves[index] for index in indexes}, size, [*hashes, leaves[0]])


@pytest.mark.parametrize(("indexes", "size"), [([], 1), ([1], 1), ([-1], 1), ([0], 0), ([0], tree_size_max + 1)])
def test_shared_paths_of_no_leaves_of_the_tree_are_refused(indexes: list[int], size: int) -> None:
    with pytest.raises(Refused, match="no leaves"):
        shared_paths(dict.fromkeys(indexes, bytes(32)), size, [])
