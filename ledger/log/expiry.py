"""Records which blobs the entries reference, and deletes unreferenced blobs that have expired.

An entry references a blob if a string in its ``data`` is the blob's ref, by either digest, as in exports. The
references are stored in the blobs' environment, with the position up to which the log was read. If the log is another
one (restored, recovered), they are read again from its beginning.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE, check_strict, encode_packed, encode_sorted, msgpack_decoder
from deedbook.ledger.format.envelope import decode_entry, entry_leaf, head_of
from deedbook.ledger.limits import (
    blob_chunk_bytes,
    blob_unreferenced_max_s,
    range_events_max,
    range_size_max_bytes,
)
from deedbook.ledger.log import blobs as blob_tables
from deedbook.ledger.log.uploads import count_unreferenced, delete_chunks, delete_intent

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.environment import Environment
    from deedbook.ledger.log.log import Log
    from deedbook.ledger.log.state import Snapshot

# Also within a text, such as `report.txt (kept: REF)`: the blob of a ref that somebody can read must be there.
_REFS: Final = re.compile(rb"(?:blake3|sha256):[0-9a-f]{64}(?![0-9a-f])")
_ESCAPED: Final = b"\\u"
_POSITION: Final = b"\0"
_pages_per_transaction: Final = 16
_dropped_per_transaction_max_bytes: Final = 64 * 1024**2
_intents_per_transaction: Final = 256


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """How many entries were read, and the leaf hash of the last one, which identifies the log."""

    size: int = 0
    leaf: bytes = b""


class ExpiryResult(msgspec.Struct, frozen=True):
    """The number of deleted blobs, unfinished uploads included, and their bytes."""

    blobs: int
    size: int


_position_decoder: Final = msgpack_decoder(_Position)


def find_refs(entry: bytes) -> list[str]:
    """Return the refs of blobs in the data of an entry. Its ``causes`` are events, so they do not count."""
    if _REFS.search(entry) is None and _ESCAPED not in entry:
        return []
    try:
        return refs_in(bytes(head_of(decode_entry(entry).body).data))
    except (*UNREADABLE, Refused):
        return []  # a damaged entry: `deed fsck` reports it, and the entries after it must still be read


def refs_in(data: bytes) -> list[str]:
    """Return the refs in the data of an event (JSON): in all its strings."""
    if _ESCAPED in data:  # a letter of a ref may be escaped
        with suppress(Refused):  # not strict JSON: only a forged entry has such data, and audits say so
            data = encode_sorted(check_strict(data))
    return [ref.decode() for ref in dict.fromkeys(_REFS.findall(data))]


def read_references(log: Log) -> int:
    """Read the references of entries that were appended since the last call; return how many entries are read in all.

    Each transaction reads a bounded number of entries. If no blob was ever stored, this returns 0. Raises Unavailable:
    the blobs' environment cannot be written.
    """
    store = log.blobs.environment()
    if store is None:
        return 0
    while True:
        with log.snapshot() as snapshot:
            with store.reading() as txn:
                if _is_read(store, txn, snapshot):
                    return snapshot.size
            with store.writing() as txn:
                _read_next(store, txn, snapshot)


def drop_unreferenced(
    log: Log, *, now_ms: int | None = None, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> ExpiryResult:
    """Delete unreferenced blobs and unfinished uploads whose intents are all older than ``blob_unreferenced_max_s``.

    ``progress`` gets the number of examined intents as both arguments, because the number of all is not known. Each
    transaction is bounded. If we crash between two, the first deletions stay, and the next call does the rest.
    """
    store = log.blobs.environment()
    if store is None:
        return ExpiryResult(0, 0)
    read_references(log)
    before_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - blob_unreferenced_max_s * 1000
    blobs = size = examined = 0
    start: bytes | None = b""
    while start is not None:
        with store.reading() as txn:
            expired, start, count = _find_expired(store, txn, start, before_ms)
        examined += count
        progress(examined, examined)
        if not expired:
            continue
        read_references(log)  # what was appended meanwhile: reading all of it below would keep writers waiting
        # We hold the log's write lock while we read references to the log's end and delete blobs. The gate looks for an
        # event's blobs under the same lock. So either the event is already in the log and keeps its blob, or the gate
        # finds no blob and refuses the event. Nothing is written to the log here.
        with log.writing() as (_, snapshot), store.writing() as txn:
            while not _is_read(store, txn, snapshot):
                _read_next(store, txn, snapshot)
            for intent in expired:
                dropped_bytes = _drop(store, txn, intent, before_ms)
                blobs, size = blobs + (dropped_bytes is not None), size + (dropped_bytes or 0)
    return ExpiryResult(blobs, size)


def _find_expired(
    store: Environment, txn: lmdb.Transaction, start: bytes, before_ms: int
) -> tuple[list[blob_tables.Intent], bytes | None, int]:
    """Return a bounded number of expired intents from ``start`` on, the next start, and how many were examined."""
    expired: list[blob_tables.Intent] = []
    size = count = 0
    for key, data in store.items(txn, store.tables["intents"], b"", start):
        if count == 100 * _intents_per_transaction or len(expired) == _intents_per_transaction:
            return expired, key, count
        if size > _dropped_per_transaction_max_bytes:
            return expired, key, count
        intent = blob_tables.intent_decoder.decode(data)
        record = blob_tables.find_record(store, txn, intent.ref) if intent.accepted_ms < before_ms else None
        if intent.accepted_ms < before_ms and (record is None or record.referenced_by is None):
            expired.append(intent)
            size += intent.size
        count += 1
    return expired, None, count


def _drop(store: Environment, txn: lmdb.Transaction, intent: blob_tables.Intent, before_ms: int) -> int | None:
    """Delete an intent if it is still expired; return the blob's bytes if no other intent stores it."""
    present = blob_tables.find_intent(store, txn, intent.digest, intent.author)
    record = blob_tables.find_record(store, txn, intent.ref)
    if present is None or present.accepted_ms >= before_ms:
        return None  # its author signed it again since we read it
    if record is not None and record.referenced_by is not None:
        return None
    chunks = delete_intent(store, txn, intent)
    if blob_tables.intents_of(store, txn, intent.digest):
        return None
    if record is None:
        return min(chunks * blob_chunk_bytes, intent.size)
    delete_chunks(store, txn, record.chunk_prefix)
    txn.delete(record.sha256, db=store.tables["aliases"])
    txn.delete(record.blake3, db=store.tables["records"])
    return record.size


