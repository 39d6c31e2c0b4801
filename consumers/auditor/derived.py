"""The tables that are derived from the entries, compared with a replay: state, ids and blobs.

Each is read once, record by record, and none is kept whole in memory a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from deedbook.consumers.auditor.page_reader import PageReader, Record, UnreadableError
from deedbook.consumers.auditor.report import Findings
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.log.blobs import DIGEST_BYTES, FOLDER, intent_decoder, record_decoder
from deedbook.ledger.log.environment import FILE
from deedbook.ledger.log.keys import HEAD_KEY, OF_NO_ENTRY, stream_digest
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.log.tables import FORMAT, Head, head_decoder

if TYPE_CHECKING:
    from deedbook.consumers.auditor.replay import Replay
    from deedbook.ledger.admission.check import Candidate

_ID_KEY_BYTES = 48
_CHUNK_NUMBER_BYTES = 4
attempts_max: Final = 5
# Where the records of streams, keys and idempotency keys say which entry they follow from.
_INDEX_FIELDS = {b"s": "last_index", b"k": "since_index", b"i": "index"}
_NAMED = {b"s": "stream", b"a": "agent"}


class StreamMarks:
    """16 bytes for each entry: the digest of its stream, as the ids table keys it; zeros where it is unknown.

    ``blobs`` are those that entries rest on, each with the index of the first such entry.
    """

    def __init__(self) -> None:
        self._marks = bytearray()
        self.blobs: dict[str, int] = {}

    def observe(self, index: int, candidate: Candidate) -> None:
        """Remember the stream of an entry, and its blobs."""
        self._marks.extend(bytes(16 * (index + 1) - len(self._marks)))
        self._marks[16 * index :] = stream_digest(candidate.body.stream)
        for ref in blobs_of(candidate.data):
            self.blobs.setdefault(ref, index)

    def of(self, index: int) -> bytes:
        """Return the mark of an entry."""
        return bytes(self._marks[16 * index : 16 * index + 16])


def table_records(reader: PageReader, table: str, findings: Findings) -> Iterator[Record]:
    """Yield the records of a table; what cannot be read is a problem."""
    count = 0
    try:
        for record in reader.records(table):
            count += 1
            yield record
    except UnreadableError as error:
        findings.problem(None, "CORRUPTED", f"table {table}: {count} records were read, the rest cannot be ({error})")


def check_state(reader: PageReader, replay: Replay, findings: Findings) -> None:
    """Compare every stored record, and the head, with the replayed ones."""
    expected = replay.state.packed
    seen: set[bytes] = set()
    for key, value in table_records(reader, "state", findings):
        if key == HEAD_KEY:
            _check_head(value, replay, findings)
        elif key[:1] in OF_NO_ENTRY:
            continue
        elif replay.lost_from is None:
            seen.add(key)
            wanted = expected.get(key)
            if wanted is None:
                findings.problem(None, "CORRUPTED", f"the record of {_named(key)} follows from no entry")
            elif wanted != value and not is_same_record(key, wanted, value):
                message = f"the record of {_named(key)} is not what the entries give"
                findings.problem(_last_index(key, wanted), "CORRUPTED", message)
    if replay.lost_from is not None:
        findings.note(replay.lost_from, "CORRUPTED", "records of streams, agents and keys were not compared")
        return
    for key in sorted(expected.keys() - seen):
        findings.problem(_last_index(key, expected[key]), "CORRUPTED", f"the record of {_named(key)} is missing")


def check_ids(reader: PageReader, replay: Replay, marks: StreamMarks, findings: Findings) -> None:
    """Compare the table of the duplicate check with the events' ids."""
    seen = bytearray(replay.size)
    for key, value in table_records(reader, "ids", findings):
        index = int.from_bytes(value, "big")
        if index >= replay.size:
            findings.problem(None, "CORRUPTED", f"the ids table names an entry {index}, beyond the log's end")
            continue
        seen[index] = 1
        is_right = replay.state.indexes.get(key[16:]) == index and marks.of(index) == key[:16]
        if not (is_right and len(key) == _ID_KEY_BYTES):
            message = f"the ids table has entry {index} under an id or stream that it does not have"
            findings.problem(index, "CORRUPTED", message)
    place = seen.find(0)
    while place >= 0:
        findings.problem(place, "CORRUPTED", f"the ids table lacks entry {place}")
        place = seen.find(0, place + 1)


