"""Content-addressed blobs: content that is too large for an entry, read whole, in chunks, or as a stream.

A blob's id is ``blake3:`` + the hash of its bytes; ``sha256:`` finds it too. The content is a file (``blob_files``),
the record of it is in the log's environment (``blob_table``). This module reads and removes blobs. ``log.uploads``
writes them. ``log.expiry`` reads which blobs the entries reference, and deletes the others.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec
from blake3 import blake3

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.limits import blob_chunk_bytes, blob_unreferenced_max_s, blobs_size_max_bytes
from deedbook.ledger.log.blob_files import BlobFiles, damaged
from deedbook.ledger.log.blob_table import DIGEST_BYTES, BlobRecord, BlobTable, Intent

if TYPE_CHECKING:
    from deedbook.ledger.log.tables import Tables

page_blobs_max: Final = 500
rows_read_max: Final = 20_000  # For one page of a list: an empty page may still say where the next one begins.


class BlobOwner(msgspec.Struct, frozen=True):
    """An agent that stores a blob, and since when (Unix ms)."""

    author: str
    at_ms: int


class BlobView(msgspec.Struct, frozen=True):
    """A blob or an upload: during an upload ``sha256`` is empty.

    ``received`` is less than ``size`` if bytes are missing. ``referenced_by`` is the index of the first entry that
    references the blob. At ``dropped_ms`` (Unix ms) the ledger may delete it, unless an entry references it by then.
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


