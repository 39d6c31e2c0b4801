"""Several processes write notes at once, and some are killed: nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from faults import is_long_run
from forked_deed import ScriptProcess
from repositories import a_report, git, history, on_path, refs, repository
from stored_reports import load_handoff

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.notes import JSON_NOTES, MARKDOWN_NOTES
from deedbook.consumers.sessions.settings import Project

WRITER = Path(__file__).with_name("note_writer.py")
WAIT_MAX_S = 100


def start(folder: Path, session: str, first: int, last: int, **environment: str) -> subprocess.Popen[str]:
    """Start a writer and wait until it is ready."""
    child = ScriptProcess(
        WRITER,
        folder,
        session,
        first,
        last,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finish(children: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Let all writers start at once and return every position that they reported."""
    told = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, _ = child.communicate(timeout=WAIT_MAX_S)
        assert child.returncode == 0
        told += [place for line in out.splitlines() for place in json.loads(line)]
    return told


def test_writers_of_one_session_lose_nothing_and_the_latest_version_counts(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    children = [start(folder, "s1", first, first + 5) for first in (1, 6, 11)]
    told = [one for one in finish(children) if one["store"] == "git_notes"]
    assert {one["status"] for one in told} <= {"written", "skipped"}
    written = [one for one in told if one["location"] == f"git:{JSON_NOTES}s1" and one["status"] == "written"]
    assert len(history(folder, f"{JSON_NOTES}s1")) == len(written)
    loaded = load_handoff("s1", "json", Project(git=folder))
    assert loaded is not None
    assert loaded["task"] == "version 15"
    markdown = load_handoff("s1", "markdown", Project(git=folder))
    assert markdown == {"markdown": a_report(version=15)["markdown"].removesuffix("\n")}
    assert git(folder, "fsck", "--strict", "--no-dangling") == ""


def test_writers_of_many_sessions_all_succeed(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    told = finish([start(folder, "s{}", first, first + 5) for first in (1, 6, 11)])
    assert {one["status"] for one in told} == {"written"}
    assert len(refs(folder, JSON_NOTES)) == len(refs(folder, MARKDOWN_NOTES)) == 15


def test_a_writer_killed_between_its_two_notes_leaves_one_and_repair_writes_the_other(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    real = shutil.which("git")
    script = f'{real} "$@"; code=$?; case "$*" in *update-ref*) kill -9 $PPID;; esac; exit $code'
    path = f"{on_path(tmp_path / 'bin', script)}:{os.environ['PATH']}"
    child = start(folder, "s1", 1, 2, PATH=path)
    child.communicate("go\n", timeout=WAIT_MAX_S)
    assert child.returncode == -signal.SIGKILL
    assert refs(folder).keys() == {f"{JSON_NOTES}s1"}
    before = refs(folder)
    stored = store_report(a_report(), Project(git=folder))
    assert [one.status for one in stored][:2] == ["unchanged", "written"]
    assert refs(folder, JSON_NOTES) == before
    assert git(folder, "fsck", "--strict", "--no-dangling") == ""


def test_writers_killed_anywhere_leave_nothing_that_the_next_does_not_mend(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    real = shutil.which("git")
    steps = ("hash-object", "rev-parse", "update-index", "write-tree", "commit-tree", "update-ref")
    for step in steps if is_long_run else steps[::5]:
        before = f'case "$*" in *{step}*) kill -9 $PPID;; esac; exec {real} "$@"'
        path = f"{on_path(tmp_path / step, before)}:{os.environ['PATH']}"
        child = start(folder, f"killed-{step}", 1, 2, PATH=path)
        child.communicate("go\n", timeout=WAIT_MAX_S)
        assert child.returncode == -signal.SIGKILL
        stored = store_report(a_report(f"killed-{step}"), Project(git=folder, files=folder / "files"))
        assert {one.status for one in stored} <= {"written", "unchanged"}
        assert load_handoff(f"killed-{step}", "json", Project(git=folder)) is not None
    assert git(folder, "fsck", "--strict", "--no-dangling") == ""
