"""Stores blobs.

An upload begins with a signed intent, takes its chunks in order, and ends if all match the blob's id. The received
bytes are the length of a file, the *part*, so an upload continues after a restart of the node. A writer of a part holds
its lock. The chunks of a part are not synced one by one: after a power failure some may be wrong, which the hash of the
whole then detects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import BinaryIO, Final, NamedTuple

from msgspec.structs import replace

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.home.quota import EXEMPT, Quota
from deedbook.ledger.limits import blob_chunk_bytes, blob_scan_max_bytes, blob_size_max_bytes
from deedbook.ledger.log.blob_files import SETTING, ContentDigests
from deedbook.ledger.log.blob_table import BlobRecord, BlobTable, Intent, Usage
from deedbook.ledger.log.blobs import Blobs, check_ref

_upload_bytes: Final = 16


class UploadProgress(NamedTuple):
    """How many bytes of a blob the ledger has received, and the blob's id once it is stored."""

    received: int
    ref: str | None = None


class Uploads:
    """Writes the blobs of one ledger, within each author's quota. Threads may share it."""

    def __init__(self, blobs: Blobs, quota: Quota, check_text: Callable[[bytes], None] = lambda _: None) -> None:
        """``check_text`` raises if content contains a secret."""
        self._blobs = blobs
        self._files = blobs.files
        self._quota = quota
        self._check_text = check_text

    def put(self, chunks: Iterable[bytes], intent: Intent) -> BlobRecord:
        """Store the content in ``chunks`` as ``intent`` announces it; return the record of the blob.

        Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; ``INVALID_FIELD`` if the size differs. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``. Corrupted: ``VERIFICATION_FAILED`` if the digest differs.
        """
        with self._blobs.reading() as table:
            present, _ = self._check(table, intent)  # before the content, which may be large, is written
        if present is not None and self._blobs.is_whole(intent.ref):
            self._check_content(_copy(chunks, None, intent), intent)
            progress = self.begin(intent)
            if progress.ref is None:
                raise Unavailable("STORE_IN_USE", f"{intent.ref} expired meanwhile: store it again", ref=intent.ref)
            return present
        upload = os.urandom(_upload_bytes)
        with self._files.part(intent.digest, upload) as file:
            try:
                record = self._check_content(_copy(chunks, file, intent), intent)
                with self._blobs.writing() as table:
                    self._begin(table, intent)
                    return _store(self._blobs, table, intent.digest, upload, record)
            finally:
                self._files.delete_part(intent.digest, upload)  # it is missing if it became the blob

    def begin(self, intent: Intent) -> UploadProgress:
        """Begin or continue an upload; return how many bytes are already there.

        Raises Refused: ``TOO_LARGE``; ``INVALID_FIELD`` if the stored blob has another size. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``. If all chunks are there: as ``add`` for the last one.
        """
        with self._blobs.writing() as table:
            intent, record = self._begin(table, intent)
        if record is not None:
            return UploadProgress(record.size, record.ref)
        received = _received(self._files.part_size(intent.digest, intent.upload), intent)
        return self._finish(intent) if received == intent.size else UploadProgress(received)

    def add(self, author: str, digest: bytes, number: int, chunk: bytes) -> UploadProgress:
        """Store one chunk of an upload that ``author`` began. A chunk that was already received is not stored again.

        Raises Refused: ``CHUNK_MISPLACED`` with ``received``; ``TOO_LARGE`` or ``INVALID_FIELD`` for the chunk's size.
        After the last chunk, Refused: ``SECRET_DETECTED``; Corrupted: ``VERIFICATION_FAILED``. Both delete the upload.
        """
        with self._blobs.reading() as table:
            intent, record = table.intent(digest, author), table.record("blake3:" + digest.hex())
        if record is not None:
            return UploadProgress(record.size, record.ref)
        if intent is None:
            message = f"{author} has no upload of blake3:{digest.hex()}: send its signed intent first"
            raise Refused("CHUNK_MISPLACED", message, received=0)
        start = number * blob_chunk_bytes
        with self._files.part(digest, intent.upload) as file:
            received = _received(os.fstat(file.fileno()).st_size, intent)
            if start > received:
                message = (
                    f"chunk {number} begins at byte {start}, but only {received} bytes are here: send the rest first"
                )
                raise Refused("CHUNK_MISPLACED", message, received=received)
            if len(chunk) != min(blob_chunk_bytes, intent.size - start):
                raise _wrong_chunk(intent, number, len(chunk))
            if start == received:
                file.seek(start)
                file.write(chunk)
                file.truncate()  # bytes beyond the received ones are the remains of a crash
                received += len(chunk)
        return self._finish(intent) if received == intent.size else UploadProgress(received)

    def _finish(self, intent: Intent) -> UploadProgress:
        """Check the whole upload outside any transaction, so that others can write meanwhile; then store its record."""
        with self._files.part(intent.digest, intent.upload) as file:
            digests = ContentDigests(keeps_text=intent.size <= blob_scan_max_bytes)
            while chunk := file.read(blob_chunk_bytes):
                digests.add(chunk)
            try:
                record = self._check_content(digests, intent)
            except DeedbookError:
                with self._blobs.writing() as table:
                    current = table.intent(intent.digest, intent.author)
                    if current is not None and current.upload == intent.upload:
                        table.delete_intent(current)
                    self._files.delete_part(intent.digest, intent.upload)
                raise
            os.fsync(file.fileno())
            with self._blobs.writing() as table:
                if table.record(intent.ref) is None:
                    current = table.intent(intent.digest, intent.author)
                    if current is None or current.upload != intent.upload:
                        # The upload was deleted since we checked it, and perhaps begun again.
                        message = f"the upload of {intent.ref} has expired: begin again"
                        raise Refused("CHUNK_MISPLACED", message, received=0)
                    _store(self._blobs, table, intent.digest, intent.upload, record)
        return UploadProgress(intent.size, intent.ref)

    def _check_content(self, digests: ContentDigests, intent: Intent) -> BlobRecord:
        record = digests.record()
        if record.size != intent.size:
            raise _wrong_size(intent, record.size)
        if record.blake3 != intent.digest:
            message = f"the received bytes are not {intent.ref}: send them again from the first"
            raise Corrupted("VERIFICATION_FAILED", message, ref=intent.ref)
        if record.size <= blob_scan_max_bytes and not intent.allows_secret:
            self._check_text(bytes(digests.text))
        return record

    def _begin(self, table: BlobTable, intent: Intent) -> tuple[Intent, BlobRecord | None]:
        """Store and count the intent; return it with the number of its part, and the record of a stored blob."""
        record, before = self._check(table, intent)
        if record is not None and record.referenced_by is not None:
            return intent, record  # an entry keeps the blob: there is nothing to store, and no quota to count
        if before is not None and before.size != intent.size:
            table.delete_intent(before)  # one of the two sizes is wrong, so its part is useless
            before = None
        # An author who signs again keeps the blob for another day: the new intent has a new ``accepted_ms``.
        intent = replace(intent, upload=before.upload if before else os.urandom(_upload_bytes))
        table.put_intent(intent)
        return intent, record

    def _check(self, table: BlobTable, intent: Intent) -> tuple[BlobRecord | None, Intent | None]:
        """Return the record of the blob and the author's earlier intent, after a check of size and quota."""
        if intent.size > blob_size_max_bytes:
            message = f"a blob has at most {blob_size_max_bytes} bytes, not {intent.size}"
            raise Refused("TOO_LARGE", message, ref=intent.ref)
        record, before = table.record(intent.ref), table.intent(intent.digest, intent.author)
        if record is not None and record.size != intent.size:
            raise _wrong_size(intent, record.size)
        if record is None:
            known = 0 if before is None else before.size
            check_room(self._blobs, table, intent.size - known)
        is_referenced = record is not None and record.referenced_by is not None
        if intent.author not in EXEMPT and not is_referenced:
            self._check_quota(table.usage(intent.author), intent, 0 if before is None else before.cost)
        return record, before

    def _check_quota(self, usage: Usage, intent: Intent, counted: int) -> None:
        for setting, stored, limit in (
            ("blob_bytes_unreferenced", usage.unreferenced - counted, self._quota.blob_bytes_unreferenced),
            ("blob_bytes", usage.size - counted, self._quota.blob_bytes),
        ):
            if counted < intent.cost and stored + intent.cost > limit:
                remedy = (
                    "append the events that reference them, wait until they expire, "
                    if setting == "blob_bytes_unreferenced"
                    else ""
                )
                message = (
                    f"{intent.author} stores {stored} bytes of blobs and may store {limit} ({setting}):"
                    f" {remedy}or let the operator raise {setting} under [quota] in config.toml"
                )
                details = {"setting": setting, "limit": limit, "stored": stored, "size": intent.size}
                raise Unavailable("QUOTA_EXCEEDED", message, author=intent.author, **details)