class Blobs:
    """The blobs of one ledger; threads may share them."""

    def __init__(self, folder: Path, tables: Tables, *, size_max: int = blobs_size_max_bytes) -> None:
        """Use the files in ``folder`` and their records in ``tables``; ``size_max`` limits the bytes of all."""
        self.files = BlobFiles(folder)
        self.size_max = size_max
        self._tables = tables

    @contextmanager
    def reading(self) -> Iterator[BlobTable]:
        """Open a read transaction on the table; keep it short."""
        with self._tables.reading() as txn:
            yield BlobTable(self._tables, txn)

    @contextmanager
    def writing(self) -> Iterator[BlobTable]:
        """Open the write transaction of the log on the table; a block that raises writes nothing."""
        with self._tables.writing() as txn:
            yield BlobTable(self._tables, txn)

    def find(self, ref: str) -> BlobRecord | None:
        """Return the record of a blob by either digest, or None.

        Raises Refused: ``INVALID_FIELD`` if ``ref`` has another form.
        """
        check_ref(ref)
        with self.reading() as table:
            return table.record(ref)

    def read_record(self, ref: str) -> BlobRecord:
        """Return the record of a blob. Raises Refused: ``NOT_FOUND``; ``INVALID_FIELD`` if ``ref`` has another form."""
        record = self.find(ref)
        if record is None:
            raise blob_not_found(ref)
        return record

    def is_whole(self, ref: str) -> bool:
        """Return whether this ledger has a blob, and its file with the right length."""
        record = self.find(ref)
        return record is not None and self.files.status(record.blake3)[0] == record.size

    def chunk(self, record: BlobRecord, number: int) -> bytes:
        """Return one chunk of a blob, unchecked. Raises Corrupted: the file is missing, or has another length."""
        with self._open(record) as file:
            file.seek(number * blob_chunk_bytes)
            return file.read(blob_chunk_bytes)

    def chunks(self, record: BlobRecord) -> Iterator[bytes]:
        """Yield the content of a blob, chunk by chunk, and check it: use none of it before the end.

        Raises Corrupted: ``CORRUPTED`` if the file is missing or has another length; after the last chunk, if the
        content has another hash.
        """
        digest, size = blake3(), 0
        with self._open(record) as file:
            while size < record.size and (chunk := file.read(blob_chunk_bytes)):
                digest.update(chunk)
                size += len(chunk)
                yield chunk
        if digest.digest() != record.blake3:
            raise damaged(record, "has changed")

    @contextmanager
    def _open(self, record: BlobRecord) -> Iterator[BinaryIO]:
        with self.files.open(record.blake3) as file:
            if file is None:
                raise damaged(record, "is missing, or no regular file")
            if (size := os.fstat(file.fileno()).st_size) != record.size:
                raise damaged(record, f"has {size} bytes, not {record.size}")
            yield file

    def get(self, ref: str) -> bytes:
        """Return the content of a blob, checked against its hash.

        Raises: as ``read_record`` and ``chunks``.
        """
        record = self.read_record(ref)
        content = b"".join(self.chunks(record))
        if ref != record.ref:
            check_blob(ref, content)
        return content

    def remove(self, refs: Iterable[str]) -> None:
        """Delete blobs and unfinished uploads now, even if entries reference them. Calling again does nothing more.

        The content is deleted before the records. If we crash between the two, the content is deleted, and reading
        fails until this is called again.
        """
        with self.writing() as table:
            for ref in refs:
                record, digest = table.record(ref), table.digest(ref)
                if digest is None:
                    continue
                self.files.delete(digest)
                self.files.delete_parts(digest)
                for intent in list(table.intents(digest)):
                    table.delete_intent(intent)
                if record is not None:
                    table.delete_record(record)

    def intent(self, author: str, digest: bytes) -> Intent | None:
        """Return the intent of ``author`` for a blob, or None."""
        with self.reading() as table:
            return table.intent(digest, author)

    def stat(self, ref: str) -> BlobView:
        """Return size, owners and state of a blob or of an upload.

        Raises Refused: ``NOT_FOUND``, or ``INVALID_FIELD`` if ``ref`` has another form.
        """
        check_ref(ref)
        with self.reading() as table:
            record, digest = table.record(ref), table.digest(ref)
            intents = [] if digest is None else list(table.intents(digest))
        if record is None and not intents:
            raise blob_not_found(ref)
        return self._view(record, intents)

    def page(
        self, after: str | None = None, *, limit: int = 50, author: str | None = None, unreferenced: bool = False
    ) -> BlobPage:
        """Return blobs in the order of their ids; with ``author`` or ``unreferenced``, only those.

        Raises Refused: ``INVALID_FIELD`` if ``after`` is not a ref.
        """
        start = b"" if after is None else bytes.fromhex(check_ref(after).partition(":")[2]) + b"\xff" * DIGEST_BYTES
        views: list[BlobView] = []
        with self.reading() as table:
            last = ""
            for number, ref in enumerate(_refs(table, start)):
                if len(views) == min(limit, page_blobs_max) or number == rows_read_max:
                    return BlobPage(views, last)
                last = ref
                record, intents = table.record(ref), list(table.intents(bytes.fromhex(ref.partition(":")[2])))
                is_of_author = author is None or any(intent.author == author for intent in intents)
                is_wanted = is_of_author and not (unreferenced and record and record.referenced_by is not None)
                if is_wanted:
                    views.append(self._view(record, intents))
        return BlobPage(views, None)

    def used_bytes(self) -> int:
        """Return the bytes of all blobs, and of unfinished uploads as their intents say."""
        with self.reading() as table:
            return table.total()

    def _view(self, record: BlobRecord | None, intents: list[Intent]) -> BlobView:
        owners = [BlobOwner(intent.author, intent.accepted_ms) for intent in intents]
        is_permanent = record is not None and (record.referenced_by is not None or not intents)
        last_ms = max((owner.at_ms for owner in owners), default=0)
        size = intents[0].size if record is None else record.size
        if record is None:
            received = max(self.files.part_size(intent.digest, intent.upload) for intent in intents)
        else:
            received = max(0, self.files.status(record.blake3)[0])
        return BlobView(
            ref=intents[0].ref if record is None else record.ref,
            size=size,
            received=min(size, received),
            sha256="" if record is None else record.refs[1],
            chunks=-(-size // blob_chunk_bytes),
            stored=owners,
            referenced_by=None if record is None else record.referenced_by,
            dropped_ms=None if is_permanent else last_ms + blob_unreferenced_max_s * 1000,
        )


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


def check_blob(ref: str, content: Iterable[bytes] | bytes) -> None:
    """Compare content, or its chunks, with the digest in ``ref``.

    Raises Corrupted: ``VERIFICATION_FAILED`` if they differ.
    """
    deque(checked_chunks(ref, [content] if isinstance(content, bytes) else content), maxlen=0)


def checked_chunks(ref: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``chunks``, and compare them with the digest in ``ref`` at the end.

    Raises Corrupted: ``VERIFICATION_FAILED`` if they differ.
    """
    algorithm, _, digest = ref.partition(":")
    computed = blake3() if algorithm == "blake3" else hashlib.sha256()
    for chunk in chunks:
        computed.update(chunk)
        yield chunk
    if computed.hexdigest() != digest:
        raise Corrupted("VERIFICATION_FAILED", f"the content does not have the digest {ref}", ref=ref)


def _refs(table: BlobTable, start: bytes) -> Iterator[str]:
    """Yield the refs of blobs and uploads, in order.

    They come from intents and from records, because an upload has no record, and a restored blob has no intent.
    """
    last = ""
    intents, records = table.intents(start=start), table.records(start)
    for ref in heapq.merge((intent.ref for intent in intents), (record.ref for record in records)):
        if ref != last:
            yield ref
            last = ref
