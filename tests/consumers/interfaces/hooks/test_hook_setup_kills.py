"""Setup and removal are killed at any step: the next removal restores the project as it was before the first setup."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest
from faults import some_of
from harness_place import tree

from deedbook.consumers.interfaces.hooks import record
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.installation import Installation, Launcher
from deedbook.consumers.interfaces.hooks.parts import State

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS: Final = ("open", "write", "fsync", "fchmod", "replace", "unlink", "mkdir", "rmdir")
KILLED: Final = 9
PAGE: Final = b"# Theirs, without a line end"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder and home of this test; leftovers of a killed setup count as old at once."""
    folder = tmp_path / "home"
    (folder / ".local" / "state").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(record, "leftover_age_s", 0.0)
    return folder


def made_at(folder: Path) -> Path:
    """Create a project in a folder, without records of an earlier one, and return it."""
    for name in ("project", "home/.local/state/deedbook"):
        shutil.rmtree(folder / name, ignore_errors=True)
    project = folder / "project"
    project.mkdir()
    (project / "AGENTS.md").write_bytes(PAGE)
    return project


def installation(project: Path, agent: str = "me") -> Installation:
    return Installation(HARNESSES["codex"], project, Launcher("/usr/bin/deed", agent))


def killed_before(step: int, work: Callable[[], Any]) -> bool:
    """Do the work in a process that dies before a step; return whether it reached that step."""
    child = os.fork()
    if child == 0:
        done = 0

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*given: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done > step:
                    os._exit(KILLED)
                return call(*given, **named)

            return counting

        try:
            for name in STEPS:
                setattr(os, name, counted(getattr(os, name)))
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


@pytest.mark.parametrize("phase", some_of(["install", "update", "remove"], "install", "remove"))
@pytest.mark.parametrize("again", [False, True], ids=["removed then", "installed again"])
def test_killed_at_any_step_it_is_put_right_by_the_next_call(phase: str, tmp_path: Path, *, again: bool) -> None:
    step = 0
    while True:
        project = made_at(tmp_path)
        before = tree(project)
        if phase != "install":
            installation(project).install()
        calls = {"install": installation(project).install, "remove": installation(project).remove}
        was_killed = killed_before(step, calls.get(phase) or installation(project, "another").install)
        if again:
            installation(project).install()
            assert {one.state for one in installation(project).check()} == {State.INSTALLED}
        installation(project).remove()
        assert tree(project) == before, step
        if not was_killed:
            break
        step += 1
    assert step > 10
