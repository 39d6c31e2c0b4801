"""`deed demo`: the story as one JSON document, produced by real processes; it leaves nothing behind unless asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import inside
import pytest
from building import trusted

from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.config import Settings

wait_max_s: Final = 100.0


class Played(NamedTuple):
    """A demo that has ended."""

    data: dict[str, Any]
    folder: Path
    err: str


def deed(*arguments: object, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run a verb as a process whose temporary folders are made in ``temporary``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    return subprocess.run(
        [sys.executable, "-m", "deedbook", *map(str, arguments)],
        env=environment | {"TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=wait_max_s,
    )


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that use a folder: as argument, home or open folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            command = (process / "cmdline").read_bytes()
            surroundings = (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command + surroundings:
            found.append(command.decode(errors="replace"))
    return found


def is_at_work(pid: int) -> bool:
    """Return whether a Deedbook process with this id is running; an ended one has no command line."""
    try:
        return b"consumers." in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One demo, kept."""
    folder = tmp_path_factory.mktemp("demo")
    done = deed("demo", "--json", "--keep", temporary=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["schema_version"], document["kind"]) == (1, "demo")
    return Played(document["data"], folder, done.stderr)


def test_document_is_all_that_is_printed(played: Played) -> None:
    assert played.err == ""


def test_events_are_counted_by_kind(played: Played) -> None:
    with LocalClient(Settings(home=Path(played.data["home"]))) as client:
        kinds: dict[str, int] = {}
        for index in range(client.head().size):
            kind = read_event(index, client.entry(index)).kind
            kinds[kind] = kinds.get(kind, 0) + 1
    assert played.data["kinds"] == kinds
    assert played.data["events"] == sum(kinds.values())
    assert kinds.keys() >= {"reasoning.briefed", "handoff.approved", "handoff.claimed", "handoff.completed"}


def test_every_agent_is_a_process_of_its_own_with_its_own_key(played: Played) -> None:
    agents = played.data["agents"]
    assert len(agents) >= 4
    pids = [agent[name] for agent in agents.values() for name in agent if name.endswith("pid")]
    assert len(set(pids)) == len(pids)
    assert os.getpid() not in pids
    assert len({agent["key"] for agent in agents.values()}) == len(agents)


def test_refusals_are_real_and_the_self_approval_is_among_them(played: Played) -> None:
    refusals = {(one["code"], one["by"]) for one in played.data["refusals"]}
    assert ("SELF_APPROVAL", "claude-code") in refusals
    assert ("DEPENDENCY_PENDING", "minimax") in refusals


def test_reaction_came_after_what_it_reacts_to(played: Played) -> None:
    reaction = played.data["reaction"]
    assert reaction.keys() >= {"event", "by", "after_index"}
    with LocalClient(Settings(home=Path(played.data["home"]))) as client:
        caused = read_event(reaction["after_index"], client.entry(reaction["after_index"]))
        came = read_event(reaction["index"], client.entry(reaction["index"]))
    assert caused.kind == "handoff.completed"
    assert (came.kind, came.author) == (reaction["event"], reaction["by"])
    assert came.index > caused.index


def test_briefs_are_measured_and_say_which_rule_asks_for_the_whole(played: Played) -> None:
    briefs = {one["level"]: one for one in played.data["brief"]}
    assert briefs.keys() == {"MINIMAL", "STANDARD"}
    for brief in briefs.values():
        assert brief.keys() >= {"level", "tokens", "exact", "budget", "fidelity", "rule_fired"}
        assert 0 < brief["tokens"] <= brief["budget"]
        assert brief["exact"] is True
        assert brief["rule_fired"]
    assert 0 < briefs["MINIMAL"]["fidelity"] <= briefs["STANDARD"]["fidelity"] <= 1


def test_fetched_graph_is_the_one_that_was_briefed(played: Played) -> None:
    fetched = played.data["fetch"]
    assert fetched["verified"] is True
    asked = inside.deed("reasoning", "fetch", fetched["ref"], "--home", played.data["home"], "--json")
    assert json.loads(asked.out)["data"]["ref"] == fetched["ref"]


def test_audit_covers_every_event(played: Played) -> None:
    audit = played.data["audit"]
    assert (audit["tree"], audit["views"], audit["ok"]) == (True, True, True)
    assert audit["signatures"] == played.data["events"]


def test_kept_bundle_verifies(played: Played) -> None:
    assert Path(played.data["bundle"]).is_relative_to(played.folder)
    done = inside.deed("verify", "--bundle", played.data["bundle"], "--json")
    report = json.loads(done.out)["data"]
    assert (done.code, report["ok"], report["size"]) == (0, True, played.data["events"])


def test_kept_home_is_a_ledger_to_go_on_with(played: Played, tmp_path: Path) -> None:
    assert (Path(played.data["home"]) / "log" / "data.mdb").is_file()
    home = trusted(shutil.copytree(played.data["home"], tmp_path / ".deedbook"))
    started = ["emit", "session.started", "--stream", "session/after", "--as", "kuro", "--data", "{}"]
    emitted = inside.deed("--home", home, *started)
    assert emitted.code == 0, emitted.err
    verified = json.loads(inside.deed("--home", home, "verify", "--views", "--json").out)["data"]
    assert (verified["ok"], verified["size"]) == (True, played.data["events"] + 1)


def test_no_process_outlives_a_kept_demo(played: Played) -> None:
    pids = [agent[name] for agent in played.data["agents"].values() for name in agent if name.endswith("pid")]
    assert not any(is_at_work(pid) for pid in pids)
    assert processes_of(played.folder) == []


def test_nothing_stays_behind_when_it_is_not_kept_and_people_read_the_story(tmp_path: Path) -> None:
    done = deed("demo", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "refused: SELF_APPROVAL" in done.stderr
    assert "What an auditor can prove" in done.stdout
    hints = done.stdout.partition("Next:")[2]
    assert "deed init --trial  # a ledger of your own: run it in a folder of your project" in hints
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_interrupted_demo_takes_everything_down(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    child = subprocess.Popen(
        [sys.executable, "-m", "deedbook", "demo"],
        env=environment | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    while (line := child.stderr.readline()) and "records the security audit" not in line:
        continue
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=wait_max_s)
    assert child.returncode == 130
    assert "Traceback" not in err
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