def put_restored(blobs: Blobs, ref: str, chunks: Iterable[bytes]) -> None:
    """Store a blob from a backup or another node, without the upload intents of its agents.

    Without an intent, the blob counts in no agent's quota. Entries reference it, so it is never deleted. Raises
    Corrupted: ``VERIFICATION_FAILED`` if the content has another digest. Unavailable: ``STORE_FULL``.
    """
    digest, upload = bytes.fromhex(check_ref(ref).partition(":")[2]), os.urandom(_upload_bytes)
    if blobs.is_whole(ref):
        return
    with blobs.files.part(digest, upload) as file:
        try:
            record = _copy(chunks, file).record()
            if ref not in record.refs:
                raise Corrupted("VERIFICATION_FAILED", f"the content does not have the digest {ref}", ref=ref)
            with blobs.writing() as table:
                if table.record(ref) is None:
                    check_room(blobs, table, record.size)
                _store(blobs, table, digest, upload, record)
        finally:
            blobs.files.delete_part(digest, upload)


def check_room(blobs: Blobs, table: BlobTable, size: int) -> None:
    """Check that all blobs may have ``size`` more bytes together. Raises Unavailable: ``STORE_FULL``."""
    if size > 0 and table.total() + size > blobs.size_max:
        message = f"all blobs have {table.total()} bytes and may have {blobs.size_max}: raise {SETTING} in config"
        raise Unavailable("STORE_FULL", f"{message}.toml", setting=SETTING, limit=blobs.size_max)


