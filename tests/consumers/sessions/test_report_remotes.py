"""Notes between repositories: nothing local is lost, no push is forced, and every failure has a reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import a_report, commit, git, history, on_path, refs, repository
from stored_reports import load_handoff

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from deedbook.consumers.sessions.remotes import choose_remote, configure, fetch, push
from deedbook.consumers.sessions.settings import Project
from deedbook.ledger.errors import Refused, Unavailable

CONFIGURED = "+refs/notes/empirica/*:refs/notes/remotes/origin/empirica/*"


class World:
    """A bare remote and two clones of it."""

    def __init__(self, folder: Path) -> None:
        self.remote = repository(folder / "remote", commits=0, bare=True)
        first = repository(folder / "a")
        git(first, "remote", "add", "origin", str(self.remote))
        git(first, "push", "--quiet", "origin", "main")
        git(folder, "clone", "--quiet", str(self.remote), "b")
        self.a, self.b = Notes(first), Notes(folder / "b")

    def store(self, notes: Notes, session: str, version: int = 1) -> None:
        store_report(a_report(session, version), Project(git=notes.git.folder))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def task(notes: Notes, session: str) -> str:
    loaded = load_handoff(session, "json", Project(git=notes.git.folder))
    assert loaded is not None
    return str(loaded["task"])


def test_pushed_notes_are_fetched_by_a_clone_and_read_by_git_notes_show(world: World) -> None:
    world.store(world.a, "s1")
    pushed = push(world.a)
    assert sorted(pushed.new) == [f"{MARKDOWN_NOTES}s1", f"{JSON_NOTES}s1"]
    fetched = fetch(world.b)
    assert sorted(fetched.new) == sorted(pushed.new)
    shown = git(world.b.git.folder, "notes", "--ref", "empirica/handoff/s1", "show", "HEAD")
    assert json.loads(shown)["task"] == "version 1"
    assert (push(world.a).new, fetch(world.b).new, fetch(world.b).updated) == ((), (), ())
    world.store(world.a, "s1", 2)
    assert len(push(world.a).updated) == 2
    assert len(fetch(world.b).updated) == 2
    assert task(world.b, "s1") == "version 2"


def test_the_refspec_is_configured_once_and_a_plain_fetch_brings_notes(world: World) -> None:
    folder = world.b.git.folder
    for _ in range(3):
        fetch(world.b)
    assert git(folder, "config", "--get-all", "remote.origin.fetch").splitlines() == [
        "+refs/heads/*:refs/remotes/origin/*",
        CONFIGURED,
    ]
    world.store(world.a, "s1")
    push(world.a)
    world.store(world.b, "mine")
    before = refs(folder, "refs/notes/empirica/")
    git(folder, "fetch", "--quiet", "--prune")
    assert refs(folder, "refs/notes/empirica/") == before
    assert set(refs(folder, "refs/notes/remotes/origin/empirica/handoff/")) == {
        "refs/notes/remotes/origin/empirica/handoff/s1"
    }


def test_divergent_notes_are_merged_and_both_histories_stay(world: World) -> None:
    for notes, version in ((world.a, 2), (world.b, 1)):
        world.store(notes, "s1", version)
    world.store(world.b, "only-b")
    push(world.a)
    before = refs(world.b.git.folder, "refs/notes/empirica/")
    fetched = fetch(world.b)
    assert sorted(fetched.merged) == [f"{MARKDOWN_NOTES}s1", f"{JSON_NOTES}s1"]
    assert len(fetched.told) == 2
    assert task(world.b, "s1") == "version 2"
    markdown = load_handoff("s1", "markdown", Project(git=world.b.git.folder))
    assert markdown is not None
    assert "Version 2" in markdown["markdown"]
    for ref, was in before.items():
        assert was in history(world.b.git.folder, ref)
    pushed = push(world.b)
    assert (len(pushed.updated), len(pushed.new), pushed.merged) == (2, 2, ())
    fetch(world.a)
    assert refs(world.a.git.folder, "refs/notes/empirica/") == refs(world.b.git.folder, "refs/notes/empirica/")


@pytest.mark.parametrize(("here", "there"), [(1, 2), (2, 1)])
def test_divergent_notes_on_different_commits_are_all_kept(world: World, here: int, there: int) -> None:
    world.store(world.a, "s1", here)
    first = git(world.a.git.folder, "rev-parse", "HEAD")
    second = commit(world.b.git.folder)
    world.store(world.b, "s1", there)
    push(world.b)
    fetched = fetch(world.a)
    assert (len(fetched.merged), fetched.told) == (2, ())
    listed = git(world.a.git.folder, "ls-tree", "--name-only", f"{JSON_NOTES}s1").splitlines()
    assert listed == sorted([first, second])
    assert task(world.a, "s1") == "version 2"
    for version, status in ((1, "skipped"), (2, "unchanged")):
        stored = store_report(a_report("s1", version), Project(git=world.a.git.folder))
        assert [one.status for one in stored[:2]] == [status, status]


def test_a_push_behind_the_remote_merges_and_pushes(world: World) -> None:
    world.store(world.a, "s1", 1)
    push(world.a)
    world.store(world.b, "s1", 2)
    pushed = push(world.b)
    assert sorted(pushed.merged) == [f"{MARKDOWN_NOTES}s1", f"{JSON_NOTES}s1"]
    assert refs(world.remote) == refs(world.b.git.folder, "refs/notes/empirica/")


def test_another_tools_notes_travel_and_are_merged_too(world: World) -> None:
    for notes, text in ((world.a, "from a"), (world.b, "from b")):
        git(notes.git.folder, "notes", "--ref", "empirica/goals/1", "add", "-m", text, "HEAD")
    push(world.a)
    was = refs(world.b.git.folder)["refs/notes/empirica/goals/1"]
    assert fetch(world.b).merged == ("refs/notes/empirica/goals/1",)
    assert was in history(world.b.git.folder, "refs/notes/empirica/goals/1")


def test_files_that_are_no_notes_survive_a_merge(world: World) -> None:
    for notes, name in ((world.a, "a.txt"), (world.b, "b.txt")):
        folder = notes.git.folder
        blob = git(folder, "hash-object", "-w", "--stdin", data=name)
        tree = git(folder, "mktree", data=f"100644 blob {blob}\t{name}\n")
        git(folder, "update-ref", "refs/notes/empirica/goals/1", git(folder, "commit-tree", "-m", name, tree))
    push(world.a)
    fetch(world.b)
    listed = git(world.b.git.folder, "ls-tree", "--name-only", "refs/notes/empirica/goals/1").splitlines()
    assert listed == ["a.txt", "b.txt"]


def test_processes_that_push_at_once_all_arrive(world: World) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from deedbook.consumers.sessions.notes import Notes; from deedbook.consumers.sessions.remotes import push\n"
        "sys.stdin.readline(); push(Notes(Path(sys.argv[1])))"
    )
    children = []
    for notes in (world.a, world.b):
        for session in ("shared", notes.git.folder.name):
            world.store(notes, session, 1 if notes is world.a else 2)
        command = [sys.executable, "-c", program, str(notes.git.folder)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=100)
        assert child.returncode == 0
    assert set(refs(world.remote, JSON_NOTES)) == {f"{JSON_NOTES}{name}" for name in ("shared", "a", "b")}
    fetch(world.a)
    assert task(world.a, "shared") == "version 2"


def test_one_ref_that_cannot_be_merged_does_not_keep_the_others_back(world: World) -> None:
    world.store(world.a, "s1")
    world.store(world.a, "s2")
    push(world.a)
    git(world.b.git.folder, "update-ref", f"{JSON_NOTES}s1/markdown", "HEAD")
    fetched = fetch(world.b)
    assert len(fetched.failed) == 1
    assert fetched.failed[0].startswith(f"{JSON_NOTES}s1: ")
    assert len(fetched.new) == 3


def test_an_unknown_or_missing_remote_is_refused_with_those_there_are(world: World, tmp_path: Path) -> None:
    for asked in ("upstream", "--upload-pack=x", ""):
        with pytest.raises(Refused) as refused:
            fetch(world.a, asked)
        assert refused.value.code == "NOT_FOUND"
        assert "origin" in refused.value.message
    alone = Notes(repository(tmp_path / "alone"))
    with pytest.raises(Refused) as refused:
        push(alone)
    assert "git remote add" in refused.value.message
    git(alone.git.folder, "remote", "add", "one", "x")
    assert choose_remote(alone, None) == "one"
    git(alone.git.folder, "remote", "add", "two", "x")
    with pytest.raises(Refused):
        choose_remote(alone, None)


def test_nothing_to_push_or_fetch_is_no_error(world: World) -> None:
    assert push(world.a).new == ()
    assert fetch(world.a).new == ()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/nowhere/at/all", "not a readable git repository"),
        ("http://me:hunter2@127.0.0.1:9/r.git", "cannot be reached"),
        ("https://me:hunter2@name.invalid/r.git", "cannot be reached"),
    ],
)
def test_a_remote_that_is_not_there_is_told_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    notes = Notes(repository(tmp_path / "r"))
    git(notes.git.folder, "remote", "add", "origin", url)
    store_report(a_report(), Project(git=notes.git.folder))
    for transfer in (push, fetch):
        with pytest.raises(Unavailable) as error:
            transfer(notes)
        assert said in error.value.message
        assert "hunter2" not in error.value.message


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", "needs a login"),
        ("git@x: Permission denied (publickey).", "needs a login"),
        ("remote: disk full. No space left on device", "No space left"),
        ("strange", "strange"),
    ],
)
def test_what_a_remote_complains_of_is_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, said: str
) -> None:
    world.store(world.a, "s1")
    real = shutil.which("git")
    script = f'case "$*" in *" push "*|*" fetch "*) echo "{complaint}" >&2; exit 128;; esac; exec {real} "$@"'
    monkeypatch.setenv("PATH", f"{on_path(tmp_path / 'bin', script)}:{os.environ['PATH']}")
    notes = Notes(world.a.git.folder)
    for transfer in (push, fetch):
        with pytest.raises(Unavailable) as error:
            transfer(notes)
        assert said in error.value.message


def test_a_remote_that_refuses_is_told_and_nothing_is_forced(world: World) -> None:
    world.store(world.a, "s1")
    hook = world.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no notes here >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(Unavailable) as error:
        push(world.a)
    assert "no notes here" in error.value.message
    assert refs(world.remote) == {}


def test_two_processes_that_configure_at_once_add_one_refspec(world: World) -> None:
    folder = world.a.git.folder
    (folder / ".git" / "config.lock").touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("deedbook.consumers.sessions.notes.attempts_max", 2)
        with pytest.raises(Unavailable) as error:
            configure(world.a, "origin")
    assert error.value.code == "STORE_IN_USE"
    (folder / ".git" / "config.lock").unlink()
    configure(world.a, "origin")
    assert configure(world.a, "origin") == CONFIGURED
    assert git(folder, "config", "--get-all", "remote.origin.fetch").splitlines().count(CONFIGURED) == 1
