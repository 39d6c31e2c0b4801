"""A notifier that is killed loses no notification and repeats one at most with its own id."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults import is_long_run, times
from forked_deed import ScriptProcess
from webhook_receiver import SECRET, VARIABLE, Receiver, Reply

from deedbook.consumers.handoffs.notifier.store import NotifierStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from building import Ledger

    Start = Callable[..., subprocess.Popen[str]]

wait_max_s = 600.0 if is_long_run else 60.0  # the last of many notifiers sends hundreds of notices
day_s = 86_400.0


@pytest.fixture
def start(ledger: Ledger, path: Path) -> Iterator[Start]:
    """Start a notifier process; returns once it begins."""
    program, children = Path(__file__).with_name("notifying_program.py"), list[subprocess.Popen[str]]()

    def popen(table: dict[str, Any], later_s: float = 0) -> subprocess.Popen[str]:
        tables = json.dumps([{"agents": ["*"]} | table])
        arguments = [str(ledger.home.path), str(path), str(ledger.head()[0]), tables, str(later_s)]
        tests = os.pathsep.join([str(program.parents[3]), str(program.parent)])
        environment = os.environ | {"PYTHONPATH": tests, VARIABLE: SECRET}
        child = ScriptProcess(program, *arguments, stdout=subprocess.PIPE, text=True, env=environment)
        children.append(child)
        assert child.stdout
        assert child.stdout.readline() == "begun\n"
        return child

    yield popen
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()
        assert child.stdout
        child.stdout.close()


def test_kill_between_recording_and_delivery_loses_nothing(ledger: Ledger, receiver: Receiver, start: Start) -> None:
    hook = {"webhook": receiver.url, "secret_variable": VARIABLE}
    assert start(hook).wait(wait_max_s) == 0
    for number in range(5):
        ledger.hand_over(f"h{number}")
    receiver.script = [Reply(waits=True)]
    child = start(hook)
    deadline = time.monotonic() + wait_max_s
    while not receiver.received and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.wait()
    for _ in range(2):
        assert start(hook, day_s).wait(wait_max_s) == 0
    counts = Counter(receiver.ids)
    assert len(counts) == 5
    assert counts.pop(receiver.ids[0]) == 2
    assert set(counts.values()) == {1}
    assert {one.document["data"]["subject"] for one in receiver.received} == {f"h{number}" for number in range(5)}


def test_kills_at_any_moment_leave_one_id_an_episode(
    ledger: Ledger, path: Path, receiver: Receiver, start: Start
) -> None:
    hook = {"webhook": receiver.url, "secret_variable": VARIABLE}
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))
    assert start(hook).wait(wait_max_s) == 0
    rounds = times(1, 4)
    for number in range(rounds):
        for part in "abc":
            ledger.hand_over(f"h{number}-{part}")
        child = start(hook)
        time.sleep(chance.uniform(0, 0.25))
        child.kill()
        child.wait()
    assert start(hook, day_s).wait(wait_max_s) == 0
    ids_of: dict[str, set[str]] = {}
    for one in receiver.received:
        ids_of.setdefault(one.document["data"]["subject"], set()).add(one.id)
    assert len(ids_of) == 3 * rounds
    assert all(len(ids) == 1 for ids in ids_of.values())
    assert sum(count - 1 for count in Counter(receiver.ids).values()) <= rounds
    store = NotifierStore(path)
    assert (len(store.open_episodes()), store.listed_deliveries(dead=False)[1]) == (3 * rounds, 0)
    store.close()


def test_delivery_that_kills_its_notifier_becomes_a_dead_letter(ledger: Ledger, path: Path, start: Start) -> None:
    deadly = {"command": "kill -9 $PPID", "attempts_max": 2}
    assert start(deadly).wait(wait_max_s) == 0
    ledger.hand_over("h1")
    assert [start(deadly, later * day_s).wait(wait_max_s) for later in (0, 1, 1)] == [-9, -9, 0]
    store = NotifierStore(path)
    ((letter,), _) = store.listed_deliveries(dead=True)
    store.close()
    assert (letter.attempts, letter.error) == (2, "the notifier stopped while it sent this")