def _copy(chunks: Iterable[bytes], file: BinaryIO | None, intent: Intent | None = None) -> ContentDigests:
    """Write and sync ``chunks``, if there is a file; stop after the size in ``intent``."""
    digests = ContentDigests(keeps_text=intent is not None and intent.size <= blob_scan_max_bytes)
    for chunk in chunks:
        digests.add(chunk)
        if intent is not None and digests.size > intent.size:
            raise _wrong_size(intent, digests.size)
        if file is not None:
            file.write(chunk)
    if file is not None:
        file.flush()
        os.fsync(file.fileno())
    return digests


def _store(blobs: Blobs, table: BlobTable, digest: bytes, upload: bytes, record: BlobRecord) -> BlobRecord:
    """Turn a synced part into the blob, also if its file was lost, and delete the parts of other uploads of it."""
    blobs.files.store(digest, upload, record)
    # If we crash before the commit, the file has no record yet: the next upload replaces it, or it expires.
    for intent in table.intents(record.blake3):
        blobs.files.delete_part(intent.digest, intent.upload)
    return table.record(record.ref) or table.put_record(record)


def _received(size: int, intent: Intent) -> int:
    """Return how many bytes of a part are valid: whole chunks.

    A killed writer may have left the beginning of another chunk.
    """
    return intent.size if size == intent.size else min(size, intent.size) // blob_chunk_bytes * blob_chunk_bytes


def _wrong_size(intent: Intent, size: int) -> Refused:
    message = (
        f"the intent says that {intent.ref} has {intent.size} bytes, but it has {size}: sign an intent with this size"
    )
    return Refused("INVALID_FIELD", message, path="$.data.size", size=size)


def _wrong_chunk(intent: Intent, number: int, size: int) -> Refused:
    if size > blob_chunk_bytes:
        return Refused("TOO_LARGE", f"a chunk has at most {blob_chunk_bytes} bytes, not {size}", ref=intent.ref)
    wanted = min(blob_chunk_bytes, intent.size - number * blob_chunk_bytes)
    message = f"chunk {number} of {intent.ref} has {size} bytes, but must have {wanted}"
    return Refused("INVALID_FIELD", message, ref=intent.ref)
