"""Compares the tables that the log derived from its entries (state, ids, blobs) with a replay.

Each table is read once, record by record, so no second copy of it is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from deedbook.consumers.auditor.page_reader import PageReader, UnreadableError
from deedbook.consumers.auditor.pages import Record
from deedbook.consumers.auditor.report import Findings
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.log.blob_files import FOLDER, BlobFiles, blob_name, part_name
from deedbook.ledger.log.blob_table import DIGEST_BYTES, INTENT, RECORD, SHA256, intent_decoder, record_decoder
from deedbook.ledger.log.keys import HEAD_KEY, NOT_REPLAYED, stream_digest, stream_key
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.log.tables import FORMAT, Head, head_decoder

if TYPE_CHECKING:
    from deedbook.consumers.auditor.replay import LogReplay
    from deedbook.ledger.admission.candidate import Candidate

_ID_KEY_BYTES = 48
attempts_max: Final = 5
# For each type of record (stream, key, idempotency key): the field with the index of the entry it follows from.
_INDEX_FIELDS = {b"s": "last_index", b"k": "since_index", b"i": "index"}
_NAMED = {b"s": "stream", b"a": "agent"}


class StreamMarks:
    """The digest of each entry's stream (16 bytes, as in the keys of the ids table); zeros where it is unknown."""

    def __init__(self) -> None:
        self._marks = bytearray()

    def observe(self, index: int, candidate: Candidate) -> None:
        """Record the stream of an entry."""
        self._marks.extend(bytes(16 * (index + 1) - len(self._marks)))
        self._marks[16 * index :] = stream_digest(candidate.body.stream)

    def of(self, index: int) -> bytes:
        """Return the mark of an entry."""
        return bytes(self._marks[16 * index : 16 * index + 16])


def table_records(reader: PageReader, table: str, findings: Findings) -> Iterator[Record]:
    """Yield the records of a table; report a problem if some cannot be read."""
    count = 0
    try:
        for record in reader.records(table):
            count += 1
            yield record
    except UnreadableError as error:
        findings.problem(None, "CORRUPTED", f"table {table}: only the first {count} records can be read ({error})")


def check_state(reader: PageReader, replay: LogReplay, findings: Findings) -> None:
    """Compare every stored record with the replayed one, and the stored head with the replayed head."""
    expected = replay.memory.packed
    seen: set[bytes] = set()
    for key, value in table_records(reader, "state", findings):
        if key == HEAD_KEY:
            _check_head(value, replay, findings)
        elif key[:1] in NOT_REPLAYED:
            continue
        elif replay.lost_from is None:
            seen.add(key)
            wanted = expected.get(key)
            if wanted is not None and _is_unread(key, replay):
                continue  # only the package knows the state of this stream
            if wanted is None:
                findings.problem(None, "CORRUPTED", f"no entry explains the record of {_named(key)}")
            elif wanted != value:
                message = f"the record of {_named(key)} contradicts the entries"
                findings.problem(_last_index(key, wanted), "CORRUPTED", message)
    if replay.lost_from is not None:
        findings.note(replay.lost_from, "CORRUPTED", "records of streams, agents and keys were not compared")
        return
    for key in sorted(expected.keys() - seen):
        findings.problem(_last_index(key, expected[key]), "CORRUPTED", f"the record of {_named(key)} is missing")


def check_ids(reader: PageReader, replay: LogReplay, marks: StreamMarks, findings: Findings) -> None:
    """Compare the ids table, which detects duplicates, with the events' ids."""
    seen = bytearray(replay.size)
    for key, value in table_records(reader, "ids", findings):
        index = int.from_bytes(value, "big")
        if index >= replay.size:
            findings.problem(None, "CORRUPTED", f"the ids table names entry {index}, which is beyond the log's end")
            continue
        seen[index] = 1
        is_right = replay.memory.indexes.get(key[16:]) == index and marks.of(index) == key[:16]
        if not (is_right and len(key) == _ID_KEY_BYTES):
            message = f"the ids table has entry {index} under a wrong id or stream"
            findings.problem(index, "CORRUPTED", message)
    index = seen.find(0)
    while index >= 0:
        findings.problem(index, "CORRUPTED", f"the ids table lacks entry {index}")
        index = seen.find(0, index + 1)


