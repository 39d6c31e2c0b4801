"""Git is limited in time and output, ends with its children, and runs no program that a stranger's repository names."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deedbook.consumers.sdk.git import Git, Objects, error_shown_max_chars, masked
from deedbook.ledger.errors import Refused, Unavailable

ReplaceGit = Callable[[str], None]


@pytest.fixture
def replace_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplaceGit:
    """Return a function that puts a script before the real git."""

    def replace(script: str) -> None:
        program = tmp_path / "bin" / "git"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return replace


def _runs(child: int) -> bool:
    """Return whether a process is neither gone nor a zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{child}/stat").read_text().split(") ")[1][0] != "Z"
    return False


def test_a_hanging_git_is_ended_with_its_children(tmp_path: Path, replace_git: ReplaceGit) -> None:
    replace_git(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(Unavailable) as error:
        Git(tmp_path).call("version", time_max_s=2)
    assert "did not end" in error.value.message
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < deadline, "the child of the hanging git runs on"
        time.sleep(0.02)


def test_a_git_that_says_too_much_is_ended(tmp_path: Path, replace_git: ReplaceGit) -> None:
    replace_git("exec yes")
    with pytest.raises(Refused) as refused:
        Git(tmp_path).call("version", size_max=1000)
    assert refused.value.code == "TOO_LARGE"


def test_a_long_complaint_is_shortened_and_holds_no_credentials(tmp_path: Path, replace_git: ReplaceGit) -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' 'x' >&2; echo 'at https://me:hunter2@host/r?token=abc' >&2; exit 1"
    replace_git(script)
    answer = Git(tmp_path).call("version")
    assert len(answer.error) <= error_shown_max_chars + 2
    assert answer.error.endswith("at https://***@host/r?token=***")
    assert masked("ssh://git:a%40b@h/x user@h:r") == "ssh://***@h/x user@h:r"


def test_a_daemon_that_git_leaves_behind_is_not_waited_for(tmp_path: Path, replace_git: ReplaceGit) -> None:
    replace_git(f"setsid sleep 1000 & echo $! > {tmp_path}/daemon; echo done; exit 0")
    assert Git(tmp_path).call("version").out == b"done\n"  # returns although the daemon holds both pipes open
    daemon = int((tmp_path / "daemon").read_text())
    assert _runs(daemon)
    os.kill(daemon, 9)


def test_a_git_that_closes_its_pipes_and_stays_is_ended(tmp_path: Path, replace_git: ReplaceGit) -> None:
    replace_git("exec >&- 2>&-; exec sleep 1000")
    with pytest.raises(Unavailable) as error:
        Git(tmp_path).call("version", time_max_s=1)
    assert "did not end" in error.value.message


def test_what_goes_in_and_what_comes_out_may_be_larger_than_a_pipe(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    git = Git(tmp_path)
    content = bytes(range(256)) * 4_000
    blob = git.ask("hash-object", "-w", "--stdin", data=content)
    assert git.call("cat-file", "blob", blob).out == content
    with Objects(git) as objects:
        found = objects.get(blob, len(content))
    assert found is not None
    assert found.content == content


def test_the_operators_settings_count_in_their_own_repository_and_in_no_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    settings = tmp_path / "settings"
    settings.write_text("[deedbook]\n\tname = operator\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert Git(tmp_path).ask("config", "deedbook.name") == "operator"
    stranger = Git(tmp_path, is_own=False)
    assert stranger.call("config", "deedbook.name").code == 1
    refused = stranger.call("ls-remote", str(tmp_path))
    assert "not allowed" in refused.error
