"""Records which blobs the entries reference, and deletes unreferenced blobs that have expired, and leftover files.

An entry references a blob if a string in its ``data`` contains the blob's ref, by either digest. Exports use the same
rule. The references are stored in the table of blobs, with the position up to which the log was read. If the log is
another one (restored, recovered), they are read again from its beginning.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE, check_strict, encode_sorted
from deedbook.ledger.format.envelope import decode_entry, entry_leaf, head_of
from deedbook.ledger.limits import blob_unreferenced_max_s, range_events_max, range_size_max_bytes
from deedbook.ledger.log.blob_files import BLOB_NAME, PART_NAME
from deedbook.ledger.log.blob_table import BlobTable, Intent, Position

if TYPE_CHECKING:
    from deedbook.ledger.log.log import Log
    from deedbook.ledger.log.state import Snapshot

# A ref within a text counts, too, such as `report.txt (kept: REF)`: if somebody can read a ref, its blob must exist.
_REFS: Final = re.compile(rb"(?:blake3|sha256):[0-9a-f]{64}(?![0-9a-f])")
_ESCAPED: Final = b"\\u"
_pages_per_transaction: Final = 16
_dropped_per_transaction_max_bytes: Final = 64 * 1024**2
_intents_per_transaction: Final = 256


class ExpiryResult(msgspec.Struct, frozen=True):
    """The number of deleted blobs, unfinished uploads included, and their bytes."""

    blobs: int
    size: int


class _NewReferences(NamedTuple):
    """The refs in the next entries, by the index of the entry, and the positions before and after them.

    ``is_other_log``: the stored references are those of another log.
    """

    before: Position
    is_other_log: bool
    refs: list[tuple[str, int]]
    after: Position


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
        with suppress(Refused):  # not strict JSON: only a forged entry has such data, and audits report it
            data = encode_sorted(check_strict(data))
    return [ref.decode() for ref in dict.fromkeys(_REFS.findall(data))]


def read_references(log: Log) -> int:
    """Read the references of entries that were appended since the last call; return how many entries are read in all.

    Entries are read without the lock of the log's writers, and a bounded number at a time. If no blob was ever stored,
    this returns 0. Raises Unavailable: the log cannot be written.
    """
    if not log.blobs.files.path.exists():
        return 0
    while True:
        with log.snapshot() as snapshot:
            if (found := _next_references(snapshot)) is None:
                return snapshot.size
        with log.writing() as (_, snapshot):
            if snapshot.blobs.position() == found.before:  # otherwise another process has read them
                _store(snapshot.blobs, found)


def drop_unreferenced(
    log: Log, *, now_ms: int | None = None, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> ExpiryResult:
    """Delete unreferenced blobs and unfinished uploads whose intents are all older than ``blob_unreferenced_max_s``.

    Files that crashed writers left are deleted, too (``sweep_files``). ``progress`` gets the number of examined intents
    as both arguments, because the number of all is not known. Each transaction is bounded. If we crash between two, the
    first deletions stay, and the next call does the rest.
    """
    files = log.blobs.files
    if not files.path.exists():
        return ExpiryResult(0, 0)
    before_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - blob_unreferenced_max_s * 1000
    read_references(log)
    blobs = size = examined = 0
    start: bytes | None = b""
    while start is not None:
        with log.blobs.reading() as table:
            expired, start, count = _find_expired(table, start, before_ms)
        examined += count
        progress(examined, examined)
        if not expired:
            continue
        read_references(log)  # the new entries: reading all of them below would keep writers waiting
        # We hold the log's write lock while we read references to the log's end and delete records. The gate searches
        # an event's blobs under the same lock. So either the event is already in the log and keeps its blob, or the
        # gate finds no blob and refuses the event.
        with log.writing() as (_, snapshot):
            _read_rest(snapshot)
            dropped = [intent for intent in expired if _drop(snapshot.blobs, intent, before_ms)]
            lasts = {intent.digest: intent for intent in dropped if not any(snapshot.blobs.intents(intent.digest))}
        # Files are deleted after the commit, so if we crash here, no record is without its file. An upload that stores
        # the blob again also needs the lock, and its record shows that the file is the new one.
        with log.blobs.writing() as table:
            for intent in dropped:
                received = files.part_size(intent.digest, intent.upload)
                files.delete_part(intent.digest, intent.upload, unless_locked=True)
                if intent is lasts.get(intent.digest):
                    blobs, size = blobs + 1, size + min(intent.size, max(received, files.status(intent.digest)[0]))
                    if table.record(intent.ref) is None:
                        files.delete(intent.digest)
    sweep_files(log, before_ms)
    return ExpiryResult(blobs, size)


def sweep_files(log: Log, before_ms: int | None = None) -> None:
    """Compare the files with the table of blobs.

    A file without a record becomes a blob again if its hash is right and entries reference it, as after the loss of the
    log. With ``before_ms`` (Unix ms), older files without a record are deleted, and so are parts that no upload needs
    and nobody writes.
    """
    read_references(log)
    for name in log.blobs.files.names():
        if (part := PART_NAME.fullmatch(name)) and before_ms is not None:
            _sweep_part(log, bytes.fromhex(part[1]), bytes.fromhex(part[2]))
        elif blob := BLOB_NAME.fullmatch(name):
            _sweep_blob(log, bytes.fromhex(blob[2]), before_ms)


def _sweep_part(log: Log, digest: bytes, upload: bytes) -> None:
    def is_needed(table: BlobTable) -> bool:
        is_stored = table.record("blake3:" + digest.hex()) is not None
        return not is_stored and any(intent.upload == upload for intent in table.intents(digest))

    with log.blobs.reading() as table:
        if is_needed(table):
            return
    with log.blobs.writing() as table:
        if not is_needed(table):
            log.blobs.files.delete_part(digest, upload, unless_locked=True)


def _sweep_blob(log: Log, digest: bytes, before_ms: int | None) -> None:
    files, ref = log.blobs.files, "blake3:" + digest.hex()
    with log.blobs.reading() as table:
        if table.record(ref) is not None:
            return
        is_referenced = table.reference(ref) is not None
    is_old = before_ms is not None and files.status(digest)[1] < before_ms
    if not (is_old or is_referenced or before_ms is None):
        return
    record = files.digests_of(digest)
    with log.writing() as (_, snapshot):
        _read_rest(snapshot)
        table = snapshot.blobs
        if table.record(ref) is not None:
            return
        if record is not None and record.ref == ref and any(table.reference(name) is not None for name in record.refs):
            table.put_record(record)
        elif is_old:
            files.delete(digest)


def _find_expired(table: BlobTable, start: bytes, before_ms: int) -> tuple[list[Intent], bytes | None, int]:
    """Return a bounded number of expired intents from ``start`` on, the next start, and how many were examined."""
    expired: list[Intent] = []
    size = count = 0
    for intent in table.intents(start=start):
        if (
            count == 100 * _intents_per_transaction
            or len(expired) == _intents_per_transaction
            or size > _dropped_per_transaction_max_bytes
        ):
            return expired, intent.digest + intent.author.encode(), count
        if intent.accepted_ms < before_ms and not _is_referenced(table, intent):
            expired.append(intent)
            size += intent.size
        count += 1
    return expired, None, count


def _drop(table: BlobTable, intent: Intent, before_ms: int) -> bool:
    """Delete an intent if it is still expired, and the record if no other intent is left; return whether it was."""
    present = table.intent(intent.digest, intent.author)
    if present is None or present.accepted_ms >= before_ms or _is_referenced(table, intent):
        return False  # its author signed it again since we read it, or an entry references the blob now
    table.delete_intent(present)
    record = table.record(intent.ref)
    if record is not None and not any(table.intents(intent.digest)):
        table.delete_record(record)
    return True


def _is_referenced(table: BlobTable, intent: Intent) -> bool:
    record = table.record(intent.ref)
    return record is not None and record.referenced_by is not None


def _next_references(snapshot: Snapshot) -> _NewReferences | None:
    """Read the references of the next entries; None if those of all entries are stored."""
    before = snapshot.blobs.position()
    is_other_log = not _is_in_log(before, snapshot)
    index = 0 if is_other_log else before.size
    if index == snapshot.size and not is_other_log:
        return None
    refs: list[tuple[str, int]] = []
    for _ in range(_pages_per_transaction):
        for entry in snapshot.entries(index, limit=range_events_max, size_max_bytes=range_size_max_bytes):
            refs += [(ref, index) for ref in find_refs(entry)]
            index += 1
    after = Position(index, entry_leaf(snapshot.entry(index - 1))) if index else Position()
    return _NewReferences(before, is_other_log, refs, after)


def _is_in_log(position: Position, snapshot: Snapshot) -> bool:
    if position.size > snapshot.size:
        return False
    return position.size == 0 or entry_leaf(snapshot.entry(position.size - 1)) == position.leaf


def _read_rest(snapshot: Snapshot) -> None:
    """Store the references up to the end of the log, in the write transaction of ``snapshot``."""
    while (found := _next_references(snapshot)) is not None:
        _store(snapshot.blobs, found)


def _store(table: BlobTable, found: _NewReferences) -> None:
    if found.is_other_log:
        table.forget_references()
    for ref, index in found.refs:
        table.put_reference(ref, index)
    table.put_position(found.after)
