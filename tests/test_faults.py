"""The report at the end of ``make faults``."""

from __future__ import annotations

from collections import Counter
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
    monkeypatch.setattr(faults, "_settled", {})
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/a.py::test_kills_lose_nothing[local] (call)")
    asked = times(5, each=100) + times(7, each=100)
    faults.metrics("flips of a bit", 2)
    faults.add(
        {
            "asked": {"tests/b.py::test_flip_is_seen": 50},
            "tallies": {"flips of a bit": 3},
            "notes": ["a note"],
            "settled": {},
        }
    )
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


def test_what_became_of_events_is_a_line_a_fault_over_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for counts, none in ("_settled", {}), ("_tallies", Counter()), ("_notes", []):
        monkeypatch.setattr(faults, counts, none)
    faults.settle("a kill", 2, events=["a", "b"], published=["b", "a"], effects=["b", "a"])
    faults.add(faults.counted() | {"asked": {}, "tallies": {}, "notes": []})
    faults.settle("a kill where nobody subscribes", 1, events=["a"], published=["a"])
    header, line, other = [text.split() for text in table([], []) if "while" in text or "kill" in text]
    assert header == [*" ".join(faults.COLUMNS).split(), "while"]
    assert line == ["4", "4", "4", "0", "0", "4", "0", "a", "kill"]
    assert other[:7] == ["1", "1", "1", "0", "0", "-", "-"]


@pytest.mark.parametrize(
    ("published", "effects"),
    [("ab", "ab"), ("abcc", "abcc"), ("abc", "ab"), ("abc", "abcc"), ("abc", "acb"), ("abcd", "abcd")],
    ids=["a gap", "a duplicate", "no effect", "two effects", "another order", "what nobody was told of"],
)
def test_what_must_not_become_of_events_fails_its_test(
    published: str, effects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_settled", {})
    with pytest.raises(AssertionError, match="a kill"):
        faults.settle("a kill", 1, events="abc", published=published, effects=effects)
