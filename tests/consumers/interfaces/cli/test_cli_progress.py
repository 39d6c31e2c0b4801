"""Long work shows its progress: a bar on a terminal, otherwise one line for each stage; short work shows none."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from calling import Deed, Place

from deedbook.consumers.interfaces.cli import progress as shown
from deedbook.projections.views import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOW_WORK = """
import sys, time
from deedbook.consumers.interfaces.cli import progress
progress.shown_after_s = 0.05
with progress.progress("verifying") as step:
    for done in range(1, 9):
        step(done, 8)
        time.sleep(0.2)
print("the end")
"""


@pytest.fixture
def shows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "shown_after_s", 0.02)


@pytest.mark.usefixtures("shows_at_once")
def test_off_a_terminal_a_stage_that_takes_long_prints_one_line_with_its_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown.progress("verifying") as step:
        step(2_500, 10_000)
        time.sleep(0.2)
        step(5_000, 10_000)
        time.sleep(0.1)
    assert capsys.readouterr().err == "verifying (2,500 of 10,000) …\n"


@pytest.mark.usefixtures("shows_at_once")
def test_a_stage_without_steps_prints_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with shown.progress("joining"):
        time.sleep(0.2)
    assert capsys.readouterr().err == "joining …\n"


def test_work_that_ends_at_once_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown.progress("verifying") as step:
        step(1, 2)
    with pytest.raises(KeyError), shown.progress("verifying"):
        raise KeyError
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("shows_at_once")
def test_json_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown.progress("verifying", is_shown=False) as step:
        step(1, 2)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_bar_counts_and_disappears() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", SLOW_WORK], stdout=theirs, stderr=theirs)
    os.close(theirs)
    screen = b""
    while b"the end" not in screen:
        screen += os.read(ours, 4096)
    assert child.wait(30) == 0
    os.close(ours)
    assert b"verifying" in screen
    assert b"8/8" in screen
    assert screen.rindex(b"\x1b[2K") < screen.index(b"the end")  # the bar's line is erased before the rest is printed


@pytest.mark.usefixtures("shows_at_once")
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_views_that_must_be_made_first_show_their_progress(
    populated: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: list[str],
) -> None:
    deed = Deed(capsys, Place(populated("behind")))
    whole = runner.read_logged

    def slow(*arguments: Any) -> Any:
        time.sleep(0.02)
        return whole(*arguments)

    monkeypatch.setattr(runner, "batch_events_max", 1)
    monkeypatch.setattr(runner, "read_logged", slow)
    said = deed.run("log", *option)
    assert said.code == 0
    assert bool(re.match(r"bringing the views up to date \(\d+ of \d+\) …\n", said.err)) is not bool(option), said.err
