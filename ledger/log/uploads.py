"""Storing blobs: an upload is begun by a signed intent, takes its chunks in order, and ends when the whole fits its id.

Chunks are kept as they come, so an upload goes on where it was, also after the node started again. They lie under a
place of their uploader's own until the blob has a record, and stay there: nothing is copied when it is whole.
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
from deedbook.ledger.log import blobs as stored

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.environment import Environment

_chunks_per_transaction: Final = 64
_chunk_prefix_bytes: Final = 16


class UploadProgress(NamedTuple):
    """How many bytes of a blob the ledger holds, and its id once it is stored."""

    received: int
    ref: str | None = None


class Uploads:
    """Writes the blobs of one ledger, within each author's quota; threads and processes may share it."""

    def __init__(self, blobs: stored.Blobs, quota: Quota, check_text: Callable[[bytes], None] = lambda _: None) -> None:
        """``check_text`` refuses content that holds a secret."""
        self._blobs = blobs
        self._quota = quota
        self._check_text = check_text

    def put(self, content: bytes, intent: stored.Intent) -> stored.BlobRecord:
        """Store the whole ``content`` that ``intent`` announces, in transactions of bounded size; return its record.

        Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; ``INVALID_FIELD`` for another size. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``. Corrupted: ``VERIFICATION_FAILED`` for other content.
        """
        if len(content) != intent.size:
            raise _wrong_size(intent, len(content))
        stored.check_blob(intent.ref, content)
        self._check_text(content)
        record = stored.BlobRecord(intent.size, intent.digest, hashlib.sha256(content).digest(), b"")
        store = self._blobs.open_or_create()
        first = 0
        # A small blob, as most are, costs one synced transaction.
        while True:
            with store.writing() as txn:
                chunk_prefix, there = self._begin(store, txn, intent)
                if there is not None:
                    return there
                if chunk_prefix != record.chunk_prefix:
                    # The first time; or what was begun was forgotten since: nothing of it is there.
                    record, first = replace(record, chunk_prefix=chunk_prefix), 0
                end = min(first + _chunks_per_transaction, record.chunk_count)
                for number in range(first, end):
                    chunk = content[number * blob_chunk_bytes : (number + 1) * blob_chunk_bytes]
                    txn.put(stored.chunk_key(chunk_prefix, number), chunk, db=store.tables["chunks"])
                if end == record.chunk_count:
                    # The record comes last: if we crash before it, nobody can see the chunks that are there.
                    return _complete(store, txn, record)
                first = end

    def begin(self, intent: stored.Intent) -> UploadProgress:
        """Begin an upload, or ask where it goes on.

        Raises Refused: ``TOO_LARGE``, ``INVALID_FIELD`` for a size that is not the stored blob's. Unavailable:
        ``QUOTA_EXCEEDED``, ``STORE_FULL``.
        """
        store = self._blobs.open_or_create()
        with store.writing() as txn:
            chunk_prefix, record = self._begin(store, txn, intent)
            if record is not None:
                return UploadProgress(record.size, record.ref)
            intent = replace(intent, chunk_prefix=chunk_prefix)
            held = stored.received(store, txn, intent)
        return self._finish(intent) if held == intent.size else UploadProgress(held)

    def add(self, author: str, digest: bytes, number: int, chunk: bytes) -> UploadProgress:
        """Take one chunk of an upload that ``author`` began; one that is held already is answered, and not kept again.

        Raises Refused: ``CHUNK_MISPLACED`` with ``received``, ``TOO_LARGE`` or ``INVALID_FIELD`` for its size;
        ``SECRET_DETECTED`` for the whole, which is then forgotten. Corrupted: ``VERIFICATION_FAILED`` for the whole,
        which is then forgotten.
        """
        store = self._blobs.open_or_create()
        with store.writing() as txn:
            intent = stored.find_intent(store, txn, digest, author)
            record = stored.find_record(store, txn, "blake3:" + digest.hex())
            if record is not None:
                return UploadProgress(record.size, record.ref)
            if intent is None:
                message = f"{author} has begun no upload of blake3:{digest.hex()}: send its signed intent first"
                raise Refused("CHUNK_MISPLACED", message, received=0)
            held = stored.received(store, txn, intent)
            start = number * blob_chunk_bytes
            if start > held:
                message = f"chunk {number} begins at byte {start}, and {held} are held: go on there"
                raise Refused("CHUNK_MISPLACED", message, received=held)
            if len(chunk) != min(blob_chunk_bytes, intent.size - start):
                raise _wrong_chunk(intent, number, len(chunk))
            if start == held:
                txn.put(stored.chunk_key(intent.chunk_prefix, number), chunk, db=store.tables["chunks"])
                held += len(chunk)
        return self._finish(intent) if held == intent.size else UploadProgress(held)

    def _finish(self, intent: stored.Intent) -> UploadProgress:
        """Check the whole of an upload, outside any transaction: others store theirs meanwhile."""
        record = stored.BlobRecord(intent.size, intent.digest, b"", intent.chunk_prefix)
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
                message = f"what was sent is not {intent.ref}: send it again from its beginning"
                raise Corrupted("VERIFICATION_FAILED", message, ref=intent.ref)
            self._check_text(bytes(text))
        except DeedbookError:
            with store.writing() as txn:
                forget(store, txn, intent)
            raise
        with store.writing() as txn:
            if stored.find_record(store, txn, intent.ref) is None:
                now = stored.find_intent(store, txn, intent.digest, intent.author)
                if now is None or now.chunk_prefix != intent.chunk_prefix:
                    # Forgotten at this very moment, perhaps begun anew: the chunks that were checked are gone.
                    raise Refused("CHUNK_MISPLACED", f"the upload of {intent.ref} has expired: begin again", received=0)
                _complete(store, txn, replace(record, sha256=sha.digest()))
        return UploadProgress(intent.size, intent.ref)

    def _begin(
        self, store: Environment, txn: lmdb.Transaction, intent: stored.Intent
    ) -> tuple[bytes, stored.BlobRecord | None]:
        """Keep the intent and count it; return where its chunks lie, and the record if the blob is stored already."""
        if intent.size > blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob of {intent.size} bytes exceeds {blob_size_max_bytes}", ref=intent.ref)
        record = stored.find_record(store, txn, intent.ref)
        if record is not None and record.size != intent.size:
            raise _wrong_size(intent, record.size)
        if record is not None and record.referenced_by is not None:
            return record.chunk_prefix, record  # it stays whoever stores it once more, and costs nobody anything
        before = stored.find_intent(store, txn, intent.digest, intent.author)
        if before is not None and before.size != intent.size:
            forget(store, txn, before)  # one of the two sizes was wrong: its chunks are of no use
            before = None
        if before is None:
            self._count(store, txn, intent)
        chunk_prefix = secrets.token_bytes(_chunk_prefix_bytes) if before is None else before.chunk_prefix
        # Signed again, it is kept for a day from now, and so is what it announced.
        kept = replace(intent, chunk_prefix=chunk_prefix)
        txn.put(intent.db_key, encode_packed(kept), db=store.tables["intents"])
        return chunk_prefix, record

    def _count(self, store: Environment, txn: lmdb.Transaction, intent: stored.Intent) -> None:
        usage = stored.read_usage(store, txn, intent.author)
        after = stored.Usage(usage.blobs + 1, usage.size + intent.cost, usage.unreferenced + intent.cost)
        for setting, counted, limit in (
            ("blob_bytes_unreferenced", after.unreferenced, self._quota.blob_bytes_unreferenced),
            ("blob_bytes", after.size, self._quota.blob_bytes),
        ):
            if counted > limit and intent.author not in EXEMPT:
                heals = "append the events that refer to them, wait until they expire, " if "un" in setting else ""
                message = (
                    f"{intent.author} stores {counted - intent.cost} bytes of blobs and may store {limit} ({setting}):"
                    f" {heals}or let the operator raise {setting} under [quota] in config.toml"
                )
                details = {"setting": setting, "limit": limit, "stored": counted - intent.cost, "size": intent.size}
                raise Unavailable("QUOTA_EXCEEDED", message, author=intent.author, **details)
        txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])


