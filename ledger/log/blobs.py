"""Content-addressed blobs: content that is too large for an entry, stored and read in chunks.

The first request opens the environment; the first upload creates it.

| table      | key                                      | value                                                 |
|------------|------------------------------------------|-------------------------------------------------------|
| records    | BLAKE3 of the content                    | the blob's record                                     |
| aliases    | SHA-256 of the content                   | its BLAKE3                                            |
| chunks     | chunk prefix (16 bytes) + number u32     | a chunk; every upload has its own prefix              |
| intents    | BLAKE3 of the content + author           | the signed ``blob.stored``, with its acceptance time  |
| references | first letter of the algorithm + digest   | index u64 of the first entry whose data has the ref   |
| usage      | author, or one zero byte                 | the author's usage, or how far the log was read       |

A blob's id is ``blake3:`` + the hash of its bytes; ``sha256:`` finds it too. This module reads blobs. ``log.uploads``
writes them. ``log.expiry`` reads which blobs the entries reference, and deletes the others.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import msgpack_decoder
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.limits import (
    blob_chunk_bytes,
    blob_overhead_bytes,
    blob_unreferenced_max_s,
    blobs_map_size_bytes,
)
from deedbook.ledger.log.environment import FILE, Environment

if TYPE_CHECKING:
    import lmdb

FOLDER: Final = "blobs"
TABLES: Final = ("records", "aliases", "chunks", "intents", "references", "usage")
DIGEST_BYTES: Final = 32
page_blobs_max: Final = 500
rows_read_max: Final = 20_000  # For one page of a list: an empty page may still say where the next one begins.


class BlobRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored blob: its size in bytes, both digests, its chunks' key prefix, and the first entry with its ref."""

    size: int
    blake3: bytes
    sha256: bytes
    chunk_prefix: bytes
    referenced_by: int | None = None

    @property
    def ref(self) -> str:
        """The blob's id."""
        return "blake3:" + self.blake3.hex()

    @property
    def chunk_count(self) -> int:
        """The number of its chunks."""
        return -(-self.size // blob_chunk_bytes)


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """An author's signed request to store a blob (``blob.stored``), and when the ledger accepted it (Unix ms).

    ``allows_secret``: a human signed that the content may contain what looks like a secret.
    """

    author: str
    digest: bytes
    size: int
    body: bytes
    key: bytes
    sig: bytes
    accepted_ms: int
    # Each upload has its own prefix: no author can put a chunk among another's, and checked chunks never change.
    chunk_prefix: bytes = b""
    allows_secret: bool = False

    @property
    def ref(self) -> str:
        """The blob's id."""
        return "blake3:" + self.digest.hex()

    @property
    def db_key(self) -> bytes:
        """The key of the intent. For each blob and author there is one intent, the latest."""
        return self.digest + self.author.encode()

    @property
    def cost(self) -> int:
        """The bytes that it counts in its author's quota."""
        return self.size + blob_overhead_bytes


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """The intents of one author: their number, their bytes, and the bytes of blobs that no entry references yet."""

    blobs: int = 0
    size: int = 0
    unreferenced: int = 0


class BlobOwner(msgspec.Struct, frozen=True):
    """An agent that stores a blob, and since when (Unix ms)."""

    author: str
    at_ms: int


class BlobView(msgspec.Struct, frozen=True):
    """A blob or an upload. During an upload ``received`` is at most ``size``, and ``sha256`` is empty.

    ``referenced_by`` is the index of the first entry that references the blob. At ``dropped_ms`` (Unix ms) the ledger
    may delete it, unless an entry references it by then.
    """

    ref: str
    size: int
    received: int
    sha256: str
    chunks: int
    stored: list[BlobOwner]
    referenced_by: int | None
    dropped_ms: int | None


class BlobPage(msgspec.Struct, frozen=True):
    """Blobs in the order of their ids, and the ref after which the next page begins (None: this is the last page)."""

    blobs: list[BlobView]
    next: str | None


record_decoder: Final = msgpack_decoder(BlobRecord)
intent_decoder: Final = msgpack_decoder(Intent)
usage_decoder: Final = msgpack_decoder(Usage)


class Blobs:
    """The blobs of one ledger; threads may share them."""

    def __init__(self, folder: Path, *, map_size: int = blobs_map_size_bytes) -> None:
        """Use the blobs in ``folder``; ``map_size`` is the limit in bytes for all of them."""
        self._path = folder / FOLDER
        self._map_size = map_size
        self._opened: Environment | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close the environment, if it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def environment(self) -> Environment | None:
        """Return the open environment; None if no blob was ever stored.

        Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``. Corrupted: the file is damaged.
        """
        with self._opening:
            if self._opened is None and (self._path / FILE).is_file():
                self._opened = self._open()
            return self._opened

    def open_or_create(self) -> Environment:
        """Return the environment, and create it if it does not exist. Raises as ``environment``."""
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Environment:
        setting = "blobs_map_size_bytes"
        return Environment(self._path, TABLES, map_size=self._map_size, setting=setting, create=True)

    def find(self, ref: str) -> BlobRecord | None:
        """Return the record of a blob by either digest, or None.

        Raises Refused: ``INVALID_FIELD`` if ``ref`` has another form.
        """
        check_ref(ref)
        if (store := self.environment()) is None:
            return None
        with store.reading() as txn:
            return find_record(store, txn, ref)

    def chunk(self, record: BlobRecord, number: int) -> bytes:
        """Return one chunk of a blob. Raises Corrupted: the chunk is missing."""
        data: bytes | None = None
        if (store := self.environment()) is not None:
            with store.reading() as txn:
                data = store.get(txn, store.tables["chunks"], chunk_key(record.chunk_prefix, number))
        if data is None:
            raise Corrupted(
                "CORRUPTED", f"chunk {number} of blob {record.ref} is missing: restore it from a backup", ref=record.ref
            )
        return data

    def get(self, ref: str) -> bytes:
        """Return the content of a blob, checked against its hash.

        Raises Refused: ``NOT_FOUND``, or ``INVALID_FIELD`` if ``ref`` has another form. Corrupted: a chunk is missing,
        or the stored content has another hash.
        """
        record = self.find(ref)
        if record is None:
            raise blob_not_found(ref)
        content = b"".join(self.chunk(record, number) for number in range(record.chunk_count))
        check_blob(ref, content)
        return content

    def intent(self, author: str, digest: bytes) -> Intent | None:
        """Return the intent of ``author`` for a blob, or None."""
        if (store := self.environment()) is None:
            return None
        with store.reading() as txn:
            return find_intent(store, txn, digest, author)

    def stat(self, ref: str) -> BlobView:
        """Return size, owners and state of a blob or of an upload.

        Raises Refused: ``NOT_FOUND``, or ``INVALID_FIELD`` if ``ref`` has another form.
        """
        check_ref(ref)
        if (store := self.environment()) is not None:
            with store.reading() as txn:
                record = find_record(store, txn, ref)
                digest = bytes.fromhex(ref.partition(":")[2]) if record is None else record.blake3
                intents = intents_of(store, txn, digest)
                if record is not None or intents:
                    return _view(store, txn, record, intents)
        raise blob_not_found(ref)

    def page(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        """Return blobs in the order of their ids; with ``author`` or ``unreferenced``, only those.

        Raises Refused: ``INVALID_FIELD`` if ``after`` is not a ref.
        """
        start = b"" if after is None else bytes.fromhex(check_ref(after).partition(":")[2]) + b"\xff" * DIGEST_BYTES
        views: list[BlobView] = []
        if (store := self.environment()) is None:
            return BlobPage(views, None)
        with store.reading() as txn:
            last = b""
            for number, digest in enumerate(_digests(store, txn, start)):
                if len(views) == min(limit, page_blobs_max) or number == rows_read_max:
                    return BlobPage(views, "blake3:" + last.hex())
                last = digest
                record = find_record(store, txn, "blake3:" + digest.hex())
                intents = intents_of(store, txn, digest)
                is_of_author = author is None or any(intent.author == author for intent in intents)
                is_wanted = is_of_author and not (unreferenced and record and record.referenced_by is not None)
                if is_wanted:
                    views.append(_view(store, txn, record, intents))
        return BlobPage(views, None)

    def used_ratio(self) -> float:
        """Return the used part of the map, 0 to 1."""
        store = self.environment()
        return 0.0 if store is None else store.used_ratio()


def check_ref(ref: str) -> str:
    """Return ``ref`` if it has the form of a blob's ref. Raises Refused: ``INVALID_FIELD``."""
    if re.match(REF_PATTERN, ref) is None:
        raise Refused(
            "INVALID_FIELD",
            "a blob's ref is `blake3:` or `sha256:`, and then 64 hex digits: `deed blob list` shows them",
        )
    return ref


def blob_not_found(ref: str) -> Refused:
    """Return the error for a ref that no blob has."""
    return Refused("NOT_FOUND", f"there is no blob {ref}: `deed blob list` shows them", ref=ref)


def check_blob(ref: str, content: bytes) -> None:
    """Compare content with the digest in ``ref``.

    Raises Corrupted: ``VERIFICATION_FAILED`` if they differ.
    """
    algorithm, _, digest = ref.partition(":")
    computed = blake3(content).hexdigest() if algorithm == "blake3" else hashlib.sha256(content).hexdigest()
    if computed != digest:
        raise Corrupted("VERIFICATION_FAILED", f"the content does not have the digest {ref}", ref=ref)


def chunk_key(chunk_prefix: bytes, number: int) -> bytes:
    """Return the key of a chunk."""
    return chunk_prefix + number.to_bytes(4, "big")


def reference_key(ref: str) -> bytes:
    """Return the key of a ref in the table of references."""
    algorithm, _, digest = ref.partition(":")
    return algorithm[:1].encode() + bytes.fromhex(digest)


def find_record(store: Environment, txn: lmdb.Transaction, ref: str) -> BlobRecord | None:
    """Return the record of a blob by either digest, or None."""
    algorithm, _, digest = ref.partition(":")
    key: bytes | None = bytes.fromhex(digest)
    if algorithm == "sha256":
        key = store.get(txn, store.tables["aliases"], bytes.fromhex(digest))
    data = None if key is None else store.get(txn, store.tables["records"], key)
    return None if data is None else record_decoder.decode(data)


def find_intent(store: Environment, txn: lmdb.Transaction, digest: bytes, author: str) -> Intent | None:
    """Return the stored intent for a blob and an author, or None."""
    data = store.get(txn, store.tables["intents"], digest + author.encode())
    return None if data is None else intent_decoder.decode(data)


def intents_of(store: Environment, txn: lmdb.Transaction, digest: bytes) -> list[Intent]:
    """Return the intents for a blob, in the order of their authors."""
    return [intent_decoder.decode(data) for _, data in store.items(txn, store.tables["intents"], digest)]


def read_usage(store: Environment, txn: lmdb.Transaction, author: str) -> Usage:
    """Return the usage of an author."""
    data = store.get(txn, store.tables["usage"], author.encode())
    return Usage() if data is None else usage_decoder.decode(data)


def count_received_bytes(store: Environment, txn: lmdb.Transaction, intent: Intent) -> int:
    """Return how many bytes of an upload are stored: its chunks come in order, and only the last one is shorter."""
    cursor = txn.cursor(db=store.tables["chunks"])
    # Go to the end of this upload's possible keys, then one back: this is its last chunk, if it has any.
    has_key = cursor.prev() if cursor.set_range(chunk_key(intent.chunk_prefix, 2**32 - 1)) else cursor.last()
    key = bytes(cursor.key()) if has_key else b""
    if key[:-4] != intent.chunk_prefix:
        return 0
    return int.from_bytes(key[-4:], "big") * blob_chunk_bytes + len(cursor.value())


def _digests(store: Environment, txn: lmdb.Transaction, start: bytes) -> Iterator[bytes]:
    """Yield the digests of blobs and uploads, in order: an upload has no record, and a restored blob has no intent."""
    last = b""
    tables = (store.items(txn, store.tables[name], b"", start) for name in ("intents", "records"))
    for key, _ in heapq.merge(*tables):
        if key[:DIGEST_BYTES] != last:
            last = key[:DIGEST_BYTES]
            yield last


def _view(store: Environment, txn: lmdb.Transaction, record: BlobRecord | None, intents: list[Intent]) -> BlobView:
    owners = [BlobOwner(intent.author, intent.accepted_ms) for intent in intents]
    is_permanent = record is not None and (record.referenced_by is not None or not intents)
    last_ms = max((owner.at_ms for owner in owners), default=0)
    size = intents[0].size if record is None else record.size
    return BlobView(
        ref=intents[0].ref if record is None else record.ref,
        size=size,
        received=max(count_received_bytes(store, txn, intent) for intent in intents) if record is None else size,
        sha256="" if record is None else "sha256:" + record.sha256.hex(),
        chunks=-(-size // blob_chunk_bytes),
        stored=owners,
        referenced_by=None if record is None else record.referenced_by,
        dropped_ms=None if is_permanent else last_ms + blob_unreferenced_max_s * 1000,
    )
