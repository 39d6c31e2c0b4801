"""An effect happens once despite kills, and an event that kills its subscriber does not do so for ever."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults import FAULTS, is_long_run, settle, times
from forked_deed import ScriptProcess

from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted

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


@pytest.fixture
def start(ledger: Ledger, store: Path | str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a subscriber process; returns once it reads."""
    program, children = Path(__file__).with_name("reacting_program.py"), list[subprocess.Popen[str]]()

    def popen() -> subprocess.Popen[str]:
        arguments = (program, ledger.home.path, store, ledger.head()[0])
        environment = os.environ | {"PYTHONPATH": str(program.parents[2])}
        child = ScriptProcess(*arguments, stdout=subprocess.PIPE, text=True, env=environment)
        children.append(child)
        assert child.stdout
        assert child.stdout.readline() == "begun\n"
        return child

    yield popen
    for child in children:
        assert child.stdout
        child.stdout.close()


def rows(store: Path | str) -> tuple[list[str], list[str]]:
    """Return the effects and the errors of the dead letters in a store."""
    subscriptions = open_subscriptions(store)
    try:
        effects = subscriptions.run("SELECT finding FROM done ORDER BY number")
        return [finding for (finding,) in effects], [letter.error for letter in subscriptions.dead_letters("rows")]
    finally:
        subscriptions.close()


def test_effects_happen_once_across_kills(
    ledger: Ledger, store: Path | str, start: Callable[[], subprocess.Popen[str]]
) -> None:
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))
    count = 500 * FAULTS if is_long_run else 250
    for first in range(0, count, 250):
        drafts = [Draft(stream=SESSION, data=FindingLogged(finding=str(first + number))) for number in range(250)]
        ledger.submit(ledger.sign("alice", *drafts))
    for _ in range(rounds := times(1, 4)):
        child = start()
        time.sleep(chance.uniform(0, 0.15))
        child.kill()
        child.wait()
    assert start().wait(600) == 0
    effects, letters = rows(store)
    texts = [str(number) for number in range(count)]
    settle("kill -9 of a subscriber", rounds, events=texts, published=texts, effects=effects)
    assert (effects, letters) == (texts, [])


def test_event_that_kills_its_subscriber_becomes_a_dead_letter(
    ledger: Ledger, store: Path | str, start: Callable[[], subprocess.Popen[str]]
) -> None:
    handled = list[str]()
    for number in range(rounds := times(1, 2)):
        find(ledger, before := f"before {number}", f"deadly {number}", after := f"after {number}")
        handled += [before, after]
        assert [start().wait(60) for _ in range(4)] == [-9, -9, -9, 0]
    effects, letters = rows(store)
    settle("a poison event, which becomes a dead letter", rounds, events=handled, published=handled, effects=effects)
    assert letters == ["the subscriber died while it handled this event"] * rounds
    assert read_event(7, ledger.client().entry(7)).data.finding == "after 0"
