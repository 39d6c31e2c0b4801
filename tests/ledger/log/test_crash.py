"""A writer that is killed during an append loses no acknowledged event, and its log needs no repair."""

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


class KilledWriter:
    """A run of a writer until it was killed: its acknowledged events, and whether it died in an append."""

    def __init__(self, home: Path, name: str, appends: int, share: float) -> None:
        arguments = (str(home), "appending", name, str(appends), f"{share:.6f}")
        ended = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "writing_program.py"), *arguments],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGALRM
        lines = ended.stdout.splitlines(keepends=True)
        reports = [line.split() for line in lines if line.endswith("\n")]
        self.acknowledged = {int(report[1]): report[2] for report in reports if report[0] == "committed"}
        self.died_in_append = reports[-1] == ["append"]


@pytest.fixture(scope="module")
def killed_writers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[KilledWriter]]:
    """A ledger whose writers were killed one after another, with a full check after each kill."""
    home = tmp_path_factory.mktemp("crash") / ".deedbook"
    chance = random.Random(20260212)
    runs: list[KilledWriter] = []
    acknowledged: dict[int, str] = {}
    for number in range(times(4, 12)):
        run = KilledWriter(home, str(number), 1 + chance.randrange(12), max(0.01, chance.random()))
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
    killed_writers: tuple[Path, list[KilledWriter]],
) -> None:
    home, runs = killed_writers
    with Ledger(home) as ledger:
        ids = check_log(ledger.log)
    for run in runs:
        assert all(ids[index] == identity for index, identity in run.acknowledged.items())
    assert sum(len(run.acknowledged) for run in runs) > len(runs)
    if is_long_run:  # with few kills, all may miss an append: its duration depends on the machine
        assert sum(run.died_in_append for run in runs) >= len(runs) // 5
