"""Three nodes with their servers: whatever befalls them, what was acknowledged is in each log and the stream, once.

The scene is shared by the tests of this module, one after the other: what one of them leaves is what the next begins
with. In ``make test`` one fault is made, once; the others wait for the long run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import faults
import pytest
from faults import is_long_run, times
from three_nodes import Nodes, eventually

from ledger import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(3600 if is_long_run else 300)
in_the_long_run = pytest.mark.skipif(not is_long_run, reason="three nodes and their servers: made by `make faults`")

HERE: Final = Path(__file__).parent
DAMAGES: Final = ("flipped", "truncated", "deleted")
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
    """The nodes, and where this user keeps what he trusts and remembers of them."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(made.folder / name))
    return made


def test_leader_that_is_stopped_past_its_lease_is_fenced_and_acknowledges_nothing(nodes: Nodes) -> None:
    for _ in range(times(1, 2)):
        with nodes.work():
            leader = nodes.leader()
            nodes.signal(leader, signal.SIGSTOP)
            try:
                nodes.other_leader(leader)
                nodes.progress(5)
                if is_long_run:
                    time.sleep(limits.lease_s)
            finally:
                nodes.signal(leader, signal.SIGCONT)
            nodes.progress(5)
            eventually(lambda name=leader: nodes.role(name) == "follower", f"{leader} follows")
        nodes.settle("SIGSTOP of a leader past its lease")


# Kills


def kill_leader(nodes: Nodes) -> Callable[[], None]:
    leader = nodes.leader()
    nodes.kill(leader)
    nodes.other_leader(leader)
    return lambda: nodes.start(leader)


def kill_all(nodes: Nodes) -> Callable[[], None]:
    nodes.kill(*nodes.names)
    return nodes.start


def kill_server(nodes: Nodes) -> Callable[[], None]:
    leader = nodes.leader()
    os.kill(nodes.server_pid(leader), signal.SIGKILL)
    return lambda: nodes.progress(10)


def kill_node(nodes: Nodes) -> Callable[[], None]:
    leader = nodes.leader()
    nodes.scene.served[leader].kill()
    nodes.scene.served[leader].wait()
    nodes.scene.served[leader].stdout.close()
    nodes.other_leader(leader)
    return lambda: nodes.start(leader)


KILLS: Final = {
    "kill -9 of the leader and its server": kill_leader,
    "kill -9 of all three nodes and their servers": kill_all,
    "kill -9 of the leader's server": kill_server,
    "kill -9 of the leader, whose server stays": kill_node,
}


@in_the_long_run
@pytest.mark.parametrize("fault", KILLS)
def test_kills_among_three_nodes_lose_nothing_that_was_acknowledged(nodes: Nodes, fault: str) -> None:
    for _ in range(times(1, 2)):
        with nodes.work():
            mend = KILLS[fault](nodes)
            time.sleep(chance.uniform(0, 1))
            mend()
            nodes.progress(10)
        nodes.settle(fault)


# Damage


def damage(home: Path, how: str) -> None:
    """Damage what a server keeps of the log's stream."""
    streams = home.glob("bus/jetstream-cluster/jetstream/*/streams/BATON_*_[0-9]*")
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


@in_the_long_run
@pytest.mark.parametrize("how", DAMAGES)
def test_stream_files_that_are_damaged_at_one_server_cost_nothing(nodes: Nodes, how: str) -> None:
    for _ in range(times(1, 2)):
        victim = chance.choice(nodes.names)
        with nodes.work():
            nodes.kill(victim)
            damage(nodes.scene.home[victim], how)
            nodes.progress(5)
            nodes.start(victim)
        nodes.settle(f"stream files of one replica {how}")


@in_the_long_run
@pytest.mark.parametrize("how", DAMAGES)
def test_stream_files_that_are_damaged_at_every_server_are_built_again_from_a_log(nodes: Nodes, how: str) -> None:
    """Deleted: the whole store. Without the stream's folder alone servers elect nobody, of which the runbook tells."""
    for _ in range(times(1, 2)):
        with nodes.work():
            nodes.kill(*nodes.names)
            for name in nodes.names:
                if how == "deleted":
                    shutil.rmtree(nodes.scene.home[name] / "bus" / "jetstream-cluster")
                else:
                    damage(nodes.scene.home[name], how)
            nodes.start()
        nodes.settle(f"stream files of all replicas {how}")


# Without what keeps nodes from leading at once, and cut off


@in_the_long_run
def test_two_leaders_without_a_lease_never_write_in_one_term(nodes: Nodes) -> None:
    """Then only the compare-and-set of the stream stands between two who both believe that they lead."""
    nodes.kill(*nodes.names)
    for name in nodes.names:
        home, port = str(nodes.scene.home[name]), str(nodes.ports[name])
        nodes.command[name] = [sys.executable, str(HERE / "leaseless_program.py"), home, port]
    nodes.start()
    try:
        for _ in range(times(1, 2)):
            with nodes.work():
                leader = nodes.leader()
                nodes.scene.served[leader].send_signal(signal.SIGSTOP)
                try:
                    nodes.other_leader(leader)
                finally:
                    nodes.scene.served[leader].send_signal(signal.SIGCONT)
                nodes.progress(10)
            nodes.settle("two leaders without a lease")
    finally:
        nodes.kill(*nodes.names)
        nodes.command.clear()
        nodes.start()


@in_the_long_run
def test_nodes_that_are_cut_off_take_nothing_for_lost_and_lose_nothing(tmp_path: Path) -> None:
    apart = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if not shutil.which("ip") or subprocess.run([*apart, "ip", "link"], check=False, capture_output=True).returncode:
        pytest.skip("not run: this machine makes no network namespaces")
    paths = [HERE.parents[3], HERE.parents[2], HERE, HERE.parents[3] / "consumers" / "doors" / "python"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [*apart, sys.executable, str(HERE / "partitioned_program.py"), str(tmp_path), str(times(1, 2))]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    faults.add(json.loads(ended.stdout))
