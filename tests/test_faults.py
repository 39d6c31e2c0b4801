"""The table at the end of the long run of faults."""

from __future__ import annotations

from typing import Any

import faults
import pytest
from faults import table, times


def report(nodeid: str, outcome: Any = "passed") -> pytest.TestReport:
    return pytest.TestReport(nodeid, (nodeid, 0, nodeid), {}, outcome, None, "call")


def test_each_line_counts_what_all_processes_asked_for_or_how_often_a_test_was_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faults, "_asked", faults.Counter())
    monkeypatch.setattr(faults, "_tallies", faults.Counter())
    monkeypatch.setattr(faults, "_notes", [])
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/a.py::test_kills_lose_nothing[local] (call)")
    asked = times(5, each=100) + times(7, each=100)
    faults.tally("flips of a bit", 2)
    faults.add({"asked": {"tests/b.py::test_flip_is_seen": 50}, "tallies": {"flips of a bit": 3}, "notes": ["a note"]})
    passed = [
        report("tests/a.py::test_kills_lose_nothing[local]"),
        report("tests/b.py::test_flip_is_seen[0]"),
        report("tests/b.py::test_flip_is_seen[1]"),
        report("tests/b.py::test_no_fault_at_all[name]"),
    ]

    lines = list(table(passed, [report("tests/b.py::test_flip_is_seen[2]", "failed")]))

    assert [line.split(maxsplit=2) for line in lines] == [
        ["a", "note"],
        ["5", "flips", "of a bit"],
        ["faults", "bad", "what must hold"],
        [f"{asked:,}", "0", "kills lose nothing"],
        ["50", "1", "flip is seen"],
        [f"{asked + 50:,}", "1", "together"],
    ]