def put_restored(blobs: stored.Blobs, content: bytes) -> None:
    """Store a blob of a backup: its entries refer to it, and a backup does not hold who stored it first.

    No intent names it, so it is in nobody's quota, and never dropped.
    """
    digest = blake3(content).digest()
    record = stored.BlobRecord(len(content), digest, hashlib.sha256(content).digest(), digest[:_chunk_prefix_bytes])
    store = blobs.open_or_create()
    with store.writing() as txn:
        if stored.find_record(store, txn, record.ref) is None:
            for number in range(record.chunk_count):
                chunk = content[number * blob_chunk_bytes : (number + 1) * blob_chunk_bytes]
                txn.put(stored.chunk_key(record.chunk_prefix, number), chunk, db=store.tables["chunks"])
            _complete(store, txn, record)


def forget(store: Environment, txn: lmdb.Transaction, intent: stored.Intent) -> int:
    """Take an intent back, with the chunks that nobody else needs; return how many were deleted."""
    txn.delete(intent.db_key, db=store.tables["intents"])
    record = stored.find_record(store, txn, intent.ref)
    is_referenced = record is not None and record.referenced_by is not None
    usage = stored.read_usage(store, txn, intent.author)
    after = stored.Usage(
        usage.blobs - 1, usage.size - intent.cost, usage.unreferenced - (0 if is_referenced else intent.cost)
    )
    txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])
    return (
        0
        if record is not None and record.chunk_prefix == intent.chunk_prefix
        else delete_chunks(store, txn, intent.chunk_prefix)
    )


