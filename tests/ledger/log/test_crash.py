"""A writer killed at any moment inside an append loses nothing that it acknowledged, and needs no repair after."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from building import Ledger
from checking import check_log
from faults import is_long_run, times

from deedbook.ledger.events.session import SessionStarted

TESTS = Path(__file__).parents[2]


class Killed:
    """A writer that was killed: what it had acknowledged, and whether it was inside an append."""

    def __init__(self, home: Path, name: str, appends: int, share: float) -> None:
        words = (str(home), "appending", name, str(appends), f"{share:.6f}")
        ended = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "writing_program.py"), *words],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGALRM
        lines = ended.stdout.splitlines(keepends=True)
        whole = [line.split() for line in lines if line.endswith("\n")]
        self.acknowledged = {int(words[1]): words[2] for words in whole if words[0] == "committed"}
        self.was_inside = whole[-1] == ["append"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Killed]]:
    """A ledger whose writers were killed one after the other; each kill is followed by a full check."""
    home = tmp_path_factory.mktemp("crash") / ".deedbook"
    chance = random.Random(20260212)
    runs: list[Killed] = []
    acknowledged: dict[int, str] = {}
    for number in range(times(4, 12)):
        run = Killed(home, str(number), 1 + chance.randrange(12), max(0.01, chance.random()))
        runs.append(run)
        acknowledged |= run.acknowledged
        with Ledger(home) as ledger:
            ids = check_log(ledger.log)
            assert {index: ids[index] for index in acknowledged} == acknowledged
            accepted = ledger.emit("bob", f"session/after-{number}", SessionStarted())
            assert accepted.index == len(ids)
            acknowledged[accepted.index] = accepted.id
    return home, runs


def test_no_acknowledged_event_is_lost_and_entries_and_tree_agree_after_each_kill(
    killed: tuple[Path, list[Killed]],
) -> None:
    home, runs = killed
    with Ledger(home) as ledger:
        ids = check_log(ledger.log)
    for run in runs:
        assert all(ids[index] == identity for index, identity in run.acknowledged.items())
    assert sum(len(run.acknowledged) for run in runs) > len(runs)
    if is_long_run:  # of a few kills all may come before or after an append: how long one takes is the machine's
        assert sum(run.was_inside for run in runs) >= len(runs) // 5
