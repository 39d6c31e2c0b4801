"""Dead letters of `baton watch` are listed and tried again."""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from calling import Baton, Place, call

from consumers.doors.cli.commands import watch
from consumers.sdk.reactor import Reactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def test_dead_letter_is_listed_and_forgotten_once_its_retry_succeeds(
    populated: Callable[[str], Path], tmp_path: Path
) -> None:
    home = populated("watched")
    flag = tmp_path / "works"

    def watch(*arguments: str) -> dict[str, Any]:
        common = ("--home", home, "--as", "a", "watch", "--kind", "session.started", "--exec", f"test -e {flag}")
        said = call(*common, "--json", *arguments)
        assert said.code == ("--once" in arguments), said.err  # which ends with 1 after a dead letter
        return json.loads(said.out)["data"] if said.out else {}

    emitted = call("--home", home, "--as", "a", "emit", "session.started", "--stream", "session/s1", "--data", "{}")
    index = int(emitted.out.split()[0])
    watch("--from-start", "--once")
    (letter,) = watch("--dead")["dead_letters"]
    assert letter["index"] == index
    assert "exit code 1" in letter["error"]
    flag.touch()
    assert watch("--retry", str(index)) == {"index": index}
    assert watch("--dead")["dead_letters"] == []


def test_command_that_takes_too_long_leaves_nothing_behind(
    populated: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe = tmp_path / "pipe"
    baton = Baton(capsys, Place(populated("watched")))
    os.mkfifo(pipe)
    monkeypatch.setattr(watch, "command_timeout_s", 1)
    monkeypatch.setattr(watch, "Reactor", partial(Reactor, attempts=1))
    baton("--as", "a", "emit", "session.started", "--stream", "session/s1", "--data", "{}")
    command = f"(exec sleep 37 > {pipe}) & exec 3< {pipe}; wait"
    common = ("--as", "a", "watch", "--kind", "session.started", "--exec", command, "--json")
    said = baton.run(*common, "--from-start", "--once")
    assert said.code == 1
    assert "watching session.started as a from entry 0 on" in said.err
    assert "1 event given up" in said.err
    (letter,) = json.loads(baton(*common, "--dead"))["data"]["dead_letters"]
    assert letter["error"] == "RuntimeError: the command took longer than 1 s"
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(500):
        with contextlib.suppress(BlockingIOError):  # somebody still holds the other end
            assert os.read(end, 1) == b""
            break
        time.sleep(0.01)
    else:
        raise AssertionError("the sleep goes on")
    os.close(end)
