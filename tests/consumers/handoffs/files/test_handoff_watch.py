"""A watcher synchronises a whole folder, and keeps working through faults of files, folder and ledger."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from faults import times
from syncing import NEW

from deedbook.consumers.handoffs.files.watcher import handoff_of, retry_wait_s, settle_s
from deedbook.consumers.sdk import files
from deedbook.consumers.sdk.files import read_file, settled_for_s, write_file
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events import reasoning
from deedbook.ledger.system.files import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from syncing import Hand, SyncedFolder

wait_max_s: Final = 30.0


def wait_until(what: Callable[[], object], said: str) -> None:
    """Wait until ``what()`` is true."""
    deadline = time.monotonic() + wait_max_s
    while not what():
        assert time.monotonic() < deadline, f"never: {said}"
        time.sleep(0.02)


class Running:
    """A watcher that runs in threads of this process."""

    def __init__(self, hand: Hand) -> None:
        self.begun = threading.Event()
        self._stop = threading.Event()
        self._failure: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(hand,))

    def _run(self, hand: Hand) -> None:
        try:
            again = type(hand)(hand._folder, hand.name)  # SQLite connections belong to the thread that opened them
            again.told = hand.told
            again.kept._tell = hand.told.append
            self.watcher = again.watcher()
            self.watcher._tell = hand.told.append
            self.watcher.reconcile()
            self.begun.set()
            self.watcher.run(self._stop)
            again.store.close()
        except BaseException as error:  # noqa: BLE001 - the test that waits for it reports it
            self._failure.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.begun.wait(wait_max_s)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._failure == []


@pytest.fixture
def running(folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Hand]]:
    """A running watcher of bob's, of a folder with a claimed handoff; and the hand that gets its notices."""
    bob = folder.claimed()
    bob.told.clear()
    reader = folder._reader.__class__(folder.ledger.client(), folder.ledger.settings())
    monkeypatch.setattr(folder, "answer", reader.answer)
    with Running(bob) as started:
        yield started, bob
    reader.close()


