"""`deed clock` compares the ledger's clock with the machine's, and the root sets it with one command."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import inside
import pytest
from building import Clock, Ledger
from forked_deed import DeedProcess

from deedbook.ledger.events.session import SessionStarted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 86_400_000


@pytest.fixture
def home_left(tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that makes a ledger, with its keys, whose last entry is so many days old."""

    def make(days: int) -> Path:
        with Ledger(tmp_path / ".deedbook", clock=Clock(time.time_ns() // 1_000_000 - days * DAY_MS)) as ledger:
            ledger.write_keys()
            ledger.emit("alice", "session/s1", SessionStarted())
        return tmp_path / ".deedbook"

    return make


def deed(home: Path, *arguments: str) -> inside.Said:
    return inside.deed("--home", home, *arguments)


def data(home: Path, *arguments: str) -> Any:
    said = deed(home, *arguments, "--json")
    assert said.code == 0, said
    return json.loads(said.out)["data"]


def checks(home: Path) -> dict[str, Any]:
    document = json.loads(deed(home, "doctor", "--json").out)
    found = document.get("data") or document["error"]["details"]
    return {one["name"]: one for one in found["checks"]}


@pytest.mark.parametrize(("days", "distance"), [(60, "later"), (-20, "earlier")])
def test_ledger_far_from_the_machines_clock_says_what_to_do_and_one_command_does_it(
    home_left: Callable[[int], Path], days: int, distance: str
) -> None:
    home = home_left(days)
    start = ("session", "start", "--as", "alice", "--task", "go on")
    said = deed(home, *start)
    assert (said.code, said.err.partition(":")[0]) == (5, "CLOCK_JUMPED")
    assert f" days {distance} than the last entry" in said.err
    assert "deed clock set --as root" in said.err
    assert (data(home, "clock")["ok"], checks(home)["clock"]["ok"]) == (False, False)
    assert "clock set" in checks(home)["clock"]["fix"]

    assert deed(home, "clock", "set", "--as", "alice", "--reason", "mine").code == 5
    answer = data(home, "clock", "set", "--as", "root", "--reason", "nobody worked here for long")
    assert answer["before"] != answer["after"]
    assert (data(home, "clock")["ok"], checks(home)["clock"]["ok"]) == (True, True)
    assert deed(home, *start).code == 0
    assert deed(home, "verify", "--views").code == 0
    assert "nobody worked here for long" in deed(home, "show", str(answer["index"])).out


def test_ledger_in_use_needs_no_setting(home_left: Callable[[int], Path]) -> None:
    home = home_left(3)
    shown = data(home, "clock")
    assert (shown["ok"], shown["fix"], shown["difference_s"] > 2 * 86_400) == (True, "", True)
    assert "in order" in deed(home, "clock").out


def test_lease_and_session_key_of_a_wrong_clock_show_as_over(home_left: Callable[[int], Path], tmp_path: Path) -> None:
    home = home_left(-20)
    with Ledger(home, clock=Clock(time.time_ns() // 1_000_000 + 20 * DAY_MS)) as ledger:
        ledger.approve("h1", ledger.hand_over("h1"))
        ledger.claim("h1", lease_seconds=3600)
        ledger.delegate("alice", ledger.keys["node"].generate(), seconds=3600)
    assert data(home, "handoff", "list")["items"][0]["is_ready"] is False
    data(home, "clock", "set", "--as", "root", "--reason", "the clock stood ahead")
    assert data(home, "handoff", "list")["items"][0]["is_ready"] is True
    (waits,) = data(home, "next", "--as", "bob")["items"]
    assert waits["action"] == "claim"
    assert [key["state"] for key in data(home, "key", "list", "--agent", "alice")["items"]] == ["valid", "expired"]
    assert deed(home, "verify", "--views").code == 0


def test_two_processes_set_the_clock_at_once_and_both_are_kept(home_left: Callable[[int], Path]) -> None:
    home = home_left(60)
    arguments = ("--home", home, "clock", "set", "--reason", "r")
    processes = [DeedProcess(*arguments, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert deed(home, "verify").code == 0
