"""Reports as git notes: they are written and read, and everything else in the repository stays unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repositories import a_report, commit, git, history, refs, repository
from stored_reports import load_handoff

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES, Notes
from deedbook.consumers.sessions.settings import Project, StoredCopy

JSON_REF = f"{JSON_NOTES}s1"
MARKDOWN_REF = f"{MARKDOWN_NOTES}s1"


def store(folder: Path, report: dict[str, Any] | None = None) -> list[StoredCopy]:
    """Store a report in the notes of a folder and return the results for markdown and JSON."""
    stored = store_report(report or a_report(), Project(git=folder))
    return [one for one in stored if one.store == "git_notes"]


def statuses(stored: list[StoredCopy]) -> list[str]:
    return [one.status for one in stored]


def test_git_notes_show_prints_the_json_at_the_commit_of_writing(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    stored = store(folder)
    assert [(one.location, one.status) for one in stored] == [
        (f"git:{JSON_REF}", "written"),
        (f"git:{MARKDOWN_REF}", "written"),
    ]
    shown = git(folder, "notes", "--ref", "empirica/handoff/s1", "show", "HEAD")
    assert json.loads(shown) == json.loads(a_report()["compressed_json"])
    assert (
        git(folder, "notes", "--ref", "empirica/handoff-markdown/s1", "show", "HEAD") + "\n" == a_report()["markdown"]
    )


@pytest.mark.parametrize(
    "moved",
    [
        ["commit", "--quiet", "--allow-empty", "-m", "x"],
        ["checkout", "--quiet", "--detach", "HEAD~1"],
        ["commit", "--quiet", "--amend", "--allow-empty", "-m", "rebased"],
        ["checkout", "--quiet", "--orphan", "new"],
    ],
    ids=["new commit", "detached", "rewritten", "unborn branch"],
)
def test_reports_are_read_wherever_head_is(tmp_path: Path, moved: list[str]) -> None:
    folder = repository(tmp_path / "r", commits=2)
    store(folder)
    git(folder, *moved)
    project = Project(git=folder)
    assert load_handoff("s1", "json", project) == json.loads(a_report()["compressed_json"])
    assert load_handoff("s1", "markdown", project) == {"markdown": a_report()["markdown"].removesuffix("\n")}
    assert load_handoff("s2", "json", project) is None


def test_writing_the_same_again_adds_nothing_even_after_new_commits(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store(folder)
    before = refs(folder)
    assert statuses(store(folder)) == ["unchanged", "unchanged"]
    commit(folder)
    assert statuses(store(folder)) == ["unchanged", "unchanged"]
    assert refs(folder) == before


def test_a_new_version_is_read_and_the_old_one_stays_at_its_commit(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    first = git(folder, "rev-parse", "HEAD")
    store(folder)
    commit(folder)
    store(folder, a_report(version=2))
    loaded = load_handoff("s1", "json", Project(git=folder))
    assert loaded is not None
    assert loaded["task"] == "version 2"
    assert json.loads(git(folder, "notes", "--ref", "empirica/handoff/s1", "show", first))["task"] == "version 1"
    assert statuses(store(folder, a_report(version=2))) == ["unchanged", "unchanged"]


def test_an_older_version_never_takes_a_newer_ones_place(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store(folder, a_report(version=2))
    before = refs(folder)
    stored = store(folder, a_report(version=1))
    assert statuses(stored) == ["skipped", "skipped"]
    assert a_report(version=2)["report_id"] in stored[0].reason
    assert refs(folder) == before


def test_versions_of_the_same_second_are_told_apart_by_their_place_in_the_log(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    at = a_report()["timestamp"]
    store(folder, a_report(version=2, timestamp=at))
    commit(folder)
    assert statuses(store(folder, a_report(version=1, timestamp=at))) == ["skipped", "skipped"]


def test_a_rendering_that_changed_replaces_the_old_one_and_then_rests(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store(folder)
    commit(folder)
    again = a_report(markdown="# rendered anew\n")
    assert statuses(store(folder, again)) == ["unchanged", "written"]
    assert load_handoff("s1", "markdown", Project(git=folder)) == {"markdown": "# rendered anew"}
    assert statuses(store(folder, again)) == ["unchanged", "unchanged"]


def test_another_tools_note_on_the_same_commit_stays_in_the_history_and_is_told(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-m", '{"tool": "other"}', "HEAD")
    theirs = git(folder, "rev-parse", JSON_REF)
    blob = git(folder, "notes", "--ref", "empirica/handoff/s1", "list", "HEAD")
    stored = store(folder)
    assert stored[0].status == "written"
    assert blob in stored[0].reason
    assert history(folder, JSON_REF)[1:] == [theirs]
    assert git(folder, "cat-file", "blob", blob) == '{"tool": "other"}'
    assert statuses(store(folder)) == ["unchanged", "unchanged"]


def test_another_tools_note_on_another_commit_stays_where_it_is_and_is_told(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    first = git(folder, "rev-parse", "HEAD")
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-m", '{"tool": "other"}', "HEAD")
    commit(folder)
    stored = store(folder)
    assert first[:12] in stored[0].reason
    assert git(folder, "notes", "--ref", "empirica/handoff/s1", "show", first) == '{"tool": "other"}'
    assert load_handoff("s1", "json", Project(git=folder)) == json.loads(a_report()["compressed_json"])
    assert statuses(store(folder)) == ["unchanged", "unchanged"]


def test_another_tools_report_is_read_where_there_is_none_of_ours(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", commits=2)
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-m", '{"s": "s1"}', "HEAD~1")
    assert load_handoff("s1", "json", Project(git=folder)) == {"s": "s1"}


def test_notes_with_fan_out_and_files_that_are_no_notes_are_kept(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    head = git(folder, "rev-parse", "HEAD")
    blob = git(folder, "hash-object", "-w", "--stdin", data="old")
    inner = git(folder, "mktree", data=f"100644 blob {blob}\t{head[2:]}\n")
    tree = git(folder, "mktree", data=f"040000 tree {inner}\t{head[:2]}\n100755 blob {blob}\tREADME é\n")
    git(folder, "update-ref", JSON_REF, git(folder, "commit-tree", "-m", "x", tree))
    assert "was replaced" in store(folder)[0].reason
    assert json.loads(git(folder, "notes", "--ref", "empirica/handoff/s1", "show"))["task"] == "version 1"
    listed = git(folder, "-c", "core.quotePath=false", "ls-tree", "-r", JSON_REF).splitlines()
    assert [line.split("\t")[1] for line in listed] == sorted([head, "README é"])
    assert any(line.startswith("100755") for line in listed)


def test_a_note_of_a_report_that_the_log_does_not_have_counts_for_nothing(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    forged = a_report(version=9, timestamp="2099-01-01T00:00:00Z")
    store(folder, forged)
    commit(folder)
    known = {a_report()["report_id"]}
    stored = store_report(a_report(), Project(git=folder), known)
    assert statuses(stored)[:2] == ["written", "written"]
    assert "does not have" in stored[0].reason
    assert load_handoff("s1", "json", Project(git=folder)) == json.loads(a_report()["compressed_json"])
    assert len(history(folder, JSON_REF)) == 2
    assert statuses(store_report(a_report(), Project(git=folder), known))[:2] == ["unchanged", "unchanged"]


def test_listed_sessions_are_found_by_the_start_of_their_id(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    for session in ("a session/of mine", "abc", "长期"):
        store(folder, a_report(session))
    git(folder, "update-ref", "-d", f"{MARKDOWN_NOTES}abc")
    notes = Notes(folder)
    assert {(one.session_id, one.has_markdown) for one in notes.listed()} == {
        ("a session/of mine", True),
        ("abc", False),
        ("长期", True),
    }
    assert notes.find("a s") == "a%20session%2Fof%20mine"
    assert notes.find("长") == "长期"


def test_a_report_of_three_fields_is_stored_and_loaded_in_both_formats(tmp_path: Path) -> None:
    project = Project(git=repository(tmp_path / "r"))
    report = {"session_id": "test-123", "compressed_json": '{"test": "data"}', "markdown": "# Test Report"}
    assert store_report(report, project)[0].status == "written"
    assert load_handoff("test-123", "json", project) == {"test": "data"}
    loaded = load_handoff("test-123", "markdown", project)
    assert loaded is not None
    assert "# Test Report" in loaded["markdown"]


def test_what_a_hook_sets_and_runs_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = repository(tmp_path / "r"), repository(tmp_path / "other")
    hook = folder / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert statuses(store(folder)) == ["written", "written"]
    monkeypatch.undo()
    assert not (tmp_path / "ran").exists()
    assert refs(other) == {}
    assert git(folder, "status", "--porcelain") == ""


def test_settings_of_the_repository_do_not_change_what_is_read(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    for name, value in (
        ("log.showSignature", "true"),
        ("log.showRoot", "false"),
        ("diff.relative", "true"),
        ("color.ui", "always"),
        ("core.abbrev", "5"),
        ("log.diffMerges", "first-parent"),
        ("diff.noprefix", "true"),
        ("log.decorate", "full"),
        ("commit.gpgSign", "true"),
        ("notes.displayRef", "refs/notes/*"),
        ("core.logAllRefUpdates", "always"),
    ):
        git(folder, "config", name, value)
    inside = folder / "deep" / "inside"
    inside.mkdir(parents=True)
    store(inside)
    commit(folder)
    assert statuses(store(inside, a_report(version=2))) == ["written", "written"]
    assert statuses(store(inside, a_report(version=1))) == ["skipped", "skipped"]
    loaded = load_handoff("s1", "json", Project(git=inside))
    assert loaded is not None
    assert loaded["task"] == "version 2"
