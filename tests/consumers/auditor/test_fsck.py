"""`deed fsck` finds damage in the LMDB file itself, and says where it is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lmdb
import msgspec
import pytest
from blake3 import blake3
from building import Ledger
from faults import is_long_run
from tampering import (
    append_behind_the_gate,
    entries_of,
    fill,
    finding,
    flipped,
    forged,
    named,
    overwrite,
    places_of,
    samples,
)

from deedbook.consumers.auditor.fsck import fsck
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.events.handoff import HandoffCreated
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log import keys
from deedbook.ledger.log.blob_files import FOLDER, blob_name
from deedbook.ledger.log.record_codec import decode_record
from deedbook.ledger.log.tiles import tile_key

if TYPE_CHECKING:
    from pathlib import Path

FLIPS = 40
# Each byte is flipped in some entry; in the long run, in each entry.
CLOCK_FLIPS = ((-1, 1), (-2, 4), (-7, 1))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A ledger with one full tile and an unfinished one, closed; its folder and its entries."""
    with Ledger(tmp_path_factory.mktemp("audited") / ".deedbook") as ledger:
        fill(ledger)
        ledger.emit("bob", "session/many", SessionStarted(task="fill a tile"))
        for start in range(0, 210, 70):
            drafts = [Draft(stream="session/many", data=finding(start + number)) for number in range(70)]
            ledger.submit(ledger.sign("bob", *drafts))
        for number in range(30):
            ledger.clock.advance(0.01)
            ledger.emit("bob", "session/many", finding(1000 + number))
        return ledger.home.path, entries_of(ledger)


def test_honest_ledger_has_no_problem(closed: tuple[Path, list[bytes]]) -> None:
    folder, entries = closed
    report = fsck(folder)
    assert report.ok, report.problems
    assert report.size == report.signatures == len(entries)
    assert report.kinds["handoff.verified"] == 1
    assert report.notes == []


def test_honest_ledger_in_use_has_no_problem(ledger: Ledger) -> None:
    fill(ledger)
    assert fsck(ledger.home.path).ok


@pytest.mark.usefixtures("unmeasured")
def test_each_flipped_byte_of_an_entry_is_named_by_its_index(closed: tuple[Path, list[bytes]]) -> None:
    folder, entries = closed
    data = folder / "log" / "data.mdb"
    for chance in samples("entries", FLIPS, slow=6):
        index = chance.randrange(len(entries))
        byte = chance.randrange(len(entries[index]))
        mask = chance.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
        places = places_of(data, entries[index])
        assert places
        with flipped(data, [place + byte for place in places], mask):
            report = fsck(folder)
        assert index in named(report), (index, byte, mask, entries[index][byte], report.problems)
    assert fsck(folder).ok


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("index", [2, 20, 100, 255, 262, -2])
def test_flipped_byte_of_the_clock_is_named_though_no_signature_covers_it(
    closed: tuple[Path, list[bytes]], index: int
) -> None:
    folder, entries = closed
    data = folder / "log" / "data.mdb"
    index %= len(entries)
    for byte, mask in CLOCK_FLIPS if is_long_run else [CLOCK_FLIPS[index % len(CLOCK_FLIPS)]]:
        places = [place + len(entries[index]) + byte for place in places_of(data, entries[index])]
        with flipped(data, places, mask):
            report = fsck(folder)
        assert index in named(report), (byte, report.problems)


