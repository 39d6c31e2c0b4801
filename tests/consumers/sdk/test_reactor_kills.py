"""An effect happens once across kills, and an event that kills its subscriber does not kill it for ever."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults import FAULTS, is_long_run, times

from consumers.sdk.subscriptions import Subscriptions
from ledger.author import Draft
from ledger.client import read_event
from ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from building import Ledger


SESSION = "session/s1"


@pytest.fixture(autouse=True)
def _session(ledger: Ledger) -> None:
    ledger.emit("alice", SESSION, SessionStarted())


def find(ledger: Ledger, *texts: str) -> None:
    """Append findings."""
    for text in texts:
        ledger.emit("alice", SESSION, FindingLogged(finding=text))


def done(subscriptions: Subscriptions) -> list[str]:
    """Return the findings whose effect happened, in order."""
    return [finding for (finding,) in subscriptions.db.execute("SELECT finding FROM done ORDER BY rowid")]


@pytest.fixture
def start(ledger: Ledger, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a subscriber process; returns once it reads."""
    program, children = Path(__file__).with_name("reacting_program.py"), list[subprocess.Popen[str]]()

    def popen() -> subprocess.Popen[str]:
        command = [sys.executable, str(program), str(ledger.home.path), str(tmp_path / "kill.db")]
        environment = os.environ | {"PYTHONPATH": str(program.parents[2])}
        child = subprocess.Popen([*command, str(ledger.head()[0])], stdout=subprocess.PIPE, text=True, env=environment)
        children.append(child)
        assert child.stdout
        assert child.stdout.readline() == "begun\n"
        return child

    yield popen
    for child in children:
        assert child.stdout
        child.stdout.close()


def rows(path: Path) -> tuple[list[str], list[str]]:
    """Return the effects and the errors of the dead letters in a store."""
    subscriptions = Subscriptions(path)
    try:
        return done(subscriptions), [letter.error for letter in subscriptions.dead_letters("rows")]
    finally:
        subscriptions.close()


def test_effects_happen_once_across_kills(
    ledger: Ledger, tmp_path: Path, start: Callable[[], subprocess.Popen[str]]
) -> None:
    chance = random.Random(os.environ.get("BATON_SEED"))
    count = 500 * FAULTS if is_long_run else 250
    for first in range(0, count, 250):
        drafts = [Draft(stream=SESSION, data=FindingLogged(finding=str(first + number))) for number in range(250)]
        ledger.submit(ledger.sign("alice", *drafts))
    for _ in range(times(2, 4)):
        child = start()
        time.sleep(chance.uniform(0, 0.15))
        child.kill()
        child.wait()
    assert start().wait(60) == 0
    assert rows(tmp_path / "kill.db") == ([str(number) for number in range(count)], [])


def test_event_that_kills_its_subscriber_becomes_a_dead_letter(
    ledger: Ledger, tmp_path: Path, start: Callable[[], subprocess.Popen[str]]
) -> None:
    find(ledger, "before", "deadly", "after")
    assert [start().wait(60) for _ in range(4)] == [-9, -9, -9, 0]
    effects, letters = rows(tmp_path / "kill.db")
    assert effects == ["before", "after"]
    assert letters == ["the subscriber died while it handled this event"]
    assert read_event(7, ledger.client().entry(7)).data.finding == "after"
