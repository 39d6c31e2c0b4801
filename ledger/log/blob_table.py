"""The table ``blobs`` of the log: the records of blobs, uploads and quotas. ``blob_files`` has the content.

| key                                    | value                                                                      |
|----------------------------------------|----------------------------------------------------------------------------|
| r + BLAKE3 of the content              | the blob's record                                                          |
| s + SHA-256 of the content             | its BLAKE3                                                                 |
| i + BLAKE3 of the content + author     | the signed ``blob.stored``, with its acceptance time                       |
| e + first letter of algorithm + digest | index u64 of the first entry whose data has the ref                        |
| u + author                             | the author's usage                                                         |
| t                                      | the bytes of all blobs, and of unfinished uploads as their intents say     |
| p                                      | how far the log was read for references                                    |

The table is in the log's environment, so the lock of the log's writers also orders the deletion of blobs and the
entries that need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from deedbook.ledger.format.codec import encode_packed, msgpack_decoder
from deedbook.ledger.limits import blob_chunk_bytes, blob_overhead_bytes

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.tables import Tables

R = TypeVar("R")

DIGEST_BYTES: Final = 32
RECORD: Final = b"r"
SHA256: Final = b"s"
INTENT: Final = b"i"
_REFERENCE: Final = b"e"
_USAGE: Final = b"u"
_TOTAL: Final = b"t"
_POSITION: Final = b"p"


class BlobRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored blob: its size in bytes, both digests, and the first entry with its ref."""

    size: int
    blake3: bytes
    sha256: bytes
    referenced_by: int | None = None

    @property
    def ref(self) -> str:
        """The blob's id."""
        return "blake3:" + self.blake3.hex()

    @property
    def refs(self) -> tuple[str, str]:
        """The refs by which entries may reference it."""
        return self.ref, "sha256:" + self.sha256.hex()

    @property
    def chunk_count(self) -> int:
        """The number of its chunks."""
        return -(-self.size // blob_chunk_bytes)


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """An author's signed request to store a blob (``blob.stored``), and when the ledger accepted it (Unix ms).

    ``allows_secret``: a human signed that the content may contain what looks like a secret. ``upload`` is the number in
    the name of the received part: each upload has its own, so no author can write into another's.
    """

    author: str
    digest: bytes
    size: int
    body: bytes
    key: bytes
    sig: bytes
    accepted_ms: int
    upload: bytes = b""
    allows_secret: bool = False

    @property
    def ref(self) -> str:
        """The blob's id."""
        return "blake3:" + self.digest.hex()

    @property
    def cost(self) -> int:
        """The bytes that it counts in its author's quota."""
        return self.size + blob_overhead_bytes


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """The intents of one author: their number, their bytes, and the bytes of blobs that no entry references yet."""

    blobs: int = 0
    size: int = 0
    unreferenced: int = 0


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How many entries were read for references, and the leaf hash of the last one, which identifies the log."""

    size: int = 0
    leaf: bytes = b""


record_decoder: Final = msgpack_decoder(BlobRecord)
intent_decoder: Final = msgpack_decoder(Intent)
_usage_decoder: Final = msgpack_decoder(Usage)
_position_decoder: Final = msgpack_decoder(Position)


class BlobTable:
    """The table of blobs as one open transaction sees it."""

    def __init__(self, tables: Tables, txn: lmdb.Transaction) -> None:
        self._tables = tables
        self._txn = txn

    def digest(self, ref: str) -> bytes | None:
        """Return the BLAKE3 of a blob by either ref; None if no blob has this ``sha256:``."""
        algorithm, _, digest = ref.partition(":")
        key = bytes.fromhex(digest)
        return key if algorithm == "blake3" else self._get(SHA256 + key)

    def record(self, ref: str) -> BlobRecord | None:
        """Return the record of a blob by either ref, or None."""
        digest = self.digest(ref)
        data = None if digest is None else self._get(RECORD + digest)
        return None if data is None else record_decoder.decode(data)

    def records(self, start: bytes = b"") -> Iterator[BlobRecord]:
        """Yield the records in the order of their digests, from the digest ``start`` on."""
        for _, data in self._items(RECORD, RECORD + start):
            yield record_decoder.decode(data)

    def intent(self, digest: bytes, author: str) -> Intent | None:
        """Return the intent of an author for a blob, or None. There is at most one, the latest."""
        data = self._get(INTENT + digest + author.encode())
        return None if data is None else intent_decoder.decode(data)

    def intents(self, digest: bytes = b"", start: bytes = b"") -> Iterator[Intent]:
        """Yield the intents for a blob, or all, in the order of (digest, author), from the position ``start`` on."""
        for _, data in self._items(INTENT + digest, INTENT + start):
            yield intent_decoder.decode(data)

    def put_intent(self, intent: Intent) -> None:
        """Write an intent in place of its author's earlier one for this blob."""
        if self.intent(intent.digest, intent.author) is None:
            self._count_intent(intent, 1)
        self._put(INTENT + intent.digest + intent.author.encode(), encode_packed(intent))

    def delete_intent(self, intent: Intent) -> None:
        """Delete an intent."""
        self._txn.delete(INTENT + intent.digest + intent.author.encode(), db=self._tables.blobs)
        self._count_intent(intent, -1)

    def _count_intent(self, intent: Intent, sign: int) -> None:
        record = self.record(intent.ref)
        if record is None:
            self._add_total(sign * intent.size)
        is_referenced = record is not None and record.referenced_by is not None
        self._add_usage(intent.author, sign, sign * intent.cost, 0 if is_referenced else sign * intent.cost)

    def put_record(self, record: BlobRecord) -> BlobRecord:
        """Write the record of a complete blob, which makes it readable; return it with the entry that references it."""
        indexes = [index for ref in record.refs if (index := self.reference(ref)) is not None]
        record = replace(record, referenced_by=min(indexes, default=None))
        for intent in list(self.intents(record.blake3)):
            self._add_total(-intent.size)
            if indexes:
                self._add_usage(intent.author, 0, 0, -intent.cost)
        self._add_total(record.size)
        self._put(SHA256 + record.sha256, record.blake3)
        self._put(RECORD + record.blake3, encode_packed(record))
        return record

    def set_referenced(self, record: BlobRecord, index: int | None) -> None:
        """Write which entry references a stored blob first; None: no entry does."""
        sign = (index is None) - (record.referenced_by is None)
        for intent in list(self.intents(record.blake3)):
            self._add_usage(intent.author, 0, 0, sign * intent.cost)
        self._put(RECORD + record.blake3, encode_packed(replace(record, referenced_by=index)))

    def delete_record(self, record: BlobRecord) -> None:
        """Delete the record of a blob that has no intents any more."""
        self._txn.delete(SHA256 + record.sha256, db=self._tables.blobs)
        self._txn.delete(RECORD + record.blake3, db=self._tables.blobs)
        self._add_total(-record.size)

    def usage(self, author: str) -> Usage:
        """Return the usage of an author."""
        data = self._get(_USAGE + author.encode())
        return Usage() if data is None else _usage_decoder.decode(data)

    def _add_usage(self, author: str, blobs: int, size: int, unreferenced: int) -> None:
        usage = self.usage(author)
        after = Usage(usage.blobs + blobs, usage.size + size, usage.unreferenced + unreferenced)
        self._put(_USAGE + author.encode(), encode_packed(after))

    def total(self) -> int:
        """Return the bytes of all blobs, and of unfinished uploads as their intents say."""
        return int.from_bytes(self._get(_TOTAL) or b"", "big")

    def _add_total(self, size: int) -> None:
        self._put(_TOTAL, (self.total() + size).to_bytes(8, "big"))

    def reference(self, ref: str) -> int | None:
        """Return the index of the first entry that was read and references ``ref``."""
        index = self._get(_reference_key(ref))
        return None if index is None else int.from_bytes(index, "big")

    def put_reference(self, ref: str, index: int) -> None:
        """Write that the entry at ``index`` references ``ref``, unless an earlier entry does."""
        if self.reference(ref) is not None:
            return
        self._put(_reference_key(ref), index.to_bytes(8, "big"))
        record = self.record(ref)
        if record is not None and record.referenced_by is None:
            self.set_referenced(record, index)

    def position(self) -> Position:
        """Return how far the log was read for references."""
        data = self._get(_POSITION)
        return Position() if data is None else _position_decoder.decode(data)

    def put_position(self, position: Position) -> None:
        """Write how far the log was read for references."""
        self._put(_POSITION, encode_packed(position))

    def forget_references(self) -> None:
        """Delete all references: no blob is referenced until the log has been read again."""
        for key, _ in list(self._items(_REFERENCE)):
            self._txn.delete(key, db=self._tables.blobs)
        self.put_position(Position())
        for record in list(self.records()):
            if record.referenced_by is not None:
                self.set_referenced(record, None)

    def _get(self, key: bytes) -> bytes | None:
        return self._tables.get(self._txn, self._tables.blobs, key)

    def _put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables.blobs)

    def _items(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, Any]]:
        return self._tables.items(self._txn, self._tables.blobs, prefix, start)


def _reference_key(ref: str) -> bytes:
    algorithm, _, digest = ref.partition(":")
    return _REFERENCE + algorithm[:1].encode() + bytes.fromhex(digest)
