"""Content-addressed blobs: what is too large for an entry, put and got in chunks.

A blob's id is ``blake3:`` + the hash of its bytes; ``sha256:`` finds it too. Chunks are written in transactions of
bounded size, the blob's record in the last of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from ledger.errors import Corrupted, Refused
from ledger.events.fields import REF_PATTERN
from ledger.limits import blob_chunk_bytes, blob_size_max_bytes

if TYPE_CHECKING:
    import lmdb

    from ledger.log.tables import Tables

_REF: Final = re.compile(REF_PATTERN)
_RECORD: Final = b"\xff\xff\xff\xff"
_chunks_per_transaction: Final = 64


class BlobRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored blob: its size in bytes and both digests."""

    size: int
    blake3: bytes
    sha256: bytes

    @property
    def ref(self) -> str:
        """The blob's id."""
        return "blake3:" + self.blake3.hex()


_record_decoder = msgspec.msgpack.Decoder(BlobRecord)


class Blobs:
    """The blobs of one log."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def put(self, content: bytes) -> BlobRecord:
        """Store ``content`` unless it is stored already; return its record.

        Raises:
            Refused: ``TOO_LARGE``.
        """
        if len(content) > blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob of {len(content)} bytes exceeds {blob_size_max_bytes}")
        record = BlobRecord(len(content), blake3(content).digest(), hashlib.sha256(content).digest())
        with self._tables.reading() as txn:
            if self._find(txn, record.ref) is not None:
                return record
        chunks = [content[start : start + blob_chunk_bytes] for start in range(0, len(content), blob_chunk_bytes)]
        # A small blob, as most are, costs one synced transaction.
        for first in range(0, max(len(chunks), 1), _chunks_per_transaction):
            with self._tables.writing() as txn:
                for number, chunk in enumerate(chunks[first : first + _chunks_per_transaction], first):
                    txn.put(record.blake3 + number.to_bytes(4, "big"), chunk, db=self._tables.blobs)
                if first + _chunks_per_transaction >= len(chunks):
                    # The record comes last: if we crash before it, nobody can see the chunks that are there, and the
                    # next put of this content writes over them.
                    txn.put(b"2" + record.sha256, record.blake3, db=self._tables.blobs)
                    txn.put(record.blake3 + _RECORD, msgspec.msgpack.encode(record), db=self._tables.blobs)
        return record

    def find(self, ref: str) -> BlobRecord | None:
        """Return the record of a blob by either digest, or None.

        Raises:
            Refused: ``INVALID_FIELD`` when ``ref`` is none.
        """
        with self._tables.reading() as txn:
            return self._find(txn, ref)

    def chunks(self, ref: str) -> Iterator[bytes]:
        """Yield the content of a blob in order, each chunk read in its own transaction.

        Raises:
            Refused: ``NOT_FOUND``, or ``INVALID_FIELD`` when ``ref`` is none.
            Corrupted: a chunk is missing.
        """
        record = self.find(ref)
        if record is None:
            raise Refused("NOT_FOUND", f"there is no blob {ref}", ref=ref)
        count = -(-record.size // blob_chunk_bytes)
        for number in range(count):
            yield self.chunk(record, number)

    def chunk(self, record: BlobRecord, number: int) -> bytes:
        """Return one chunk of a blob.

        Raises:
            Corrupted: the chunk is missing.
        """
        with self._tables.reading() as txn:
            data = self._tables.get(txn, self._tables.blobs, record.blake3 + number.to_bytes(4, "big"))
        if data is None:
            raise Corrupted("CORRUPTED", f"chunk {number} of blob {record.ref} is missing", ref=record.ref)
        return data

    def get(self, ref: str) -> bytes:
        """Return the content of a blob, checked against its hash.

        Raises:
            Refused: ``NOT_FOUND``, or ``INVALID_FIELD`` when ``ref`` is none.
            Corrupted: what is stored is not what was put.
        """
        content = b"".join(self.chunks(ref))
        check_blob(ref, content)
        return content

    def refs(self) -> Iterable[str]:
        """Return the ids of all blobs."""
        with self._tables.reading() as txn:
            keys = [key for key, _ in self._tables.items(txn, self._tables.blobs, b"")]
        return ["blake3:" + key[:32].hex() for key in keys if key[32:] == _RECORD]

    def _find(self, txn: lmdb.Transaction, ref: str) -> BlobRecord | None:
        if _REF.match(ref) is None:
            raise Refused("INVALID_FIELD", f"{ref[:80]!r} is not the ref of a blob", ref=ref[:80])
        algorithm, _, digest = ref.partition(":")
        key: bytes | None = bytes.fromhex(digest)
        if algorithm == "sha256":
            key = self._tables.get(txn, self._tables.blobs, b"2" + bytes.fromhex(digest))
        data = None if key is None else self._tables.get(txn, self._tables.blobs, key + _RECORD)
        return None if data is None else _record_decoder.decode(data)


def check_blob(ref: str, content: bytes) -> None:
    """Compare content with the ref it was asked for by.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when it is other content.
    """
    algorithm, _, digest = ref.partition(":")
    computed = blake3(content).hexdigest() if algorithm == "blake3" else hashlib.sha256(content).hexdigest()
    if computed != digest:
        raise Corrupted("VERIFICATION_FAILED", f"the content is not that of {ref}", ref=ref)
