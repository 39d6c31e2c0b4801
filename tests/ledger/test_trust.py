"""Trust is believed from a file that is this user's alone, holds for one ledger in one place, and loses no writer."""

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
    """Gives a file or folder to another user; whoever is not root cannot, and lets the kernel's answer say so."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
            return
        number, stat, fstat = path.stat().st_ino, Path.stat, os.fstat

        def changed(status: os.stat_result) -> os.stat_result:
            if status.st_ino != number:
                return status
            names = [name for name in dir(status) if name.startswith("st_")]
            fields = {name: getattr(status, name) for name in names} | {"st_uid": NOBODY}
            return SimpleNamespace(**fields)  # type: ignore[return-value]

        monkeypatch.setattr(files.os, "fstat", lambda descriptor: changed(fstat(descriptor)))
        monkeypatch.setattr(Path, "stat", lambda self, **kwargs: changed(stat(self, **kwargs)))

    return give


@pytest.fixture
def kept(home: Path) -> Path:
    """The file of trust, in which ``home`` stands."""
    home.mkdir()
    trusted(home)
    return config_folder() / trust.TRUST_FILE


def refusal(act: Callable[[], object]) -> DeedbookError:
    with pytest.raises(DeedbookError) as caught:
        act()
    return caught.value


def test_file_of_trust_of_another_user_is_believed_by_nobody(
    home: Path, kept: Path, given_to_another_user: Callable[[Path], None]
) -> None:
    trust.demand(home)
    given_to_another_user(kept)
    for act in (lambda: trust.demand(home), lambda: trust.remember(TrustedFolder(str(home)))):
        error = refusal(act)
        assert error.code == "NOT_TRUSTED"
        assert f"belongs to another user (uid {NOBODY}): remove it" in error.message


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o666])
def test_file_of_trust_that_others_can_open_is_believed_by_nobody(home: Path, kept: Path, mode: int) -> None:
    kept.chmod(mode)
    error = refusal(lambda: trust.demand(home))
    assert error.code == "NOT_TRUSTED"
    assert f"has mode {mode:04o}" in error.message
    assert "chmod 600" in error.message
    assert not trust.is_trusted(home)


@pytest.mark.parametrize("what", ["link", "folder", "pipe", "dangling link"])
def test_file_of_trust_that_is_no_file_is_believed_by_nobody(home: Path, kept: Path, what: str, tmp_path: Path) -> None:
    elsewhere = kept.rename(tmp_path / "elsewhere")
    match what:
        case "link":
            kept.symlink_to(elsewhere)
        case "dangling link":
            kept.symlink_to(tmp_path / "nothing")
        case "folder":
            kept.mkdir()
        case _:  # the last of the parameters
            os.mkfifo(kept)
    assert refusal(lambda: trust.demand(home)).code == "NOT_TRUSTED"


def test_servers_that_come_into_a_trusted_folder_later_are_not_asked(home: Path, kept: Path) -> None:
    assert kept.exists()
    ours = Membership("0" * 32, "0" * 64, ["nats://127.0.0.1:4222"], "alice")
    write_membership(home, ours)  # as a pull may bring it beside a log: who signs would sign at a stranger's server
    assert refusal(lambda: read_settings(home=home)).code == "NOT_TRUSTED"
    trusted(home)
    assert read_settings(home=home).server == ours.server
    for other in ({"servers": ["nats://example.org:4222"]}, {"agent": "root"}):
        write_membership(home, msgspec.structs.replace(ours, **other))
        error = refusal(lambda: read_settings(home=home))
        assert (error.code, error.details["settings"]) == ("NOT_TRUSTED", ["client"])
    assert read_settings(home=home, server="tls://here.example", agent="alice").agent == "alice"


def test_second_writer_waits_for_the_first_and_loses_nobodys_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes the whole file anew: without the lock, the first would take out what the second wrote."""
    write, is_writing, goes_on = trust._write, threading.Event(), threading.Event()

    def write_slowly(file: Path, records: list[TrustedFolder]) -> None:
        if records[-1].path == "/first":
            is_writing.set()
            assert goes_on.wait(60)
        write(file, records)

    monkeypatch.setattr(trust, "_write", write_slowly)
    # The second is seen to wait; one that does not would write and end, and the first goes on then.
    monkeypatch.setattr(
        "deedbook.ledger.system.files.time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: goes_on.set())
    )
    first, second = (
        threading.Thread(target=trust.remember, args=(TrustedFolder(path),)) for path in ("/first", "/second")
    )
    first.start()
    assert is_writing.wait(60)
    second.start()
    goes_on.wait(5)
    goes_on.set()
    for writer in (first, second):
        writer.join(60)
    assert {record.path for record in trust.read_records()} >= {"/first", "/second"}


def test_writer_does_not_wait_for_ever_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.ledger.limits.trust_lock_wait_max_s", 0)
    with trust._locked(os.environ):
        error = refusal(lambda: trust.remember(TrustedFolder("/second")))
    assert (error.code, error.recoverable) == ("STORE_IN_USE", True)


def test_another_ledger_in_the_same_place_is_another_ledger(home: Path, tmp_path: Path) -> None:
    with Ledger(home):
        pass
    trusted(home)
    home.rename(tmp_path / "first")
    with Ledger(home, root="somebody-else") as other, other.log.snapshot() as snapshot:
        error = refusal(lambda: trust.demand(home, snapshot))
    assert error.code == "NOT_TRUSTED"
    assert "holds another ledger than the one that was trusted there" in error.message


def test_home_behind_a_link_is_trusted_as_the_folder_that_it_is(home: Path, tmp_path: Path) -> None:
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
    shared.chmod(mode | 0o1000)  # as /tmp: others can make folders in it, and not take away this one
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


def test_folder_without_a_log_is_bound_to_the_log_that_is_met_there(home: Path) -> None:
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
def test_folder_of_decisions_that_cannot_be_written_is_named_with_what_leads_there(
    tmp_path: Path, variable: str
) -> None:
    (tmp_path / "file").touch()
    error = refusal(lambda: trust.remember(TrustedFolder("/somewhere"), {variable: str(tmp_path / "file")}))
    assert error.code == "STORE_UNAVAILABLE"
    assert str(tmp_path / "file") in error.message
    assert "XDG_CONFIG_HOME or HOME leads there" in error.message