def delete_chunks(store: Environment, txn: lmdb.Transaction, chunk_prefix: bytes) -> int:
    """Delete all chunks at a place; return how many there were."""
    keys = [key for key, _ in store.items(txn, store.tables["chunks"], chunk_prefix)]
    for key in keys:
        txn.delete(key, db=store.tables["chunks"])
    return len(keys)


def _complete(store: Environment, txn: lmdb.Transaction, record: stored.BlobRecord) -> stored.BlobRecord:
    """Let the blob be seen; what others had sent of the same content is not needed any more."""
    for ref in (record.ref, "sha256:" + record.sha256.hex()):
        index = store.get(txn, store.tables["references"], stored.reference_key(ref))
        if index is not None and record.referenced_by is None:
            record = replace(record, referenced_by=int.from_bytes(index, "big"))
    for intent in stored.intents_of(store, txn, record.blake3):
        if intent.chunk_prefix != record.chunk_prefix:
            delete_chunks(store, txn, intent.chunk_prefix)
        if record.referenced_by is not None:
            count_unreferenced(store, txn, intent, -intent.cost)
    txn.put(record.sha256, record.blake3, db=store.tables["aliases"])
    txn.put(record.blake3, encode_packed(record), db=store.tables["records"])
    return record


def count_unreferenced(store: Environment, txn: lmdb.Transaction, intent: stored.Intent, size: int) -> None:
    """Count so many bytes of an intent's author (negative: no longer) among what no entry refers to."""
    usage = stored.read_usage(store, txn, intent.author)
    after = replace(usage, unreferenced=usage.unreferenced + size)
    txn.put(intent.author.encode(), encode_packed(after), db=store.tables["usage"])


def _wrong_size(intent: stored.Intent, size: int) -> Refused:
    message = f"the intent says that {intent.ref} has {intent.size} bytes, and it has {size}"
    return Refused("INVALID_FIELD", message, path="$.data.size", size=size)


def _wrong_chunk(intent: stored.Intent, number: int, size: int) -> Refused:
    if size > blob_chunk_bytes:
        return Refused("TOO_LARGE", f"a chunk has at most {blob_chunk_bytes} bytes, not {size}", ref=intent.ref)
    message = f"chunk {number} of {intent.ref} has {size} bytes: of {intent.size}, only the last chunk is shorter"
    return Refused("INVALID_FIELD", f"{message} than {blob_chunk_bytes}", ref=intent.ref)
