"""The rehearsal script of `deploy/` with few events: two nodes, and in `make faults` three, one of which is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inside
import pytest

from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

wait_max_s = 60
PROGRAM = Path(__file__).parents[2] / "deploy" / "three-nodes.py"


@pytest.mark.long_run
def test_what_was_acknowledged_is_in_both_logs_after_a_node_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--events", "40", "--agents", "2", "--folder", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    answer = json.loads(ended.stdout)
    assert answer["acknowledged"] == answer["in_both_logs"] == answer["wanted"] == 40
    assert (answer["twice"], len(set(answer["roots"])), answer["exit_codes"]) == (0, 1, [0, 0])
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_rehearsal_that_failed_is_kept_and_named(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--folder", str(tmp_path)]
    environment = os.environ | {"DEEDBOOK_SERVER": "no server"}  # the script can create a ledger, but not open it
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 1
    (folder,) = tmp_path.iterdir()
    assert f"the nodes' folders and logs are in {folder}" in ended.stderr
    assert (folder / "node" / "log").is_dir()


@pytest.fixture(scope="module")
def program() -> Any:
    """The rehearsal script, loaded as a module."""
    spec = importlib.util.spec_from_file_location("three_nodes", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@pytest.fixture(scope="module")
def made(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two serving nodes. The stream has a single copy, so its servers elect no leader for it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nodes")
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(folder / name))
        patch.setattr(program, "NODES", ("node", "node-2"))
        patch.setattr(program, "SETTINGS", "replicas = 1\n")
        scene = program.Scene(folder, 1)
        try:
            scene.make()
            for name in program.NODES:
                scene.start(name)
            for name in program.NODES:
                scene.listen(name)
            scene.wait_until_ready()
            yield scene
        finally:
            scene.end()


@pytest.fixture
def scene(made: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The nodes, and the folder of this user's trust records and trusted heads."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(made.folder / name))
    return made


def deed(scene: Any, name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Call a verb in a node's folder; return its exit code and its document."""
    said = inside.deed("--home", scene.homes[name], "--json", *arguments)
    return said.code, json.loads(said.out or said.err)


def test_events_submitted_at_any_node_are_in_every_log_and_may_be_read_there(scene: Any) -> None:
    scene.write("agent-0", 10)
    names = list(scene.homes)[:2]
    scene.wait_for_equal_logs(names)
    for name in names:
        settings = Settings(home=scene.folder / "clients", server=scene.urls[name], agent="agent-0")
        with RemoteClient(settings) as client:
            assert {client.entries(index, limit=1).entries[0][0] for index in scene.index_of.values()} == set(
                scene.index_of.values()
            )


def test_logs_that_lack_an_acknowledged_event_are_an_error(
    program: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "wait_s", 0.3)
    monkeypatch.setattr(scene, "index_of", {"blake3:lost": 1_000_000})
    with pytest.raises(RuntimeError, match="at least 1000001"):
        scene.wait_for_equal_logs(list(scene.homes)[:2])


def test_verbs_in_a_nodes_folder_write_nothing_past_the_others(scene: Any) -> None:
    code, answer = deed(scene, "node", "--as", "root", "agent", "add", "past-the-others")
    assert (code, answer["error"]["code"]) == (7, "SHARED_LOG")
    assert answer["error"]["details"] == {"node": "node", "url": scene.urls["node"]}


def nodes_here(scene: Any, name: str) -> str:
    """Return the finding of ``deed doctor`` about the nodes, run in the folder of one of them."""
    _, answer = deed(scene, name, "doctor")
    checks = (answer.get("data") or answer["error"]["details"])["checks"]
    return str(next(check["found"] for check in checks if check["name"] == "nodes"))


def roles_in_list(scene: Any, name: str) -> dict[str, str]:
    """Return the role of each node, as ``deed node list`` shows it in the folder of one of them."""
    code, answer = deed(scene, name, "node", "list")
    assert code == 0
    return {node["node"]: node["role"] for node in answer["data"]["nodes"]}


def test_nodes_are_listed_and_all_of_them_are_ready(scene: Any) -> None:
    names = list(scene.homes)[:2]
    scene.wait_until_ready()
    for name in names:
        deadline = time.monotonic() + wait_max_s
        while roles_in_list(scene, name) != dict.fromkeys(names, "ready"):  # a node learns it later
            assert time.monotonic() < deadline, roles_in_list(scene, name)
            time.sleep(0.05)
        assert nodes_here(scene, name).startswith(f"{name} is ready")


def test_follow_is_refused_for_a_node_that_stands_alone(tmp_path: Path) -> None:
    home = ("--home", tmp_path / "alone", "--json")
    assert inside.deed(*home, "init", "--unprotected").code == 0
    said = inside.deed(*home, "serve", "--follow")
    assert (said.code, json.loads(said.out or said.err)["error"]["code"]) == (2, "USAGE")
