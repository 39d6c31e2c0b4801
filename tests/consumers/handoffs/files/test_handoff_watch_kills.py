"""Killed before or after any step of its work, a watcher that is started again ends where it would have without."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from building import Clock, Ledger
from faults import times
from syncing import NEW, SyncedFolder

from deedbook.consumers.handoffs.files.sync import SyncStore
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from syncing import Hand

STEPS: Final = ((LocalClient, "put_blob"), (LocalClient, "submit"), (SyncStore, "agree"), (os, "fsync"))
steps_max: Final = 60


class KilledError(BaseException):
    """The process ends here; nothing may catch it."""


def dying(patched: pytest.MonkeyPatch, after: int) -> list[int]:
    """Let the process die at a step: before it if ``after`` is even, else behind it; return the count of steps."""
    count = [0]
    for owner, name in STEPS:
        real = getattr(owner, name)

        def step(*arguments: Any, real: Any = real) -> Any:
            count[0] += 1
            is_last = count[0] == after // 2 + 1  # a step may call other steps
            if is_last and after % 2 == 0:
                raise KilledError
            result = real(*arguments)
            if is_last:
                raise KilledError
            return result

        patched.setattr(owner, name, step)
    return count


def claim_and_complete(folder: SyncedFolder) -> str:
    """Let bob do everything in one save."""
    folder.create()
    folder.approve()
    folder.hand("bob").reconcile()
    folder.edit(
        ("Status: approved", "Status: completed (at last)"),
        ("- [ ] look", "- [x] look"),
        ("- [ ] it is warm", "- [x] it is warm"),
        ("[alice] created\n", "[alice] created\n- it was hard\n"),
    )
    return "bob"


def amend(folder: SyncedFolder) -> str:
    """Let alice change the text during other events, and tick a task that she may not tick."""
    folder.create()
    folder.edit(("Make it warm.", "Make it hot."), ("- [ ] look", "- [x] look"))
    folder.emit("rita", kinds.HandoffLogged(text="meanwhile"))
    return "alice"


def hand_over(folder: SyncedFolder) -> str:
    """Let alice write a new file."""
    folder.file().write_text(NEW)
    return "alice"


def hand_over_with_progress(folder: SyncedFolder) -> str:
    """Let alice write a new file that says more than she may."""
    folder.file().write_text(NEW.replace("pending", "approved").replace("[ ] look", "[x] look"))
    return "alice"


def hear(folder: SyncedFolder) -> str:
    """Let things happen in the ledger."""
    folder.claimed()
    folder.emit("bob", kinds.HandoffTaskChecked(position=1))
    folder.emit("bob", kinds.HandoffBlocked(reason="no key"))
    return "bob"


def release(folder: SyncedFolder) -> str:
    """Let bob give the work back."""
    folder.claimed()
    folder.edit(("Status: in_progress", "Status: approved (no time)"), ("- [ ] look", "- [x] look"))
    return "bob"


def disagree(folder: SyncedFolder) -> str:
    """Let file and ledger change the text."""
    folder.create()
    alice = folder.hand("alice")
    folder.edit(("Make it warm.", "Make it cold."))
    alice.reconcile()
    folder.file().write_text(NEW.replace("Make it warm.", "Make it hot."))
    return "alice"


def outcome(folder: SyncedFolder, hand: Hand) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the final state of the ledger and the folder, once no work is left."""
    for _ in range(2):
        hand.reconcile()
    before = folder.size()
    assert hand.reconcile() == []
    assert folder.size() == before
    texts = [one["text"] for one in folder.shown()["log"]]
    files = {one.name: one.read_text() for one in folder.path.iterdir() if not one.name.startswith(".deedbook-")}
    return folder.kinds(), files, texts


SCENES: Final[list[Callable[[SyncedFolder], str]]] = [claim_and_complete, hand_over, disagree]
MORE_SCENES: Final = [
    pytest.param(scene, marks=pytest.mark.long_run) for scene in (amend, hand_over_with_progress, hear, release)
]


@pytest.mark.parametrize("scene", [*SCENES, *MORE_SCENES])
def test_kill_at_any_step_changes_nothing(
    scene: Callable[[SyncedFolder], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, clock = tmp_path / "begun", Clock()
    begun.mkdir()
    with Ledger(begun / ".deedbook", map_size=16 * 1024**2, clock=clock) as ledger:
        folder = SyncedFolder(ledger, begun)
        name = scene(folder)
        folder.close()

    def play(after: int | None) -> tuple[Any, int]:
        """Continue from a copy of the scene, with a clock of its own."""
        base = tmp_path / ("whole" if after is None else f"killed-{after}")
        shutil.copytree(begun, base)
        with Ledger(base / ".deedbook", map_size=16 * 1024**2, clock=Clock(clock.now_ms)) as ledger:
            folder = SyncedFolder(ledger, base)
            hand, count = folder.hand(name), [0]
            if after is not None:
                with monkeypatch.context() as patched:
                    count = dying(patched, after)
                    try:
                        hand.reconcile()
                    except KilledError:
                        count[0] = -1
            found = outcome(folder, folder.hand(hand.name))
            folder.close()
        return found, count[0]

    wanted, _ = play(None)
    for after in range(steps_max):
        found, count = play(after)
        assert found == wanted, f"killed at step {after}"
        if count >= 0:
            assert after > 2, "it was killed at least once"
            return
    raise AssertionError("never came to an end")


@pytest.mark.parametrize("seed", range(times(1, 3)))
def test_any_order_of_edits_events_and_old_versions_signs_what_was_asked_for(folder: SyncedFolder, seed: int) -> None:
    chance = random.Random(seed)
    bob, alice = folder.claimed(), folder.hand("alice")
    notes: list[str] = []
    said: list[str] = []
    ticks = 0
    versions = [folder.text()]
    for number in range(30):
        match chance.choice(["tick", "note", "event", "tick event", "old", "bob", "alice", "bob"]):
            case "tick":
                box = chance.choice(["look", "fix 修好它"])
                old, new = chance.choice([("[ ]", "[x]"), ("[x]", "[ ]")])
                folder.file().write_text(folder.text().replace(f"- {old} {box}", f"- {new} {box}"))
                ticks += 1
            case "note":
                notes.append(f"note {number}.")
                folder.file().write_text(f"{folder.text()}- {notes[-1]}\n")
            case "event":
                said.append(f"event {number}.")
                folder.emit("rita", kinds.HandoffLogged(text=said[-1]))
            case "tick event":
                with contextlib.suppress(Refused):  # the task may be checked already
                    folder.emit("bob", kinds.HandoffTaskChecked(position=0, checked=chance.random() < 0.5))
                ticks += 1
            case "old":
                bob.reconcile()  # the earlier edits are signed, and then an old version comes back
                folder.file().write_text(chance.choice(versions))
                chance.choice([alice, bob]).reconcile()
                ticks += 1  # if the files differ in a single tick only, it counts as an edit
            case "bob":
                bob.reconcile()
                versions.append(folder.text())
            case _:
                alice.reconcile()
    for hand in (bob, alice, bob):
        hand.reconcile()
    folder.assert_in_step(bob, alice)
    log = [one["text"] for one in folder.shown()["log"] if one["kind"] == "handoff.logged"]
    assert sorted(log) == sorted(notes + said)
    events = Counter(folder.kinds())
    assert events["task_checked bob"] <= ticks
    assert set(events) <= {
        "created alice",
        "approved rita",
        "claimed bob",
        "task_checked bob",
        "logged bob",
        "logged rita",
    }
