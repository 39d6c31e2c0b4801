"""A blob is stored once, in chunks, under both hashes, and is read back unchanged."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from building import refs_of

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log.blobs import chunk_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.log.blobs import BlobRecord


def count_records(ledger: Ledger) -> int:
    """Return how many records the tables of blobs have."""
    store = ledger.log.blobs.environment()
    assert store is not None
    with store.reading() as txn:
        return sum(int(txn.stat(table)["entries"]) for table in store.tables.values())


def put(ledger: Ledger, content: bytes) -> BlobRecord:
    """Store a blob as alice and return its record."""
    record = ledger.log.blobs.find(ledger.put_blob("alice", content))
    assert record is not None
    return record


@pytest.mark.parametrize(
    "size", [0, 1, blob_chunk_bytes - 1, blob_chunk_bytes, blob_chunk_bytes + 1, 70 * blob_chunk_bytes + 5]
)
def test_blob_comes_back_by_either_hash(ledger: Ledger, size: int) -> None:
    content = (b"content %d " % size * (size // 8 + 1))[:size]
    record = put(ledger, content)
    refs = ("blake3:" + blake3(content).hexdigest(), "sha256:" + hashlib.sha256(content).hexdigest())
    assert (record.ref, record.size) == (refs[0], size)
    for ref in refs:
        assert ledger.log.blobs.get(ref) == content
    sizes = [len(ledger.log.blobs.chunk(record, number)) for number in range(record.chunk_count)]
    assert sizes[:-1] == [blob_chunk_bytes] * (len(sizes) - 1)


def test_same_content_is_stored_once(ledger: Ledger) -> None:
    first = put(ledger, b"x" * 200_000)
    before = count_records(ledger)
    assert put(ledger, b"x" * 200_000) == first
    assert count_records(ledger) == before
    assert list(refs_of(ledger.log.blobs)) == [first.ref]


def test_blob_changes_nothing_of_the_log(ledger: Ledger) -> None:
    before = ledger.head()
    put(ledger, b"content")
    assert ledger.head() == before


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_missing_blob_is_not_found(ledger: Ledger, algorithm: str) -> None:
    ref = f"{algorithm}:{'0' * 64}"
    assert ledger.log.blobs.find(ref) is None
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("ref", ["", "blake3:", "blake3:zz", "md5:" + "0" * 64, "0" * 64, "blake3:" + "0" * 2000])
def test_ref_of_another_form_is_refused(ledger: Ledger, ref: str) -> None:
    with pytest.raises(Refused) as refused:
        ledger.log.blobs.get(ref)
    assert refused.value.code == "INVALID_FIELD"


def test_tampered_chunk_is_found_by_the_hash(ledger: Ledger) -> None:
    record = put(ledger, b"a" * (2 * blob_chunk_bytes))
    with chunks_of(ledger) as (txn, chunks):
        txn.put(chunk_key(record.chunk_prefix, 1), b"b" * blob_chunk_bytes, db=chunks)
    with pytest.raises(Corrupted) as damaged:
        ledger.log.blobs.get(record.ref)
    assert damaged.value.code == "VERIFICATION_FAILED"


def test_lost_chunk_is_named(ledger: Ledger) -> None:
    record = put(ledger, b"a" * (2 * blob_chunk_bytes))
    with chunks_of(ledger) as (txn, chunks):
        txn.delete(chunk_key(record.chunk_prefix, 1), db=chunks)
    with pytest.raises(Corrupted, match="chunk 1") as damaged:
        ledger.log.blobs.get(record.ref)
    assert damaged.value.code == "CORRUPTED"


def test_interrupted_upload_is_invisible_and_the_next_one_completes_it(ledger: Ledger) -> None:
    content = b"c" * (3 * blob_chunk_bytes)
    with ledger.client() as client:
        begun = client.uploads.begin(client.check_intent(ledger.intent("alice", content)))
        assert begun == (0, None)
        digest = blake3(content).digest()
        assert client.uploads.add("alice", digest, 0, content[:blob_chunk_bytes]) == (blob_chunk_bytes, None)
        assert ledger.log.blobs.find("blake3:" + digest.hex()) is None
        assert refs_of(ledger.log.blobs) == []
        assert client.get_blob(put(ledger, content).ref) == content


@contextlib.contextmanager
def chunks_of(ledger: Ledger) -> Iterator[tuple[Any, Any]]:
    """Open a write transaction on the table of chunks."""
    store = ledger.log.blobs.open_or_create()
    with store.writing() as txn:
        yield txn, store.tables["chunks"]
