"""Repositories that cannot be written, and missing git: the fault is reported, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from repositories import a_report, git, on_path, refs, repository
from stored_reports import load_handoff

from deedbook.consumers.sessions import notes as notes_module
from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from deedbook.consumers.sessions.settings import Project, StoredCopy
from deedbook.ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL_GIT = shutil.which("git")
JSON_REF = f"{JSON_NOTES}s1"


def store(folder: Path) -> list[StoredCopy]:
    return [one for one in store_report(a_report(), Project(git=folder)) if one.store == "git_notes"]


def test_a_repository_without_commits_gets_its_notes_on_the_empty_tree(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", commits=0)
    assert [one.status for one in store(folder)] == ["written", "written"]
    assert [one.status for one in store(folder)] == ["unchanged", "unchanged"]
    empty = git(folder, "hash-object", "-t", "tree", "--stdin")
    assert "version 1" in git(folder, "notes", "--ref", "empirica/handoff/s1", "show", empty)
    loaded = load_handoff("s1", "json", Project(git=folder))
    assert loaded is not None
    assert loaded["task"] == "version 1"


def test_bare_repositories_worktrees_submodules_and_sha256_keep_notes(tmp_path: Path) -> None:
    bare, main = repository(tmp_path / "bare", commits=0, bare=True), repository(tmp_path / "main")
    git(main, "worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "side")
    git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(main), "inner")
    long = tmp_path / "sha256"
    long.mkdir()
    git(long, "init", "--quiet", "--object-format=sha256")
    for folder in (bare, tmp_path / "tree", main / "inner", long):
        assert [one.status for one in store(folder)] == ["written", "written"]
        assert [one.status for one in store(folder)] == ["unchanged", "unchanged"]
    assert load_handoff("s1", "json", Project(git=main)) is not None  # worktrees share their repository's refs
    git(main, "update-ref", "-d", JSON_REF)
    assert load_handoff("s1", "json", Project(git=main / "inner")) is not None  # a submodule has its own


def test_a_folder_in_no_repository_is_skipped_unless_it_was_named(tmp_path: Path) -> None:
    (sure,) = store(tmp_path)
    (auto, _) = store_report(a_report(), Project(git=tmp_path, is_git_sure=False))
    assert (sure.status, auto.status) == ("failed", "skipped")
    assert "in no git repository" in sure.reason
    with pytest.raises(Refused) as refused:
        Notes(tmp_path).check()
    assert refused.value.code == "NOT_FOUND"


def test_a_missing_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r")
    monkeypatch.setenv("PATH", str(tmp_path))
    (stored,) = store(folder)
    assert stored.status == "failed"
    assert "not installed" in stored.reason
    with pytest.raises(Unavailable):
        load_handoff("s1", "json", Project(git=folder))


def test_a_repository_of_somebody_else_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "r")
    script = f'GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {REAL_GIT} "$@"'
    monkeypatch.setenv("PATH", f"{on_path(tmp_path / 'bin', script)}:{os.environ['PATH']}")
    (stored,) = store(folder)
    assert stored.status == "failed"
    assert "safe.directory" in stored.reason
    Path(os.environ["GIT_CONFIG_GLOBAL"]).write_text(f"[safe]\n\tdirectory = {folder}\n")
    assert [one.status for one in store(folder)] == ["written", "written"]


@pytest.fixture
def unprivileged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody can enter; git runs as nobody if these tests run as root."""
    with tempfile.TemporaryDirectory(prefix="deedbook-test-") as made:
        shared = Path(made)
        shared.chmod(0o777)
        if os.geteuid() == 0:
            script = f'exec setpriv --reuid=65534 --regid=65534 --clear-groups {REAL_GIT} -c safe.directory=* "$@"'
            monkeypatch.setenv("PATH", f"{on_path(shared / 'bin', script)}:{os.environ['PATH']}")
            monkeypatch.setenv("HOME", made)
            monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(shared / "gitconfig"))
            (shared / "gitconfig").write_text("[safe]\n\tdirectory = *\n")
        mask = os.umask(0)
        yield shared
        os.umask(mask)


def test_a_read_only_repository_is_told_and_written_once_it_can_be(
    unprivileged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(unprivileged / "r")
    folders = [folder, *(one for one in folder.rglob("*") if one.is_dir())]
    for one in folders:
        one.chmod(0o555)
    stored = store(folder)
    assert [one.status for one in stored] == ["failed", "failed"]
    assert "ermission" in stored[0].reason
    assert load_handoff("s1", "json", Project(git=folder)) is None
    for one in folders:
        one.chmod(0o777)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", os.path.dirname(REAL_GIT or ""))  # noqa: PTH120 - a folder as text
        assert [one.status for one in store(folder)] == ["written", "written"]
    for one in folder.rglob("*"):
        one.chmod(0o555 if one.is_dir() else 0o444)
    assert [one.status for one in store(folder)] == ["unchanged", "unchanged"]
    for one in folders:
        one.chmod(0o777)


def test_another_tools_ref_below_ours_is_told_and_the_markdown_is_written(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "update-ref", f"{JSON_REF}/markdown", "HEAD")
    stored = store(folder)
    assert [one.status for one in stored] == ["failed", "written"]
    assert "another tool has a ref" in stored[0].reason
    git(folder, "pack-refs", "--all")
    assert [one.status for one in store(folder)] == ["failed", "unchanged"]


def test_a_damaged_ref_is_told_with_the_file_to_remove(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store(folder)
    (folder / ".git" / JSON_REF).write_bytes(b"")
    stored = store(folder)
    assert [one.status for one in stored] == ["failed", "unchanged"]
    assert f"remove the file {folder / '.git' / JSON_REF}, then" in stored[0].reason
    (folder / ".git" / JSON_REF).unlink()
    assert [one.status for one in store(folder)] == ["written", "unchanged"]


def test_a_lock_that_stays_is_told_after_a_stated_number_of_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "r")
    lock = folder / ".git" / f"{JSON_REF}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    monkeypatch.setattr(notes_module, "attempts_max", 3)
    git(folder, "config", "core.filesRefLockTimeout", "1")
    stored = store(folder)
    assert [one.status for one in stored] == ["failed", "written"]
    lock.unlink()
    assert [one.status for one in store(folder)] == ["written", "unchanged"]


def test_a_ref_that_holds_no_commit_is_told(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "update-ref", JSON_REF, git(folder, "hash-object", "-w", "--stdin", data="x"))
    stored = store(folder)
    assert [one.status for one in stored] == ["failed", "written"]
    assert refs(folder).keys() == {JSON_REF, f"{MARKDOWN_NOTES}s1"}
