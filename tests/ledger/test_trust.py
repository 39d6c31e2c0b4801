"""The trust file: only this user may own and change it; a record is for one ledger at one path; no write is lost."""

from __future__ import annotations

import os
import shutil
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Ledger, trusted

from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import config_folder
from deedbook.ledger.home.membership import Membership, write_membership
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.home.trust import TrustedFolder
from deedbook.ledger.system import files

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534


@pytest.fixture
def given_to_another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """A function that makes another user the owner of a file or folder. Without root rights, it patches ``stat``."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
            return
        inode, stat, fstat = path.stat().st_ino, Path.stat, os.fstat

        def foreign(status: os.stat_result) -> os.stat_result:
            if status.st_ino != inode:
                return status
            names = [name for name in dir(status) if name.startswith("st_")]
            fields = {name: getattr(status, name) for name in names} | {"st_uid": NOBODY}
            return SimpleNamespace(**fields)  # type: ignore[return-value]

        monkeypatch.setattr(files.os, "fstat", lambda descriptor: foreign(fstat(descriptor)))
        monkeypatch.setattr(Path, "stat", lambda self, **kwargs: foreign(stat(self, **kwargs)))

    return give


@pytest.fixture
def trust_file(home: Path) -> Path:
    """The path of the trust file, with a record of ``home``."""
    home.mkdir()
    trusted(home)
    return config_folder() / trust.TRUST_FILE


def refusal(call: Callable[[], object]) -> DeedbookError:
    """Return the error that a call raises."""
    with pytest.raises(DeedbookError) as caught:
        call()
    return caught.value


def test_trust_file_of_another_user_does_not_count(
    home: Path, trust_file: Path, given_to_another_user: Callable[[Path], None]
) -> None:
    trust.demand(home)
    given_to_another_user(trust_file)
    for call in (lambda: trust.demand(home), lambda: trust.remember(TrustedFolder(str(home)))):
        error = refusal(call)
        assert error.code == "NOT_TRUSTED"
        assert f"belongs to another user (uid {NOBODY}): replace it" in error.message


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o666])
def test_trust_file_that_others_can_open_does_not_count(home: Path, trust_file: Path, mode: int) -> None:
    trust_file.chmod(mode)
    error = refusal(lambda: trust.demand(home))
    assert error.code == "NOT_TRUSTED"
    assert f"has mode {mode:04o}" in error.message
    assert "chmod 600" in error.message
    assert not trust.is_trusted(home)


@pytest.mark.parametrize("file_type", ["link", "folder", "pipe", "dangling link"])
def test_trust_file_that_is_no_regular_file_does_not_count(
    home: Path, trust_file: Path, file_type: str, tmp_path: Path
) -> None:
    elsewhere = trust_file.rename(tmp_path / "elsewhere")
    match file_type:
        case "link":
            trust_file.symlink_to(elsewhere)
        case "dangling link":
            trust_file.symlink_to(tmp_path / "nothing")
        case "folder":
            trust_file.mkdir()
        case _:  # "pipe"
            os.mkfifo(trust_file)
    assert refusal(lambda: trust.demand(home)).code == "NOT_TRUSTED"


def test_servers_that_come_into_a_trusted_folder_later_are_refused(home: Path, trust_file: Path) -> None:
    assert trust_file.exists()
    ours = Membership("0" * 32, "0" * 64, ["nats://127.0.0.1:4222"], "alice")
    write_membership(home, ours)  # a pull may add this file: without the check, the agent would use a stranger's server
    assert refusal(lambda: read_settings(home=home)).code == "NOT_TRUSTED"
    trusted(home)
    assert read_settings(home=home).server == ours.server
    for other in ({"servers": ["nats://example.org:4222"]}, {"agent": "root"}):
        write_membership(home, msgspec.structs.replace(ours, **other))
        error = refusal(lambda: read_settings(home=home))
        assert (error.code, error.details["settings"]) == ("NOT_TRUSTED", ["client"])
    assert read_settings(home=home, server="tls://here.example", agent="alice").agent == "alice"


def test_changed_setting_is_named_without_the_unchanged_servers(home: Path, trust_file: Path) -> None:
    assert trust_file.exists()
    write_membership(home, Membership("0" * 32, "0" * 64, ["nats://127.0.0.1:4222"], "alice"))
    trusted(home)
    with (home / "config.toml").open("a") as file:
        file.write('\nnats_server = "/tmp/another"\n')
    error = refusal(lambda: trust.actions_of(read_settings(home=home)))
    assert (error.code, error.details["settings"]) == ("NOT_TRUSTED", ["nats_server"])


def test_second_writer_waits_for_the_first_and_no_record_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer replaces the whole file: without the lock, the first would delete the record of the second."""
    write, is_writing, may_continue = trust._write, threading.Event(), threading.Event()

    def write_slowly(file: Path, records: list[TrustedFolder]) -> None:
        if records[-1].path == "/first":
            is_writing.set()
            assert may_continue.wait(60)
        write(file, records)

    monkeypatch.setattr(trust, "_write", write_slowly)
    # The second writer sleeps while it waits for the lock; this sleep lets the first continue. Without the lock, the
    # second would write at once.
    monkeypatch.setattr(
        "deedbook.ledger.system.files.time",
        SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: may_continue.set()),
    )
    first, second = (
        threading.Thread(target=trust.remember, args=(TrustedFolder(path),)) for path in ("/first", "/second")
    )
    first.start()
    assert is_writing.wait(60)
    second.start()
    may_continue.wait(5)
    may_continue.set()
    for writer in (first, second):
        writer.join(60)
    assert {record.path for record in trust.read_records()} >= {"/first", "/second"}


