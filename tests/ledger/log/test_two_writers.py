"""Two processes write to an LMDB that a third reads: no root is wrong, no size shrinks, no claim is won twice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from building import MAP_SIZE, Ledger
from checking import check_log

from deedbook.ledger.format.envelope import entry_leaf
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.log.log import Log

HANDOFFS = 60
TESTS = Path(__file__).parents[2]


def start(home: Path, name: str) -> subprocess.Popen[str]:
    """Start a writer that contests claims, and wait until it is ready."""
    program = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).parent / "writing_program.py"),
            str(home),
            "contesting",
            name,
            str(HANDOFFS),
        ],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def go(writer: subprocess.Popen[str]) -> None:
    """Let a waiting writer continue."""
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


class Reader:
    """Follows the log and recomputes its root from the entries alone."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.frontier = Frontier.empty()
        self.roots_checked = 0

    def look(self) -> None:
        """Take one snapshot and check it."""
        with self.log.snapshot() as snapshot:
            size, root = snapshot.size, snapshot.root()
            new = snapshot.entries(self.frontier.size, limit=10**6, size_max_bytes=10**9)
        assert size >= self.frontier.size
        assert len(new) == size - self.frontier.size
        self.frontier = self.frontier.extend(map(entry_leaf, new))
        assert self.frontier.root() == root
        self.roots_checked += bool(new)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder on a disk. In memory, commits are so fast that one writer ends before the other begins."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder, ".deedbook")


def test_two_writers_and_a_reader_agree_and_each_contested_claim_is_won_once(home: Path) -> None:
    with Ledger(home) as ledger:
        for number in range(HANDOFFS):
            ledger.approve(f"c{number}", ledger.hand_over(f"c{number}"))
    with Log(home, map_size=MAP_SIZE) as log:
        reader = Reader(log)
        writers = [start(home, name) for name in ("1", "2")]
        for writer in writers:
            go(writer)
        first = [writer.stdout.readline() for writer in writers if writer.stdout is not None]
        for writer in writers:
            go(writer)
        while any(writer.poll() is None for writer in writers):
            reader.look()
        reader.look()
        assert reader.roots_checked > HANDOFFS // 2
        outputs = [line + writer.communicate()[0] for line, writer in zip(first, writers, strict=True)]
        assert [writer.returncode for writer in writers] == [0, 0]
        check_log(log)
    outcomes = [line.split() for output in outputs for line in output.splitlines()]
    won = sorted(int(outcome[1]) for outcome in outcomes if outcome[0] == "claimed")
    lost = {(int(outcome[1]), outcome[2]) for outcome in outcomes if outcome[0] == "refused"}
    assert won == list(range(HANDOFFS))
    assert lost == {(number, "ALREADY_CLAIMED") for number in range(HANDOFFS)}
    assert all(line.startswith("claimed") for line in first)