def test_whole_folder_comes_into_step_and_stays(folder: SyncedFolder) -> None:
    count = times(15, 40)
    drafts = [
        Draft(stream=f"handoff/h{number}", data=kinds.HandoffCreated(title="x", to="bob", reviewer="rita", tasks=["y"]))
        for number in range(count // 2)
    ]
    for start in range(0, len(drafts), 100):
        folder.ledger.submit(folder.ledger.sign("alice", *drafts[start : start + 100]))
    for number in range(count // 2, count):
        folder.file(f"h{number}").write_text(NEW)
    alice = folder.hand("alice")
    told = alice.everything()
    assert sorted(told) == sorted(
        [f"written h{number}" for number in range(count // 2)]
        + [f"signed h{number}" for number in range(count // 2, count)]
    )
    before = folder.size()
    assert alice.everything() == []
    assert folder.size() == before
    assert len(list(folder.path.iterdir())) == count


def test_finished_handoffs_get_a_file_only_when_asked_for(folder: SyncedFolder) -> None:
    folder.ledger.finish("old", verify=True)
    assert folder.hand("bob").everything() == []
    hand = folder.hand("bob")
    watcher = hand.watcher()
    watcher._is_everything = True
    watcher.reconcile()
    assert folder.text("old") == folder.rendered("old")


def test_one_bad_file_does_not_stop_the_others(folder: SyncedFolder, tmp_path: Path) -> None:
    folder.claimed()
    (folder.path / "a-folder.md").mkdir()
    (folder.path / "a-link.md").symlink_to(tmp_path)
    folder.file("large").write_bytes(b"x" * 2 * 1024**2)
    (folder.path / os.fsdecode(b"caf\xe9.md")).write_text(NEW)
    (folder.path / ".hidden.md").write_text(NEW)
    folder.edit(("- [ ] look", "- [x] look"))
    bob = folder.hand("bob")
    assert sorted(bob.everything()) == ["refused a-folder", "refused a-link", "refused large", "signed h"]
    assert bob.everything() == []


def test_file_that_cannot_be_read_is_waited_for(folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.claimed()
    folder.edit(("- [ ] look", "- [x] look"))
    folder.file("z").write_text(NEW)
    bob = folder.hand("bob")

    def denied(descriptor: int, path: Path, size_max_bytes: int) -> bytes:
        if path.name == "z.md":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read_all(descriptor, path, size_max_bytes)

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_all", denied)
        watcher = bob.watcher()
        assert [one.code for one in watcher.reconcile()] == ["STORE_UNAVAILABLE"]
        assert sorted(one.what for one in bob.told) == ["signed", "waiting"]
        watcher.reconcile()
        assert sorted(one.what for one in bob.told) == ["signed", "waiting"]
    assert bob.store.position("files") is None


def test_edit_and_event_meet_while_it_runs(folder: SyncedFolder, running: tuple[Running, Hand]) -> None:
    folder.edit(("- [ ] look", "- [x] look"))
    wait_until(lambda: "task_checked bob" in folder.kinds(), "the tick in the ledger")
    folder.emit("bob", kinds.HandoffTaskChecked(position=1))
    wait_until(lambda: "- [x] fix" in folder.text(), "the tick in the file")
    size, inode = folder.size(), folder.file().stat().st_ino
    time.sleep(1.0)
    assert (folder.size(), folder.file().stat().st_ino) == (size, inode)
    # The new event may arrive before the watcher reads the ledger again after it signed. Then it writes the file once
    # for both events.
    assert [one.what for one in running[1].told] in (["signed", "written"], ["signed"])


def test_a_reasoning_that_is_refuted_while_it_runs_is_marked(
    folder: SyncedFolder, running: tuple[Running, Hand]
) -> None:
    step = reasoning.Step(1, "assumption", "Logs are not encrypted")
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningStarted(task="Is it leaked?"))
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningExtended(steps=[step]))
    folder.ledger.emit("alice", "reasoning/leak", reasoning.ReasoningConcluded(conclusion="It is leaked"))
    ref = folder.answer("reasoning.show", {"id": "leak"})["ref"]
    folder.ledger.hand_over("cited", reasoning_refs=[ref])
    wait_until(lambda: folder.file("cited").exists(), "the file")
    settled = reasoning.AssumptionSettled(step=1, holds=False, how="encrypted since May")
    folder.ledger.emit("bob", "reasoning/leak", settled)
    wait_until(lambda: "← refuted: " in folder.text("cited"), "the mark in the file")


def test_folder_that_vanishes_is_waited_for(
    folder: SyncedFolder, running: tuple[Running, Hand], tmp_path: Path
) -> None:
    _, bob = running
    away = tmp_path / "away"
    folder.path.rename(away)
    wait_until(lambda: any(one.what == "waiting" for one in bob.told), "that the folder is gone")
    folder.emit("bob", kinds.HandoffTaskChecked(position=1))
    text = (away / "h.md").read_text().replace("- [ ] look", "- [x] look")
    (away / "h.md").write_text(text)
    away.rename(folder.path)
    wait_until(lambda: folder.kinds().count("task_checked bob") == 2, "the tick in the ledger")
    wait_until(lambda: folder.text() == folder.rendered(), "file and ledger in step")
    folder.edit(("- [x] fix", "- [ ] fix"))
    wait_until(lambda: folder.kinds().count("task_checked bob") == 3, "the next tick in the ledger")
    assert {one.what for one in bob.told} == {"waiting", "signed", "written"} - (
        set() if any(one.what == "written" for one in bob.told) else {"written"}
    )


def test_another_folder_in_its_place_is_watched(
    folder: SyncedFolder, running: tuple[Running, Hand], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "h.md").write_text(folder.text().replace("- [ ] look", "- [x] look"))
    folder.path.rename(tmp_path / "away")
    other.rename(folder.path)
    wait_until(lambda: "task_checked bob" in folder.kinds(), "the tick in the ledger")
    wait_until(lambda: folder.text() == folder.rendered(), "file and ledger in step")


def test_refused_edit_is_tried_again_when_something_happens(
    folder: SyncedFolder, running: tuple[Running, Hand]
) -> None:
    folder.edit(("Status: in_progress", "Status: completed"))
    wait_until(lambda: any(one.what == "refused" for one in running[1].told), "the refusal")
    folder.emit("rita", kinds.HandoffCriterionWaived(position=0, reason="nobody asks"))
    wait_until(lambda: folder.status() == "completed", "the completion")
    wait_until(lambda: folder.text() == folder.rendered(), "file and ledger in step")


def test_claim_that_a_dependency_forbids_is_made_when_it_is_done(
    folder: SyncedFolder, running: tuple[Running, Hand]
) -> None:
    folder.ledger.approve("later", folder.ledger.hand_over("later", depends_on=["h"]))
    wait_until(lambda: folder.file("later").exists() and "approved" in folder.text("later"), "its file")
    folder.edit(("Status: approved", "Status: in_progress"), id_="later")
    wait_until(lambda: any("DEPENDENCY_PENDING" in one.text for one in running[1].told), "the refusal")
    folder.emit("bob", kinds.HandoffCriterionChecked(position=0))
    folder.emit("bob", kinds.HandoffCompleted())
    wait_until(lambda: folder.status("later") == "in_progress", "the claim")


def test_file_that_is_being_written_is_left_until_it_settles(
    folder: SyncedFolder, running: tuple[Running, Hand]
) -> None:
    text = folder.text().replace("- [ ] look", "- [x] look")
    with folder.file().open("w") as file:
        for line in text.splitlines(keepends=True):
            file.write(line)
            file.flush()
            time.sleep(settle_s / 10)
            if "## Odd" in line:
                folder.emit("rita", kinds.HandoffLogged(text="in between"))
    wait_until(lambda: "in between" in folder.text(), "the news in the file")
    wait_until(lambda: folder.text() == folder.rendered(), "file and ledger in step")
    assert folder.kinds()[-2:] == ["logged rita", "task_checked bob"]
    assert [one.what for one in running[1].told if one.what not in ("signed", "unfinished")] == []


def test_outage_of_the_ledger_is_told_once_and_waited_out(folder: SyncedFolder, running: tuple[Running, Hand]) -> None:
    watcher, bob = running[0].watcher, running[1]
    answer = watcher._folder._answer

    def away(*_: Any) -> Any:
        raise Unavailable("BUS_UNAVAILABLE", "nobody answers")

    watcher._folder._answer = away
    folder.edit(("- [ ] look", "- [x] look"))
    wait_until(lambda: bob.told, "the outage")
    time.sleep(2.5 * retry_wait_s)
    assert [one.text for one in bob.told] == ["BUS_UNAVAILABLE: nobody answers"]
    watcher._folder._answer = answer
    wait_until(lambda: "task_checked bob" in folder.kinds(), "the tick in the ledger")


def test_names_that_are_no_handoff_s_are_passed_over(folder: SyncedFolder) -> None:
    names = {
        "h.md": "h",
        "h.ledger.md": "h",
        "任務 一.md": "任務 一",
        "a..b.md": "a..b",
        ".h.md": None,
        "h.txt": None,
        "..md": None,
        "...md": None,
        "a\nb.md": None,
        "a\\b.md": None,
        "\x1b[31m.md": None,
        os.fsdecode(b"\xff.md"): None,
        "x" * 201 + ".md": None,
        ".deedbook-abc.md": None,
    }
    assert {name: handoff_of(folder.path / name) for name in names} == names


def test_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "h.md"
    assert write_file(path, b"one")
    path.chmod(0o600)
    assert not write_file(path, b"two", expected=b"other")
    assert write_file(path, b"two", expected=b"one")
    assert read_file(path) == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["h.md"]
    assert settled_for_s(path) is not None
    assert settled_for_s(tmp_path / "none") is None


def test_save_that_comes_while_another_version_is_made_durable_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.md"
    path.write_bytes(b"one")

    def fsync(_: int) -> None:
        path.write_bytes(b"edited")

    monkeypatch.setattr("deedbook.ledger.system.files.os.fsync", fsync)
    assert not write_file(path, b"two", expected=b"one")
    assert (path.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (b"edited", ["h.md"])


def test_file_that_cannot_be_replaced_is_told_by_whose_fault_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable) as failure:
        write_file(tmp_path / "none" / "h.md", b"x")
    assert failure.value.code == "STORE_UNAVAILABLE"
    with pytest.raises(Refused) as refusal:
        write_file(tmp_path / ("x" * 300), b"x")
    assert refusal.value.code == "INVALID_FORMAT"
    with pytest.raises(Refused):
        read_file(tmp_path / ("x" * 300))
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):

        def full(_: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr("deedbook.ledger.system.files.os.fsync", full)
            with pytest.raises(Unavailable) as failure:
                write_file(tmp_path / "h.md", b"x")
        assert failure.value.code == "STORE_FULL"
    assert list(tmp_path.iterdir()) == []