def check_blobs(home: Path, reader: PageReader, needed: Mapping[str, int], findings: Findings) -> None:
    """Hash every blob, and report missing blobs. ``needed`` maps each needed blob to the index of an entry.

    Unfinished uploads and leftover files are notes, because they expire.
    """
    for _ in range(attempts_max):
        attempt = Findings()
        before = dict(table_records(reader, "blobs", attempt))
        _compare_blobs(before, BlobFiles(home), needed, attempt)
        if not attempt.problems or before == dict(table_records(reader, "blobs", Findings())):
            findings.merge(attempt)
            return
        # A blob was stored or deleted meanwhile and may look damaged for that reason: try again.
    findings.note(None, "STORE_IN_USE", "the blobs were not compared, because they keep changing: stop the writers")


def _compare_blobs(
    rows: Mapping[bytes, bytes], files: BlobFiles, needed: Mapping[str, int], findings: Findings
) -> None:
    expected, present = set[str](), set[str]()
    for key in (key for key in rows if key.startswith(RECORD)):
        digest = key[1:]
        expected.add(blob_name(digest))
        try:
            record = record_decoder.decode(rows[key])
        except UNREADABLE as error:
            findings.problem(None, "CORRUPTED", f"the record of blob blake3:{digest.hex()} cannot be read: {error}")
            continue
        if (stored := files.digests_of(digest)) is not None:
            present.update(record.refs)
            if stored != replace(record, referenced_by=None) or record.blake3 != digest:
                findings.problem(None, "CORRUPTED", f"blob {record.ref} is damaged")
            elif rows.get(SHA256 + record.sha256) != digest:
                findings.problem(None, "CORRUPTED", f"blob {record.refs[1]} points to another blob")
        elif needed.keys().isdisjoint(record.refs):
            message = f"blob {record.ref} is missing: there is no regular file {FOLDER}/{blob_name(digest)}"
            findings.problem(None, "CORRUPTED", message)
    expected |= _unfinished_parts(rows, findings)
    for name in sorted(set(files.names()) - expected):
        findings.note(None, "NOT_FOUND", f"no blob and no upload has the file {FOLDER}/{name}, so nobody reads it")
    for ref, index in needed.items():
        if ref not in present:
            findings.missing_blob(ref, index)


def _unfinished_parts(rows: Mapping[bytes, bytes], findings: Findings) -> set[str]:
    """Report the unfinished uploads; return the names of their parts."""
    names = set[str]()
    for key in (key for key in rows if key.startswith(INTENT)):
        digest = key[1 : 1 + DIGEST_BYTES]
        if RECORD + digest not in rows:
            findings.note(None, "NOT_FOUND", f"the upload of blob blake3:{digest.hex()} was never finished")
            names.add(part_name(digest, intent_decoder.decode(rows[key]).upload))
    return names


def read_head(reader: PageReader) -> Head | None:
    """Return the stored head, or None when it cannot be read."""
    record = reader.first("state", HEAD_KEY)
    if record is None or record[0] != HEAD_KEY:
        return None
    try:
        head = head_decoder.decode(record[1])
    except UNREADABLE:
        return None
    is_possible = head.format == FORMAT and len(head.frontier) == 32 * head.size.bit_count() and head.size >= 0
    return head if is_possible else None


def _check_head(value: bytes, replay: LogReplay, findings: Findings) -> None:
    frontier = replay.frontier
    try:
        head = head_decoder.decode(value)
    except UNREADABLE as error:
        findings.problem(None, "CORRUPTED", f"the head cannot be decoded: {error}")
        return
    is_right = {
        "format": head.format == FORMAT,
        "ledger": head.ledger == replay.ledger or replay.lost_from == 0,
        "size": head.size == replay.size,
        "frontier": frontier is None or head.frontier == frontier.to_bytes(),
        "accepted_ms": head.accepted_ms == replay.clock_ms,
        "authority_version": head.authority_version == replay.memory.authority_version or replay.lost_from is not None,
    }
    if wrong := [name for name in is_right if not is_right[name]]:
        findings.problem(None, "CORRUPTED", f"the head contradicts the entries in: {', '.join(wrong)}")


def _last_index(key: bytes, value: bytes) -> int | None:
    field = _INDEX_FIELDS.get(key[:1])
    return None if field is None else int(getattr(decode_record(key, value), field))


def _is_unread(key: bytes, replay: LogReplay) -> bool:
    """Return whether a record belongs to a family whose package is not installed here."""
    family = key[1:].partition(b"/")[0].decode("utf-8", "replace")
    return key[:1] == stream_key("")[:1] and family in replay.unread


def _named(key: bytes) -> str:
    if key[:1] in _NAMED:
        return f"{_NAMED[key[:1]]} {key[1:].decode('utf-8', 'replace')}"
    return f"key {key[1:].hex()}" if key[:1] == b"k" else f"state key {key.hex()}"
