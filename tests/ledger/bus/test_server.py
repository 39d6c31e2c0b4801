"""The embedded server is found, started, reloaded and ended; two servers never use the same store."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import nats.errors
import pytest

from deedbook.ledger.bus import subjects
from deedbook.ledger.bus.stream import Generation, open_stream
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.service.server import EmbeddedServer, find_server
from deedbook.ledger.service.server_config import BusUsers, render_config

if TYPE_CHECKING:
    from conftest import Bus
    from nats.aio.msg import Msg

OWNER_PROGRAM = """
import sys
from pathlib import Path
from deedbook.ledger.service.server import BusUsers, EmbeddedServer

server = EmbeddedServer(Path(sys.argv[1]), sys.argv[2])
server.start(BusUsers(nodes=(sys.argv[3],)))
print(server.pid, flush=True)
sys.stdin.read()
"""


def has_ended(pid: int) -> bool:
    """Whether a process has ended; it may still be a zombie until its parent waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def old_server_double(folder: Path, version: str) -> Path:
    """Return a test double of nats-server, which only prints its version."""
    program = folder / "nats-server"
    program.write_text(f"#!/bin/sh\necho 'nats-server: {version}'\n")
    program.chmod(0o755)
    return program


def test_the_server_beside_this_python_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_server_double(tmp_path, "v2.9.10")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == Path(sys.prefix, "bin", "nats-server")


@pytest.mark.parametrize("version", ["v2.9.10", "v2.11.9", "v1.99.0", "broken"])
def test_an_older_server_is_refused(tmp_path: Path, version: str) -> None:
    program = old_server_double(tmp_path, version)
    with pytest.raises(Unavailable, match=r"2\.12 or later.*Install it") as refused:
        find_server(program)
    assert refused.value.code == "SERVER_MISSING"


def test_a_new_enough_server_is_taken(tmp_path: Path) -> None:
    for version in ("v2.12.0", "v2.15.1", "v3.0.0-beta.1"):
        program = old_server_double(tmp_path, version)
        assert find_server(program) == program


def test_a_missing_server_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"does not run"):
        find_server(tmp_path / "nats-server")


def test_only_known_keys_are_let_in(bus: Bus) -> None:
    async def connect_without_being_known() -> None:
        stranger = type(bus)(bus.server)
        for without_a_key in ({"nkeys_seed_str": None}, {}):
            with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
                async with stranger.connect("alice", allow_reconnect=False, **without_a_key):
                    pass

    asyncio.run(connect_without_being_known())


def test_reload_lets_a_new_agent_in_and_the_removed_one_out(bus: Bus) -> None:
    async def reload_under_traffic() -> None:
        bus.add("carol")
        with pytest.raises(nats.errors.Error):
            async with bus.connect("carol", allow_reconnect=False):
                pass
        async with bus.connect("bob", allow_reconnect=False) as bob, bus.connect("alice") as alice:
            users = bus.users
            remaining = {name: key for name, key in users.agents.items() if name != "bob"}
            await asyncio.to_thread(bus.server.reload, replace(users, agents=remaining))
            async with bus.connect("carol") as carol:
                await bus.settle(carol)
            for _ in range(100):
                if bob.is_closed:
                    break
                await asyncio.sleep(0.02)
            assert bob.is_closed
            assert alice.is_connected

    asyncio.run(reload_under_traffic())


def test_a_refused_reload_keeps_the_running_configuration(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (bus.server.folder / "server.conf").read_bytes()
    monkeypatch.setattr("deedbook.ledger.service.server.render_config", lambda **_: "accounts { LEDGER {")
    with pytest.raises(Unavailable, match=r"refused to reload.*Parse error"):
        bus.server.reload(bus.users)
    assert (bus.server.folder / "server.conf").read_bytes() == before
    assert bus.server.is_running


def test_stop_and_start_keep_the_port(bus: Bus) -> None:
    url, pid = bus.server.url, bus.server.pid
    bus.server.stop()
    assert not bus.server.is_running
    assert pid
    assert has_ended(pid)
    assert bus.server.start(bus.users) == url


def test_a_port_in_use_is_refused_and_named(bus: Bus) -> None:
    bus.server.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"another program uses port {port}") as refused:
            bus.server.start(bus.users, port=port)
        assert (refused.value.code, refused.value.details["port"]) == ("BUS_UNAVAILABLE", port)
        assert not bus.server.is_running


def test_a_second_owner_is_refused_and_the_first_goes_on(bus: Bus) -> None:
    second = EmbeddedServer(bus.server.folder, bus.ledger)
    with pytest.raises(Unavailable, match="another process") as refused:
        second.start(bus.users)
    assert refused.value.code == "STORE_IN_USE"
    assert bus.server.is_running


