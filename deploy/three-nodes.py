"""Three nodes of one ledger on this machine, whose leader is killed while agents write: what was acknowledged is there.

    python deploy/three-nodes.py [--events 1000] [--agents 5] [--folder DIR] [--keep]

It makes a ledger and two more nodes in a temporary folder, starts `deed serve` three times on free ports of loopback,
lets agents submit, kills the leader and its nats-server with SIGKILL when half is acknowledged, lets them go on, and
compares the logs of the other two: every acknowledged event, and the roots at equal sizes. It prints one JSON document
and ends with 1 if an event is missing or twice, or the roots differ. The gap is the longest time without an
acknowledgement: it is printed, and judged by whoever reads it.
"""

from __future__ import annotations

import argparse
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

from deedbook.ledger.client.author import Author, Draft, now
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import decode_entry, event_id, pae
from deedbook.ledger.format.identity import Key, open_key, write_key, write_private
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home, new_bus_key
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.lifecycle.authority import CHECKPOINT, ROOT
from deedbook.ledger.log.log import Log

NODES = ("node", "node-2", "node-3")
SETTINGS = ""
retry_s = 0.05
wait_s = 60.0


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="three-nodes-", dir=given.folder))
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    scene = Scene(folder, given.agents)
    try:
        scene.make()
        told = scene.run(given.events)
    finally:
        scene.end()
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(told, indent=2))
    return 0 if told["holds"] else 1


