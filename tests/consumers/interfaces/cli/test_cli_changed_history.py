"""Somebody restores an old copy of a running ledger: every reader reports it, and none skips an event."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from calling import Deed, Kept, Place, Running, Serving, call, call_all, start_session, wait_until

from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

WATCH = ("watch", "--as", "b", "--kind", "session.started")


class Scene(NamedTuple):
    """A ledger whose log was put back to `old1` and `old2` after `old3` to `old5` were acknowledged."""

    deed: Deed
    elsewhere: Path

    def remote(self, server: str, *arguments: str) -> tuple[int, str, str]:
        """Call a verb over the bus as another machine, which trusts the head that it saw there."""
        return call("--home", self.deed.home, "--server", server, *arguments, XDG_STATE_HOME=str(self.elsewhere))

    def forget(self) -> None:
        """Delete this machine's trust store and the workers' stores, as for a ledger restored on a new machine."""
        shutil.rmtree(os.environ["XDG_STATE_HOME"])
        shutil.rmtree(self.deed.home / "bus")
        for store in self.deed.home.glob("*.db*"):
            store.unlink()


def sessions_in(printed: str) -> list[str]:
    """Return the sessions whose start was printed, one JSON document in each line."""
    return [json.loads(line)["stream"].removeprefix("session/") for line in printed.splitlines()]


@pytest.fixture(scope="module")
def built(module_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The scene, built once: the ledger, an older log of it, and another machine's trust store."""
    folder = tmp_path_factory.mktemp("scene")
    home, log, elsewhere = folder / ".deedbook", folder / ".deedbook" / "log" / "data.mdb", folder / "elsewhere"
    call_all(home, ["init", "--unprotected"], ["agent", "add", "a"], ["agent", "add", "b"])
    with Serving(home) as serving, Running("--home", home, *WATCH, "--from-start") as watching:
        seen = []
        for name in ("old1", "old2", "old3", "old4", "old5"):
            if name == "old3":
                shutil.copyfile(log, folder / "older.mdb")
            call_all(home, ["emit", "session.started", "--stream", f"session/{name}", "--as", "b", "--data", "{}"])
            seen.append(watching.line())
        assert sessions_in("".join(seen)) == ["old1", "old2", "old3", "old4", "old5"]
        call_all(home, ["--server", serving.place.server, "next", "--as", "a"], XDG_STATE_HOME=str(elsewhere))
    shutil.copyfile(folder / "older.mdb", log)
    (home / "log" / "lock.mdb").unlink()
    return Kept(folder, module_memory, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def scene(built: Kept, memory_of_readers: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    """A subscriber and a remote client have seen the whole log; nobody wrote a wrong event."""
    folder = built.put_back(memory_of_readers)
    return Scene(Deed(capsys, Place(folder / ".deedbook")), folder / "elsewhere")


@pytest.mark.parametrize(
    "verb",
    [
        ["serve"],
        ["next", "--as", "a"],
        ["handoff", "list"],
        ["checkpoint"],
        ["export", "bundle.tar"],
        ["export", "bundle.tar", "--stream", "session/old1"],
        ["backup", "backup.tar"],
        [*WATCH, "--once"],
        ["emit", "session.started", "--stream", "session/new", "--as", "b", "--data", "{}"],
    ],
)
def test_verbs_that_act_refuse_a_log_that_was_put_back(scene: Scene, verb: list[str]) -> None:
    error = scene.deed.refuses("HISTORY_CHANGED", *verb)

    assert error["details"]["size"] < error["details"]["trusted_size"]
    assert "deed recover" in error["message"]
    assert not error["recoverable"]


@pytest.mark.parametrize("verb", [["verify"], ["verify", "--views"], ["verify", "--resume"], ["fsck"]])
@pytest.mark.parametrize("is_forked", [False, True])
def test_audits_say_that_the_history_changed(scene: Scene, verb: list[str], *, is_forked: bool) -> None:
    if is_forked:  # written by a process without a trust store: another user, a container
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(scene.deed.home.parent / "nothing"))
            for name in ("new1", "new2", "new3", "new4"):
                start_session(scene.deed, name, "b")

    error = scene.deed.refuses("HISTORY_CHANGED", *verb)

    report = error["details"]["report"]
    assert (report["ok"], report["outcome"]) == (False, "HISTORY_CHANGED")
    assert {problem["code"] for problem in report["problems"]} == {"HISTORY_CHANGED"}
    expected = "another history" if is_forked else "this log has only"
    assert any(expected in problem["message"] for problem in report["problems"])
    printed = scene.deed.run(*verb)
    assert printed.code == 6
    assert "HISTORY_CHANGED" in printed.err


@pytest.mark.parametrize("verb", [["verify"], ["verify", "--resume"], ["fsck"]])
def test_copy_with_a_history_of_its_own_is_told(
    alone: Deed, verb: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    alone("agent", "add", "b")
    start_session(alone, "before", "b")
    shutil.copytree(alone.home, tmp_path / "copy" / ".deedbook")
    copy = Deed(capsys, Place(tmp_path / "copy" / ".deedbook"))
    start_session(alone, "here", "b")
    assert copy(*verb).startswith("VALID: ")  # older than the ledger, and a part of it
    copy("trust", "--yes")
    start_session(copy, "there", "b")
    error = copy.refuses("HISTORY_CHANGED", *verb)
    message = f"this log is of another history than the one at {alone.home.resolve()}"
    assert error["details"]["report"]["problems"][0]["message"].startswith(message)
    alone.refuses("HISTORY_CHANGED", *verb)
    shutil.rmtree(copy.home)
    assert alone(*verb).startswith("VALID: ")


def test_nothing_is_signed_over_a_log_that_changed(scene: Scene) -> None:
    settings = Settings(home=scene.deed.home, only_looks=True)
    with LocalClient(settings) as client:
        for sign in (client.checkpoint, lambda: client.prove(0), lambda: client.ends(1, ["ledger"])):
            with pytest.raises(Corrupted) as caught:
                sign()
            assert caught.value.code == "HISTORY_CHANGED"


def test_bundle_of_another_history_is_told_by_a_reader_of_the_ledger(scene: Scene) -> None:
    """Somebody without a trust store exports the bundles, at sizes below and above the head that this reader trusts."""
    folder = scene.deed.home.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "nothing"))
        scene.deed("export", str(folder / "prefix.tar"))
        for name in ("new1", "new2", "new3", "new4"):
            start_session(scene.deed, name, "b")
            scene.deed("export", str(folder / f"{name}.tar"))
            scene.deed("export", str(folder / f"{name}-stream.tar"), "--stream", "session/new1")

    for name in ("new3", "new3-stream", "new4"):  # new3 has as many entries as this reader trusts
        report = scene.deed.refuses("HISTORY_CHANGED", "verify", "--bundle", str(folder / f"{name}.tar"))["details"]
        assert report["report"]["outcome"] == "HISTORY_CHANGED"
    for name in ("prefix", "new4-stream"):  # not compared with the trusted head
        report = scene.deed.data("verify", "--bundle", str(folder / f"{name}.tar"))
        assert any("was not compared" in note["message"] for note in report["notes"])


