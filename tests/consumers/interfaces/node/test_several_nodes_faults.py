"""Three nodes with their servers: after every fault, each acknowledged entry is once in each log and the stream.

The tests of this module share one scene: each begins with the state that the one before left, and makes its faults
while the agents keep writing. Only ``make faults`` runs these tests. In ``make test``, the script of ``deploy/`` kills
one node, and the simulator does the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import faults
import httpx
import pytest
from faults import is_long_run, times
from partition import Relays, cut_each
from three_nodes import Nodes, eventually

from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.consumers.interfaces.web.writes import MSGPACK
from deedbook.ledger import limits
from deedbook.ledger.client.author import Draft, draft_and_sign, now
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.identity import open_key, read_key_file
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not is_long_run, reason="three nodes and their servers: made by `make faults`"),
]

HERE: Final = Path(__file__).parent
DAMAGES: Final = ("flipped", "truncated", "deleted")
each: Final = 1.2
"""The long run makes 30 of each fault."""

chance = random.Random("three nodes")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes that serve."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nodes")
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(folder / name))
        nodes = Nodes(folder)
        try:
            nodes.start()
            yield nodes
        finally:
            nodes.end()


@pytest.fixture
def nodes(made: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """The nodes, with this user's trust records and trusted heads for them."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(made.folder / name))
    return made


def test_node_that_is_stopped_for_long_goes_on_as_one_of_the_others(nodes: Nodes) -> None:
    with nodes.work():
        for _ in range(count := times(1, each)):
            name = chance.choice(nodes.names)
            nodes.signal(name, signal.SIGSTOP)
            try:
                nodes.progress(5)
                time.sleep(chance.uniform(0, limits.stream_silent_max_s))
            finally:
                nodes.signal(name, signal.SIGCONT)
            nodes.progress(2)
            nodes.whole()
    nodes.settle("SIGSTOP of a node and its server", count)


def test_node_whose_server_goes_on_while_it_is_stopped_holds_nobody_up(nodes: Nodes) -> None:
    """Its server still sends it requests of its agents, so they move to another server."""
    with nodes.work():
        for _ in range(count := times(1, each / 2)):
            name = nodes.names[0]
            nodes.scene.processes[name].send_signal(signal.SIGSTOP)
            try:
                nodes.progress(10)
            finally:
                nodes.scene.processes[name].send_signal(signal.SIGCONT)
            nodes.progress(2)
            nodes.whole()
    nodes.settle("SIGSTOP of a node whose server goes on", count)


# Kills


def kill_one(nodes: Nodes) -> None:
    name = chance.choice(nodes.names)
    nodes.kill(name)
    nodes.progress(3)
    nodes.start(name)


def kill_all(nodes: Nodes) -> None:
    nodes.kill(*nodes.names)
    nodes.start()


def kill_server(nodes: Nodes) -> None:
    name = chance.choice(nodes.names)
    os.kill(killed := nodes.server_pid(name), signal.SIGKILL)
    eventually(lambda: nodes.server_pid(name) not in {0, killed}, "its server was started again")


def kill_node(nodes: Nodes) -> None:
    name = chance.choice(nodes.names)
    nodes.scene.processes[name].kill()
    nodes.ended(name)
    nodes.progress(3)
    nodes.start(name)


KILLS: Final = {
    "kill -9 of a node and its server": kill_one,
    "kill -9 of all three nodes and their servers": kill_all,
    "kill -9 of a node's server": kill_server,
    "kill -9 of a node whose server stays": kill_node,
}


def repeat(nodes: Nodes, fault: str, make: Callable[[], None]) -> None:
    """Repeat a fault, each time at a random time while the whole ledger works; then count."""
    with nodes.work():
        for _ in range(count := times(1, each)):
            time.sleep(chance.uniform(0, 0.5))
            make()
            nodes.progress(3)
            nodes.whole()
    nodes.settle(fault, count)


@pytest.mark.parametrize("fault", KILLS)
def test_kills_among_three_nodes_lose_nothing_that_was_acknowledged(nodes: Nodes, fault: str) -> None:
    repeat(nodes, fault, lambda: KILLS[fault](nodes))


# Damage