@pytest.mark.usefixtures("unmeasured")
def test_flipped_byte_anywhere_in_the_file_never_crashes_the_audit(closed: tuple[Path, list[bytes]]) -> None:
    folder, entries = closed
    data = folder / "log" / "data.mdb"
    size = data.stat().st_size
    for chance in samples("pages", 10, slow=4):
        # The header of a page: its number, flags, bounds and the first pointers into it.
        page = chance.randrange(size // 4096)
        with flipped(data, [page * 4096 + chance.randrange(40)], chance.choice((1, 16, 128, 255))):
            report = fsck(folder)
        assert report.ok == (report.problems_total == 0)
        assert report.ok is False or report.size == len(entries)


def test_log_that_cannot_be_compared_with_the_trust_store_is_a_problem_and_no_crash(
    closed: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise Corrupted("CORRUPTED", "the store is damaged (located page was wrong type)")

    monkeypatch.setattr(LocalReader, "consistency", unreadable)
    report = fsck(closed[0])
    (problem,) = report.problems
    assert problem.message.startswith(
        "the log was not compared with the trust store, because it cannot be read: the store"
    )


def test_unreadable_page_is_reported_by_index_range(closed: tuple[Path, list[bytes]]) -> None:
    folder, entries = closed
    data = folder / "log" / "data.mdb"
    content = data.read_bytes()
    pages = {place // 4096 for place in places_of(data, entries[100])}
    # A leaf page whose flags name no type of page: LMDB refuses it or crashes, depending on its state.
    spoiled = bytearray(content)
    for page in pages:
        spoiled[page * 4096 + 10 : page * 4096 + 12] = b"\0\0"
    data.write_bytes(spoiled)
    try:
        report = fsck(folder)
    finally:
        data.write_bytes(content)
    ranges = [
        one for one in report.problems if one.index is not None and one.end is not None and one.index <= 100 < one.end
    ]
    assert ranges, report.problems
    assert ranges[0].end - ranges[0].index < 64
    assert report.size == len(entries)


def test_entry_of_another_place_is_named(ledger: Ledger) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    overwrite(ledger, {15: entries[16], 16: entries[15]})
    assert {15, 16} <= named(fsck(ledger.home.path))


def test_removed_entry_is_named(ledger: Ledger) -> None:
    fill(ledger)
    overwrite(ledger, {17: None})
    report = fsck(ledger.home.path)
    assert 17 in named(report)
    assert report.size == len(entries_of_rest(ledger)) + 1


def entries_of_rest(ledger: Ledger) -> list[bytes]:
    """Return the entries that are left in the table."""
    with ledger.log.tables.reading() as txn:
        return [bytes(value) for _, value in txn.cursor(db=ledger.log.tables.entries)]


def test_entry_beyond_the_end_is_reported(ledger: Ledger) -> None:
    fill(ledger)
    entries = entries_of(ledger)
    overwrite(ledger, {len(entries): entries[-1]})
    assert len(entries) in named(fsck(ledger.home.path))


def test_removed_last_entries_are_named(ledger: Ledger) -> None:
    fill(ledger)
    last = len(entries_of(ledger)) - 1
    overwrite(ledger, {last: None})
    assert last in named(fsck(ledger.home.path))


def test_event_appended_behind_the_gate_is_named(ledger: Ledger) -> None:
    fill(ledger)
    index = append_behind_the_gate(ledger, forged(ledger, "alice", "session/none", finding(1)))
    report = fsck(ledger.home.path)
    assert next((one.index, one.code) for one in report.problems if one.index == index) == (
        index,
        "NOT_FOUND",
    )


def test_changed_record_of_a_stream_is_found(ledger: Ledger) -> None:
    fill(ledger)
    key = keys.stream_key("handoff/first")
    with ledger.log.tables.writing() as txn:
        record = decode_record(b"s", txn.get(key, db=ledger.log.tables.state))
        txn.put(key, msgspec.msgpack.encode(msgspec.structs.replace(record, version=99)), db=ledger.log.tables.state)
    report = fsck(ledger.home.path)
    assert [one.message for one in report.problems] == ["the record of stream handoff/first contradicts the entries"]
    assert report.problems[0].index == record.last_index


def test_granted_role_that_no_entry_grants_is_found(ledger: Ledger) -> None:
    fill(ledger)
    key = keys.agent_key("alice")
    with ledger.log.tables.writing() as txn:
        record = decode_record(b"a", txn.get(key, db=ledger.log.tables.state))
        forged_record = msgspec.structs.replace(record, roles=("admin", *record.roles))
        txn.put(key, msgspec.msgpack.encode(forged_record), db=ledger.log.tables.state)
    assert [one.message for one in fsck(ledger.home.path).problems] == [
        "the record of agent alice contradicts the entries"
    ]


def test_missing_and_surplus_records_are_found(ledger: Ledger) -> None:
    fill(ledger)
    with ledger.log.tables.writing() as txn:
        txn.delete(keys.stream_key("handoff/first"), db=ledger.log.tables.state)
        txn.put(keys.stream_key("handoff/other"), b"\x90", db=ledger.log.tables.state)
    messages = {one.message for one in fsck(ledger.home.path).problems}
    assert messages == {
        "the record of stream handoff/first is missing",
        "no entry explains the record of stream handoff/other",
    }


def test_missing_and_wrong_ids_are_named(ledger: Ledger) -> None:
    fill(ledger)
    third, fourth = ledger.event(3), ledger.event(4)
    with ledger.log.tables.writing() as txn:
        txn.delete(keys.id_key(third.stream, third.id), db=ledger.log.tables.ids)
        txn.put(keys.id_key("session/elsewhere", fourth.id), keys.index_key(4), db=ledger.log.tables.ids)
    assert named(fsck(ledger.home.path)) == {3, 4}


def test_changed_head_is_found(ledger: Ledger) -> None:
    fill(ledger)
    with ledger.log.tables.writing() as txn:
        head = ledger.log.tables.read_head(txn)
        assert head is not None
        changed = msgspec.structs.replace(head, accepted_ms=head.accepted_ms + 1, authority_version=0)
        txn.put(keys.HEAD_KEY, msgspec.msgpack.encode(changed), db=ledger.log.tables.state)
    messages = [one.message for one in fsck(ledger.home.path).problems]
    assert messages == ["the head contradicts the entries in: accepted_ms, authority_version"]


def test_flipped_byte_of_a_tile_is_found_and_blames_no_entry(closed: tuple[Path, list[bytes]]) -> None:
    folder, _ = closed
    with lmdb.open(str(folder / "log"), max_dbs=8, readonly=True, map_size=0) as env:
        tiles = env.open_db(b"tiles", create=False)
        with env.begin() as txn:
            stored = {level: txn.get(tile_key(level, 0), db=tiles) for level in (0, 1)}
    data = folder / "log" / "data.mdb"
    for level, content in stored.items():
        assert content is not None
        with flipped(data, [place + 5 for place in places_of(data, content)], 1):
            report = fsck(folder)
        messages = [one.message for one in report.problems]
        assert any(message.startswith(f"tile 0 of level {level} does not match entries 0 to") for message in messages)
        assert not any(message.startswith("entry") for message in messages)


def test_changed_missing_and_left_over_files_of_blobs_are_named(ledger: Ledger) -> None:
    changed, missing, linked = (ledger.put_blob("alice", b"content %d" % number * 4000) for number in range(3))
    content = b"an upload" * 20_000
    with ledger.client() as client:
        client.uploads.begin(client.check_intent(ledger.intent("alice", content)))
        client.uploads.add("alice", blake3(content).digest(), 0, content[:blob_chunk_bytes])
    ledger.close()
    folder = ledger.home.path / FOLDER
    report = fsck(ledger.home.path)
    assert report.problems == []
    assert [note.message for note in report.notes] == [
        f"the upload of blob blake3:{blake3(content).hexdigest()} was never finished"
    ]

    files = {ref: folder / blob_name(bytes.fromhex(ref.partition(":")[2])) for ref in (changed, missing, linked)}
    left_over = [folder / f"{'0' * 64}.{'1' * 32}", folder / "notes", folder / "00" / ("0" * 64)]
    left_over[2].parent.mkdir(exist_ok=True)
    for path in left_over:
        path.write_bytes(b"")
    files[linked].rename(folder / "elsewhere")
    files[linked].symlink_to(folder / "elsewhere")
    files[missing].unlink()
    with flipped(files[changed], [3], 1):
        report = fsck(ledger.home.path)
    assert {problem.message for problem in report.problems} == {
        f"blob {changed} is damaged",
        *(
            f"blob {ref} is missing: there is no regular file {files[ref].relative_to(folder.parent)}"
            for ref in (missing, linked)
        ),
    }
    names = [path.relative_to(folder.parent) for path in (*left_over, folder / "elsewhere")]
    messages = {f"no blob and no upload has the file {name}, so nobody reads it" for name in names}
    assert messages == {note.message for note in report.notes if "was never finished" not in note.message}


def test_blob_that_an_entry_rests_on_and_that_is_not_here_is_told(ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", b"the whole of a file")
    created = HandoffCreated(title="t", to="bob", reviewer="rita", template=ref)
    index = ledger.emit("alice", "handoff/h1", created).index
    ledger.close()
    assert fsck(ledger.home.path).notes == []
    shutil.rmtree(ledger.home.path / FOLDER)
    report = fsck(ledger.home.path)
    assert report.problems == []
    assert [(one.index, one.code) for one in report.notes] == [(index, "NOT_FOUND")]
    assert ref in report.notes[0].message


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    "spoiled",
    [slice(0, 8192), slice(4096 + 16, 4096 + 200), *([slice(0, None), slice(8192, None)] if is_long_run else [])],
)
def test_file_whose_first_pages_are_lost_is_reported(
    ledger: Ledger, spoiled: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_long_run:
        # If the size is lost, too, two processes are started for each bit of each possible size.
        monkeypatch.setattr("deedbook.consumers.auditor.fsck._SIZE_UNKNOWN", 2**10)
    fill(ledger)
    ledger.close()
    data = ledger.home.path / "log" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[spoiled] = bytes(len(content[spoiled]))
    data.write_bytes(content)
    report = fsck(ledger.home.path)
    assert not report.ok
    assert not report.anchored


def test_lost_head_leaves_the_entries_to_be_audited(ledger: Ledger) -> None:
    fill(ledger)
    with ledger.log.tables.writing() as txn:
        txn.put(keys.HEAD_KEY, b"\x93no head", db=ledger.log.tables.state)
    report = fsck(ledger.home.path)
    assert not report.ok
    assert report.signatures == len(entries_of_rest(ledger))


def test_unreadable_last_entries_are_reported_by_range(closed: tuple[Path, list[bytes]]) -> None:
    folder, entries = closed
    data = folder / "log" / "data.mdb"
    content = data.read_bytes()
    spoiled = bytearray(content)
    for page in {place // 4096 for place in places_of(data, entries[-1])}:
        spoiled[page * 4096 + 10 : page * 4096 + 12] = b"\0\0"
    data.write_bytes(spoiled)
    try:
        report = fsck(folder)
    finally:
        data.write_bytes(content)
    assert any(one.index is not None and one.index < len(entries) == one.end for one in report.problems), (
        report.problems
    )


def test_folder_without_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        fsck(tmp_path)
    assert caught.value.code == "NO_LEDGER"


def test_empty_log_has_no_problem(tmp_path: Path) -> None:
    from deedbook.ledger.log.log import Log

    (tmp_path / "log").mkdir()
    Log(tmp_path, map_size=2**20, create=True).close()
    report = fsck(tmp_path)
    assert report.ok
    assert (report.size, report.ledger) == (0, None)
