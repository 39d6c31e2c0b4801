"""Content-addressed blobs: what is too large for an entry, put and got in chunks.

They lie in an LMDB environment of their own, ``blobs/`` beside ``log/``, with a map of its own: whatever agents store,
it never takes the room that entries need. It is opened when the first blob is asked for, and made by the first one
that is put: a ledger without blobs has no such folder.

| table   | key                       | value                |
|---------|---------------------------|----------------------|
| records | BLAKE3 of the content     | the blob's record    |
| aliases | SHA-256 of the content    | BLAKE3 of it         |
| chunks  | BLAKE3 + chunk number u32 | a chunk              |

A blob's id is ``blake3:`` + the hash of its bytes; ``sha256:`` finds it too. Chunks are written in transactions of
bounded size, the blob's record in the last of them.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from ledger.errors import Corrupted, Refused
from ledger.events.fields import REF_PATTERN
from ledger.limits import blob_chunk_bytes, blob_size_max_bytes, blobs_map_size_bytes
from ledger.log.environment import FILE, Environment

_REF: Final = re.compile(REF_PATTERN)
FOLDER: Final = "blobs"
TABLES: Final = ("records", "aliases", "chunks")
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
    """The blobs of one ledger; threads may share them."""

    def __init__(self, folder: Path, *, map_size: int = blobs_map_size_bytes) -> None:
        """Keep them in ``folder``; ``map_size`` is the most bytes they can ever take."""
        self._path = folder / FOLDER
        self._map_size = map_size
        self._opened: Environment | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close the environment, if it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def environment(self, *, create: bool = False) -> Environment | None:
        """Return the open environment; None when no blob was ever put and ``create`` is false.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``. Corrupted: the file is damaged.
        """
        with self._opening:
            if self._opened is None and (create or (self._path / FILE).is_file()):
                self._opened = Environment(
                    self._path, TABLES, map_size=self._map_size, setting="blobs_map_size_bytes", create=True
                )
            return self._opened

    def put(self, content: bytes) -> BlobRecord:
        """Store ``content`` unless it is stored already; return its record.

        Raises:
            Refused: ``TOO_LARGE``.
        """
        if len(content) > blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob of {len(content)} bytes exceeds {blob_size_max_bytes}")
        record = BlobRecord(len(content), blake3(content).digest(), hashlib.sha256(content).digest())
        if self.find(record.ref) is not None:
            return record
        store = self.environment(create=True)
        assert store is not None  # noqa: S101 - it was made if it was not there
        records, aliases, table = (store.tables[name] for name in TABLES)
        chunks = [content[start : start + blob_chunk_bytes] for start in range(0, len(content), blob_chunk_bytes)]
        # A small blob, as most are, costs one synced transaction.
        for first in range(0, max(len(chunks), 1), _chunks_per_transaction):
            with store.writing() as txn:
                for number, chunk in enumerate(chunks[first : first + _chunks_per_transaction], first):
                    txn.put(_chunk_key(record, number), chunk, db=table)
                if first + _chunks_per_transaction >= len(chunks):
                    # The record comes last: if we crash before it, nobody can see the chunks that are there, and the
                    # next put of this content writes over them.
                    txn.put(record.sha256, record.blake3, db=aliases)
                    txn.put(record.blake3, msgspec.msgpack.encode(record), db=records)
        return record

    def find(self, ref: str) -> BlobRecord | None:
        """Return the record of a blob by either digest, or None.

        Raises:
            Refused: ``INVALID_FIELD`` when ``ref`` is none.
        """
        if _REF.match(ref) is None:
            raise Refused("INVALID_FIELD", f"{ref[:80]!r} is not the ref of a blob", ref=ref[:80])
        store = self.environment()
        if store is None:
            return None
        algorithm, _, digest = ref.partition(":")
        key: bytes | None = bytes.fromhex(digest)
        with store.reading() as txn:
            if algorithm == "sha256":
                key = store.get(txn, store.tables["aliases"], bytes.fromhex(digest))
            data = None if key is None else store.get(txn, store.tables["records"], key)
        return None if data is None else _record_decoder.decode(data)

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
        data: bytes | None = None
        if (store := self.environment()) is not None:
            with store.reading() as txn:
                data = store.get(txn, store.tables["chunks"], _chunk_key(record, number))
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
        store = self.environment()
        if store is None:
            return []
        with store.reading() as txn:
            return ["blake3:" + key.hex() for key, _ in store.items(txn, store.tables["records"], b"")]

    def used_ratio(self) -> float:
        """Return the part of the map in use, 0 to 1."""
        store = self.environment()
        return 0.0 if store is None else store.used_ratio()


def _chunk_key(record: BlobRecord, number: int) -> bytes:
    return record.blake3 + number.to_bytes(4, "big")


def check_blob(ref: str, content: bytes) -> None:
    """Compare content with the ref it was asked for by.

    Raises:
        Corrupted: ``VERIFICATION_FAILED`` when it is other content.
    """
    algorithm, _, digest = ref.partition(":")
    computed = blake3(content).hexdigest() if algorithm == "blake3" else hashlib.sha256(content).hexdigest()
    if computed != digest:
        raise Corrupted("VERIFICATION_FAILED", f"the content is not that of {ref}", ref=ref)