def damage(home: Path, how: str) -> None:
    """Damage a server's files of the log stream."""
    streams = home.glob("bus/jetstream-cluster/jetstream/*/streams/DEEDBOOK_*_[0-9]*")
    stream = max(streams, key=lambda path: int(path.name.rpartition("_")[2]))
    if how == "deleted":
        shutil.rmtree(stream)
        return
    block = max(stream.glob("msgs/*.blk"), key=lambda path: path.stat().st_size)
    content = bytearray(block.read_bytes())
    if how == "truncated":
        del content[len(content) // 2 :]
    else:
        content[chance.randrange(len(content) // 4, len(content) - 1)] ^= 1
    block.write_bytes(content)


@pytest.mark.parametrize("how", DAMAGES)
def test_stream_files_that_are_damaged_at_one_server_cost_nothing(nodes: Nodes, how: str) -> None:
    def make() -> None:
        victim = chance.choice(nodes.names)
        nodes.kill(victim)
        damage(nodes.scene.homes[victim], how)
        nodes.progress(2)
        before = nodes.copies()
        nodes.start(victim)
        nodes.copied(before)

    repeat(nodes, f"stream files of one replica {how}", make)


def test_node_that_was_away_while_the_stream_was_built_again_gets_its_copy(nodes: Nodes) -> None:
    """Its server knows only the earlier stream, whose subjects overlap with those of the next one."""
    away, other, _ = nodes.names
    generation = nodes.scene.homes[other] / "bus" / "generation.json"

    def number() -> int:
        return int(json.loads(generation.read_bytes())["number"])

    with nodes.work():
        nodes.progress(3)
        nodes.kill(away)
        nodes.progress(3)
        before = asyncio.run(nodes.limit_stream(other))
        eventually(lambda: number() > before, "the next stream")
        nodes.progress(3)
        nodes.start(away)
        streams = nodes.scene.homes[away] / "bus/jetstream-cluster/jetstream"
        eventually(lambda: bool(list(streams.glob(f"*/streams/DEEDBOOK_*_{number()}"))), "a copy of the next stream")
        nodes.progress(3)
        nodes.whole()
    nodes.settle("stream built again while a node was away", 1)


@pytest.mark.parametrize("how", ["flipped", "truncated", "store deleted"])
def test_stream_files_that_are_damaged_at_every_server_are_built_again_from_a_log(nodes: Nodes, how: str) -> None:
    """This test does not delete the whole folder of a stream: then servers may elect no leader (see the runbook)."""

    def make() -> None:
        nodes.kill(*nodes.names)
        for name in nodes.names:
            if how == "store deleted":
                shutil.rmtree(nodes.scene.homes[name] / "bus" / "jetstream-cluster")
            else:
                damage(nodes.scene.homes[name], how)
        nodes.start()

    repeat(nodes, f"stream files of all replicas {how}", make)


# Checkpoints that are posted, and nodes that are cut off


def test_every_node_takes_what_is_posted_and_knows_what_another_one_took(nodes: Nodes) -> None:
    nodes.kill(*nodes.names)
    web = dict(zip(nodes.names, nodes.script.free_ports(len(nodes.names)), strict=True))
    for name in nodes.names:
        home = str(nodes.scene.homes[name])
        serve = [*nodes.script.program(), "--home", home, "serve", "--json", "--port", str(nodes.ports[name])]
        nodes.command[name] = [*serve, "--web", str(web[name])]
    nodes.start()
    try:
        agent = nodes.scene.agents[0]
        key_file = Home(nodes.folder / "clients").key_file(agent)
        key, ledger = open_key(key_file), read_key_file(key_file).ledger
        draft = Draft(stream="session/posted", data=SessionStarted())
        signed = draft_and_sign([draft], key, ledger=ledger, author=agent, at=now())
        headers = {
            name: {"authorization": f"Bearer {Tokens(nodes.scene.homes[name]).create(agent, 'writer', 2**52)[1]}"}
            for name in nodes.names
        }

        def post(name: str) -> Any:
            given = headers[name] | {"content-type": MSGPACK}
            answer = httpx.post(f"http://127.0.0.1:{web[name]}/v1/entries", content=signed.encode(), headers=given)
            return answer.json()["data"]["accepted"][0] if answer.status_code == 200 else answer.text

        nodes.whole()
        first, second, third = nodes.names
        accepted = post(first)
        assert accepted["is_repeat"] is False
        assert post(second) == accepted | {"is_repeat": True}
        nodes.kill(first)
        assert post(third) == accepted | {"is_repeat": True}
        nodes.start(first)
        nodes.whole()
    finally:
        nodes.command.clear()


def test_nodes_that_are_cut_off_by_relays_take_nothing_for_lost_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    nodes = Nodes(tmp_path)
    relays = Relays(nodes)
    try:
        nodes.start()
        cut_each(nodes, relays, times(1, each / 2))
    finally:
        nodes.end()
        relays.end()


def test_nodes_that_are_cut_off_in_namespaces_take_nothing_for_lost_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if not shutil.which("ip") or subprocess.run([*apart, "ip", "link"], check=False, capture_output=True).returncode:
        test_nodes_that_are_cut_off_by_relays_take_nothing_for_lost_and_lose_nothing(tmp_path, monkeypatch)
        return
    paths = [HERE.parents[3], HERE.parents[2], HERE]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [*apart, sys.executable, str(HERE / "partitioned_program.py"), str(tmp_path), str(times(1, each / 2))]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    faults.add(json.loads(ended.stdout))
