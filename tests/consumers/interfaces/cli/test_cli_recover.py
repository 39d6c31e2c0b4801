"""`deed recover`, and `serve` over a log that was set back: no acknowledged entry is lost silently."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from calling import Deed, Kept, Place, Running, Serving, call_all, wait_until
from faults import times

from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.home import Home
from deedbook.ledger.log.log import Log


class Scene(NamedTuple):
    """A ledger that was served, an earlier copy of its log, and the head of its log when it was stopped."""

    deed: Deed
    copy: Path
    head: tuple[int, str]

    def put_back(self, *, forget: bool = False) -> None:
        """Replace the log by the copy, as with a file manager; with ``forget``, no reader has a trusted head."""
        log = self.deed.home / "log"
        shutil.rmtree(log)
        shutil.copytree(self.copy, log)
        if forget:
            shutil.rmtree(os.environ["XDG_STATE_HOME"])


def head(home: Path) -> tuple[int, str]:
    """Return the size and root of the log in its folder."""
    with Log(home) as log, log.snapshot() as snapshot:
        return snapshot.size, snapshot.root().hex()


def entries(home: Path) -> list[bytes]:
    """Return all entries of the log."""
    with Log(home) as log, log.snapshot() as snapshot:
        return snapshot.entries(0, limit=10**6, size_max_bytes=2**30)


def append(home: Path, *findings: str) -> None:
    """Append findings to the log in its folder, whatever its readers trust."""
    drafts = [Draft(stream="session/s", data=FindingLogged(finding=finding)) for finding in findings]
    with Log(home) as log, log.snapshot() as snapshot:
        ledger = snapshot.head.ledger if snapshot.head else ""
    key = open_key(Home(home).key_file("a"))
    with Log(home) as log:
        gate = Gate(log)
        for start in range(0, len(drafts), 100):
            gate.submit(draft_and_sign(drafts[start : start + 100], key, ledger=ledger, author="a", at=now()))


def put_in(home: Path, *findings: str) -> None:
    """Append findings while the ledger is served, and stop it in an orderly way: then all is published."""
    with Serving(home) as serving:
        emit = ["--server", serving.place.server, "emit", "finding.logged", "--stream", "session/s", "--as", "a"]
        call_all(home, *([*emit, "--data", json.dumps({"finding": finding})] for finding in findings))


@pytest.fixture(scope="module")
def built(module_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The scene, built once: the ledger and an older copy of its log."""
    folder = tmp_path_factory.mktemp("scene")
    home = folder / ".deedbook"
    start = ["emit", "session.started", "--stream", "session/s", "--as", "a", "--data", "{}"]
    call_all(home, ["init", "--unprotected"], ["agent", "add", "a"], start)
    put_in(home, "old")
    shutil.copytree(home / "log", folder / "copy")
    put_in(home, "one", "two", "three")
    return Kept(folder, module_memory, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def scene(built: Kept, memory_of_readers: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    """Three entries more than the copy were acknowledged over the bus."""
    folder = built.put_back(memory_of_readers)
    return Scene(Deed(capsys, Place(folder / ".deedbook")), folder / "copy", head(folder / ".deedbook"))


def test_serve_refuses_a_log_that_was_put_back_and_appends_nothing_to_it(scene: Scene) -> None:
    scene.put_back(forget=True)
    before = head(scene.deed.home)
    error = scene.deed.refuses("HISTORY_CHANGED", "serve")
    assert (error["details"]["missing"], error["details"]["stream_size"]) == (3, scene.head[0])
    assert "3 acknowledged entries" in error["message"]
    assert "`deed recover --from-stream`" in error["message"]
    assert "`deed recover --accept-loss`" in error["message"]
    assert head(scene.deed.home) == before


def test_lost_entries_come_back_from_the_stream_and_the_roots_are_equal(scene: Scene) -> None:
    scene.put_back()
    checked = scene.deed.data("recover", "--from-stream", "--check")
    assert (checked["sound"], checked["size"], checked["tree_head"]) == (3, *scene.head)
    assert head(scene.deed.home) != scene.head
    answer = scene.deed.data("recover", "--from-stream")
    assert (answer["brought_back"], answer["size"], answer["tree_head"]) == (3, *scene.head)
    assert scene.deed.data("recover", "--from-stream")["brought_back"] == 0
    assert scene.deed("verify", "--views").startswith("VALID: ")
    with Serving(scene.deed.home):
        pass
    assert head(scene.deed.home) == scene.head


def test_lost_log_comes_back_whole_from_the_stream(scene: Scene) -> None:
    shutil.rmtree(scene.deed.home / "log")
    (scene.deed.home / "bus" / "generation.json").unlink()
    assert scene.deed.data("recover", "--from-stream", "--check")["sound"] == scene.head[0]
    assert not (scene.deed.home / "log").exists()
    answer = scene.deed.data("recover", "--from-stream")
    assert (answer["size"], answer["tree_head"]) == scene.head
    assert scene.deed("fsck").startswith("VALID: ")


def test_accepted_loss_is_signed_by_root_and_the_stream_goes_on_in_its_next_generation(scene: Scene) -> None:
    scene.put_back()
    assert "`deed recover --from-stream`" in scene.deed.refuses("USAGE", "recover", "--accept-loss")["message"]
    answer = scene.deed.data("recover", "--accept-loss", "--yes", "--reason", "the disk failed")
    assert answer["abandoned"] == [{"size": scene.head[0], "tree_head": scene.head[1]}]
    with Log(scene.deed.home) as log, log.snapshot() as snapshot:
        reset = read_event(snapshot.size - 1, snapshot.entry(snapshot.size - 1))
    assert reset.author == "root"
    assert reset.data == HistoryReset(
        abandoned_size=scene.head[0], abandoned_root=scene.head[1], reason="the disk failed"
    )
    assert scene.deed.data("recover", "--accept-loss", "--yes")["abandoned"] == []
    put_in(scene.deed.home, "new")
    assert json.loads((scene.deed.home / "bus" / "generation.json").read_bytes())["number"] == 2
    assert scene.deed("verify", "--views").startswith("VALID: ")


def test_log_with_entries_of_its_own_is_a_fork_and_only_an_epoch_goes_on(scene: Scene) -> None:
    scene.put_back(forget=True)
    append(scene.deed.home, "mine")
    for verb in (["serve"], ["recover", "--from-stream"], ["recover", "--from-stream", "--check"]):
        assert "where the log has 1 others" in scene.deed.refuses("HISTORY_CHANGED", *verb)["message"]
    scene.deed("recover", "--accept-loss", "--yes")
    put_in(scene.deed.home, "new")


def test_longer_fork_is_found_as_well(scene: Scene) -> None:
    scene.put_back(forget=True)
    append(scene.deed.home, *map(str, range(20)))
    details = scene.deed.refuses("HISTORY_CHANGED", "serve")["details"]
    assert (details["missing"], details["log_size"] - details["shared"]) == (3, 20)


def test_epoch_does_not_excuse_the_next_loss(scene: Scene) -> None:
    scene.put_back()
    scene.deed("recover", "--accept-loss", "--yes")
    shutil.rmtree(scene.copy)
    shutil.copytree(scene.deed.home / "log", scene.copy)
    put_in(scene.deed.home, "four")
    after = head(scene.deed.home)
    assert after[0] < scene.head[0]  # the size after this loss is below the size that was given up before
    scene.put_back(forget=True)
    assert scene.deed.refuses("HISTORY_CHANGED", "serve")["details"]["stream"].endswith("_2")
    answer = scene.deed.data("recover", "--from-stream")
    assert (answer["size"], answer["tree_head"]) == after


def test_recovery_and_repair_are_refused_while_the_ledger_is_served(scene: Scene) -> None:
    with Serving(scene.deed.home):
        scene.deed.refuses("STORE_IN_USE", "recover", "--from-stream")
        scene.deed.refuses("STORE_IN_USE", "recover", "--accept-loss", "--yes")
        scene.deed.refuses("STORE_IN_USE", "fsck", "--repair")


def test_recover_without_a_way_or_a_stream_says_what_to_do(alone: Deed) -> None:
    alone.refuses("USAGE", "recover")
    alone.refuses("USAGE", "recover", "--from-stream", "--accept-loss")
    assert alone("recover", "--from-stream").startswith("there is no log stream of this ledger here")
    shutil.rmtree(alone.home / "log")
    assert "`deed restore`" in alone.refuses("NO_LEDGER", "recover", "--from-stream")["message"]


def test_loss_that_only_readers_remember_is_accepted_as_well(scene: Scene) -> None:
    scene.deed("log")
    scene.put_back()
    shutil.rmtree(scene.deed.home / "bus")
    details = scene.deed.refuses("HISTORY_CHANGED", "recover", "--from-stream")["details"]
    assert (details["trusted_size"], details["trusted_tree_head"]) == scene.head
    answer = scene.deed.data("recover", "--accept-loss", "--yes")
    assert answer["abandoned"] == [{"size": scene.head[0], "tree_head": scene.head[1]}]
    assert scene.deed.data("session", "list")["total"] == 1
    assert scene.deed("verify", "--views").startswith("VALID: ")
    put_in(scene.deed.home, "new")


def test_recovery_that_is_killed_goes_on_where_it_was(scene: Scene) -> None:
    chance = random.Random(os.environ.get("DEEDBOOK_SEED"))
    append(scene.deed.home, *map(str, range(2000)))
    with Serving(scene.deed.home):
        pass
    whole = entries(scene.deed.home)
    for _ in range(times(1, 1)):
        scene.put_back()
        for _ in range(3):
            before = len(entries(scene.deed.home))
            with Running("--home", scene.deed.home, "recover", "--from-stream") as running:
                wait_until(lambda: len(entries(scene.deed.home)) > before or running.has_ended(), "it went on")  # noqa: B023
                time.sleep(chance.uniform(0, 0.05))
                running.signal(9)
            brought_back = entries(scene.deed.home)
            assert brought_back == whole[: len(brought_back)]
        scene.deed("recover", "--from-stream")
        assert entries(scene.deed.home) == whole