def check_blobs(home: Path, marks: StreamMarks, findings: Findings) -> None:
    """Hash every blob; one that is not here is a note, as are uploads that were not finished: they expire."""
    if not (home / FOLDER / FILE).is_file():
        _note_missing({}, {}, marks, findings)
        return
    reader = PageReader(home, FOLDER)
    for _ in range(attempts_max):
        found = Findings()
        before = _blob_tables(reader, found)
        hashed: dict[bytes, tuple[int, bytes, bytes]] = {}
        chunks = table_records(reader, "chunks", found)
        for place, of_upload in groupby(chunks, key=lambda chunk: chunk[0][:-_CHUNK_NUMBER_BYTES]):
            hashed[place] = _hashed(chunk for _, chunk in of_upload)
        _compare_blobs(*before, hashed, found)
        if not found.problems or before == _blob_tables(reader, Findings()):
            findings.merge(found)
            _note_missing(*before[:2], marks, findings)
            return
        # A blob was stored or dropped meanwhile, and may look damaged for that: look again.
    findings.note(None, "STORE_IN_USE", "blobs are being stored too fast to be compared: they were not")


Table = dict[bytes, bytes]


def _note_missing(records: Table, aliases: Table, marks: StreamMarks, findings: Findings) -> None:
    here = {f"{name}:{key.hex()}" for name, table in (("blake3", records), ("sha256", aliases)) for key in table}
    if missing := sorted((index, ref) for ref, index in marks.blobs.items() if ref not in here):
        index, ref = missing[0]
        message = f"{len(missing)} blobs that entries rest on are not here, the first {ref}: copy them from a backup"
        findings.note(index, "NOT_FOUND", message)


def _blob_tables(reader: PageReader, findings: Findings) -> tuple[Table, Table, Table]:
    records, aliases, intents = (
        dict(table_records(reader, table, findings)) for table in ("records", "aliases", "intents")
    )
    return records, aliases, intents


def _compare_blobs(
    records: Table, aliases: Table, intents: Table, hashed: dict[bytes, tuple[int, bytes, bytes]], findings: Findings
) -> None:
    for digest, value in records.items():
        name = f"blob blake3:{digest.hex()}"
        try:
            record = record_decoder.decode(value)
        except UNREADABLE as error:
            findings.problem(None, "CORRUPTED", f"the record of {name} cannot be read: {error}")
            continue
        wanted = (record.size, record.blake3, record.sha256)
        if hashed.pop(record.place, _hashed(())) != wanted or record.blake3 != digest:
            findings.problem(None, "CORRUPTED", f"{name} is damaged")
        elif aliases.get(record.sha256) != digest:
            findings.problem(None, "CORRUPTED", f"blob sha256:{record.sha256.hex()} leads to another blob")
    for key, value in intents.items():
        if key[:DIGEST_BYTES] not in records:
            findings.note(None, "NOT_FOUND", f"blob blake3:{key[:DIGEST_BYTES].hex()} was never finished")
            hashed.pop(intent_decoder.decode(value).place, None)
    for place in hashed:
        findings.problem(None, "CORRUPTED", f"chunks lie under {place.hex()}, where no blob and no upload has any")


def _hashed(chunks: Iterable[bytes]) -> tuple[int, bytes, bytes]:
    size, hashes = 0, (blake3(), hashlib.sha256())
    for chunk in chunks:
        size += len(chunk)
        for hash_ in hashes:
            hash_.update(chunk)
    return size, hashes[0].digest(), hashes[1].digest()


def read_head(reader: PageReader) -> Head | None:
    """Return the stored head, or None when it cannot be read."""
    found = reader.first("state", HEAD_KEY)
    if found is None or found[0] != HEAD_KEY:
        return None
    try:
        head = head_decoder.decode(found[1])
    except UNREADABLE:
        return None
    is_possible = head.format == FORMAT and len(head.frontier) == 32 * head.size.bit_count() and head.size >= 0
    return head if is_possible else None


def _check_head(value: bytes, replay: Replay, findings: Findings) -> None:
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
        "authority_version": head.authority_version == replay.state.authority_version or replay.lost_from is not None,
    }
    if wrong := [name for name in is_right if not is_right[name]]:
        findings.problem(None, "CORRUPTED", f"the head says another {', '.join(wrong)} than the entries give")


def is_same_record(key: bytes, wanted: bytes, value: bytes) -> bool:
    """Return whether two encodings are of one record: the roles of an agent are a set, in no order."""
    try:
        return bool(decode_record(key, wanted) == decode_record(key, value))
    except UNREADABLE:
        return False


def _last_index(key: bytes, value: bytes) -> int | None:
    field = _INDEX_FIELDS.get(key[:1])
    return None if field is None else int(getattr(decode_record(key, value), field))


def _named(key: bytes) -> str:
    if key[:1] in _NAMED:
        return f"{_NAMED[key[:1]]} {key[1:].decode('utf-8', 'replace')}"
    return f"key {key[1:].hex()}" if key[:1] == b"k" else f"state key {key.hex()}"