def _read_position(store: Environment, txn: lmdb.Transaction) -> _Position:
    data = store.get(txn, store.tables["usage"], _POSITION)
    return _Position() if data is None else _position_decoder.decode(data)


def _is_read(store: Environment, txn: lmdb.Transaction, snapshot: Snapshot) -> bool:
    """Return whether the references are those of this log, up to its end."""
    position = _read_position(store, txn)
    return position.size == snapshot.size and _is_in_log(position, snapshot)


def _is_in_log(position: _Position, snapshot: Snapshot) -> bool:
    if position.size > snapshot.size:
        return False
    return position.size == 0 or entry_leaf(snapshot.entry(position.size - 1)) == position.leaf


def _read_next(store: Environment, txn: lmdb.Transaction, snapshot: Snapshot) -> None:
    """Read the next entries of the log into the table of references."""
    position = _read_position(store, txn)
    if not _is_in_log(position, snapshot):
        _start_again(store, txn)
        position = _Position()
    index = position.size
    for _ in range(_pages_per_transaction):
        page = snapshot.entries(index, limit=range_events_max, size_max_bytes=range_size_max_bytes)
        for entry in page:
            for ref in find_refs(entry):
                _store_reference(store, txn, ref, index)
            index += 1
    if index:
        position = _Position(index, entry_leaf(snapshot.entry(index - 1)))
        txn.put(_POSITION, encode_packed(position), db=store.tables["usage"])


def _store_reference(store: Environment, txn: lmdb.Transaction, ref: str, index: int) -> None:
    """Store that the entry at ``index`` references ``ref``, unless an earlier entry does."""
    if not txn.put(
        blob_tables.reference_key(ref), index.to_bytes(8, "big"), overwrite=False, db=store.tables["references"]
    ):
        return
    record = blob_tables.find_record(store, txn, ref)
    if record is None or record.referenced_by is not None:
        return
    referenced = replace(record, referenced_by=index)
    txn.put(referenced.blake3, encode_packed(referenced), db=store.tables["records"])
    for intent in blob_tables.intents_of(store, txn, referenced.blake3):
        count_unreferenced(store, txn, intent, -intent.cost)


def _start_again(store: Environment, txn: lmdb.Transaction) -> None:
    """Delete the references that another log had: no blob is referenced until this log has been read."""
    txn.drop(store.tables["references"], delete=False)
    txn.delete(_POSITION, db=store.tables["usage"])
    for key, data in list(store.items(txn, store.tables["records"], b"")):
        record = blob_tables.record_decoder.decode(data)
        if record.referenced_by is not None:
            cleared = replace(record, referenced_by=None)
            txn.put(key, encode_packed(cleared), db=store.tables["records"])
            for intent in blob_tables.intents_of(store, txn, key):
                count_unreferenced(store, txn, intent, intent.cost)