def test_writer_waits_for_another_only_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.ledger.limits.trust_lock_wait_max_s", 0)
    with trust._locked(os.environ):
        error = refusal(lambda: trust.remember(TrustedFolder("/second")))
    assert (error.code, error.recoverable) == ("STORE_IN_USE", True)


def test_another_ledger_at_a_trusted_path_is_refused(home: Path, tmp_path: Path) -> None:
    with Ledger(home):
        pass
    trusted(home)
    home.rename(tmp_path / "first")
    with Ledger(home, root="somebody-else") as other, other.log.snapshot() as snapshot:
        error = refusal(lambda: trust.demand(home, snapshot))
    assert error.code == "NOT_TRUSTED"
    assert "holds another ledger than the one that was trusted there" in error.message


def test_home_behind_a_link_is_trusted_by_its_real_path(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(home)
    trusted(link)
    assert trust.is_trusted(home)
    assert read_settings(home=link, environment={}).home == home
    other.mkdir()
    link.unlink()
    link.symlink_to(other)
    assert not trust.is_trusted(link)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_home_on_a_parent_where_others_may_write_must_be_named_and_trusted(tmp_path: Path, mode: int) -> None:
    shared = tmp_path / "shared"
    (shared / ".deedbook").mkdir(parents=True)
    shared.chmod(mode)
    error = refusal(lambda: read_settings(start=shared, environment={}))
    assert error.code == "NOT_TRUSTED"
    assert f"every user may write in {shared}" in error.message
    assert refusal(lambda: read_settings(home=shared / ".deedbook")).code == "NOT_TRUSTED"
    trusted(shared / ".deedbook")
    assert read_settings(home=shared / ".deedbook").home == shared / ".deedbook"
    assert refusal(lambda: read_settings(start=shared, environment={})).code == "NOT_TRUSTED"
    shared.chmod(mode | 0o1000)  # like /tmp: others can make folders in it, but not rename this one
    assert read_settings(start=shared, environment={}).home == shared / ".deedbook"


def test_home_of_another_user_must_be_named_and_trusted(
    tmp_path: Path, given_to_another_user: Callable[[Path], None]
) -> None:
    home = tmp_path / ".deedbook"
    home.mkdir()
    given_to_another_user(home)
    error = refusal(lambda: read_settings(start=tmp_path, environment={}))
    assert error.code == "NOT_TRUSTED"
    assert f"belongs to another user (uid {NOBODY})" in error.message
    assert "name it with --home and trust it" in error.message
    assert refusal(lambda: read_settings(home=home)).code == "NOT_TRUSTED"
    trusted(home)
    assert read_settings(home=home).home == home


def test_folder_without_a_log_is_bound_to_the_first_log_used_there(home: Path) -> None:
    home.mkdir()
    trusted(home)
    with Ledger(home) as first, first.log.snapshot() as snapshot:
        trust.demand(home, ledger=first.id)
        assert trust.demand(home, snapshot).root == first.root_fingerprint()
        assert trust.demand(home, snapshot).root.startswith(first.id)
    shutil.rmtree(home)
    with Ledger(home, root="somebody-else") as other, other.log.snapshot() as snapshot:
        for refused in (partial(trust.demand, home, snapshot), partial(trust.demand, home, ledger=other.id)):
            assert "holds another ledger" in refusal(refused).message


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "HOME"])
def test_error_for_an_unwritable_configuration_folder_names_its_variable(tmp_path: Path, variable: str) -> None:
    (tmp_path / "file").touch()
    error = refusal(lambda: trust.remember(TrustedFolder("/somewhere"), {variable: str(tmp_path / "file")}))
    assert error.code == "STORE_UNAVAILABLE"
    assert str(tmp_path / "file") in error.message
    assert "XDG_CONFIG_HOME or HOME leads there" in error.message