class Scene:
    """The folders and processes."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.folder = folder
        self.agents = [f"agent-{number}" for number in range(agents)]
        self.home = {name: folder / name for name in NODES}
        self.served: dict[str, subprocess.Popen[bytes]] = {}
        self.url: dict[str, str] = {}
        self.acknowledged: dict[str, float] = {}
        self.index_of: dict[str, int] = {}

    def make(self) -> None:
        """Make the ledger, its agents and the other nodes' keys, and write every node's settings."""
        first = self.home["node"]
        self.deed("init", home=first)
        with LocalClient(read_settings(home=first)) as client:
            root = Author(client, ROOT, lambda _: open_key(Home(first).key_file(ROOT)))
            clients = Home(self.folder / "clients")
            for name in self.agents:
                self.register(root, clients, name, "agent")
            for name in NODES[1:]:
                self.register(root, Home(self.home[name]), name, "node")
        ports = free_ports(len(NODES))
        routes = [f"127.0.0.1:{port}" for port in ports]
        password = secrets.token_hex(16).encode()
        for name, listen in zip(NODES, routes, strict=True):
            home = self.home[name]
            write_private(home / "routes.secret", password)
            text = f'[cluster]\nname = "{name}"\nlisten = "{listen}"\nroutes = {json.dumps(routes)}\n{SETTINGS}'
            (home / "config.toml").write_text(f'{text}password = "{home / "routes.secret"}"\n', "utf-8")
            trust.remember(trust.record_of(trust.read_folder(home), "", now()))
        trust.remember(trust.record_of(trust.read_folder(clients.path), "", now()))

    def register(self, root: Author, home: Home, name: str, role: str) -> None:
        """Make the keys of an agent or node in its own folder, and register their public halves."""
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
        """Run a verb of the command line."""
        subprocess.run([*program(), "--home", str(home), *arguments], check=True, stdout=subprocess.DEVNULL)

    def start(self, name: str) -> None:
        """Start `deed serve` of a node."""
        with (self.folder / f"{name}.log").open("ab") as log:
            # Not 4222: once its node is killed, whoever else serves here takes that, and writers would ask there.
            port = str(free_ports(1)[0])
            command = [*program(), "--home", str(self.home[name]), "serve", "--port", port, "--json", "--verbose"]
            self.served[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    def listen(self, name: str) -> None:
        """Wait until a node serves."""
        output = self.served[name].stdout
        assert output is not None  # noqa: S101 - it is a pipe
        line = output.readline()
        if not line:
            raise RuntimeError(f"{name} ended: see {self.folder / name}.log")
        answer = json.loads(line)
        if "data" not in answer:
            raise RuntimeError(f"{name} does not serve: {answer['error']['message']}")
        self.url[name] = answer["data"]["url"]

    def leader(self) -> str:
        """Wait until a node that runs says who leads."""
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            for name, child in self.served.items():
                view = self.home[name] / "bus" / "nodes.json"
                if child.poll() is None and view.exists():
                    leader = str(json.loads(view.read_bytes())["leader"])
                    if leader in self.served and self.served[leader].poll() is None:
                        return leader
            time.sleep(0.1)
        raise RuntimeError("nobody leads")

    def kill(self, name: str) -> None:
        """Kill a node and its server as a power cut would."""
        server = int((self.home[name] / "bus" / "server.pid").read_text("ascii"))
        os.kill(self.served[name].pid, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        self.served[name].wait()

    def run(self, events: int) -> dict[str, Any]:
        """Let the agents write, kill the leader in the middle, and compare what is left."""
        for name in NODES:
            self.start(name)
        for name in NODES:
            self.listen(name)
        first = self.leader()
        each = events // len(self.agents)
        writers = [threading.Thread(target=self.write, args=(name, each)) for name in self.agents]
        for writer in writers:
            writer.start()
        wanted = each * len(self.agents)
        while len(self.acknowledged) < wanted // 2 and any(writer.is_alive() for writer in writers):
            time.sleep(0.01)
        self.kill(first)
        killed_at = time.monotonic()
        for writer in writers:
            writer.join()
        second = self.leader()
        survivors = [name for name in NODES if name != first]
        self.level(survivors)
        codes = []
        for name in sorted(survivors, key=lambda name: name == second):  # one by one, and who leads last
            self.served[name].terminate()
            codes.append(self.served[name].wait(60))
        compared = self.compare(survivors, killed_at)
        return compared | {
            # A writer that ended by an error of its own has acknowledged too little: nothing was shown then.
            "holds": compared["holds"] and len(self.acknowledged) == wanted,
            "wanted": wanted,
            "first_leader": first,
            "second_leader": second,
            "exit_codes": codes,
        }

    def write(self, name: str, events: int) -> None:
        """Submit events one by one, each until it is acknowledged, at whichever node is there."""
        home = Home(self.folder / "clients")
        key, stream = open_key(home.key_file(name)), f"session/of-{name}"
        drafts = [Draft(stream=stream, data=SessionStarted())]
        findings = (FindingLogged(finding=f"{name} found {number}", impact=0.5) for number in range(events - 1))
        drafts += [Draft(stream=stream, data=finding) for finding in findings]
        urls = list(self.url.values())
        turn, client = int(name.rpartition("-")[2]), None
        for draft in drafts:
            accepted = submission = None
            while accepted is None:
                try:
                    server = urls[turn % len(urls)]
                    client = client or RemoteClient(Settings(home=home.path, server=server, agent=name))
                    submission = submission or Author(client, name, lambda _: key).sign(draft)
                    accepted = client.submit(submission)[0]
                except Unavailable:
                    turn += 1
                    if client is not None:
                        client.close()
                    client = None
                    time.sleep(retry_s)
            self.acknowledged[accepted.id] = time.monotonic()
            self.index_of[accepted.id] = accepted.index
        if client is not None:
            client.close()

    def level(self, names: list[str]) -> None:
        """Wait until the survivors' logs are of one size, beyond what was acknowledged last."""
        until, least = time.monotonic() + wait_s, max(self.index_of.values(), default=0) + 1
        while time.monotonic() < until:
            sizes = {self.view(name)["nodes"][0]["size"] for name in names}
            if len(sizes) == 1 and min(sizes) >= least:
                return
            time.sleep(0.2)

    def view(self, name: str) -> dict[str, Any]:
        """Return what a node tells of all nodes."""
        told: dict[str, Any] = json.loads((self.home[name] / "bus" / "nodes.json").read_bytes())
        return told

    def compare(self, names: list[str], killed_at: float) -> dict[str, Any]:
        """Return what both logs hold of what was acknowledged."""
        logs = [Log(self.home[name]) for name in names]
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
            all(index < len(one) and one[index] == id_ for one in ids) for id_, index in self.index_of.items()
        )
        times = sorted(self.acknowledged.values())
        gap_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        after_kill = [at for at in times if at > killed_at]
        twice = sum(len(one) - len(set(one)) for one in ids)
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
        """End what still runs, by its own pid."""
        for name, child in self.served.items():
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(wait_s)
                except subprocess.TimeoutExpired:
                    self.kill(name)
            if child.stdout is not None:
                child.stdout.close()


def entry_id(data: bytes) -> str:
    """Return the id of a stored event."""
    return event_id(pae(decode_entry(data).body))


def checkpoint_of(home: Home, ledger: str, name: str) -> dict[str, str]:
    """Return the checkpoint key of a new node, made in its own folder, as its registration names it."""
    key, whose = Key.generate(), f"{CHECKPOINT}/{name}"
    write_key(home.key_file(CHECKPOINT), key, ledger=ledger, name=CHECKPOINT, passphrase=None)
    return {"checkpoint_key": key.public.hex(), "checkpoint_proof": key.prove_possession(ledger, whose)}


def program() -> list[str]:
    """Return how the command line is called."""
    return [sys.executable, "-m", "deedbook"]


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that a system gives to connections by itself."""
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
