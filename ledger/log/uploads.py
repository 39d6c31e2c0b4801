"""Stores blobs. An upload begins with a signed intent, takes its chunks in order, and ends if all match the blob's id.

The ledger stores each chunk when it arrives, so an upload continues after a restart of the node. Each upload has its
own key prefix for its chunks. They keep it when the blob is complete and gets its record, so nothing is copied.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.home.quota import EXEMPT, Quota
from deedbook.ledger.limits import blob_chunk_bytes, blob_scan_max_bytes, blob_size_max_bytes
from deedbook.ledger.log import blobs as blob_tables

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.environment import Environment

_chunks_per_transaction: Final = 64
_chunk_prefix_bytes: Final = 16


class UploadProgress(NamedTuple):
    """How many bytes of a blob the ledger has received, and the blob's id once it is stored."""

    received: int
    ref: str | None = None


class Uploads:
    """Writes the blobs of one ledger, within each author's quota. Threads may share it."""

    def __init__(
        self, blobs: blob_tables.Blobs, quota: Quota, check_text: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """``check_text`` raises if content contains a secret."""
        self._blobs = blobs
        self._quota = quota
        self._check_text = check_text

    def put(self, content: bytes, intent: blob_tables.Intent) -> blob_tables.BlobRecord:
        """Store all of ``content`` as ``intent`` announces it, in transactions of bounded size; return its record.

        Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; ``INVALID_FIELD`` if the size differs. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``. Corrupted: ``VERIFICATION_FAILED`` if the digest differs.
        """
        if len(content) != intent.size:
            raise _wrong_size(intent, len(content))
        blob_tables.check_blob(intent.ref, content)
        if not intent.allows_secret:
            self._check_text(content)
        record = blob_tables.BlobRecord(intent.size, intent.digest, hashlib.sha256(content).digest(), b"")
        store = self._blobs.open_or_create()
        first = 0
        # Most blobs are small and need only one synced transaction.
        while True:
            with store.writing() as txn:
                chunk_prefix, present = self._begin(store, txn, intent)
                if present is not None:
                    return present
                if chunk_prefix != record.chunk_prefix:
                    # This is the first round, or the upload expired between two transactions: no chunk is stored.
                    record, first = replace(record, chunk_prefix=chunk_prefix), 0
                end = min(first + _chunks_per_transaction, record.chunk_count)
                for number in range(first, end):
                    chunk = content[number * blob_chunk_bytes : (number + 1) * blob_chunk_bytes]
                    txn.put(blob_tables.chunk_key(chunk_prefix, number), chunk, db=store.tables["chunks"])
                if end == record.chunk_count:
                    # The record comes last: if we crash before it, no reader can see the stored chunks.
                    return _complete(store, txn, record)
                first = end

    def begin(self, intent: blob_tables.Intent) -> UploadProgress:
        """Begin or continue an upload; return how many bytes are already there.

        Raises Refused: ``TOO_LARGE``; ``INVALID_FIELD`` if the stored blob has another size. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``. If all chunks are there: as ``add`` for the last one.
        """
        store = self._blobs.open_or_create()
        with store.writing() as txn:
            chunk_prefix, record = self._begin(store, txn, intent)
            if record is not None:
                return UploadProgress(record.size, record.ref)
            intent = replace(intent, chunk_prefix=chunk_prefix)
            received = blob_tables.count_received_bytes(store, txn, intent)
        return self._finish(intent) if received == intent.size else UploadProgress(received)

    def add(self, author: str, digest: bytes, number: int, chunk: bytes) -> UploadProgress:
        """Store one chunk of an upload that ``author`` began. A chunk that was already received is not stored again.

        Raises Refused: ``CHUNK_MISPLACED`` with ``received``; ``TOO_LARGE`` or ``INVALID_FIELD`` for the chunk's size.
        After the last chunk, Refused: ``SECRET_DETECTED``; Corrupted: ``VERIFICATION_FAILED``. Both delete the upload.
        """
        store = self._blobs.open_or_create()
        with store.writing() as txn:
            intent = blob_tables.find_intent(store, txn, digest, author)
            record = blob_tables.find_record(store, txn, "blake3:" + digest.hex())
            if record is not None:
                return UploadProgress(record.size, record.ref)
            if intent is None:
                message = f"{author} has no upload of blake3:{digest.hex()}: send its signed intent first"
                raise Refused("CHUNK_MISPLACED", message, received=0)
            received = blob_tables.count_received_bytes(store, txn, intent)
            start = number * blob_chunk_bytes
            if start > received:
                message = (
                    f"chunk {number} begins at byte {start}, but only {received} bytes are here: send the rest first"
                )
                raise Refused("CHUNK_MISPLACED", message, received=received)
            if len(chunk) != min(blob_chunk_bytes, intent.size - start):
                raise _wrong_chunk(intent, number, len(chunk))
            if start == received:
                txn.put(blob_tables.chunk_key(intent.chunk_prefix, number), chunk, db=store.tables["chunks"])
                received += len(chunk)
        return self._finish(intent) if received == intent.size else UploadProgress(received)

    def _finish(self, intent: blob_tables.Intent) -> UploadProgress:
        """Check the whole upload outside any transaction, so that others can write meanwhile; then store its record."""
        record = blob_tables.BlobRecord(intent.size, intent.digest, b"", intent.chunk_prefix)
        blake, sha, text = blake3(), hashlib.sha256(), bytearray()
        for number in range(record.chunk_count):
            chunk = self._blobs.chunk(record, number)
            blake.update(chunk)
            sha.update(chunk)
            if intent.size <= blob_scan_max_bytes:
                text += chunk
        store = self._blobs.open_or_create()
        try:
            if blake.digest() != intent.digest:
                message = f"the received bytes are not {intent.ref}: send them again from the first"
                raise Corrupted("VERIFICATION_FAILED", message, ref=intent.ref)
            if not intent.allows_secret:
                self._check_text(bytes(text))
        except DeedbookError:
            with store.writing() as txn:
                delete_intent(store, txn, intent)
            raise
        with store.writing() as txn:
            if blob_tables.find_record(store, txn, intent.ref) is None:
                current = blob_tables.find_intent(store, txn, intent.digest, intent.author)
                if current is None or current.chunk_prefix != intent.chunk_prefix:
                    # The upload was deleted since we checked it, and perhaps begun again: the checked chunks are gone.
                    raise Refused("CHUNK_MISPLACED", f"the upload of {intent.ref} has expired: begin again", received=0)
                _complete(store, txn, replace(record, sha256=sha.digest()))
        return UploadProgress(intent.size, intent.ref)

    def _begin(
        self, store: Environment, txn: lmdb.Transaction, intent: blob_tables.Intent
    ) -> tuple[bytes, blob_tables.BlobRecord | None]:
        """Store and count the intent; return the prefix of its chunks, and the record if the blob is already stored."""
        if intent.size > blob_size_max_bytes:
            message = f"a blob has at most {blob_size_max_bytes} bytes, not {intent.size}"
            raise Refused("TOO_LARGE", message, ref=intent.ref)
        record = blob_tables.find_record(store, txn, intent.ref)
        if record is not None and record.size != intent.size:
            raise _wrong_size(intent, record.size)
        if record is not None and record.referenced_by is not None:
            return record.chunk_prefix, record  # an entry keeps it: nothing to store, and no quota to count
        before = blob_tables.find_intent(store, txn, intent.digest, intent.author)
        if before is not None and before.size != intent.size:
            delete_intent(store, txn, before)  # one of the two sizes is wrong, so these chunks are useless
            before = None
        if before is None:
            self._count(store, txn, intent)
        chunk_prefix = secrets.token_bytes(_chunk_prefix_bytes) if before is None else before.chunk_prefix
        # An author who signs again keeps the blob for another day: the new intent has a new ``accepted_ms``.
        renewed = replace(intent, chunk_prefix=chunk_prefix)
        txn.put(intent.db_key, encode_packed(renewed), db=store.tables["intents"])
        return chunk_prefix, record

    def _count(self, store: Environment, txn: lmdb.Transaction, intent: blob_tables.Intent) -> None:
        usage = blob_tables.read_usage(store, txn, intent.author)
        after = blob_tables.Usage(usage.blobs + 1, usage.size + intent.cost, usage.unreferenced + intent.cost)
        for setting, counted, limit in (
            ("blob_bytes_unreferenced", after.unreferenced, self._quota.blob_bytes_unreferenced),
            ("blob_bytes", after.size, self._quota.blob_bytes),
        ):
            if counted > limit and intent.author not in EXEMPT:
                remedy = (
                    "append the events that reference them, wait until they expire, "
                    if setting == "blob_bytes_unreferenced"
                    else ""
                )
                message = (
                    f"{intent.author} stores {counted - intent.cost} bytes of blobs and may store {limit} ({setting}):"
                    f" {remedy}or let the operator raise {setting} under [quota] in config.toml"
                )
                details = {"setting": setting, "limit": limit, "stored": counted - intent.cost, "size": intent.size}
                raise Unavailable("QUOTA_EXCEEDED", message, author=intent.author, **details)
        txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])


