"""`deed notes`: a ledger's reports as git notes and files are lost, written again, and sent to other clones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import trusted
from calling import Deed, Place, call

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _nobodys_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def project(populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Deed:
    """A ledger with one session's report, in a folder that is no repository yet."""
    deed = Deed(capsys, Place(populated("notes")))
    report(deed, "s1", "It is learned: 知识")
    return deed


def report(deed: Deed, session: str, finding: str, *, is_first: bool = True) -> None:
    """Let agent a publish a report of a session."""
    data = {
        "report_type": "planning",
        "ai_id": "claude-code",
        "task_summary": "Learn",
        "key_findings": [finding],
        "recommended_next_steps": ["Continue with planned next steps"],
        "calibration_status": "not_assessable",
    }
    if is_first:
        deed("emit", "session.started", "--stream", f"session/{session}", "--as", "a", "--data", "{}")
    deed("emit", "report.generated", "--stream", f"session/{session}", "--as", "a", "--data", json.dumps(data))


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{part}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, env=os.environ | who
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_repository(folder: Path) -> Path:
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    return folder


def counts(answer: dict[str, Any]) -> tuple[int, ...]:
    return answer["reports"], answer["written"], answer["unchanged"], len(answer["skipped"]), len(answer["failed"])


def test_sync_writes_notes_that_the_seeds_command_and_show_read(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    assert counts(project.data("notes", "sync")) == (1, 2, 0, 1, 0)
    assert counts(project.data("notes", "sync")) == (1, 0, 2, 1, 0)
    shown = json.loads(git(folder, "notes", "--ref", "empirica/handoff/s1", "show", "HEAD"))
    assert shown["findings"] == ["It is learned: 知识"]
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "second")
    said = project.data("notes", "show", "s1")
    assert (said["session_id"], said["report"]) == ("s1", shown)
    assert "It is learned: 知识" in project("notes", "show", "s", "--markdown")
    assert json.loads(project("notes", "show", "s1")) == shown
    listed = project.data("notes", "list")
    assert [(one["session_id"], one["has_markdown"]) for one in listed["notes"]] == [("s1", True)]
    assert "s1" in project("notes", "list")


