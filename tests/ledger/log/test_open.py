"""Opening a log reports a problem and the next step; a full or damaged store never loses acknowledged events."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec
import pytest
from building import Ledger, refs_of

from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import entry_leaf
from deedbook.ledger.format.merkle import root_of
from deedbook.ledger.log.environment import Environment, translate_errors
from deedbook.ledger.log.keys import HEAD_KEY, agent_key, index_key
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.tables import Head

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 1024**2


def code_of(folder: Path, **options: Any) -> str:
    """Return the error code of opening a log."""
    with pytest.raises(DeedbookError) as refused:
        Log(folder, **options)
    return refused.value.code


def check_whole(ledger: Ledger, acknowledged: list[str]) -> None:
    """Check that entries, tree and acknowledged ids agree."""
    with ledger.log.snapshot() as snapshot:
        entries = [snapshot.entry(index) for index in range(snapshot.size)]
        assert root_of(map(entry_leaf, entries)) == snapshot.root()
        assert not snapshot.has_entry_beyond_end()
        for index, identity in enumerate(acknowledged, 5):
            assert snapshot.index_of("session/s1", identity) == index


def fill(ledger: Ledger) -> list[str]:
    """Append until the store is full; return the acknowledged ids. No refused write may change the head.

    The store is full when it has refused three writes in a row. A write may succeed after the first refusal, because
    LMDB reuses freed pages only when no reader can see them any more.
    """
    acknowledged: list[str] = []
    ledger.emit("alice", "session/s1", SessionStarted())
    refusals: list[Unavailable] = []
    while len(refusals) < 3:
        text = f"{len(acknowledged)} " + "x" * 4000
        before = ledger.head()
        try:
            acknowledged.append(ledger.emit("alice", "session/s1", FindingLogged(finding=text)).id)
            refusals = []
        except Unavailable as error:
            refusals.append(error)
        assert (ledger.head() == before) == bool(refusals)
    assert {(refusal.code, refusal.recoverable) for refusal in refusals} == {("STORE_FULL", True)}
    assert len(acknowledged) > 20
    return acknowledged


def test_full_store_refuses_more_and_keeps_what_was_acknowledged(home: Path) -> None:
    with Ledger(home, map_size=SMALL) as ledger:
        acknowledged = fill(ledger)
        check_whole(ledger, acknowledged)


def test_full_store_opens_again_and_goes_on_with_a_larger_map(home: Path) -> None:
    with Ledger(home, map_size=SMALL) as ledger:
        acknowledged = fill(ledger)
        before = ledger.head()
    with Ledger(home, map_size=SMALL) as ledger:
        assert ledger.head() == before
        check_whole(ledger, acknowledged)
    with Ledger(home, map_size=8 * SMALL) as ledger:
        for number in range(100):
            acknowledged.append(ledger.emit("alice", "session/s1", FindingLogged(finding=f"more {number}")).id)
        check_whole(ledger, acknowledged)


def test_full_store_of_blobs_takes_no_half_of_one_and_leaves_the_log_its_room(home: Path) -> None:
    with Ledger(home, map_size=SMALL, blobs_size_max=SMALL) as ledger:
        ref = ledger.put_blob("alice", bytes(SMALL // 2))
        for author in ("alice", "bob"):
            with pytest.raises(Unavailable, match="blobs_size_max_bytes") as refused:
                ledger.put_blob(author, bytes(SMALL // 2 + 1))
            assert refused.value.code == "STORE_FULL"
            with pytest.raises(Unavailable, match="blobs_size_max_bytes"), ledger.client() as client:
                client.uploads.begin(client.check_intent(ledger.intent(author, bytes(SMALL // 2 + 1))))
        assert refs_of(ledger.log.blobs) == [ref]
        assert len(list(ledger.log.blobs.files.names())) == 1
        assert len(fill(ledger)) > 20


@pytest.mark.parametrize(("free", "code"), [(56 * 1024, "STORE_FULL"), (2**30, "STORE_UNAVAILABLE")])
def test_short_write_on_a_full_disk_is_reported_as_a_full_store(
    home: Path, monkeypatch: pytest.MonkeyPatch, free: int, code: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    with pytest.raises(Unavailable) as refused, translate_errors(home):
        raise lmdb.Error("mdb_txn_commit: Input/output error")
    assert refused.value.code == code


def new_environment(folder: Path) -> None:
    """Make an environment, and close it."""
    Environment(folder, ("entries",), map_size=SMALL, setting="map_size_bytes", create=True).close()


def test_new_lock_file_has_its_blocks_on_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    new_environment(folder)
    status = (folder / "lock.mdb").stat()
    # On a full disk, a write to a mapped page that has no block on the disk would kill the process.
    assert status.st_blocks * 512 >= status.st_size
    assert {path.name for path in folder.iterdir()} == {"data.mdb", "lock.mdb"}


def test_disk_without_room_for_a_lock_file_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, _: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", write)
        with pytest.raises(Unavailable) as refused:
            new_environment(tmp_path)
    assert refused.value.code == "STORE_FULL"
    assert list(tmp_path.iterdir()) == []
    new_environment(tmp_path)


def test_record_with_invalid_text_is_reported_as_damage(ledger: Ledger) -> None:
    tables = ledger.log.tables
    with tables.writing() as txn:
        stored = tables.get(txn, tables.state, agent_key("alice"))
        assert stored is not None
        txn.put(agent_key("alice"), stored.replace(b"alice", b"\xff" * 5), db=tables.state)
    with pytest.raises(Corrupted, match="a record that cannot be decoded"), ledger.log.snapshot() as snapshot:
        snapshot.agent("alice")


def test_share_of_the_map_in_use_is_known(home: Path) -> None:
    with Ledger(home, map_size=SMALL) as ledger:
        assert 0 < ledger.log.tables.used_ratio() < 0.5
        fill(ledger)
        assert ledger.log.tables.used_ratio() > 0.8


def test_map_too_small_for_any_ledger_is_full_and_can_be_made_larger(home: Path) -> None:
    (home / "log").mkdir(parents=True)
    assert code_of(home, create=True, map_size=8192) == "STORE_FULL"
    with Ledger(home):
        pass


def test_folder_without_a_ledger_is_refused_and_left_empty(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert code_of(folder) == "NO_LEDGER"
    assert list(tmp_path.iterdir()) == []


def test_log_is_not_created_in_place_of_a_file(tmp_path: Path) -> None:
    # Use a file in place of the folder, not a folder without permissions: tests may run as root, which may open any.
    (tmp_path / "log").write_text("")
    assert code_of(tmp_path, create=True) == "STORE_UNAVAILABLE"
    assert code_of(tmp_path) == "NO_LEDGER"


def test_second_open_in_one_process_is_refused_and_harms_nothing(ledger: Ledger) -> None:
    assert code_of(ledger.home.path) == "STORE_UNAVAILABLE"
    ledger.emit("alice", "session/s1", SessionStarted())


def test_closed_log_can_be_opened_again(home: Path) -> None:
    with Ledger(home) as ledger:
        before = ledger.head()
    with Ledger(home) as ledger:
        assert ledger.head() == before


def test_file_that_is_no_store_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "data.mdb").write_bytes(b"this is not a store" * 1000)
    with pytest.raises(Corrupted) as damaged:
        Log(tmp_path)
    assert damaged.value.code == "CORRUPTED"


def rewrite_head(ledger: Ledger, change: Callable[[Head], bytes]) -> None:
    """Replace the stored head."""
    with ledger.log.writing() as (txn, snapshot):
        assert snapshot.head is not None
        txn.put(HEAD_KEY, change(snapshot.head), db=ledger.log.tables.state)


def packed(head: Head, **change: Any) -> bytes:
    """Return a head with changes in its stored form."""
    return msgspec.msgpack.encode(msgspec.structs.replace(head, **change))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda _: b"", "CORRUPTED"),
        (lambda _: b"\x93\x01\x02", "CORRUPTED"),
        (lambda head: packed(head)[:-1], "CORRUPTED"),
        (lambda head: packed(head, size=head.size + 1), "CORRUPTED"),
        (lambda head: packed(head, size=head.size - 1), "CORRUPTED"),
        (lambda head: packed(head, size=0), "CORRUPTED"),
        (lambda head: packed(head, size=0, frontier=b""), "CORRUPTED"),
        (lambda head: packed(head, size=8), "CORRUPTED"),
        (lambda head: packed(head, size=2), "CORRUPTED"),
        (lambda head: packed(head, frontier=b""), "CORRUPTED"),
        (lambda head: packed(head, frontier=head.frontier[:-1]), "CORRUPTED"),
        (lambda head: packed(head, format=2), "UNSUPPORTED_VERSION"),
        (lambda head: packed(head).replace(head.ledger.encode(), b"\xff" * 32), "CORRUPTED"),
    ],
)
def test_head_that_does_not_fit_the_entries_stops_the_start(
    home: Path, change: Callable[[Head], bytes], code: str
) -> None:
    with Ledger(home) as ledger:
        rewrite_head(ledger, change)
    assert code_of(home) == code
    assert code_of(home) == code  # again, because the first attempt must leave nothing open


def test_lost_last_entry_stops_the_start(home: Path) -> None:
    with Ledger(home) as ledger:
        last = ledger.head()[0] - 1
        with ledger.log.tables.writing() as txn:
            txn.delete(index_key(last), db=ledger.log.tables.entries)
    assert code_of(home) == "CORRUPTED"


def test_lost_entry_in_the_middle_is_found_when_it_is_read(home: Path) -> None:
    with Ledger(home) as ledger:
        with ledger.log.tables.writing() as txn:
            txn.delete(index_key(1), db=ledger.log.tables.entries)
        with pytest.raises(Corrupted), ledger.log.snapshot() as snapshot:
            snapshot.entry(1)
        with pytest.raises(Corrupted), ledger.log.snapshot() as snapshot:
            snapshot.inclusion_proof(0)


def test_store_after_a_failed_commit_is_not_reported_as_damaged(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as stopped, translate_errors(tmp_path):
        raise lmdb.PanicError  # LMDB raises this on every call after it could not write its meta page
    assert stopped.value.code == "STORE_STOPPED"
    with pytest.raises(Corrupted), translate_errors(tmp_path):
        raise lmdb.CorruptedError
