"""`deed handoff watch` as a process: edits become events, events edits, and a kill in between changes nothing."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import inside
import pytest
from calling import Deed, Place, Running, Serving, wait_until
from faults import times

if TYPE_CHECKING:
    from collections.abc import Callable

    Fresh = Callable[[str], str]


def watching(place: Place, folder: Path, agent: str, *more: object) -> Running:
    """Start a watcher as a process."""
    server = ["--server", place.server] if place.server else []
    return Running("--home", place.home, *server, "handoff", "watch", folder, "--as", agent, "--json", *more)


def once(place: Place, folder: Path, agent: str) -> str:
    """Synchronise a folder once; return the output. The exit code says whether any work is left."""
    server = ["--server", place.server] if place.server else []
    said = inside.deed("--home", place.home, *server, "handoff", "watch", folder, "--as", agent, "--once")
    is_open = any(line.startswith(("held", "conflict", "refused", "deleted")) for line in said.out.splitlines())
    assert said.code == (5 if is_open else 0), said.err
    return said.out


def save(path: Path, text: str) -> None:
    """Save a file as most editors do: write a new one and rename it."""
    saved = path.with_name(f".{path.name}.swp")
    saved.write_text(text)
    saved.replace(path)


def claimed(deed: Deed, name: str) -> str:
    """Create, approve and claim a handoff with five tasks, and return its id."""
    tasks = [word for number in range(5) for word in ("--task", f"step {number}")]
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita", "--criterion", "it works"]
    deed("handoff", "create", name, "--title", f"Do {name}", *parties, *tasks)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    return name


def events(deed: Deed, name: str) -> list[str]:
    """Return the events of a handoff, as ``kind author``."""
    log = deed.data("handoff", "show", name)["log"]
    return [f"{one['kind'].removeprefix('handoff.')} {one['author']}" for one in log]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for files."""
    made = tmp_path / "handoffs"
    made.mkdir()
    return made


def is_in_step(deed: Deed, folder: Path, name: str) -> bool:
    """Return whether the file equals the one that the ledger renders."""
    path = folder / f"{name}.md"
    return path.exists() and path.read_text() == deed("handoff", "render", name)


