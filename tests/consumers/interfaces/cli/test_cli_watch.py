"""Dead letters of `deed watch` are listed and tried again."""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inside
from calling import Deed, Place

from deedbook.consumers.interfaces.cli.commands import watch
from deedbook.consumers.sdk import reactor
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def test_dead_letter_is_listed_and_forgotten_once_its_retry_succeeds(
    populated: Callable[[str], Path], tmp_path: Path
) -> None:
    home = populated("watched")
    flag = tmp_path / "works"

    def watch(*arguments: str) -> dict[str, Any]:
        common = ("--home", home, "--as", "a", "watch", "--kind", "session.started", "--exec", f"test -e {flag}")
        said = inside.deed(*common, "--json", *arguments)
        assert said.code == ("--once" in arguments), said.err  # --once ends with 1 after a dead letter
        return json.loads(said.out)["data"] if said.out else {}

    emitted = inside.deed(
        "--home", home, "--as", "a", "emit", "session.started", "--stream", "session/s1", "--data", "{}"
    )
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
    deed = Deed(capsys, Place(populated("watched")))
    os.mkfifo(pipe)
    monkeypatch.setattr(watch, "command_timeout_s", 1)
    monkeypatch.setattr(watch, "Reactor", partial(Reactor, attempts=1))
    deed("--as", "a", "emit", "session.started", "--stream", "session/s1", "--data", "{}")
    command = f"(exec sleep 37 > {pipe}) & exec 3< {pipe}; wait"
    common = ("--as", "a", "watch", "--kind", "session.started", "--exec", command, "--json")
    said = deed.run(*common, "--from-start", "--once")
    assert said.code == 1
    assert "watching" not in said.err  # programs do not get this notice
    assert "1 event given up" in said.err
    (letter,) = json.loads(deed(*common, "--dead"))["data"]["dead_letters"]
    assert letter["error"] == "RuntimeError: the command took longer than 1 s"
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(500):
        with contextlib.suppress(BlockingIOError):  # some process still holds the other end
            assert os.read(end, 1) == b""
            break
        time.sleep(0.01)
    else:
        raise AssertionError("the sleep goes on")
    os.close(end)


def test_watcher_says_where_it_begins_and_how_to_begin_again(populated: Callable[[str], Path]) -> None:
    home = populated("begun")

    def begin(*more: str) -> str:
        kinds = "session.started,session.ended"
        said = inside.deed("--home", home, "--as", "a", "watch", "--kind", kinds, "--once", *more)
        assert (said.code, said.out) == (0, "")
        return said.err

    assert begin() == "watching session.started, session.ended as a from entry 5 on\n"
    again = begin("--from-start")
    assert "from entry 5 on, where it stopped last time; --from-start is for a new watcher: to begin again" in again
    Path(again.rpartition("remove ")[2].strip()).unlink()
    assert "from entry 0 on\n" in begin("--from-start")


def test_watcher_says_when_its_server_goes_and_is_back(
    populated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter([Unavailable("BUS_UNAVAILABLE", "there is no connection"), None])

    def run(_self: Reactor, _stop: object, *, until: int | None) -> None:
        if error := next(runs):
            raise error

    monkeypatch.setattr(Reactor, "run", run)  # a server that does not answer is given up after twenty seconds
    monkeypatch.setattr(reactor, "server_wait_s", 0.001)
    said = inside.deed("--home", populated("left"), "--as", "a", "watch", "--kind", "session.started")
    assert said.code == 0
    assert said.err.splitlines()[1:] == [
        "the server is gone, waiting for it: there is no connection",
        "the server is back, with 5 entries",
    ]
    assert next(runs, None) is None
