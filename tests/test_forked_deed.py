"""A forked `deed` is a process like any other, with its own streams, folder, environment, pid and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from forked_deed import DeedProcess, ScriptProcess, deed_command, run_deed

if TYPE_CHECKING:
    from pathlib import Path

wait_max_s = 60


def started(*arguments: str, cwd: Path, text: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m deedbook` as a new process, for comparison."""
    command = [sys.executable, "-m", "deedbook", *arguments]
    environment = os.environ | changed
    return subprocess.run(command, cwd=cwd, env=environment, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    ["--version", "--help", "nothing", "log", "next --as a", "emit --data - session.started --stream s"],
)
def test_it_does_what_a_started_one_does(words: str, tmp_path: Path) -> None:
    for folder in ("forked", "started", "command"):
        (tmp_path / folder).mkdir()
        made = run_deed("init", "--unprotected", cwd=tmp_path / folder, timeout=wait_max_s)
        assert made.returncode == 0, made.stderr
    given = {"text": '{"task": "ünïcode"}', "COLUMNS": "70", "DEEDBOOK_AGENT": "root"}
    expected = started(*words.split(), cwd=tmp_path / "started", **given)
    environment = os.environ | {"COLUMNS": "70", "DEEDBOOK_AGENT": "root"}
    answer = run_deed(*words.split(), cwd=tmp_path / "forked", given=given["text"], env=environment, timeout=wait_max_s)
    assert answer.returncode == expected.returncode
    assert len(answer.stdout) == len(expected.stdout)
    assert answer.stderr == expected.stderr
    command = subprocess.run(
        [*deed_command(), *words.split()],
        cwd=tmp_path / "command",
        env=environment,
        input=given["text"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (command.returncode, len(command.stdout), command.stderr) == (
        expected.returncode,
        len(expected.stdout),
        expected.stderr,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -15), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_it_is_signalled_and_killed(number: signal.Signals, code: int, tmp_path: Path) -> None:
    home = tmp_path / ".deedbook"
    assert run_deed("--home", home, "init", "--unprotected", timeout=wait_max_s).returncode == 0
    arguments = ("--home", home, "log", "--follow", "--json")
    with DeedProcess(*arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = process.stdout.readline(), process.poll()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        os.kill(process.pid, number)
        assert process.wait(wait_max_s) == code
    assert '"ledger.created"' in begun[0]
    assert begun[1] is None


def test_a_variable_that_only_a_start_of_python_reads_is_refused() -> None:
    with pytest.raises(AssertionError, match="needs a start of Python"):
        run_deed("--version", env=os.environ | {"PYTHONUTF8": "0"}, timeout=wait_max_s)


def test_it_loads_what_the_search_path_names(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('customized')\n")
    answer = run_deed("--version", env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=wait_max_s)
    assert answer.stdout.startswith("customized\n")


def test_a_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'beside'\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(sys.argv, beside.name, __name__)\nsys.exit(5)\n")
    arguments = [str(tmp_path / "script.py"), "a", "b"]
    with ScriptProcess(*arguments, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=wait_max_s)
    expected = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert (out, process.returncode) == (expected.stdout, expected.returncode)