def put_restored(blobs: blob_tables.Blobs, content: bytes) -> None:
    """Store a blob from a backup, without the upload intents of the agents that once uploaded it.

    A backup contains no intents. Without one, the blob counts in no agent's quota. Entries reference it, so it is never
    deleted.
    """
    digest = blake3(content).digest()
    record = blob_tables.BlobRecord(
        len(content), digest, hashlib.sha256(content).digest(), digest[:_chunk_prefix_bytes]
    )
    store = blobs.open_or_create()
    with store.writing() as txn:
        if blob_tables.find_record(store, txn, record.ref) is None:
            for number in range(record.chunk_count):
                chunk = content[number * blob_chunk_bytes : (number + 1) * blob_chunk_bytes]
                txn.put(blob_tables.chunk_key(record.chunk_prefix, number), chunk, db=store.tables["chunks"])
            _complete(store, txn, record)


def delete_intent(store: Environment, txn: lmdb.Transaction, intent: blob_tables.Intent) -> int:
    """Delete an intent, and its chunks unless a blob has them; return how many chunks were deleted."""
    txn.delete(intent.db_key, db=store.tables["intents"])
    record = blob_tables.find_record(store, txn, intent.ref)
    is_referenced = record is not None and record.referenced_by is not None
    usage = blob_tables.read_usage(store, txn, intent.author)
    after = blob_tables.Usage(
        usage.blobs - 1, usage.size - intent.cost, usage.unreferenced - (0 if is_referenced else intent.cost)
    )
    txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])
    if record is not None and record.chunk_prefix == intent.chunk_prefix:
        return 0  # the stored blob has these chunks
    return delete_chunks(store, txn, intent.chunk_prefix)


