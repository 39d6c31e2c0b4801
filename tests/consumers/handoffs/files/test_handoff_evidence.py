"""The evidence of a criterion in its handoff's file, and which version and result the log says were accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from syncing import NEW

from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from syncing import SyncedFolder

DAY = "2026-11-30"


def line_of(folder: SyncedFolder, text: str) -> str:
    """Return a line of evidence with the day that the ledger gave the last event."""
    return f"  - {folder.shown()['log'][-1]['day']} {text}"


def test_the_file_has_the_evidence_and_the_digests_and_is_in_step(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0, evidence="make test:\n12  passed"))
    assert bob.whats() == ["written"]
    assert f"- [x] it is warm\n{line_of(folder, '[bob] met: make test: 12 passed')}\n" in folder.text()
    folder.assert_in_step(bob, folder.hand("alice"), folder.hand("rita"))
    folder.emit("bob", kinds.HandoffCompleted(summary="warm"))
    folder.emit("rita", kinds.HandoffVerified(result=folder.shown()["result"], comment="good"))
    bob.reconcile()
    shown = folder.shown()
    assert f"[rita] approved (version {shown['version'][:19]})\n" in folder.text()
    assert f"[rita] verified: good (result {shown['result'][:19]})\n" in folder.text()
    folder.assert_in_step(bob, folder.hand("alice"))


def test_a_waiver_says_who_waived_it_and_why(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.emit("rita", kinds.HandoffCriterionWaived(position=0, reason="no heating here"))
    bob.reconcile()
    assert f"- [x] it is warm\n{line_of(folder, '[rita] waived: no heating here')}\n" in folder.text()
    folder.assert_in_step(bob)


def test_evidence_is_gone_when_the_criterion_is_open_again(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0, evidence="12 passed"))
    bob.reconcile()
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0, checked=False))
    bob.reconcile()
    assert "- [ ] it is warm\n\n" in folder.text()
    folder.assert_in_step(bob)


def test_the_receiver_gives_evidence_with_a_tick_in_the_file(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.edit(("- [ ] it is warm", f"- [x] it is warm\n  - {DAY} [bob] met: 12 passed"))
    assert bob.reconcile()[:1] == ["signed: handoff.criterion_checked"]
    assert folder.shown()["criteria"][0]["evidence"] == "12 passed"
    folder.assert_in_step(bob)
    folder.edit(("12 passed", "13 passed"))
    assert bob.reconcile()[:1] == ["signed: handoff.criterion_checked"]
    assert folder.shown()["criteria"][0]["evidence"] == "13 passed"
    folder.assert_in_step(bob)


def test_evidence_by_anybody_else_is_held(folder: SyncedFolder) -> None:
    folder.claimed()
    alice = folder.hand("alice")
    alice.reconcile()
    folder.edit(("- [ ] it is warm", f"- [ ] it is warm\n  - {DAY} [bob] met: 12 passed"))
    (said,) = alice.reconcile()
    command = "deed handoff check h --criterion 1 --evidence '12 passed' --as bob"
    assert said == f"held: change the evidence of criterion 1: bob must run {command}"
    assert folder.kinds()[-1] == "claimed bob"


def test_a_forged_waiver_is_held_also_for_the_receiver(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.edit(("- [ ] it is warm", f"- [ ] it is warm\n  - {DAY} [rita] waived: never mind"))
    (said,) = bob.reconcile()
    command = "deed handoff waive h --criterion 1 --reason 'never mind' --as rita"
    assert said == f"held: waive criterion 1: rita must run {command}"
    assert folder.kinds()[-1] == "claimed bob"


@pytest.mark.parametrize("forged", ["[rita] waived: never mind", "[alice] met: 12 passed"])
def test_a_tick_takes_no_evidence_in_another_name(folder: SyncedFolder, forged: str) -> None:
    bob = folder.claimed()
    folder.edit(("- [ ] it is warm", f"- [x] it is warm\n  - {DAY} {forged}"))
    said = bob.reconcile()
    assert said[0] == "signed: handoff.criterion_checked"
    criterion = folder.shown()["criteria"][0]
    assert (criterion["mark"], criterion["evidence"]) == ("checked", "")
    assert said[-1].startswith("held: ")


def test_a_note_below_a_criterion_is_content_and_stays(folder: SyncedFolder) -> None:
    text = NEW.replace("- [ ] it is warm", "- [ ] it is warm\n  - Evidence: the log of make test\n  - met: or not")
    alice = folder.create(text=text)
    assert folder.text() == text
    folder.approve()
    folder.emit("bob", kinds.HandoffClaimed())
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0, evidence="12 passed"))
    alice.reconcile()
    expected = f"- [x] it is warm\n{line_of(folder, '[bob] met: 12 passed')}\n  - Evidence: the log of make test\n"
    assert expected in folder.text()
    folder.assert_in_step(alice, folder.hand("bob"))


def test_an_older_file_with_evidence_is_no_edit(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0, evidence="12 passed"))
    bob.reconcile()
    older = folder.text()
    folder.emit("bob", kinds.HandoffCompleted(summary="warm"))
    bob.reconcile()
    newer, size = folder.text(), folder.size()
    assert newer != older
    folder.file().write_text(older)
    bob.reconcile()
    assert (folder.text(), folder.size()) == (newer, size)
    folder.assert_in_step(bob)
