"""Kills, refusals, broken files and full disks: existing content stays, and nothing is done twice."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from syncing import NEW

from deedbook.consumers.handoffs.files.sync import SyncStore
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from pathlib import Path

    from syncing import SyncedFolder


HELD = (("# Handoff: ", "# Handoff: New "), ("Status: in_progress", "Status: verified"))


def test_kill_between_signing_and_writing_repeats_nothing(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = folder.claimed()
    folder.edit(
        ("Status: in_progress", "Status: blocked (no key)"),
        ("- [ ] look", "- [x] look"),
        ("[alice] created\n", "[alice] created\n- tried\n"),
    )

    class KilledError(Exception):
        """The process ends here."""

    def kill(*_: object, **__: object) -> bool:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("deedbook.consumers.handoffs.files.folder.write_file", kill)
        with pytest.raises(KilledError):
            bob.reconcile()
    before = folder.kinds()
    with monkeypatch.context() as patched:
        patched.setattr(SyncStore, "agree", kill)
        with pytest.raises(KilledError):
            bob.reconcile()
    bob = folder.hand("bob")
    bob.reconcile()
    assert folder.kinds() == before
    assert before[-3:] == ["task_checked bob", "blocked bob", "logged bob"]
    folder.assert_in_step(bob)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize(
    "held", [(), (("# Handoff: ", "# Handoff: New "), ("Status: in_progress", "Status: verified"))]
)
def test_tick_taken_back_before_its_signature_is_written_is_taken_back(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch, held: tuple[tuple[str, str], ...], *, is_killed: bool
) -> None:
    bob = folder.claimed()
    folder.edit(("- [ ] look", "- [x] look"), ("[alice] created\n", "[alice] created\n-  tried\n"), *held)

    def save(*_: object, **__: object) -> bool:
        folder.edit(("- [x] look", "- [ ] look"))
        if is_killed:
            raise KeyboardInterrupt
        return False

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr("deedbook.consumers.handoffs.files.folder.write_file", save)
        bob.reconcile()
    bob = folder.hand("bob")
    told = bob.reconcile()
    assert told[0] == "signed: handoff.task_checked"
    assert [one.partition(":")[0] for one in told[1:]] == ["held"] * len(held)
    assert folder.kinds()[-3:] == ["task_checked bob", "logged bob", "task_checked bob"]
    assert "- [ ] look" in folder.text()
    if held:
        assert "# Handoff: New " in folder.text()
        assert "Status: in_progress ← not signed: set the status to verified" in folder.text()
        assert bob.reconcile() == []
    else:
        folder.assert_in_step(bob)


def test_status_taken_back_before_its_signature_is_written_beside_what_is_held_is_taken_back(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = folder.claimed()
    folder.edit(("Status: in_progress", "Status: blocked (no key)"), HELD[0])

    def kill(*_: object, **__: object) -> bool:
        folder.edit(("Status: blocked (no key)", "Status: in_progress"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("deedbook.consumers.handoffs.files.folder.write_file", kill)
        with pytest.raises(KeyboardInterrupt):
            bob.reconcile()
    bob = folder.hand("bob")
    bob.reconcile()
    assert folder.kinds()[-2:] == ["blocked bob", "unblocked bob"]
    assert folder.status() == "in_progress"
    assert "Handoff: New " in folder.text()


def test_line_of_an_editor_that_never_saw_it_rewritten_is_not_logged_again(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    kept = folder.edit(("[alice] created\n", "[alice] created\n-  tried\n"))
    assert bob.reconcile() == ["signed: handoff.logged"]
    assert "[bob] tried" in folder.text()
    folder.file().write_text(kept.replace("- [ ] look", "- [x] look"))
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    folder.assert_in_step(bob)


def test_step_signed_before_a_kill_is_not_signed_after_its_undoing(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = folder.claimed()
    folder.edit(("Status: in_progress", "Status: approved (no time)"))
    with monkeypatch.context() as patched:
        patched.setattr("deedbook.consumers.handoffs.files.folder.write_file", lambda *_, **__: False)
        bob.reconcile()
    folder.emit("bob", kinds.HandoffClaimed())
    before = folder.size()
    folder.hand("bob").reconcile()
    assert folder.size() == before
    assert folder.status() == "in_progress"


def test_ledger_that_goes_on_while_an_edit_is_signed_is_looked_at_again(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = folder.claimed()
    folder.edit(("- [ ] look", "- [x] look"))
    sign, calls = bob.author.sign, []

    def raced(*drafts: Any) -> Any:
        if not calls:
            calls.append(1)
            folder.emit("rita", kinds.HandoffLogged(text="in between"))
        return sign(*drafts)

    monkeypatch.setattr(bob.author, "sign", raced)
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    assert "in between" in folder.text()
    folder.assert_in_step(bob)


def test_what_the_ledger_refuses_is_told_once_and_tried_again(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    text = folder.edit(("Status: in_progress", "Status: completed"))
    (said,) = bob.reconcile()
    assert said.startswith("refused: CRITERIA_OPEN: ")
    assert bob.kept.refused == {"h"}
    assert bob.reconcile() == []
    assert folder.text() == text
    folder.emit("rita", kinds.HandoffCriterionWaived(position=0, reason="nobody asks"))
    assert bob.reconcile() == ["signed: handoff.completed"]
    assert bob.kept.refused == set()
    folder.assert_in_step(bob)


def test_deleted_file_is_told_once_and_not_made_again(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    folder.file().unlink()
    (said,) = bob.reconcile()
    assert said == f"deleted: the file was deleted; restore it with deed handoff render h --out {folder.file()}"
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))
    assert bob.reconcile() == []
    assert not folder.file().exists()
    folder.file().write_text(folder.rendered())
    assert bob.reconcile() == []
    folder.assert_in_step(bob)


@pytest.mark.parametrize("part", [0, 1, 100, 250])
def test_file_that_is_cut_off_is_left_until_it_is_whole(folder: SyncedFolder, part: int) -> None:
    bob = folder.claimed()
    whole = folder.text()
    before = folder.size()
    folder.file().write_text(whole[:part])
    assert bob.whats() == ["unfinished"]
    assert bob.reconcile() == []
    assert folder.text() == whole[:part]
    folder.file().write_text(whole.replace("- [ ] look", "- [x] look"))
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    assert folder.size() == before + 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NEW.replace("## Task\n", "```\n## Task\n"), 11),
        (NEW.replace("# Handoff: Fix the cache\n", ""), 24),
        (NEW.replace("Make it warm.", "\0"), 12),
        (NEW + "x" * 2 * 1024**2, None),
    ],
)
def test_broken_file_is_told_with_its_line_and_left_alone(folder: SyncedFolder, text: str, line: int | None) -> None:
    bob = folder.claimed()
    before = folder.size()
    folder.file().write_text(text)
    (said,) = bob.reconcile()
    assert said.startswith("refused: " + (f"line {line}: INVALID_FORMAT" if line else "TOO_LARGE"))
    assert bob.reconcile() == []
    assert (folder.text(), folder.size()) == (text, before)


def test_link_is_never_followed(folder: SyncedFolder, tmp_path: Path) -> None:
    bob = folder.claimed()
    outside = tmp_path / "outside.md"
    outside.write_text("mine")
    folder.file().unlink()
    folder.file().symlink_to(outside)
    assert bob.whats() == ["refused"]
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))
    assert bob.reconcile() == []
    assert outside.read_text() == "mine"
    assert folder.file().is_symlink()


def test_name_longer_than_a_file_may_have_is_told_once(folder: SyncedFolder) -> None:
    name = "任" * 100
    folder.ledger.hand_over(name)
    bob = folder.hand("bob")
    assert bob.whats(name) == ["refused"]
    assert bob.reconcile(name) == []
    assert list(folder.path.iterdir()) == []


def test_name_of_a_version_beside_is_no_handoff_s_file(folder: SyncedFolder) -> None:
    folder.ledger.hand_over("h.ledger")
    assert folder.hand("bob").whats("h.ledger") == ["refused"]
    assert list(folder.path.iterdir()) == []


def test_full_disk_leaves_the_old_file(folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = folder.claimed()
    old = folder.text()
    folder.emit("bob", kinds.HandoffTaskChecked(position=0))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("deedbook.ledger.system.files.os.fsync", full)
        with pytest.raises(Unavailable) as failure:
            bob.reconcile()
    assert failure.value.code == "STORE_FULL"
    assert folder.text() == old
    assert [one.name for one in folder.path.iterdir()] == ["h.md"]
    assert bob.reconcile() == ["written: h.md"]
    folder.assert_in_step(bob)


def test_save_at_the_last_moment_is_not_overwritten(folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = folder.claimed()
    folder.emit("rita", kinds.HandoffLogged(text="hello"))
    saved = folder.text().replace("- [ ] look", "- [x] look")

    def save(_: object) -> int:
        folder.file().write_text(saved)
        return 0o644

    with monkeypatch.context() as patched:
        patched.setattr("deedbook.consumers.sdk.files._mode_of", save)
        assert bob.reconcile() == []
    assert folder.text() == saved
    assert bob.reconcile() == ["signed: handoff.task_checked"]
    assert "[rita] hello" in folder.text()
    folder.assert_in_step(bob)


def test_markdown_of_other_sorts_is_left_alone(folder: SyncedFolder) -> None:
    for name, text in {"README": "# Notes\n\nhello\n", "idea": "# Proposal: An idea\n\nText.\n"}.items():
        folder.file(name).write_text(text)
    alice = folder.hand("alice")
    before = folder.size()
    assert alice.everything() == ["refused README"]
    assert alice.everything() == []
    assert folder.size() == before


def test_ledger_s_refusals_of_other_questions_are_not_swallowed(folder: SyncedFolder) -> None:
    bob = folder.claimed()
    bob.kept._answer = lambda *_: (_ for _ in ()).throw(Refused("NOT_AUTHORIZED", "not for you"))
    assert bob.reconcile() == ["refused: NOT_AUTHORIZED: not for you"]
