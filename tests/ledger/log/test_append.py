"""Appended entries are read back; their tree is that of RFC 6962 at every size, also across tile boundaries."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.merkle import EMPTY_ROOT, Frontier, verify_consistency, verify_inclusion
from deedbook.ledger.log import keys
from deedbook.ledger.log.log import Appender, Log, PendingEntries
from deedbook.ledger.log.tables import FORMAT, Head
from deedbook.ledger.log.tiles import TILE_WIDTH, read_tile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = Head(FORMAT, "0" * 32, 0, Frontier.empty().to_bytes(), 0, 0)
MAP_SIZE = 256 * 1024**2


def entry(index: int) -> bytes:
    """Return the synthetic entry at an index."""
    return b"entry %d" % index


def leaf(data: bytes) -> bytes:
    """Return the leaf hash as RFC 6962 §2.1 defines it, without our own code."""
    return hashlib.sha256(b"\0" + data).digest()


def naive_root(leaves: list[bytes]) -> bytes:
    """Return the root: hash pairs level by level; an odd last node moves up unchanged (the tree of RFC 6962 §2.1)."""
    while len(leaves) > 1:
        pairs = [hashlib.sha256(b"\1" + leaves[at] + leaves[at + 1]).digest() for at in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[2 * len(pairs) :]
    return leaves[0] if leaves else hashlib.sha256().digest()


@cache
def root_at(size: int) -> bytes:
    """Return the root of the tree of the first entries."""
    return naive_root([leaf(entry(index)) for index in range(size)])


def append(log: Log, count: int, appender: Appender | None = None) -> Head:
    """Append the next ``count`` entries in one transaction; another ``appender`` acts as another process."""
    with log.writing() as (txn, snapshot):
        head = snapshot.head or FIRST
        entries = [entry(index) for index in range(head.size, head.size + count)]
        ids = [keys.id_key("s", f"event:{index:064x}") for index in range(head.size, head.size + count)]
        leaves = [leaf(data) for data in entries]
        pending = PendingEntries(entries, leaves, ids, {b"sx": b"%d" % head.size}, head.size)
        return (appender or log.appender).append(txn, head, pending)


def append_and_fail(log: Log) -> None:
    """Append entries in a transaction that does not commit."""
    with log.writing() as (txn, snapshot):
        assert snapshot.head is not None
        log.appender.append(txn, snapshot.head, PendingEntries([b"lost"] * 100, [leaf(b"lost")] * 100, [], {}, 1))
        raise ZeroDivisionError


@pytest.fixture
def log(home: Path) -> Iterator[Log]:
    """An empty log."""
    (home / "log").mkdir(parents=True)
    with Log(home, map_size=MAP_SIZE, create=True) as empty:
        yield empty


def check_tree(log: Log, *, at: list[int]) -> None:
    """Check root and proofs of the log against the entries themselves."""
    with log.snapshot() as snapshot:
        size = snapshot.size
        root = root_at(size)
        assert snapshot.root() == root
        for index in at:
            path = snapshot.inclusion_proof(index)
            assert verify_inclusion(leaf(entry(index)), index, size, path, root)
        for old in at:
            path = snapshot.consistency_proof(old)
            assert verify_consistency(old, root_at(old), size, root, path)


def test_empty_log_has_the_empty_root(log: Log) -> None:
    with log.snapshot() as snapshot:
        assert (snapshot.size, snapshot.head, snapshot.root()) == (0, None, EMPTY_ROOT)
        assert snapshot.entries(0, limit=9, size_max_bytes=9) == []


@pytest.mark.parametrize("step", [1, 3, 255, 256, 257])
def test_root_and_proofs_are_right_at_every_size_over_the_first_tiles(log: Log, step: int) -> None:
    size = 0
    while size < 530:
        size = append(log, step).size
        at = sorted({min(index, size - 1) for index in (0, 1, size // 2, 254, 255, 256, size - 1)})
        if step > 3 or size % 64 < 4 or size % 256 < 4:
            check_tree(log, at=at)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_root_does_not_depend_on_how_entries_were_grouped(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    home = tmp_path_factory.mktemp("grouped")
    (home / "log").mkdir()
    with Log(home, map_size=MAP_SIZE, create=True) as log:
        for step in steps:
            append(log, step)
        check_tree(log, at=sorted({0, sum(steps) // 3, sum(steps) - 1}))


def test_tree_is_right_over_the_boundary_of_65_536(log: Log) -> None:
    for count in (65_000, 535, 1, 1, 255, 256):
        size = append(log, count).size
        if size >= 65_535:
            check_tree(log, at=[0, 255, 256, 32_768, 65_279, 65_280, size - 1])
    with log.snapshot() as snapshot:
        for old, new in ((1, 65_536), (65_535, 65_537), (65_536, 65_792), (256, 65_536), (40_000, 65_535)):
            path = snapshot.consistency_proof(old, new)
            assert verify_consistency(old, root_at(old), new, root_at(new), path)
            assert verify_inclusion(leaf(entry(0)), 0, new, snapshot.inclusion_proof(0, new), root_at(new))


def test_complete_tiles_hold_the_hashes_of_their_level(log: Log) -> None:
    append(log, 300)
    append(log, 300)
    leaves = [leaf(entry(index)) for index in range(600)]
    with log.tables.reading() as txn:
        for number in (0, 1):
            tile = leaves[number * TILE_WIDTH : (number + 1) * TILE_WIDTH]
            assert read_tile(log.tables, txn, 0, number) == tile
        assert read_tile(log.tables, txn, 0, 2) == []
        assert read_tile(log.tables, txn, 1, 0) == [naive_root(leaves[:256]), naive_root(leaves[256:512])]


def test_entries_are_read_by_index_and_in_ranges(log: Log) -> None:
    append(log, 20)
    with log.snapshot() as snapshot:
        assert [snapshot.entry(index) for index in (0, 7, 19)] == [entry(0), entry(7), entry(19)]
        assert snapshot.entries(5, limit=3, size_max_bytes=10**6) == [entry(5), entry(6), entry(7)]
        assert snapshot.entries(18, limit=9, size_max_bytes=10**6) == [entry(18), entry(19)]
        assert snapshot.entries(0, limit=9, size_max_bytes=len(entry(0)) * 2) == [entry(0), entry(1)]
        assert snapshot.entries(3, limit=9, size_max_bytes=1) == [entry(3)]
        assert snapshot.entries(20, limit=9, size_max_bytes=1) == []


@pytest.mark.parametrize("index", [-1, 20, 21, 2**63, 2**64, 2**200])
def test_entry_that_is_not_there_is_not_found(log: Log, index: int) -> None:
    append(log, 20)
    with log.snapshot() as snapshot:
        for ask in (snapshot.entry, snapshot.inclusion_proof):
            with pytest.raises(Refused) as refused:
                ask(index)
            assert refused.value.code == "NOT_FOUND"


def test_proof_of_a_size_that_is_not_there_is_not_found(log: Log) -> None:
    append(log, 20)
    with log.snapshot() as snapshot:
        for ask in (lambda: snapshot.inclusion_proof(0, 21), lambda: snapshot.consistency_proof(1, 21)):
            with pytest.raises(Refused) as refused:
                ask()
            assert refused.value.code == "NOT_FOUND"


def test_events_are_found_by_stream_and_id(log: Log) -> None:
    append(log, 300)
    with log.snapshot() as snapshot:
        assert snapshot.index_of("s", f"event:{299:064x}") == 299
        assert snapshot.index_of("t", f"event:{299:064x}") is None
        assert snapshot.index_of("s", f"event:{300:064x}") is None


def test_snapshot_does_not_change_when_the_log_grows(log: Log) -> None:
    append(log, 5)
    with log.snapshot() as before:
        append(log, 5)
        assert before.size == 5
        assert before.entries(0, limit=99, size_max_bytes=10**6) == [entry(index) for index in range(5)]
        assert before.root() == naive_root([leaf(entry(index)) for index in range(5)])
    with log.snapshot() as after:
        assert after.size == 10


def test_transaction_that_fails_leaves_nothing_and_the_next_one_is_right(log: Log) -> None:
    append(log, 200)
    with pytest.raises(ZeroDivisionError):
        append_and_fail(log)
    with log.snapshot() as snapshot:
        assert (snapshot.size, snapshot.has_entry_beyond_end()) == (200, False)
    append(log, 100)
    check_tree(log, at=[0, 199, 200, 255, 256, 299])


@pytest.mark.parametrize("counts", [(100, 100, 100), (255, 1, 1), (1, 255, 300), (300, 300, 300)])
def test_writer_forgets_its_tile_when_another_one_wrote(log: Log, counts: tuple[int, int, int]) -> None:
    another = Appender(log.tables)
    for appender, count in zip((None, another, None), counts, strict=True):
        append(log, count, appender)
    append(log, 300, another)
    check_tree(log, at=[0, counts[0], sum(counts), sum(counts) + 299])


def test_writer_forgets_its_tile_when_its_transaction_failed_and_another_one_reached_that_size(log: Log) -> None:
    append(log, 100)
    with pytest.raises(ZeroDivisionError):
        append_and_fail(log)
    append(log, 100, Appender(log.tables))
    append(log, 100)
    check_tree(log, at=[0, 100, 199, 255, 299])


def test_reopened_log_goes_on_where_it_ended(home: Path, log: Log) -> None:
    append(log, 300)
    log.close()
    with Log(home, map_size=MAP_SIZE) as again:
        append(again, 300)
        check_tree(again, at=[0, 299, 300, 511, 512, 599])


def test_entry_where_the_head_says_the_log_ends_stops_the_writer(log: Log) -> None:
    append(log, 3)
    with log.tables.writing() as txn:
        txn.put(keys.index_key(3), b"foreign", db=log.tables.entries)
    with pytest.raises(Corrupted):
        append(log, 1)
