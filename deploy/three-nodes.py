"""A rehearsal: kills one of three nodes while agents write, and checks that no acknowledged event is lost.

    python deploy/three-nodes.py [--events 1000] [--agents 5] [--folder DIR] [--keep]

The program makes a ledger and two more nodes in a temporary folder, starts `deed serve` three times on free loopback
ports, and lets agents submit. When half of the events are acknowledged, it kills one node and its nats-server, which
leads the log stream, with SIGKILL. The agents continue. At the end it compares the logs of the other two nodes: every
acknowledged event, and the roots at equal sizes. It prints one JSON document. It exits with 1 if an event is missing or
occurs twice, or if the roots differ. ``gap_s`` is the longest time without an acknowledgement; the program does not
judge it.

The folder has the logs of the nodes and their output. The program deletes it after a successful rehearsal, unless you
pass --keep. After an error it keeps the folder and prints where it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.subjects import INBOX_OF_NODES
from deedbook.ledger.client.author import Author, Draft, now
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry, event_id
from deedbook.ledger.format.identity import Key, open_key, read_key_file, write_key, write_private
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, new_bus_key
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.lifecycle.authority import CHECKPOINT, ROOT
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.nodes import stream_in_use

NODES = ("node", "node-2", "node-3")
SETTINGS = ""
retry_s = 0.05
wait_s = 60.0


def main() -> int:
    """Run the rehearsal; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="three-nodes-", dir=options.folder))
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    scene = Scene(folder, options.agents)
    holds = False
    try:
        scene.make()
        result = scene.run(options.events)
        holds = result["holds"]
    finally:
        scene.end()
        if holds and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"the nodes' folders and logs are in {folder}", file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 0 if holds else 1


