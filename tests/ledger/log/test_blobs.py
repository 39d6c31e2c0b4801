"""Blobs are kept once, in chunks, under both hashes, and what comes back is what was put."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from ledger.errors import Corrupted, Refused
from ledger.limits import blob_chunk_bytes, blob_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger


def used_pages(ledger: Ledger) -> int:
    """Return how many records the tables of blobs have."""
    store = ledger.log.blobs.environment()
    assert store is not None
    with store.reading() as txn:
        return sum(int(txn.stat(table)["entries"]) for table in store.tables.values())


@contextlib.contextmanager
def chunks_of(ledger: Ledger) -> Iterator[tuple[Any, Any]]:
    """Open a write transaction on the table of chunks."""
    store = ledger.log.blobs.environment(create=True)
    assert store is not None
    with store.writing() as txn:
        yield txn, store.tables["chunks"]


@pytest.mark.parametrize(
    "size", [0, 1, blob_chunk_bytes - 1, blob_chunk_bytes, blob_chunk_bytes + 1, 70 * blob_chunk_bytes + 5]
)
def test_blob_comes_back_by_either_hash(ledger: Ledger, size: int) -> None:
    content = (b"content %d " % size * (size // 8 + 1))[:size]
    record = ledger.log.blobs.put(content)
    refs = ("blake3:" + blake3(content).hexdigest(), "sha256:" + hashlib.sha256(content).hexdigest())
    assert (record.ref, record.size) == (refs[0], size)
    for ref in refs:
        assert ledger.log.blobs.get(ref) == content
        chunks = list(ledger.log.blobs.chunks(ref))
        assert b"".join(chunks) == content
        assert all(len(chunk) == blob_chunk_bytes for chunk in chunks[:-1])


def test_same_content_is_kept_once(ledger: Ledger) -> None:
    first = ledger.log.blobs.put(b"x" * 200_000)
    before = used_pages(ledger)
    assert ledger.log.blobs.put(b"x" * 200_000) == first
    assert used_pages(ledger) == before
    assert list(ledger.log.blobs.refs()) == [first.ref]


def test_blob_changes_nothing_of_the_log(ledger: Ledger) -> None:
    before = ledger.head()
    ledger.log.blobs.put(b"content")
    assert ledger.head() == before


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_missing_blob_is_not_found(ledger: Ledger, algorithm: str) -> None:
    ref = f"{algorithm}:{'0' * 64}"
    assert ledger.log.blobs.find(ref) is None
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("ref", ["", "blake3:", "blake3:zz", "md5:" + "0" * 64, "0" * 64, "blake3:" + "0" * 2000])
def test_ref_that_is_none_is_refused(ledger: Ledger, ref: str) -> None:
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "INVALID_FIELD"


def test_blob_beyond_its_limit_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.put(bytes(blob_size_max_bytes + 1))
    assert refused.value.code == "TOO_LARGE"
    assert list(ledger.log.blobs.refs()) == []


def test_tampered_chunk_is_told_from_the_content(ledger: Ledger) -> None:
    record = ledger.log.blobs.put(b"a" * (2 * blob_chunk_bytes))
    with chunks_of(ledger) as (txn, chunks):
        txn.put(record.blake3 + (1).to_bytes(4, "big"), b"b" * blob_chunk_bytes, db=chunks)
    with pytest.raises(Corrupted) as damaged:
        ledger.log.blobs.get(record.ref)
    assert damaged.value.code == "VERIFICATION_FAILED"


def test_lost_chunk_is_named(ledger: Ledger) -> None:
    record = ledger.log.blobs.put(b"a" * (2 * blob_chunk_bytes))
    with chunks_of(ledger) as (txn, chunks):
        txn.delete(record.blake3 + (1).to_bytes(4, "big"), db=chunks)
    with pytest.raises(Corrupted, match="chunk 1") as damaged:
        ledger.log.blobs.get(record.ref)
    assert damaged.value.code == "CORRUPTED"


def test_interrupted_put_is_invisible_and_the_next_one_completes_it(ledger: Ledger) -> None:
    content = b"c" * (3 * blob_chunk_bytes)
    digest = blake3(content).digest()
    with chunks_of(ledger) as (txn, chunks):
        txn.put(digest + bytes(4), content[:blob_chunk_bytes], db=chunks)
    assert ledger.log.blobs.find("blake3:" + digest.hex()) is None
    assert list(ledger.log.blobs.refs()) == []
    assert ledger.log.blobs.get(ledger.log.blobs.put(content).ref) == content
