"""An operator's command: its input, its end, and that none of its processes outlives its limit or its caller."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from deedbook.consumers.sdk.command import run_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that a command's background process holds open for writing as long as it lives."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def is_released(pipe: Path) -> bool:
    """Return whether no process holds the writing end of a pipe any more, within five seconds."""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(500):
            with contextlib.suppress(BlockingIOError):
                return os.read(end, 1) == b""
            time.sleep(0.01)
    finally:
        os.close(end)
    return False


def background(pipe: Path) -> str:
    """Return a command that starts a process in the background, checks that it runs, and waits for it."""
    return f"(exec sleep 60 > {pipe}) & exec 3< {pipe}; touch {pipe}.runs; wait"


def test_command_gets_the_document_and_the_environment(tmp_path: Path) -> None:
    line = f'cat > {tmp_path}/in; printf "%s" "$WORD" > {tmp_path}/word'
    assert run_command(line, b"x" * 200_000, {"WORD": "$(id) 好"}, limit_s=20).problem is None
    assert (tmp_path / "in").read_bytes() == b"x" * 200_000
    assert (tmp_path / "word").read_text("utf-8") == "$(id) 好"


def test_failure_names_the_exit_code_and_the_last_error() -> None:
    line = "echo first >&2; printf '\\033[31mno such\\tplace\\n\\n' >&2; exit 3"
    assert run_command(line, b"", {}, limit_s=20).problem == "the command ended with exit code 3: [31mno such place"
    assert run_command("exit 4", b"", {}, limit_s=20).problem == "the command ended with exit code 4"


def test_errors_go_where_ours_go(capfd: pytest.CaptureFixture[str]) -> None:
    run_command("echo careful >&2; echo dropped", b"", {}, limit_s=20, drops_output=True)
    assert capfd.readouterr() == ("", "careful\n")


def test_at_the_limit_everything_the_command_started_is_killed(pipe: Path) -> None:
    assert run_command(background(pipe), b"", {}, limit_s=1).problem == "the command took longer than 1 s"
    assert is_released(pipe)


def test_when_the_caller_is_stopped_everything_the_command_started_is_killed(pipe: Path) -> None:
    stop = threading.Event()
    runs = pipe.with_name("pipe.runs")

    def stop_it() -> None:
        while not runs.exists():
            time.sleep(0.01)
        stop.set()

    helper = threading.Thread(target=stop_it)
    helper.start()
    ended = run_command(background(pipe), b"", {}, limit_s=60, stop=stop)
    helper.join()
    assert (ended.problem, ended.is_stopped) == ("the command was stopped", True)
    assert is_released(pipe)


def test_what_a_command_leaves_in_the_background_goes_on_when_it_ends_well(tmp_path: Path) -> None:
    line = f"(while ! test -e {tmp_path}/go; do sleep 0.05; done; touch {tmp_path}/gone) & exit 0"
    assert run_command(line, b"", {}, limit_s=20).problem is None
    (tmp_path / "go").touch()
    for _ in range(500):
        if (tmp_path / "gone").exists():
            return
        time.sleep(0.01)
    raise AssertionError("it was killed")