@pytest.mark.served
def test_edit_becomes_an_event_and_an_event_an_edit(deed: Deed, fresh: Fresh, folder: Path) -> None:
    name = claimed(deed, fresh("watched"))
    path = folder / f"{name}.md"
    assert deed.place is not None
    with watching(deed.place, folder, "b") as watcher:
        wait_until(lambda: is_in_step(deed, folder, name), "a file of the handoff")
        save(path, path.read_text().replace("- [ ] step 1", "- [x] step 1"))
        wait_until(lambda: events(deed, name)[-1] == "task_checked b", "the tick in the ledger")
        deed("handoff", "check", name, "--task", 3, "--as", "b")
        wait_until(lambda: "- [x] step 2" in path.read_text(), "the tick in the file")
        whole = path.read_text().replace("- [ ] step 4", "- [x] step 4")
        with path.open("w") as file:  # an editor that truncates the file first, and writes it in two halves
            file.write(whole[: len(whole) // 2])
            file.flush()
            time.sleep(0.5)
            file.write(whole[len(whole) // 2 :])
        wait_until(lambda: events(deed, name).count("task_checked b") == 3, "the last tick in the ledger")
        wait_until(lambda: is_in_step(deed, folder, name), "file and ledger in step")
        deed("handoff", "log", name, "the end", "--as", "rita")
        wait_until(lambda: "the end" in path.read_text(), "the end in the file")
        ended = watcher.signal(signal.SIGTERM)
    assert (ended.code, ended.err) == (0, "")
    assert events(deed, name).count("task_checked b") == 3
    assert once(deed.place, folder, "b").count(name) == 0


def test_what_the_agent_may_not_sign_is_listed_by_every_pass(
    populated: Callable[[str], Path], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, name = Deed(capsys, Place(populated("held"))), "held"  # in the shared ledger, each pass reads all streams
    deed("handoff", "create", name, "--title", "x", "--to", "b", "--reviewer", "rita", "--as", "a")
    assert deed.place is not None
    for agent in ("a", "b", "rita"):
        once(deed.place, folder, agent)
    path = folder / f"{name}.md"
    save(path, path.read_text().replace("Status: pending", "Status: approved"))
    before = deed.written()
    for agent in ("a", "b", "rita"):
        for _ in range(2):
            assert f"rita must run deed handoff approve {name} --as rita" in once(deed.place, folder, agent)
    assert deed.written() == before
    assert "Status: pending ← not signed: set the status to approved" in path.read_text()
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    for agent in ("a", "b", "rita"):
        once(deed.place, folder, agent)
    assert is_in_step(deed, folder, name)


def test_watcher_waits_for_its_server(
    populated: Callable[[str], Path], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = populated("restarted")
    local = Deed(capsys, Place(home))
    with Serving(home) as serving:
        port = serving.place.server
        remote = Deed(capsys, serving.place)
        name = claimed(remote, "h")
        watcher = watching(serving.place, folder, "b")
        wait_until((folder / "h.md").exists, "a file of the handoff")
    assert port is not None
    with watcher:
        path = folder / "h.md"
        save(path, path.read_text().replace("- [ ] step 1", "- [x] step 1"))
        local("handoff", "log", name, "while it was gone", "--as", "rita")
        with Running("--home", home, "serve", "--json", "--port", port.rpartition(":")[2]) as again:
            assert again.line()
            wait_until(lambda: "task_checked b" in events(local, name), "the tick in the ledger")
            wait_until(lambda: is_in_step(local, folder, name), "file and ledger in step")
            assert watcher.signal(signal.SIGTERM).code == 0
    assert events(local, name).count("task_checked b") == 1


def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(
    populated: Callable[[str], Path], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(populated("killed"))
    deed, chance = Deed(capsys, place), random.Random(os.environ.get("DEEDBOOK_SEED"))
    name = claimed(deed, "h")
    once(place, folder, "b")
    path = folder / f"{name}.md"
    rounds = times(1, 5)
    for number in range(rounds):
        watcher = watching(place, folder, "b")
        if number % 2:
            time.sleep(chance.uniform(0.4, 1.0))
        tick, untick = f"- [ ] step {number % 5}", f"- [x] step {number % 5}"
        text = path.read_text()
        text = text.replace(tick, untick) if tick in text else text.replace(untick, tick)
        save(path, text.rstrip("\n") + f"\n- 2026-01-01 [b] note {number}.\n")
        deed("handoff", "log", name, f"event {number}.", "--as", "rita")
        time.sleep(chance.uniform(0.0, 1.5))
        with watcher:
            assert watcher.signal(signal.SIGKILL).code == -signal.SIGKILL
    once(place, folder, "b")
    log = [(one["kind"], one["text"]) for one in deed.data("handoff", "show", name)["log"]]
    noted = [text for kind, text in log if kind == "handoff.logged"]
    assert sorted(noted) == sorted([f"{what} {number}." for what in ("note", "event") for number in range(rounds)])
    signed = Counter(text.split()[-1] for kind, text in log if kind == "handoff.task_checked")
    for step, edits in Counter(str(number % 5) for number in range(rounds)).items():
        # Two edits of one box between two runs of the watcher cancel out, so pairs of edits may be missing.
        assert signed[step] <= edits
        assert (edits - signed[step]) % 2 == 0
    assert is_in_step(deed, folder, name)
    before = deed.written()
    assert once(place, folder, "b") == ""
    assert deed.written() == before
    assert sorted(one.name for one in folder.iterdir() if not one.name.startswith(".deedbook-")) == [path.name]


def test_folder_must_be_there(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a", "--unprotected")
    (tmp_path / "handoffs").mkdir()
    (tmp_path / "handoffs" / "h.md").touch()
    error = alone.refuses("NOT_FOUND", "handoff", "watch", tmp_path / "nowhere", "--as", "a")
    assert "\n  next: mkdir -p " in error["message"]
    error = alone.refuses("NOT_FOUND", "handoff", "watch", tmp_path / "handoff", "--as", "a")
    assert error["message"].endswith(f": did you mean {tmp_path / 'handoffs'}?")
    error = alone.refuses("USAGE", "handoff", "watch", tmp_path / "handoffs" / "h.md", "--as", "a")
    assert error["message"].endswith(f"name its folder, {tmp_path / 'handoffs'}")


def test_folder_that_cannot_be_written_is_told(
    populated: Callable[[str], Path], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(populated("readonly"))
    claimed(Deed(capsys, place), "h")
    if os.geteuid() == 0:
        (folder / "h.md").mkdir()  # even root cannot write a file over a folder
        assert "refused" in once(place, folder, "b")
        return
    folder.chmod(0o500)
    said = inside.deed("--home", place.home, "handoff", "watch", folder, "--as", "b", "--once")
    folder.chmod(0o700)
    assert said.code != 0
    assert "STORE_UNAVAILABLE" in said.err


def test_folder_that_is_kept_in_step_has_nothing_to_import(alone: Deed, folder: Path) -> None:
    alone("agent", "add", "a")
    alone("agent", "add", "rita", "--role", "human", "--unprotected")
    alone("handoff", "create", "made-here", "--as", "a", "--to", "a", "--reviewer", "rita", "--title", "t")
    assert alone.place is not None
    once(alone.place, folder, "a")
    size = alone.data("log")["total"]
    said = alone("handoff", "import", folder, "--as", "a")
    assert said.startswith("1 was made in this ledger, and kept in step by `deed handoff watch`: nothing to import\n")
    assert alone.data("handoff", "import", folder, "--as", "a")["copies"] == ["made-here.md"]
    assert alone.data("log")["total"] == size


def test_first_watch_of_the_project_itself_suggests_a_folder(alone: Deed) -> None:
    folder = alone.home.parent
    alone("agent", "add", "a")
    said = alone.run("handoff", "watch", folder, "--once", "--as", "a")
    assert f"warning: {folder} is the project's folder and gets a file for each handoff" in said.err
    (folder / "handoffs").mkdir()
    said = alone.run("handoff", "watch", folder / "handoffs", "--once", "--as", "a").err
    assert said == "no handoff is open, so no file was written: --all also writes finished ones\n"
