"""`deed snapshot` and `deed review`: snapshots are transferred, and a review stays open until a human answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


def record(deed: Deed, name: str, domain: str) -> str:
    """Record a reasoning of two steps; return its ref."""
    who = ["--as", "a"]
    deed("reasoning", "start", name, "--task", f"Why is the disk of {name} full?", "--domain", domain, *who)
    step = ["reasoning", "step", name, *who]
    deed(*step, "The disk is at 98 %", "--type", "observation", "--evidence", "logs/disk.log:14")
    deed(*step, "Backups fill the disk", "--rests-on", 1)
    ref: str = deed.data("reasoning", "conclude", name, *who, "Move the backups")["ref"]
    return ref


@pytest.mark.parametrize("level", ["minimal", "standard", "full"])
def test_level_asked_for_is_sent_within_its_budget(deed: Deed, fresh: Fresh, level: str) -> None:
    name = fresh("level")
    record(deed, name, "")
    data = deed.data("snapshot", "receive", name, "--level", level)
    assert (data["level"], data["gate"]["level"]) == (level, level)
    assert data["tokens"] <= data["budget"]


def test_one_request_stands_for_a_set_of_reasons_whatever_the_level_and_the_numbers(deed: Deed, fresh: Fresh) -> None:
    record(deed, name := fresh("doubtful"), "")

    def asked(*more: object) -> str:
        return str(deed.data("snapshot", "receive", name, "--as", "b", *more)["review"]["id"])

    ids = {asked("--vector", f"uncertainty={value}") for value in (0.6, 0.7, 0.8)}
    ids |= {asked("--vector", "uncertainty=0.6", "--level", level) for level in ("minimal", "standard", "full")}
    assert len(ids) == 1
    assert asked("--vector", "uncertainty=0.6", "--vector", "impact=0.9") not in ids
    assert asked("--vector", "uncertainty=0.6", "--task", "Delete the disk") not in ids


def test_who_brings_a_tree_is_told_what_he_found_in_it_himself(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    record(deed, name := fresh("own"), "operations")
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "disk.log"
    log.write_text("full\n" * 14)
    quiet = ["snapshot", "receive", name, "--vector", "uncertainty=0", "--vector", "impact=0", "--tree", tmp_path]
    passed = deed.data(*quiet)
    assert (passed["action"], passed["own_validation"]["passed"]) == ("act", True)
    assert "The receiver's own validation passed: 1 of 1 references stand." in deed(*quiet)
    log.write_text("")
    failed = deed.data(*quiet)
    assert (failed["action"], failed["rule_fired"]["name"]) == ("human_review_required", "own_validation")
    assert any("logs/disk.log:14" in reason for reason in failed["reasons"])


def test_graph_that_may_be_acted_on_comes_along_with_its_ref_and_command(
    deed: Deed, fresh: Fresh, tmp_path: Path
) -> None:
    ref = record(deed, name := fresh("whole"), "security")
    fetch = f"-- the whole graph: `deed reasoning fetch {ref}`"
    said = deed("snapshot", "receive", name)
    assert fetch in said
    assert "here it is" not in said
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "disk.log").write_text("full\n" * 14)
    deed("reasoning", "validate", name, "--tree", tmp_path, "--as", "rita")
    said, data = deed("snapshot", "receive", name), deed.data("snapshot", "receive", name)
    assert data["action"] == "act_on_full"
    assert [one["content"] for one in data["graph"]["steps"]][:2] == ["The disk is at 98 %", "Backups fill the disk"]
    assert fetch in said
    assert "-- here it is:\n  1. observation\n     The disk is at 98 %\n" in said


@pytest.mark.parametrize(
    ("flag", "header", "has_graph"),
    [
        ("--approve", "-- may act: rita, a human, approved it (human_review_required: high_risk_domain)", True),
        ("--reject", "-- may not act: rita, a human, rejected it (human_review_required: high_risk_domain)", False),
    ],
)
def test_header_follows_what_a_human_answered(
    deed: Deed, fresh: Fresh, flag: str, header: str, has_graph: bool
) -> None:
    record(deed, name := fresh("asked"), "security")
    receive = ["snapshot", "receive", name, "--as", "b"]
    review = deed.data(*receive)["review"]["id"]
    deed("review", "answer", review, flag, "--as", "rita")
    assert header in deed(*receive)
    assert (deed.data(*receive)["graph"] is not None) == has_graph