@pytest.mark.parametrize("verb", [["log"], ["doctor"]])
def test_verbs_that_only_look_go_on_and_say_it(scene: Scene, verb: list[str], tmp_path: Path) -> None:
    answer = call("--home", scene.deed.home, *verb, cwd=tmp_path)

    assert "HISTORY_CHANGED" in answer.err + answer.out
    assert answer.code == (7 if verb == ["doctor"] else 0)


def test_on_another_machine_subscriber_and_remote_client_still_know(scene: Scene) -> None:
    scene.forget()
    for name in ("new1", "new2", "new3", "new4", "new5", "new6"):
        start_session(scene.deed, name, "b")

    assert "HISTORY_CHANGED" in scene.deed.run(*WATCH, "--once").err
    with Serving(scene.deed.home) as serving:
        code, _, said = scene.remote(str(serving.place.server), "next", "--as", "a")
    assert (code, said.split(":")[0]) == (6, "HISTORY_CHANGED")

    (memory,) = scene.elsewhere.glob("deedbook/*/*.json")
    trusted = json.loads(memory.read_bytes())["trusted"]
    lost = {"abandoned_size": trusted["size"], "abandoned_root": trusted["root"], "reason": "the disk failed"}
    emit = ["emit", "ledger.history_reset", "--stream", "ledger", "--as", "root", "--data", json.dumps(lost)]
    scene.deed(*emit)
    answer = call("--home", scene.deed.home, *WATCH, "--once")
    assert sessions_in(answer.out) == ["new1", "new2", "new3", "new4", "new5", "new6"]
    with Serving(scene.deed.home) as serving:
        assert scene.remote(str(serving.place.server), "next", "--as", "a")[0] == 0


def test_after_an_epoch_every_reader_says_so_once_and_goes_on(scene: Scene) -> None:
    scene.deed("recover", "--accept-loss", "--yes", "--reason", "the disk failed")

    for expected in (["new1", "new2"], []):
        if expected:
            for name in expected:
                start_session(scene.deed, name, "b")
        answer = call("--home", scene.deed.home, *WATCH, "--once")
        assert answer.code == 0, answer.err
        assert sessions_in(answer.out) == expected
        assert ("the disk failed" in answer.err) == bool(expected)
    with Serving(scene.deed.home) as serving:
        told = [scene.remote(str(serving.place.server), "next", "--as", "a") for _ in range(2)]
    assert [answer[0] for answer in told] == [0, 0]
    assert ["the disk failed" in answer[2] for answer in told] == [True, False]


def test_a_log_that_is_replaced_under_a_running_node_ends_it(scene: Scene, tmp_path: Path) -> None:
    scene.deed("recover", "--accept-loss", "--yes")
    database = scene.deed.home / "log" / "data.mdb"
    with Serving(scene.deed.home) as serving:
        shutil.copyfile(scene.deed.home.parent / "older.mdb", tmp_path / "again.mdb")
        (tmp_path / "again.mdb").replace(database)
        wait_until(serving.has_ended, "the node ends")
        ended = serving.signal(signal.SIGCONT)
    assert ended.code == 6
    assert "HISTORY_CHANGED" in ended.err + ended.out