def test_lost_notes_and_files_are_written_again_from_the_ledger(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    (folder / "docs" / "sessions" / "handoffs").mkdir(parents=True)
    assert counts(project.data("notes", "sync")) == (1, 4, 0, 0, 0)
    file = folder / "docs" / "sessions" / "handoffs" / "claude-code" / "s1.md"
    content = file.read_bytes()
    file.unlink()
    git(folder, "update-ref", "-d", "refs/notes/empirica/handoff/s1")
    project.home.joinpath("views.db").unlink()
    assert counts(project.data("notes", "sync")) == (1, 2, 2, 0, 0)
    assert file.read_bytes() == content
    report(project, "s1", "A second version", is_first=False)
    assert counts(project.data("notes", "sync")) == (1, 4, 0, 0, 0)
    assert project.data("notes", "show", "s1")["report"]["findings"] == ["A second version"]


def test_what_cannot_be_written_is_told_and_ends_with_code_7(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    git(folder, "update-ref", "refs/notes/empirica/handoff/s1/markdown", "HEAD")
    said = project.run("notes", "sync")
    assert said.code == 7
    assert "FAILED: git:refs/notes/empirica/handoff/s1: " in said.err
    assert "1 failed" in said.out
    answer = json.loads(project.run("notes", "sync", "--json").out)["data"]
    assert counts(answer) == (1, 0, 1, 1, 1)


def test_what_another_tool_wrote_is_told(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-m", "not json", "HEAD")
    assert project.data("notes", "show", "s1")["report"] is None
    said = project.run("notes", "sync")
    assert said.code == 0
    assert "another tool's note" in said.err


def test_a_project_without_a_repository_is_told_so(project: Deed) -> None:
    answer = project.data("notes", "sync")
    assert counts(answer) == (1, 0, 0, 2, 0)
    assert "in no git repository" in answer["skipped"][0]["reason"]
    for verb in (("list",), ("show", "s1"), ("push",), ("fetch",)):
        project.refuses("NOT_FOUND", "notes", *verb)
    (project.home / "config.toml").write_text("[reports]\ngit = false\n")
    project("trust", "--yes")
    assert "git = false" in project.refuses("NOT_FOUND", "notes", "list")["message"]
    (project.home / "config.toml").write_text("[reports]\ngit = true\n")
    project("trust", "--yes")
    project.refuses("INVALID_FIELD", "notes", "sync")


def test_unknown_and_ambiguous_sessions_are_refused(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    report(project, "s2", "Another")
    project("notes", "sync")
    project.refuses("REF_AMBIGUOUS", "notes", "show", "s")
    project.refuses("NOT_FOUND", "notes", "show", "x")
    project.refuses("NOT_FOUND", "notes", "show", "")
    git(folder, "update-ref", "-d", "refs/notes/empirica/handoff-markdown/s2")
    assert "notes sync" in project.refuses("NOT_FOUND", "notes", "show", "s2", "--markdown")["message"]


def test_notes_travel_to_another_clone(project: Deed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_repository(project.home.parent)
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    git(folder, "remote", "add", "origin", str(tmp_path / "remote"))
    git(folder, "push", "--quiet", "origin", "main")
    project("notes", "sync")
    assert len(project.data("notes", "push")["new"]) == 2
    assert "0 new" in project("notes", "push", "origin")
    git(tmp_path, "clone", "--quiet", "--branch=main", "remote", "clone")
    other = Deed(capsys, Place(tmp_path / "clone" / ".deedbook"))
    other("init", "--unprotected")
    assert len(other.data("notes", "fetch")["new"]) == 2
    assert other.data("notes", "show", "s1")["report"]["task"] == "Learn"
    other.refuses("NOT_FOUND", "notes", "fetch", "nowhere")
    git(folder, "update-ref", "refs/notes/empirica/handoff/s9", "refs/notes/empirica/handoff/s1")
    git(tmp_path / "clone", "update-ref", "refs/notes/empirica/handoff/s9/markdown", "HEAD")
    project("notes", "push")
    said = other.run("notes", "fetch")
    assert (said.code, "FAILED: " in said.err) == (7, True)


def test_a_clone_without_a_ledger_reads_and_sends_notes(
    project: Deed, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(project.home.parent)
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    git(folder, "remote", "add", "origin", str(tmp_path / "remote"))
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "second")
    git(folder, "push", "--quiet", "origin", "main")
    project("notes", "sync")
    project("notes", "push")
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=main", f"file://{tmp_path}/remote", "clone")
    git(tmp_path / "clone", "notes", "add", "-m", "of another tool", "HEAD")
    theirs = git(tmp_path / "clone", "for-each-ref", "refs/notes/commits")
    monkeypatch.chdir(tmp_path / "clone")
    here = Deed(capsys, None)
    assert len(here.data("notes", "fetch")["new"]) == 2
    shown = here.data("notes", "show", "s1")
    assert (shown["report"]["findings"], shown["signed"]) == (["It is learned: 知识"], None)
    assert "there is no ledger to hold this note against" in here.run("notes", "show", "s1").err
    assert [one["signed"] for one in here.data("notes", "list")["notes"]] == [None]
    git(tmp_path / "clone", "update-ref", "refs/notes/empirica/handoff/s2", "refs/notes/empirica/handoff/s1")
    canary = program(tmp_path / "remote" / "hooks" / "pre-receive")
    assert here.data("notes", "push")["new"] == ["refs/notes/empirica/handoff/s2"]
    assert not canary.exists()
    assert git(tmp_path / "clone", "for-each-ref", "refs/notes/commits") == theirs
    here.refuses("NO_LEDGER", "notes", "sync")
    for setting in ("core.sshCommand", "http.saveCookies", "http.https://x.saveCookies"):
        git(tmp_path / "clone", "config", setting, "true")
        for verb in ("fetch", "push"):
            assert setting.lower() in here.refuses("NOT_TRUSTED", "notes", verb)["message"].lower()
        git(tmp_path / "clone", "config", "--unset", setting)
    git(tmp_path / "clone", "remote", "remove", "origin")
    canary = program(tmp_path / "evil")
    git(tmp_path / "clone", "config", f"remote.--upload-pack={tmp_path}/evil.url", "/nowhere")
    for verb in ("fetch", "push"):
        here.refuses("NOT_FOUND", "notes", verb)
    assert not canary.exists()
    assert here.data("notes", "list")["total"] == 2


def program(path: Path) -> Path:
    """Write an executable program, and return the file that it leaves when it runs."""
    path.write_text(f"#!/bin/sh\ntouch {path}.ran\n")
    path.chmod(0o755)
    return path.with_name(f"{path.name}.ran")


def test_notes_of_a_stranger_s_clone_are_read_without_fetching_what_it_lacks(
    project: Deed, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(project.home.parent)
    project("notes", "sync")
    git(folder, "init", "--quiet", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    canary = program(tmp_path / "canary")
    git(Path(), "fetch", "--quiet", str(folder), "refs/notes/*:refs/notes/*")
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "/nowhere"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadPack", str(tmp_path / "canary")),
    ):
        git(Path(), "config", name, value)
    blob = git(Path(), "ls-tree", "-r", "refs/notes/empirica/handoff/s1").split()[2]
    (Path(".git", "objects", blob[:2], blob[2:])).unlink()
    here = Deed(capsys, None)
    assert here.data("notes", "list")["total"] == 1
    assert here.run("notes", "show", "s1").code != 0
    assert not canary.exists()
    assert "uploadpack" in here.refuses("NOT_TRUSTED", "notes", "fetch")["message"]


def test_a_note_is_held_against_the_signed_events_beside_it(project: Deed) -> None:
    folder = make_repository(project.home.parent)
    project("notes", "sync")
    assert "signed by a: entry " in project.run("notes", "show", "s1", "--markdown").err
    report(project, "s1", "A second version", is_first=False)
    assert project.data("notes", "list")["notes"][0]["signed"] is True
    assert "of which there are later versions" in project.data("notes", "show", "s1")["signed_as"]
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-f", "-m", '{"task": "Forged"}', "HEAD")
    git(folder, "update-ref", "refs/notes/empirica/handoff/s", "refs/notes/empirica/handoff-markdown/s1")
    assert {one["session_id"]: one["signed"] for one in project.data("notes", "list")["notes"]} == {
        "s1": False,
        "s": False,
    }
    assert "NOT SIGNED" in project.run("notes", "show", "s1").err


def test_without_a_head_or_a_main_tree_notes_say_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Deed(capsys, None)
    git(tmp_path, "init", "--quiet", "main")
    monkeypatch.chdir(tmp_path / "main")
    assert here.data("notes", "list")["total"] == 0
    here.refuses("NOT_FOUND", "notes", "show", "s1")
    assert "git remote add" in here.refuses("NOT_FOUND", "notes", "fetch")["message"]
    make_repository(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "--quiet", str(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path / "tree")
    assert here.data("notes", "list")["total"] == 0
    shutil.rmtree(tmp_path / "main")
    assert "its main tree is gone" in here.refuses("NOT_FOUND", "notes", "list")["message"]


def test_a_server_answers_and_the_notes_are_written_where_the_agent_is(
    served: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], fresh: Callable[[str], str]
) -> None:
    session = fresh("remote")
    there = Deed(capsys, served)
    report(there, session, "From afar")
    folder = make_repository(tmp_path)
    (folder / ".deedbook" / "keys").mkdir(parents=True)
    for file in ("root.key", "root.nkey"):
        shutil.copy(served.home / "keys" / file, folder / ".deedbook" / "keys")
    trusted(folder / ".deedbook")
    here = Deed(capsys, Place(folder / ".deedbook", served.server))
    assert here.data("notes", "sync")["failed"] == []
    assert here.data("notes", "show", session)["report"]["findings"] == ["From afar"]


def test_help_lists_the_verbs(project: Deed) -> None:
    said = project("notes", "--help")
    for verb in ("sync", "show", "list", "push", "fetch"):
        assert verb in said
    if "notes" in call("--help").out:  # as a process, the table is the program's own
        assert "sync" in call("notes", "--help").out


def test_notes_are_read_while_the_server_does_not_answer(project: Deed) -> None:
    make_repository(project.home.parent)
    project("notes", "sync")
    away = Deed(project._capsys, Place(project.home, "nats://127.0.0.1:1"))
    assert [one["signed"] for one in away.data("notes", "list", "--as", "a")["notes"]] == [None]
    shown = away.data("notes", "show", "s1", "--as", "a")
    assert (shown["signed"], "does not answer" in shown["signed_as"]) == (None, True)
