"""Both verifiers find a clock that jumped or went back, and both accept the clock that root has set right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import run_alone, unpacked
from tampering import SESSION, append_behind_the_gate, finding, forged

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.consumers.auditor.fsck import fsck
from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.admission import decide
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.events.authority import ClockSet, HistoryReset
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.lifecycle.clock import ledger_now

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("unmeasured")

DAY_S = 86_400


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with Ledger(tmp_path / ".deedbook") as made:
        made.emit("alice", SESSION, SessionStarted(task="audit"))
        yield made


def poison(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, days: int) -> None:
    """Let a gate without checks accept one entry under another clock."""
    ledger.clock.advance(days * DAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(decide, "next_ms", ledger_now)
        ledger.emit("alice", SESSION, finding(1))
    ledger.clock.advance(-days * DAY_S)


def set_clock(ledger: Ledger) -> None:
    ledger.emit("root", "ledger", ClockSet(time=ledger.clock.text(), reason="it stood wrong"))


def verdicts(ledger: Ledger, folder: Path) -> dict[str, bool]:
    """Return whether each check passes: of the log, of two bundles by both verifiers, and of the disk (fsck)."""
    folder.mkdir()
    with ledger.client() as client:
        answers = {"verify": verify_log(client, views=ledger.settings()).ok}
        for name, stream in (("whole", None), ("stream", SESSION)):
            path = folder / f"{name}.tar"
            export_bundle(client, path, stream=stream)
            answers[f"{name} bundle"] = verify_bundle(path).ok
            answers[f"{name} alone"] = run_alone(unpacked(path, folder / name)).returncode == 0
    return answers | {"fsck": fsck(ledger.home.path).ok}


def test_ledger_that_was_poisoned_by_2099_verifies_again_once_the_root_set_its_clock(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(ledger, monkeypatch, days=73 * 365)
    assert set(verdicts(ledger, tmp_path / "before").values()) == {False}
    set_clock(ledger)
    ledger.emit("alice", SESSION, finding(2))
    assert set(verdicts(ledger, tmp_path / "after").values()) == {True}
    with ledger.client() as client:
        (note,) = verify_log(client).notes
    assert (note.index, note.code) == (5, "CLOCK_JUMPED")


def test_clock_within_bounds_and_set_back_is_no_problem_for_anybody(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(ledger, monkeypatch, days=20)
    assert set(verdicts(ledger, tmp_path / "before").values()) == {True}
    set_clock(ledger)
    ledger.emit("alice", SESSION, finding(2))
    assert set(verdicts(ledger, tmp_path / "after").values()) == {True}


def test_winter_without_an_entry_and_the_clock_set_after_it_is_no_problem(ledger: Ledger, tmp_path: Path) -> None:
    ledger.clock.advance(100 * DAY_S)
    set_clock(ledger)
    ledger.emit("alice", SESSION, finding(2))
    assert set(verdicts(ledger, tmp_path / "after").values()) == {True}


def test_old_copy_that_the_root_goes_on_from_needs_no_other_word(ledger: Ledger, tmp_path: Path) -> None:
    ledger.clock.advance(100 * DAY_S)
    lost = HistoryReset(abandoned_size=99, abandoned_root="9f" * 32, reason="a copy of the summer was put back")
    ledger.emit("root", "ledger", lost)
    ledger.emit("alice", SESSION, finding(2))
    assert set(verdicts(ledger, tmp_path / "after").values()) == {True}


@pytest.mark.parametrize("author", ["alice", "node", "root"])
def test_clock_that_somebody_else_or_another_time_set_back_is_found_by_all(
    ledger: Ledger, tmp_path: Path, author: str
) -> None:
    ledger.clock.advance(-3600)
    # Root signs another time than that of the entry.
    time = ledger.clock.text(60 if author == "root" else 0)
    append_behind_the_gate(ledger, forged(ledger, author, "ledger", ClockSet(time=time, reason="mine")))
    answers = verdicts(ledger, tmp_path / "forged")
    assert set(answers.values()) == {False}, answers