class Scene:
    """The folders, processes and results of the rehearsal."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.folder = folder
        self.agents = [f"agent-{number}" for number in range(agents)]
        self.homes = {name: folder / name for name in NODES}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: dict[str, str] = {}
        self.acknowledged: dict[str, float] = {}
        self.index_of: dict[str, int] = {}

    def make(self) -> None:
        """Make the ledger, the keys of its agents and other nodes, and the settings of every node."""
        first = self.homes["node"]
        self.deed("init", "--unprotected", home=first)
        with LocalClient(read_settings(home=first)) as client:
            root = Author(client, ROOT, lambda _: open_key(Home(first).key_file(ROOT)))
            clients = Home(self.folder / "clients")
            for name in self.agents:
                self.register(root, clients, name, "agent")
            for name in NODES[1:]:
                self.register(root, Home(self.homes[name]), name, "node")
        ports = free_ports(len(NODES))
        routes = [f"127.0.0.1:{port}" for port in ports]
        password = secrets.token_hex(16).encode()
        for name, listen in zip(NODES, routes, strict=True):
            home = self.homes[name]
            write_private(home / "routes.secret", password)
            text = f'[cluster]\nname = "{name}"\nlisten = "{listen}"\nroutes = {json.dumps(routes)}\n{SETTINGS}'
            (home / "config.toml").write_text(f'{text}password = "{home / "routes.secret"}"\n', "utf-8")
            trust.remember(trust.record_of(trust.read_folder(home), "", now()))
        trust.remember(trust.record_of(trust.read_folder(clients.path), "", now()))

    def register(self, root: Author, home: Home, name: str, role: str) -> None:
        """Make the keys of an agent or node in its folder, and register the public keys."""
        home.keys.mkdir(parents=True, exist_ok=True)
        key, ledger = Key.generate(), root.client.ledger
        write_key(home.key_file(name), key, ledger=ledger, name=name, passphrase=None)
        data: dict[str, Any] = {
            "name": name,
            "key": key.public.hex(),
            "proof": key.prove_possession(ledger, name),
            "roles": [role],
            "nkey": new_bus_key(home.nkey_file(name)),
        }
        if role == "node":
            data |= checkpoint_of(home, ledger, name)
        root.emit(Draft(stream=f"agent/{name}", data=AgentRegistered(**data)))

    def deed(self, *arguments: str, home: Path) -> None:
        """Run a verb of the command line. Raises CalledProcessError: it failed."""
        subprocess.run([*program(), "--home", str(home), *arguments], check=True, stdout=subprocess.DEVNULL)

    def start(self, name: str) -> None:
        """Start `deed serve` of a node."""
        with (self.folder / f"{name}.log").open("ab") as log:
            # Not 4222: another server of this machine could take that port from a killed node, and get its writers.
            port = str(free_ports(1)[0])
            command = [
                *program(),
                "--home",
                str(self.homes[name]),
                "serve",
                "--port",
                port,
                "--json",
                "--log-level",
                "info",
            ]
            self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    def listen(self, name: str) -> None:
        """Wait until a node serves. Raises RuntimeError: it failed to start."""
        output = self.processes[name].stdout
        assert output is not None  # noqa: S101 - it is a pipe
        line = output.readline()
        if not line:
            raise RuntimeError(f"{name} exited: read {self.folder / name}.log")
        answer = json.loads(line)
        if "data" not in answer:
            raise RuntimeError(f"{name} did not start: {answer['error']['message']}")
        self.urls[name] = answer["data"]["url"]

    def wait_until_ready(self) -> None:
        """Wait until every running node takes submissions. Raises RuntimeError: one does not within ``wait_s``."""
        deadline = time.monotonic() + wait_s
        running = [name for name, child in self.processes.items() if child.poll() is None]
        while not all(self.is_ready(name) for name in running):
            if time.monotonic() >= deadline:
                raise RuntimeError(f"a node is not ready after {wait_s:.0f} s: read the logs in {self.folder}")
            time.sleep(0.1)

    def is_ready(self, name: str) -> bool:
        """Return whether a node says that it takes submissions."""
        try:
            return bool(self.view(name)["nodes"][0]["role"] == "ready")
        except FileNotFoundError:
            return False

    async def stream_leader(self) -> str:
        """Return the node whose server leads the log stream: nobody accepts events until another server does."""
        name, home = NODES[0], Home(self.homes[NODES[0]])
        ledger, client = read_key_file(home.key_file(name)).ledger, NodeClient()
        await client.connect(
            self.urls[name], nkeys_seed_str=home.bus_seed(name), inbox_prefix=INBOX_OF_NODES.encode(), error_cb=ignore
        )
        try:
            generation = await stream_in_use(client, ledger)
            info = await client.jetstream().stream_info(generation.name) if generation else None
            leader = info.cluster.leader if info and info.cluster else None
        finally:
            await client.close()
        return (leader or name).removeprefix(f"{ledger[:8]}-")

    def kill(self, name: str) -> None:
        """Kill a node and its server without warning, as a power failure does."""
        server = int((self.homes[name] / "bus" / "server.pid").read_text("ascii"))
        os.kill(self.processes[name].pid, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        self.processes[name].wait()

    def run(self, events: int) -> dict[str, Any]:
        """Let the agents write, kill a node halfway, and return the comparison of the other logs."""
        for name in NODES:
            self.start(name)
        for name in NODES:
            self.listen(name)
        self.wait_until_ready()
        each = events // len(self.agents)
        writers = [threading.Thread(target=self.write, args=(name, each)) for name in self.agents]
        for writer in writers:
            writer.start()
        wanted = each * len(self.agents)
        while len(self.acknowledged) < wanted // 2 and any(writer.is_alive() for writer in writers):
            time.sleep(0.01)
        killed = asyncio.run(self.stream_leader())
        self.kill(killed)
        killed_at = time.monotonic()
        for writer in writers:
            writer.join()
        survivors = [name for name in NODES if name != killed]
        self.wait_for_equal_logs(survivors)
        codes = []
        for name in survivors:
            self.processes[name].terminate()
            codes.append(self.processes[name].wait(60))
        compared = self.compare(survivors, killed_at)
        return compared | {
            # If a writer failed, too few events were acknowledged, and the rehearsal proves nothing.
            "holds": compared["holds"] and len(self.acknowledged) == wanted,
            "wanted": wanted,
            "killed": killed,
            "exit_codes": codes,
        }

    def write(self, name: str, events: int) -> None:
        """Submit events one by one to any reachable node, each until it is acknowledged."""
        home = Home(self.folder / "clients")
        key, stream = open_key(home.key_file(name)), f"session/of-{name}"
        drafts = [Draft(stream=stream, data=SessionStarted())]
        findings = (FindingLogged(finding=f"{name} found {number}", impact=0.5) for number in range(events - 1))
        drafts += [Draft(stream=stream, data=finding) for finding in findings]
        urls = list(self.urls.values())
        turn, client = int(name.rpartition("-")[2]), None
        admitted_by = time.monotonic() + wait_s  # a node that has just started admits agents once it follows the log
        for draft in drafts:
            accepted = submission = None
            while accepted is None:
                try:
                    server = urls[turn % len(urls)]
                    client = client or RemoteClient(Settings(home=home.path, server=server, agent=name))
                    submission = submission or Author(client, name, lambda _: key).sign(draft)
                    accepted = client.submit(submission)[0]
                except (Unavailable, Refused) as error:
                    if isinstance(error, Refused) and (error.code != "BUS_DENIED" or time.monotonic() > admitted_by):
                        raise
                    turn += 1
                    if client is not None:
                        client.close()
                    client = None
                    time.sleep(retry_s)
            self.acknowledged[accepted.id] = time.monotonic()
            self.index_of[accepted.id] = accepted.index
        if client is not None:
            client.close()

    def wait_for_equal_logs(self, names: list[str]) -> None:
        """Wait until the logs have equal sizes and contain the last acknowledged event.

        Raises RuntimeError: they do not within ``wait_s``.
        """
        deadline, least = time.monotonic() + wait_s, max(self.index_of.values(), default=0) + 1
        while True:
            sizes = {name: self.view(name)["nodes"][0]["size"] for name in names}
            if len(set(sizes.values())) == 1 and min(sizes.values()) >= least:
                return
            if time.monotonic() >= deadline:
                wanted = f"equal sizes of at least {least}"
                raise RuntimeError(f"the logs have the sizes {sizes} after {wait_s:.0f} s, not {wanted}")
            time.sleep(0.2)

    def view(self, name: str) -> dict[str, Any]:
        """Return the state of all nodes as one node sees it."""
        nodes: dict[str, Any] = json.loads((self.homes[name] / "bus" / "nodes.json").read_bytes())
        return nodes

    def compare(self, names: list[str], killed_at: float) -> dict[str, Any]:
        """Return the comparison of both logs with the acknowledged events."""
        logs = [Log(self.homes[name]) for name in names]
        ids: list[list[str]] = []
        sizes, roots = [], []
        for log in logs:
            with log.snapshot() as snapshot:
                sizes.append(snapshot.size)
        for log in logs:
            with log.snapshot() as snapshot:
                roots.append(snapshot.frontier(min(sizes)).root().hex())
                ids.append([entry_id(snapshot.entry(index)) for index in range(snapshot.size)])
            log.close()
        in_both = sum(
            all(index < len(log_ids) and log_ids[index] == id_ for log_ids in ids)
            for id_, index in self.index_of.items()
        )
        times = sorted(self.acknowledged.values())
        gap_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        after_kill = [at for at in times if at > killed_at]
        twice = sum(len(log_ids) - len(set(log_ids)) for log_ids in ids)
        holds = in_both == len(self.acknowledged) and len(set(roots)) == 1 and not twice
        return {
            "holds": holds,
            "acknowledged": len(self.acknowledged),
            "in_both_logs": in_both,
            "twice": twice,
            "sizes": sizes,
            "compared_at": min(sizes),
            "roots": roots,
            "gap_s": round(gap_s, 2),
            "first_after_kill_s": round(after_kill[0] - killed_at, 2) if after_kill else None,
        }

    def end(self) -> None:
        """End the processes that still run, by their own pids."""
        for name, child in self.processes.items():
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(wait_s)
                except subprocess.TimeoutExpired:
                    self.kill(name)
            if child.stdout is not None:
                child.stdout.close()


async def ignore(_: Exception) -> None:
    """Ignore an error of the connection: the call that it concerns fails, too."""


def entry_id(data: bytes) -> str:
    """Return the id of a stored event."""
    return event_id(decode_entry(data).commitment)


def checkpoint_of(home: Home, ledger: str, name: str) -> dict[str, str]:
    """Make the checkpoint key of a new node in its folder; return the fields of its registration."""
    key, owner = Key.generate(), f"{CHECKPOINT}/{name}"
    write_key(home.key_file(CHECKPOINT), key, ledger=ledger, name=CHECKPOINT, passphrase=None)
    return {"checkpoint_key": key.public.hex(), "checkpoint_proof": key.prove_possession(ledger, owner)}


def program() -> list[str]:
    """Return the command that starts the command line."""
    return [sys.executable, "-m", "deedbook"]


def free_ports(count: int) -> list[int]:
    """Return free ports below the range that the system uses for outgoing connections."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = 10_000 + secrets.randbelow(22_000)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


if __name__ == "__main__":
    sys.exit(main())
