"""File and ledger both changed, or an old version came back: nothing is overwritten or signed by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from syncing import BESIDE, NEW, amend_by_command

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files.imports import read_records
from deedbook.consumers.importers.records import import_records
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from pathlib import Path

    from syncing import SyncedFolder


def test_both_changed_the_text_and_neither_is_overwritten(folder: SyncedFolder) -> None:
    alice = folder.create()
    amend_by_command(folder, task="Cool it.")
    text = folder.edit(("Make it warm.", "Make it hot."))
    (said,) = alice.reconcile()
    assert said.startswith("conflict: ")
    assert folder.text() == text
    assert "Cool it." in (folder.path / BESIDE).read_text()
    before = folder.size()
    assert alice.reconcile() == []
    assert folder.size() == before


def test_deleting_the_version_beside_settles_a_conflict_for_the_file(folder: SyncedFolder) -> None:
    alice = folder.create()
    amend_by_command(folder, task="Cool it.")
    folder.edit(("Make it warm.", "Make it hot."))
    alice.reconcile()
    folder.edit(("Make it hot.", "Make it hot, then cool it."))  # the conflict lasts
    (folder.path / BESIDE).unlink()
    assert alice.reconcile() == ["signed: handoff.amended"]
    assert folder.shown()["task"] == "Make it hot, then cool it."
    assert not (folder.path / BESIDE).exists()
    folder.assert_in_step(alice)


def test_taking_the_version_beside_settles_a_conflict_for_the_ledger(folder: SyncedFolder) -> None:
    alice = folder.create()
    amend_by_command(folder, task="Cool it.")
    folder.edit(("Make it warm.", "Make it hot."))
    alice.reconcile()
    (folder.path / BESIDE).replace(folder.file())
    before = folder.size()
    assert alice.reconcile() == []
    assert folder.size() == before
    folder.assert_in_step(alice)


def test_conflict_is_shown_anew_when_the_ledger_goes_on(folder: SyncedFolder) -> None:
    alice = folder.create()
    amend_by_command(folder, task="Cool it.")
    text = folder.edit(("Make it warm.", "Make it hot."))
    alice.reconcile()
    amend_by_command(folder, task="Freeze it.")
    assert alice.whats() == ["conflict"]
    assert "Freeze it." in (folder.path / BESIDE).read_text()
    assert folder.text() == text


def test_older_version_that_comes_back_is_nobody_s_edit(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    versions = [folder.text()]
    for data in (
        kinds.HandoffTaskChecked(position=0),
        kinds.HandoffTaskChecked(position=1),
        kinds.HandoffBlocked(reason="no key"),
        kinds.HandoffUnblocked(),
    ):
        folder.emit("bob", data)
        bob.reconcile()
        versions.append(folder.text())
    before = folder.size()
    for version in [NEW, *versions[:-1]]:
        folder.file().write_text(version)
        assert bob.reconcile() == ["written: h.md"]
        assert folder.text() == versions[-1]
    assert folder.size() == before


def test_older_version_comes_back_where_nothing_is_remembered(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    old = folder.text()
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0))
    folder.emit("bob", kinds.HandoffCompleted())
    bob.reconcile()
    folder.forget()
    before = folder.size()
    for version in (NEW, old):
        folder.file().write_text(version)
        assert folder.hand("bob").reconcile() == ["written: h.md"]
        assert folder.text() == folder.rendered()
        folder.forget()
    assert folder.size() == before


def test_older_version_that_was_edited_is_a_conflict(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    old = folder.text()
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))
    folder.emit("bob", kinds.HandoffLogged(text="half way"))
    bob.reconcile()
    folder.file().write_text(old.replace("- [ ] fix", "- [x] fix"))  # unticks the first task, and ticks the second
    before = folder.size()
    assert bob.whats() == ["conflict"]
    assert folder.size() == before


def test_log_line_that_was_taken_out_comes_back(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.emit("bob", kinds.HandoffLogged(text="half way"))
    bob.reconcile()
    line = next(one for one in folder.text().splitlines() if "half way" in one)
    folder.edit((f"{line}\n", ""), ("- [ ] look", "- [x] look"))
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    assert line in folder.text()
    folder.assert_in_step(bob)


def test_status_is_set_back_by_releasing(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.edit(("Status: in_progress", "Status: approved — no time"))
    assert bob.reconcile() == ["signed: handoff.released"]
    assert folder.shown()["reason"] == "no time"
    folder.assert_in_step(bob)


def test_file_that_nothing_is_known_of_is_shown_beside(folder: SyncedFolder) -> None:
    folder.claimed()
    folder.forget()
    text = folder.edit(("- [ ] look", "- [x] look"))
    bob = folder.hand("bob")
    before = folder.size()
    assert bob.whats() == ["conflict"]
    assert (folder.size(), folder.text()) == (before, text)
    (folder.path / BESIDE).unlink()
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    folder.assert_in_step(bob)


def test_folder_that_is_gone_reads_as_no_deletion(folder: SyncedFolder, tmp_path: Path) -> None:
    bob = folder.claimed()
    folder.path.rename(tmp_path / "away")
    with pytest.raises(Unavailable) as failure:
        bob.reconcile()
    assert failure.value.code == "STORE_UNAVAILABLE"
    (tmp_path / "away").rename(folder.path)
    folder.assert_in_step(bob)


def test_two_agents_watch_one_folder(folder: SyncedFolder) -> None:
    alice = folder.create()
    hands = [alice, folder.hand("bob"), folder.hand("rita")]
    folder.approve()
    for _ in range(2):
        for hand in hands:
            hand.reconcile()
    folder.edit(("Status: approved", "Status: in_progress"), ("- [ ] look", "- [x] look"))
    for _ in range(2):
        for hand in hands:
            hand.reconcile()
    assert folder.kinds() == ["created alice", "approved rita", "claimed bob", "task_checked bob"]
    folder.assert_in_step(*hands)


def test_what_another_watcher_wrote_is_no_edit_when_the_ledger_went_on(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    alice = folder.hand("alice")
    alice.reconcile()
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))
    alice.reconcile()  # the file now has the tick, and bob's memory does not
    folder.emit("bob", kinds.HandoffTaskChecked(position=0, checked=False))
    before = folder.size()
    assert bob.reconcile() == ["written: h.md"]
    assert folder.size() == before
    folder.assert_in_step(alice, bob)


def test_version_beside_goes_when_the_file_says_the_same(folder: SyncedFolder) -> None:
    alice = folder.create()
    amend_by_command(folder, task="Cool it.")
    folder.edit(("Make it warm.", "Make it hot."))
    alice.reconcile()
    folder.file().write_bytes((folder.path / BESIDE).read_bytes())
    assert alice.reconcile() == []
    assert not (folder.path / BESIDE).exists()


def test_event_that_says_what_a_file_says_already_is_logged_beside_it(folder: SyncedFolder) -> None:
    folder.create("other")
    day = folder.shown("other")["log"][0]["day"]
    folder.create(text=NEW + f"- {day} [rita] approved\n")
    folder.approve()
    assert folder.rendered().count("[rita] approved") == 2


def test_edits_of_others_that_an_agent_sees_first_are_no_conflict(folder: SyncedFolder) -> None:
    folder.claimed()
    text = folder.edit(("- [ ] look", "- [x] look"))
    rita = folder.hand("rita")  # her store has no common base of file and ledger, and she may sign no tick
    assert rita.reconcile() == ["held: tick task 1: bob must run deed handoff check h --task 1 --as bob"]
    assert rita.everything() == ["held h"]
    assert (folder.text(), (folder.path / BESIDE).exists()) == (text, False)
    folder.forget()
    bob = folder.hand("bob")  # bob could sign it, but nobody knows whether the file is older: bob compares
    (said,) = bob.reconcile()
    assert said == f"conflict: the file differs from the ledger: compare with {BESIDE}, merge, then delete it"


def test_imported_file_that_says_approved_is_told_until_somebody_approves_it(folder: SyncedFolder) -> None:
    text = NEW.replace("Status: pending", "Status: approved")
    folder.file().write_text(text)
    alice = folder.hand("alice")
    batch = read_records(folder.path, alice.author.put_blob, agents=AgentNames(("bob", "rita")))
    import_records(alice.author, batch.records)
    told = "held: its imported file says approved, and it is pending: rita must run deed handoff approve h --as rita"
    assert alice.reconcile() == [told]
    assert alice.everything() == ["held h"]
    assert folder.text() == text
    folder.approve()
    assert alice.whats() == ["written"]
    assert alice.everything() == []
