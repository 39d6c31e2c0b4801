"""Repair restores lost or changed copies of reports from the log. The project decides where copies are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from building import trusted
from repositories import a_report, commit, git, on_path, refs, repository
from stored_reports import load_handoff

from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sessions.copies import page_size, repair, store_report
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES
from deedbook.consumers.sessions.settings import Project, name_of, project_of
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.home.config import Actions, Settings
from deedbook.ledger.home.settings import read_settings


class Log:
    """Answers queries about reports as the views do, in pages."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.reports = {report["session_id"]: report for report in reports}

    def __call__(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if query == "reports.show":
            report = self.reports[arguments["id"]]
            return {"report": report, "versions": [{"report_id": report["report_id"]}]}
        assert query == "reports.list"
        start, limit = arguments.get("after", 0), arguments["limit"]
        listed = list(self.reports.values())
        following = start + limit if start + limit < len(listed) else None
        return {"reports": listed[start : start + limit], "total_found": len(listed), "next": following}


def settings(folder: Path, **reports: Any) -> Settings:
    """Return the settings of a ledger in a project's folder."""
    return Settings(home=folder / ".deedbook", actions=Actions(reports=reports))


def test_lost_refs_and_files_come_back_and_the_rest_is_untouched(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    log = Log(*(a_report(f"s{number}", 1) for number in range(4)))
    project = Project(git=folder, files=folder / "files")
    steps: list[tuple[int, int]] = []
    repaired = repair(log, project, lambda done, total: steps.append((done, total)))
    assert (repaired.reports, repaired.written, repaired.failed) == (4, 16, ())
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    before = refs(folder)
    git(folder, "update-ref", "-d", f"{JSON_NOTES}s0")
    git(folder, "update-ref", "-d", f"{MARKDOWN_NOTES}s1")
    (folder / "files" / "claude-code" / "s2.md").unlink()
    commit(folder)
    git(folder, "notes", "--ref", "empirica/handoff/s3", "add", "-f", "-m", "{}", "HEAD~1")
    repaired = repair(log, project)
    assert (repaired.written, repaired.unchanged) == (4, 12)
    assert len(repaired.told) == 1
    assert refs(folder).keys() == before.keys()
    for number in range(4):
        assert load_handoff(f"s{number}", "json", project) == {
            "s": f"s{number}",
            "ai": "claude-code",
            "task": "version 1",
            "findings": ["知识"],
        }
    assert repair(log, project).written == 0


def test_all_pages_are_walked(tmp_path: Path) -> None:
    log = Log(*(a_report(f"s{number}") for number in range(2 * page_size + 1)))
    assert repair(log, Project(files=tmp_path / "h")).reports == 2 * page_size + 1
    assert len(list((tmp_path / "h").rglob("*.md"))) == 2 * page_size + 1


def test_a_store_that_is_left_out_is_told_once(tmp_path: Path) -> None:
    log = Log(a_report("a"), a_report("b"))
    repaired = repair(log, Project(git=tmp_path, is_git_sure=False))
    assert [(one.store, one.status) for one in repaired.skipped] == [("git_notes", "skipped"), ("files", "skipped")]
    (failed,) = repair(log, Project(git=tmp_path)).failed
    assert failed.reason.endswith("is in no git repository: run this in a repository, or name one")
    assert repaired.answer()["skipped"][1]["reason"] == "no folder is configured"


def test_a_git_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = on_path(tmp_path / "bin", f"echo x >> {tmp_path}/calls; sleep 1000")
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    monkeypatch.setattr(Git.call, "__kwdefaults__", {**(Git.call.__kwdefaults__ or {}), "time_max_s": 0.3})
    monkeypatch.setattr(Git.ask, "__kwdefaults__", {**(Git.ask.__kwdefaults__ or {}), "time_max_s": 0.3})
    repaired = repair(Log(a_report("a"), a_report("b")), Project(git=tmp_path, files=tmp_path / "files"))
    assert [one.reason for one in repaired.failed] == ["git rev-parse did not end within 0.3 s"]
    assert (tmp_path / "calls").read_text() == "x\n"
    assert repaired.written == 4


def test_a_report_is_read_from_files_when_git_has_none_and_the_other_way(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store_report(a_report(), Project(files=folder / "files"))
    for project in (Project(git=folder, files=folder / "files"), Project(git=tmp_path, files=folder / "files")):
        loaded = load_handoff("s1", "json", project)
        assert loaded is not None
        assert loaded["task"] == "version 1"
    assert load_handoff("s1", "json", Project(git=tmp_path)) is None


def test_a_broken_store_is_an_error_and_not_an_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "notes", "--ref", "empirica/handoff/s1", "add", "-m", "no json", "HEAD")
    git(folder, "notes", "--ref", "empirica/handoff/s2", "add", "-m", "[1]", "HEAD")
    for session in ("s1", "s2"):
        with pytest.raises(Corrupted):
            load_handoff(session, "json", Project(git=folder))
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(Unavailable):
        load_handoff("s1", "json", Project(git=folder))


@pytest.mark.parametrize("missing", ["session_id", "markdown", "compressed_json"])
def test_a_report_without_its_texts_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(Refused) as refused:
        store_report(a_report() | {missing: None}, Project())
    assert refused.value.details["path"] == f"$.{missing}"


def test_a_project_is_the_folder_that_holds_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project_of(settings(tmp_path)).git == tmp_path
    assert not project_of(settings(tmp_path)).is_git_sure
    monkeypatch.chdir(tmp_path)
    assert project_of(Settings(home=tmp_path / "elsewhere" / "ledger", actions=Actions())).git == Path.cwd()
    assert project_of(Settings(home=Path(".deedbook"), actions=Actions())).git == Path.cwd()


def test_files_are_written_where_the_project_has_documents_or_says_so(tmp_path: Path) -> None:
    project = project_of(settings(tmp_path))
    assert project.files is None
    assert "docs/sessions/handoffs" in project.no_files
    assert project_of(settings(tmp_path, files="notes/here")).files == tmp_path / "notes" / "here"
    (tmp_path / "docs" / "sessions" / "handoffs").mkdir(parents=True)
    assert project_of(settings(tmp_path)).files == tmp_path / "docs" / "sessions" / "handoffs"
    assert project_of(settings(tmp_path, files=False)).files is None


def test_a_link_out_of_the_project_is_not_taken_for_its_documents(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "docs").symlink_to(tmp_path / "outside")
    project = project_of(settings(tmp_path / "p"))
    assert project.files is None
    assert "is a link out of" in project.no_files


def test_config_says_where_reports_go(tmp_path: Path) -> None:
    home = tmp_path / "p" / ".deedbook"
    home.mkdir(parents=True)
    (home / "config.toml").write_text('[reports]\ngit = "../other"\nfiles = false\n')
    project = project_of(read_settings(home=trusted(home)))
    assert (project.git, project.files, project.is_git_sure) == (tmp_path / "p" / ".." / "other", None, True)
    none = project_of(settings(tmp_path, git=False))
    (stored, _) = store_report(a_report(), none)
    assert (stored.status, stored.reason) == ("skipped", "config.toml has git = false")


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"git": True}, "INVALID_FIELD"),
        ({"files": True}, "INVALID_FIELD"),
        ({"git": ""}, "INVALID_FIELD"),
        ({"files": "a\0b"}, "INVALID_FIELD"),
        ({"gti": "x"}, "UNKNOWN_FIELD"),
    ],
)
def test_a_wrong_table_is_refused_with_file_and_path(tmp_path: Path, table: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        project_of(settings(tmp_path, **table))
    assert refused.value.code == code
    assert str(tmp_path / ".deedbook" / "config.toml") in refused.value.message


def test_names_of_hostile_ids_are_repaired_too(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    log = Log(a_report("a b/../c"))
    repair(log, Project(git=folder))
    git(folder, "update-ref", "-d", JSON_NOTES + name_of("a b/../c"))
    assert repair(log, Project(git=folder)).written == 1