def test_an_orphan_of_a_killed_owner_is_taken_over(bus: Bus) -> None:
    bus.server.stop()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER_PROGRAM, str(bus.server.folder), bus.ledger, bus.users.nodes[0]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout
        orphan = int(owner.stdout.readline())
        owner.kill()
    try:
        time.sleep(0.05)
        assert not has_ended(orphan)  # Without a take-over it would never end.
        bus.server.start(bus.users)
        assert has_ended(orphan)
        assert bus.server.pid not in {None, orphan}
    finally:
        if not has_ended(orphan):
            os.kill(orphan, signal.SIGKILL)


def test_a_process_that_is_not_provably_ours_is_never_ended(bus: Bus) -> None:
    bus.server.stop()
    folder = bus.server.folder
    # This program holds the lock and the pid file names it, but it is not a nats-server.
    program = (
        "import fcntl,sys; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "server.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        other.stdout.readline()
        (folder / "server.pid").write_text(str(other.pid))
        with pytest.raises(Unavailable, match="by hand") as refused:
            bus.server.start(bus.users)
        assert refused.value.code == "STORE_IN_USE"
        assert other.poll() is None
        assert other.stdin
        other.stdin.close()
    bus.server.start(bus.users)


def test_a_stale_pid_file_of_somebody_else_harms_nobody(bus: Bus) -> None:
    bus.server.stop()
    (bus.server.folder / "server.pid").write_text(str(os.getpid()))
    bus.server.start(bus.users)
    assert bus.server.is_running


def test_a_killed_server_starts_again_on_its_store(bus: Bus) -> None:
    assert bus.server.pid
    os.kill(bus.server.pid, signal.SIGKILL)
    while bus.server.is_running:
        time.sleep(0.01)
    bus.server.start(bus.users)
    assert bus.server.is_running


def test_keys_that_are_no_nkeys_never_reach_the_configuration(tmp_path: Path) -> None:
    users = BusUsers(nodes=('U", permissions: {}',))
    with pytest.raises(Refused) as refused:
        render_config(ledger="0" * 32, users=users, folder=tmp_path, host="127.0.0.1", port=-1)
    assert refused.value.code == "INVALID_FORMAT"


def test_folders_with_spaces_quotes_and_chinese_work(tmp_path: Path, bus: Bus) -> None:
    server = EmbeddedServer(tmp_path / '依 "賴" \\ x', bus.ledger)
    try:
        server.start(bus.users)
        assert (server.folder / "jetstream").is_dir()
    finally:
        server.stop()


def test_an_administrator_takes_altering_from_the_nodes(bus: Bus) -> None:
    bus.add("admin")
    users = bus.users
    agents = dict(users.agents)
    text = render_config(
        ledger=bus.ledger,
        users=replace(users, agents=agents, admin=agents.pop("admin")),
        folder=Path("/x"),
        host="127.0.0.1",
        port=-1,
    )
    plain = render_config(ledger=bus.ledger, users=bus.users, folder=Path("/x"), host="127.0.0.1", port=-1)
    assert "STREAM.CREATE" in plain
    assert "STREAM.CREATE" not in text
    assert "$JS.API.>" in text


def test_agent_added_removed_and_added_again_by_reloads_is_heard_at_once(bus: Bus) -> None:
    async def ask(name: str) -> bytes:
        async with bus.connect() as node, bus.connect(name) as agent:

            async def respond(message: Msg) -> None:
                await message.respond(b"heard")

            await node.subscribe(subjects.read_pattern(bus.ledger), cb=respond)
            live = await agent.subscribe(subjects.live_subject(bus.ledger, "session.started", "s"))
            await bus.settle(node)
            await bus.settle(agent)
            answer = await agent.request(subjects.read_subject(bus.ledger, name, "head"), b"", timeout=60)
            await open_stream(node, Generation(bus.ledger))
            await node.jetstream().publish(subjects.event_subject(bus.ledger, "session.started", "s"), b"stored")
            assert (await live.next_msg(timeout=60)).data == b"stored"
            return answer.data

    everybody = dict(bus.seeds)
    for name in ("carol", "bob", "carol", "bob"):
        bus.seeds = {user: seed for user, seed in everybody.items() if user != name}
        bus.server.reload(bus.users)
        bus.seeds = everybody
        if name not in bus.seeds:
            bus.add(name)
        bus.server.reload(bus.users)
        assert asyncio.run(ask(name)) == b"heard"


def test_preferred_port_is_taken_when_it_is_free_and_another_when_not(bus: Bus, tmp_path: Path) -> None:
    other = EmbeddedServer(tmp_path / "other", bus.ledger)
    try:
        other.start(bus.users, preferred=[bus.server.port])
        assert other.port != bus.server.port
        other.stop()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        other = EmbeddedServer(tmp_path / "other", bus.ledger)
        assert other.start(bus.users, preferred=[bus.server.port, port]).endswith(f":{port}")
    finally:
        other.stop()