def delete_chunks(store: Environment, txn: lmdb.Transaction, chunk_prefix: bytes) -> int:
    """Delete all chunks with a prefix; return how many there were."""
    keys = [key for key, _ in store.items(txn, store.tables["chunks"], chunk_prefix)]
    for key in keys:
        txn.delete(key, db=store.tables["chunks"])
    return len(keys)


def _complete(store: Environment, txn: lmdb.Transaction, record: blob_tables.BlobRecord) -> blob_tables.BlobRecord:
    """Write the blob's record, which makes it readable, and delete other uploads' chunks of the same content."""
    for ref in (record.ref, "sha256:" + record.sha256.hex()):
        index = store.get(txn, store.tables["references"], blob_tables.reference_key(ref))
        if index is not None and record.referenced_by is None:
            record = replace(record, referenced_by=int.from_bytes(index, "big"))
    for intent in blob_tables.intents_of(store, txn, record.blake3):
        if intent.chunk_prefix != record.chunk_prefix:
            delete_chunks(store, txn, intent.chunk_prefix)
        if record.referenced_by is not None:
            count_unreferenced(store, txn, intent, -intent.cost)
    txn.put(record.sha256, record.blake3, db=store.tables["aliases"])
    txn.put(record.blake3, encode_packed(record), db=store.tables["records"])
    return record


def count_unreferenced(store: Environment, txn: lmdb.Transaction, intent: blob_tables.Intent, size: int) -> None:
    """Add ``size`` bytes (negative: subtract) to the unreferenced bytes of the intent's author."""
    usage = blob_tables.read_usage(store, txn, intent.author)
    after = replace(usage, unreferenced=usage.unreferenced + size)
    txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])


def _wrong_size(intent: blob_tables.Intent, size: int) -> Refused:
    message = (
        f"the intent says that {intent.ref} has {intent.size} bytes, but it has {size}: sign an intent with this size"
    )
    return Refused("INVALID_FIELD", message, path="$.data.size", size=size)


def _wrong_chunk(intent: blob_tables.Intent, number: int, size: int) -> Refused:
    if size > blob_chunk_bytes:
        return Refused("TOO_LARGE", f"a chunk has at most {blob_chunk_bytes} bytes, not {size}", ref=intent.ref)
    wanted = min(blob_chunk_bytes, intent.size - number * blob_chunk_bytes)
    message = f"chunk {number} of {intent.ref} has {size} bytes, but must have {wanted}"
    return Refused("INVALID_FIELD", message, ref=intent.ref)
