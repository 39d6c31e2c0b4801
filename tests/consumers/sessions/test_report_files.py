"""Reports as files: Deedbook writes them, keeps a person's additions, and never writes outside of the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repositories import a_report
from stored_reports import load_handoff

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.settings import Project, StoredCopy
from deedbook.ledger.errors import Unavailable


def store(root: Path, **changes: Any) -> list[StoredCopy]:
    """Store a report's files and return the results for markdown and JSON."""
    return [one for one in store_report(a_report(**changes), Project(files=root)) if one.store == "files"]


def statuses(stored: list[StoredCopy]) -> list[str]:
    return [one.status for one in stored]


def test_files_stand_by_agent_and_session(tmp_path: Path) -> None:
    stored = store(tmp_path / "deep" / "handoffs")
    folder = tmp_path / "deep" / "handoffs" / "claude-code"
    assert [(one.location, one.status) for one in stored] == [
        (str(folder / "s1.md"), "written"),
        (str(folder / "s1.json"), "written"),
    ]
    assert (folder / "s1.md").read_text().startswith(a_report()["markdown"])
    assert json.loads((folder / "s1.json").read_text()) == json.loads(a_report()["compressed_json"])
    project = Project(files=tmp_path / "deep" / "handoffs")
    loaded = load_handoff("s1", "markdown", project)
    assert loaded is not None
    assert loaded["markdown"].rstrip("\n") + "\n" == a_report()["markdown"]
    assert load_handoff("s1", "json", project) == json.loads(a_report()["compressed_json"])
    assert load_handoff("s2", "json", project) is None


def test_writing_the_same_again_leaves_the_files_untouched(tmp_path: Path) -> None:
    store(tmp_path / "h")
    before = {path: path.stat().st_ino for path in (tmp_path / "h").rglob("*")}
    assert statuses(store(tmp_path / "h")) == ["unchanged", "unchanged"]
    assert {path: path.stat().st_ino for path in (tmp_path / "h").rglob("*")} == before


def test_later_versions_replace_earlier_ones_and_never_the_other_way(tmp_path: Path) -> None:
    store(tmp_path / "h", version=1)
    assert statuses(store(tmp_path / "h", version=2)) == ["written", "written"]
    assert statuses(store(tmp_path / "h", version=2)) == ["unchanged", "unchanged"]
    assert statuses(store(tmp_path / "h", version=1)) == ["skipped", "skipped"]
    assert statuses(store(tmp_path / "h", version=3)) == ["written", "written"]
    assert "version 3" in (tmp_path / "h" / "claude-code" / "s1.json").read_text()


@pytest.mark.parametrize("lost", ["s1.md", "s1.json"])
def test_a_lost_file_is_written_again(tmp_path: Path, lost: str) -> None:
    store(tmp_path / "h")
    content = (tmp_path / "h" / "claude-code" / lost).read_bytes()
    (tmp_path / "h" / "claude-code" / lost).unlink()
    assert sorted(statuses(store(tmp_path / "h"))) == ["unchanged", "written"]
    assert (tmp_path / "h" / "claude-code" / lost).read_bytes() == content


@pytest.mark.parametrize("edited", ["s1.md", "s1.json"])
def test_what_a_person_wrote_stays_and_is_told_until_it_is_moved(tmp_path: Path, edited: str) -> None:
    store(tmp_path / "h")
    path = tmp_path / "h" / "claude-code" / edited
    mine = path.read_text().replace("知识", "mine")
    path.write_text(mine)
    (told,) = [one for one in store(tmp_path / "h", version=2) if one.location == str(path)]
    assert told.status == "skipped"
    assert "somebody changed" in told.reason
    assert path.read_text() == mine
    path.rename(path.with_suffix(".mine"))
    assert str(path) in [one.location for one in store(tmp_path / "h", version=2) if one.status == "written"]


def test_a_crash_between_the_two_files_does_not_make_the_old_json_somebody_elses(tmp_path: Path) -> None:
    store(tmp_path / "h", version=1)
    old = (tmp_path / "h" / "claude-code" / "s1.json").read_bytes()
    store(tmp_path / "h", version=2)
    (tmp_path / "h" / "claude-code" / "s1.json").write_bytes(old)
    assert statuses(store(tmp_path / "h", version=3)) == ["written", "written"]


def test_other_line_ends_are_no_edit(tmp_path: Path) -> None:
    store(tmp_path / "h")
    for path in (tmp_path / "h" / "claude-code").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert statuses(store(tmp_path / "h")) == ["unchanged", "unchanged"]
    assert statuses(store(tmp_path / "h", version=2)) == ["written", "written"]


def test_links_and_things_that_are_no_files_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "claude-code").symlink_to(outside)
    assert statuses(store(tmp_path / "h")) == ["failed", "failed"]
    assert list(outside.iterdir()) == []
    folder = tmp_path / "h" / "other"
    folder.mkdir()
    (outside / "theirs").write_text("theirs")
    (folder / "s1.md").symlink_to(outside / "theirs")
    assert statuses(store(tmp_path / "h", ai_id="other")) == ["failed", "failed"]
    assert (outside / "theirs").read_text() == "theirs"
    (tmp_path / "h" / "third").write_text("a file")
    assert statuses(store(tmp_path / "h", ai_id="third")) == ["failed", "failed"]
    (tmp_path / "h" / "fourth" / "s1.json").mkdir(parents=True)
    assert statuses(store(tmp_path / "h", ai_id="fourth")) == ["failed", "failed"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file")
    stored = store(tmp_path / "docs" / "sessions")
    assert statuses(stored) == ["failed", "failed"]
    assert str(tmp_path / "docs") in stored[0].reason
    with pytest.raises(Unavailable):
        load_handoff("s1", "json", Project(files=tmp_path / "docs"))
    assert load_handoff("s1", "json", Project(files=tmp_path / "nowhere")) is None


def test_a_report_without_an_agents_name_stands_under_its_author(tmp_path: Path) -> None:
    assert statuses(store(tmp_path, ai_id="")) == ["written", "written"]
    assert (tmp_path / "al" / "s1.md").exists()
