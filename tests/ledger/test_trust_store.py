"""Trust stores: another log at the same location is refused, and a history reset is reported once."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Ledger

from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.trust.history import ConsistencyProof
from deedbook.ledger.trust.store import TrustStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def grow(ledger: Ledger, *names: str) -> None:
    """Append one event for each name."""
    for name in names:
        ledger.emit("alice", f"session/{name}", SessionStarted())


def read(ledger: Ledger, **settings: bool) -> LocalClient:
    """Open a client as any command does, close it again, and return it."""
    client = LocalClient(msgspec.structs.replace(ledger.settings(), **settings), log=ledger.log)
    client.close()
    return client


@pytest.fixture
def notices_of(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """A function that opens a client on a ledger, and returns the notices that the user gets."""

    def read_notices(ledger: Ledger, **settings: bool) -> list[str]:
        caplog.clear()
        read(ledger, **settings)
        return caplog.messages

    return read_notices


def code_of(call: Callable[[], object]) -> str:
    """Return the code of the error that a call raises."""
    with pytest.raises(DeedbookError) as caught:
        call()
    return caught.value.code


@pytest.fixture
def put_back(ledger: Ledger, tmp_path: Path) -> Callable[[], Ledger]:
    """A function that restores the log as it was at the beginning of the test, and opens it."""
    copy = tmp_path / "copy"
    ledger.log.tables.env.sync(True)
    shutil.copytree(ledger.home.path, copy)

    def restore() -> Ledger:
        ledger.close()
        shutil.copyfile(copy / "log" / "data.mdb", ledger.home.path / "log" / "data.mdb")
        return Ledger(ledger.home.path)

    return restore


def test_a_log_that_grew_is_read_and_its_new_head_is_stored(
    ledger: Ledger, notices_of: Callable[..., list[str]]
) -> None:
    read(ledger)
    grow(ledger, "one", "two")

    assert notices_of(ledger) == []

    record = TrustStore.of_folder(ledger.id, ledger.home.path).load()
    assert record is not None
    assert record.trusted.size == ledger.head()[0]


def test_a_shorter_log_is_refused_and_the_error_names_both_heads(
    ledger: Ledger, put_back: Callable[[], Ledger]
) -> None:
    grow(ledger, "one", "two")
    read(ledger)
    size, root = ledger.head()

    with put_back() as older, pytest.raises(DeedbookError) as caught:
        read(older)

    assert caught.value.code == "HISTORY_CHANGED"
    assert caught.value.exit_code == 6
    assert caught.value.details["trusted_size"] == size
    assert caught.value.details["trusted_tree_head"] == root.hex()
    assert "deed recover" in caught.value.message


def test_a_log_that_was_put_back_and_grew_beyond_is_refused(ledger: Ledger, put_back: Callable[[], Ledger]) -> None:
    grow(ledger, "one", "two")
    read(ledger)

    with put_back() as older:
        grow(older, "new1", "new2", "new3")

        assert code_of(lambda: read(older)) == "HISTORY_CHANGED"


def test_a_client_that_only_looks_gets_a_notice_and_stores_nothing(
    ledger: Ledger, put_back: Callable[[], Ledger], notices_of: Callable[..., list[str]]
) -> None:
    grow(ledger, "one")
    read(ledger)

    with put_back() as older:
        (notice,) = notices_of(older, only_looks=True)

        assert notice.startswith("HISTORY_CHANGED")
        assert code_of(lambda: read(older)) == "HISTORY_CHANGED"


def test_a_reset_that_abandons_the_trusted_head_is_reported_once_and_accepted(
    ledger: Ledger, put_back: Callable[[], Ledger], notices_of: Callable[..., list[str]]
) -> None:
    grow(ledger, "one", "two")
    read(ledger)
    size, root = ledger.head()

    with put_back() as older:
        grow(older, "new1", "new2", "new3")
        reset = HistoryReset(abandoned_size=size, abandoned_root=root.hex(), reason="a disk was reset")
        older.emit("root", "ledger", reset)

        assert ["a disk was reset" in notice for notice in notices_of(older)] == [True]
        assert notices_of(older) == []


@pytest.mark.parametrize("wrong", ["size", "root"])
def test_a_reset_that_abandons_another_head_excuses_nothing(
    ledger: Ledger, put_back: Callable[[], Ledger], wrong: str
) -> None:
    grow(ledger, "one", "two")
    read(ledger)
    size, root = ledger.head()
    reset = HistoryReset(
        abandoned_size=size - (wrong == "size"), abandoned_root="00" * 32 if wrong == "root" else root.hex(), reason="r"
    )

    with put_back() as older:
        older.emit("root", "ledger", reset)

        assert code_of(lambda: read(older)) == "HISTORY_CHANGED"


def test_a_reset_that_the_reader_knew_does_not_excuse_the_next_loss(ledger: Ledger, tmp_path: Path) -> None:
    ledger.emit("root", "ledger", HistoryReset(abandoned_size=10_000, abandoned_root="00" * 32, reason="r"))
    database = ledger.home.path / "log" / "data.mdb"
    shutil.copyfile(database, tmp_path / "older.mdb")
    grow(ledger, "one", "two")
    read(ledger)
    ledger.close()
    shutil.copyfile(tmp_path / "older.mdb", database)

    with Ledger(ledger.home.path) as older:
        grow(older, "new1", "new2", "new3", "new4")

        assert code_of(lambda: read(older)) == "HISTORY_CHANGED"


def test_a_shorter_copy_elsewhere_gets_a_notice_and_a_fork_is_refused(
    ledger: Ledger, put_back: Callable[[], Ledger], tmp_path: Path, notices_of: Callable[..., list[str]]
) -> None:
    behind, fork = tmp_path / "behind", tmp_path / "fork"
    for folder in (behind, fork):
        shutil.copytree(tmp_path / "copy", folder)
    grow(ledger, "one", "two")
    read(ledger)

    with Ledger(behind) as copy:
        assert ["if that one is still in use" in notice for notice in notices_of(copy)] == [True]
        assert notices_of(copy) == []
    with Ledger(fork) as copy:
        grow(copy, "new1", "new2", "new3")
        assert code_of(lambda: read(copy)) == "HISTORY_CHANGED"
    assert notices_of(ledger) == []


@pytest.fixture
def copied(ledger: Ledger, tmp_path: Path) -> Iterator[Ledger]:
    """A copy of the ledger in another folder, made after the original was read."""
    read(ledger)
    shutil.copytree(ledger.home.path, tmp_path / "copied")
    with Ledger(tmp_path / "copied", clock=ledger.clock) as copy:
        yield copy


def write(ledger: Ledger, name: str) -> None:
    """Append an event through a client, as every writer of the folder does."""
    with LocalClient(ledger.settings()) as client:
        client.submit(ledger.sign("alice", Draft(stream=f"session/{name}", data=SessionStarted())))


def test_a_writer_to_a_copy_gets_a_notice_first_and_so_does_the_original_then(
    ledger: Ledger, copied: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def notices(written: Ledger, name: str) -> list[str]:
        caplog.clear()
        write(written, name)
        return list(caplog.messages)

    for copy in (ledger, copied):
        copy.log.close()
    (first,) = notices(copied, "first")
    assert first.startswith(f"{copied.home.path} and {ledger.home.path} hold the same ledger (nothing was written here")
    assert "Write to only one of them" in first
    assert not any(word in first for word in ("remove", "delete"))
    assert notices(copied, "second") == []
    (ahead,) = notices(ledger, "third")
    both = f"{ledger.home.path} and {copied.home.path} hold the same ledger"
    assert f"{both} (4 entries here, 6 there)" in ahead
    notices(ledger, "fourth")
    (other,) = notices(ledger, "fifth")
    assert f"{both} (another history)" in other
    shutil.rmtree(copied.home.path)
    caplog.clear()
    write(ledger, "fourth")
    assert caplog.messages == []


def test_the_same_folder_by_another_name_is_no_rival(ledger: Ledger, memory_of_readers: Path) -> None:
    read(ledger)
    other = TrustStore(ledger.id, str(ledger.home.path / ".." / ledger.home.path.name))
    grow(ledger, "a")
    read(ledger)
    with ledger.log.snapshot() as snapshot:
        assert TrustStore.of_folder(ledger.id, ledger.home.path).rivals(snapshot.consistency) == []
        other.update(snapshot.consistency, lambda _: pytest.fail("there is no reset"))
        assert TrustStore.of_folder(ledger.id, ledger.home.path).rivals(lambda _: ConsistencyProof(1, "00")) == []


def test_a_user_without_a_home_folder_learns_which_variable_to_set(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("deedbook.ledger.home.location.pwd.getpwuid", {}.__getitem__)
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    monkeypatch.setattr(trust_store, "path", ledger.home.path / "config.toml" / "below" / "memory.json")
    ledger.home.path.joinpath("config.toml").touch()
    with ledger.log.snapshot() as snapshot:
        trust_store.update(snapshot.consistency, lambda _: pytest.fail("there is no reset"))
    assert trust_store.problem == "this user has no home folder: set XDG_STATE_HOME or HOME"


def test_a_deleted_trust_store_begins_anew(
    ledger: Ledger, put_back: Callable[[], Ledger], notices_of: Callable[..., list[str]]
) -> None:
    grow(ledger, "one")
    read(ledger)
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    trust_store.path.unlink()

    with put_back() as older:
        assert notices_of(older) == []
        record = trust_store.load()
        assert record is not None
        assert record.created_size == older.head()[0]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"ledger":"x"}', b"null"])
def test_an_error_names_a_malformed_trust_store(ledger: Ledger, content: bytes) -> None:
    read(ledger)
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    trust_store.path.write_bytes(content)

    with pytest.raises(DeedbookError) as caught:
        read(ledger)

    assert caught.value.code == "CORRUPTED"
    assert str(trust_store.path) in caught.value.message


def test_an_error_names_a_trust_store_of_another_location(ledger: Ledger, tmp_path: Path) -> None:
    read(ledger)
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    document = json.loads(trust_store.path.read_bytes())
    trust_store.path.write_text(json.dumps(document | {"place": str(tmp_path)}))

    assert code_of(lambda: read(ledger)) == "CORRUPTED"


def test_a_pipe_in_place_of_a_trust_store_is_refused_without_waiting(ledger: Ledger) -> None:
    read(ledger)
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    trust_store.path.unlink()
    os.mkfifo(trust_store.path)

    assert code_of(lambda: read(ledger)) == "CORRUPTED"


def test_reading_continues_without_a_writable_trust_store_which_is_reported(
    ledger: Ledger, memory_of_readers: Path
) -> None:
    memory_of_readers.write_text("a file where the folder should be")
    grow(ledger, "one")

    client = read(ledger)

    assert client.trust_store.problem is not None
    assert str(memory_of_readers) in client.trust_store.problem


def test_probe_reports_a_store_that_cannot_be_written_and_leaves_no_file(ledger: Ledger, tmp_path: Path) -> None:
    writable = TrustStore(ledger.id, "here", folder=tmp_path / "state")
    writable.probe()
    assert writable.problem is None
    assert not (tmp_path / "state").exists()
    (tmp_path / "full").symlink_to("/proc")
    blocked = TrustStore(ledger.id, "here", folder=tmp_path / "full")
    blocked.probe()
    assert blocked.problem is not None
    assert "cannot be written" in blocked.problem


def test_a_slower_process_never_stores_an_older_head(ledger: Ledger) -> None:
    trust_store = TrustStore.of_folder(ledger.id, ledger.home.path)
    with ledger.client() as client:
        before = client.consistency(0)
        grow(ledger, "one")
        after = trust_store.update(client.consistency, lambda _: pytest.fail("there is no reset"))

        def slow(old_size: int) -> object:
            # This process read its head before the other process stored a newer head.
            return before if old_size < before.size else client.consistency(old_size)

        trust_store.update(slow, lambda _: pytest.fail("there is no reset"))  # type: ignore[arg-type]

    record = trust_store.load()
    assert record is not None
    assert record.trusted == after.trusted
