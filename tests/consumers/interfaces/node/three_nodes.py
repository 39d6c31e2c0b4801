"""Three nodes that agents write to and a subscriber reads from, while a test makes faults.

The folders are made by the script of ``deploy/``. Agents submit each finding until it is acknowledged, however often it
takes; the subscriber writes each into its own store. ``settle`` then compares the three nodes: their logs, the stream
as any NATS client reads it, the acknowledged findings, and the effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import threading
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faults import settle

from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import Subscriptions
from deedbook.ledger.bus.connection import NodeClient
from deedbook.ledger.bus.history import entry_at, read_messages
from deedbook.ledger.bus.subjects import INBOX_OF_NODES
from deedbook.ledger.client.author import Author, Draft, now
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import open_key, read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.log.log import Log
from deedbook.ledger.service.nodes import stream_in_use

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterator

    from deedbook.ledger.bus.stream import Generation
    from deedbook.ledger.events.body import Event

wait_s: Final = 120.0
copied_wait_s: Final = 15.0
pause_s: Final = 0.05
_COPIED: Final = re.compile("Catchup for stream '[^']* > DEEDBOOK_[^']*' complete")
_SCRIPT: Final = Path(__file__).parents[4] / "deploy" / "three-nodes.py"


def load() -> Any:
    """Return the script of ``deploy/`` as a module."""
    spec = importlib.util.spec_from_file_location("three_nodes_script", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def eventually(is_true: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    until = time.monotonic() + wait_s
    while not is_true():
        assert time.monotonic() < until, f"not in {wait_s} s: {what}"
        time.sleep(0.02)


class Nodes:
    """The nodes, the acknowledged findings of the agents, and the effects of the subscriber."""

    def __init__(self, folder: Path, *, hosts: dict[str, str] | None = None) -> None:
        """Make the nodes; ``hosts`` are their addresses, by default of loopback."""
        self.script = load()
        self.folder = folder
        self.scene = self.script.Scene(folder, 2)
        self.scene.make()
        self.names: list[str] = list(self.script.NODES)
        self.hosts = hosts or dict.fromkeys(self.names, "127.0.0.1")
        self.ports = dict(zip(self.names, self.script.free_ports(len(self.names)), strict=True))
        self.url_by_node = {name: f"nats://{self.hosts[name]}:{self.ports[name]}" for name in self.names}
        """The addresses for agents, one of each node."""

        self.command: dict[str, list[str]] = {}
        """The command of a node in place of ``deed serve``; ``prefix`` comes before the command."""
        self.prefix: dict[str, list[str]] = {}
        if hosts:
            self._place()
        self.acknowledged: dict[str, int] = {}
        self.failures: list[BaseException] = []
        self._settled = 0
        self._is_over = False
        self._number = 0
        self._stop = threading.Event()

    def _place(self) -> None:
        """Let each node listen at its own address."""
        ports = dict(zip(self.names, self.script.free_ports(len(self.names)), strict=True))
        routes = [f"{self.hosts[name]}:{ports[name]}" for name in self.names]
        for name, listen in zip(self.names, routes, strict=True):
            self.configure(name, listen=listen, routes=routes, host=self.hosts[name])

    def listen(self, name: str) -> str:
        """Return the address of a node's server for other servers."""
        config = tomllib.loads((self.scene.homes[name] / "config.toml").read_text("utf-8"))
        return str(config["cluster"]["listen"])

    def configure(self, name: str, top: str = "", **cluster: Any) -> None:
        """Replace settings of a node's ``[cluster]``, and put ``top`` before all tables; trust that."""
        home = self.scene.homes[name]
        lines = (home / "config.toml").read_text("utf-8").splitlines()
        lines = [line for line in lines if line.partition(" =")[0] not in cluster]
        lines += [f"{key} = {json.dumps(value)}" for key, value in cluster.items()]
        (home / "config.toml").write_text("\n".join([top, *lines, ""]), "utf-8")
        trust.remember(trust.record_of(trust.read_folder(home), "", now()))

    # Processes.

    def start(self, *names: str) -> None:
        """Start nodes, and wait until they serve."""
        for name in names or self.names:
            serve = [
                *self.script.program(),
                "--home",
                str(self.scene.homes[name]),
                "serve",
                "--json",
                "--log-level",
                "info",
            ]
            serve += ["--port", str(self.ports[name])]
            with (self.folder / f"{name}.log").open("ab") as log:
                command = [*self.prefix.get(name, []), *self.command.get(name, serve)]
                self.scene.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        for name in names or self.names:
            self.scene.listen(name)

    def server_pid(self, name: str) -> int:
        """Return the process id of a node's nats-server; 0 while it starts."""
        with contextlib.suppress(FileNotFoundError):
            return int((self.scene.homes[name] / "bus" / "server.pid").read_text("ascii") or 0)
        return 0

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal a node and its server."""
        os.kill(self.scene.processes[name].pid, number)
        os.kill(self.server_pid(name), number)

    def kill(self, *names: str) -> None:
        """Kill nodes and their servers, as a power cut would."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        self.ended(*names)

    def ended(self, *names: str) -> None:
        """Wait for nodes that were killed."""
        for name in names:
            self.scene.processes[name].wait()
            self.scene.processes[name].stdout.close()
            (self.scene.homes[name] / "bus" / "nodes.json").unlink(missing_ok=True)  # it has the state before the kill

    def whole(self) -> None:
        """Wait until every node accepts submissions, and has all acknowledged findings."""
        least = max(self.acknowledged.values(), default=0)

        def is_whole() -> bool:
            try:
                views = [self.scene.view(name) for name in self.names]
            except FileNotFoundError:
                return False
            own = [view["nodes"][0] for view in views]
            return all(node["role"] == "ready" and node["size"] > least and not node["fault"] for node in own)

        eventually(lambda: is_whole() or bool(self.failures), "all nodes are whole again")
        assert self.failures == []

    def copies(self) -> int:
        """Return how often a server sent another one the missing part of a stream."""
        logs = (home / "bus" / "server.log" for home in self.scene.homes.values())
        return sum(len(_COPIED.findall(path.read_text("utf-8", "replace"))) for path in logs)

    def copied(self, before: int) -> None:
        """Wait until a server has repaired its damaged copy of the stream, but at most ``copied_wait_s``.

        Only the log of a server shows the repair, and not always. Without this wait the next fault could damage a
        second copy: then no majority would have all messages, and no server could lead.
        """
        until = time.monotonic() + copied_wait_s
        while self.copies() == before and time.monotonic() < until:
            time.sleep(0.1)

    def role(self, name: str) -> str:
        """Return the state that a node reports of itself."""
        return str(self.scene.view(name)["nodes"][0]["role"])

    def end(self) -> None:
        """End all processes that still run."""
        for name, child in self.scene.processes.items():
            if child.poll() is None:
                with contextlib.suppress(OSError):
                    self.signal(name, signal.SIGCONT)
        self.scene.end()

    # Work.

    @property
    def urls(self) -> str:
        """The addresses for agents, separated by commas."""
        return ",".join(self.url_by_node.values())

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Let agents write and a subscriber act; at the end each finding that was sent is acknowledged."""
        self._stop = threading.Event()
        self._number += 1
        threads = [threading.Thread(target=self._guarded, args=(self._write, name)) for name in self.scene.agents]
        reading = threading.Event()
        threads += [threading.Thread(target=self._guarded, args=(self._subscribe, reading))]
        for thread in threads:
            thread.start()
        try:
            self.progress(5)
            yield
            self.progress(5)
        except BaseException:
            self._is_over = True  # from now on, some findings may never be acknowledged
            raise
        finally:
            self._stop.set()
            for thread in threads[:-1]:
                thread.join()
            with contextlib.suppress(AssertionError):  # missing findings are counted
                eventually(lambda: len(self.effects()) >= len(self.acknowledged) or bool(self.failures), "all effects")
            reading.set()
            threads[-1].join()
        assert self.failures == []

    def progress(self, count: int) -> None:
        """Wait until ``count`` more findings are acknowledged."""
        least = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= least or bool(self.failures), f"{count} acknowledged")
        assert self.failures == []

    def _guarded(self, work: Callable[[Any], None], what: Any) -> None:
        try:
            work(what)
        except BaseException as error:
            self.failures.append(error)
            raise

    def _client(self, name: str) -> RemoteClient:
        return RemoteClient(Settings(home=self.folder / "clients", server=self.urls, agent=name))

    def _write(self, name: str) -> None:
        key = open_key(Home(self.folder / "clients").key_file(name))
        stream, number = f"session/of-{name}-{self._number}", 0
        draft, text = Draft(stream=stream, data=SessionStarted()), ""
        client = submission = None
        while not (self._stop.is_set() and (submission is None or self._is_over)):
            try:
                client = client or self._client(name)
                submission = submission or Author(client, name, lambda _: key).sign(draft)
                (accepted,) = client.submit(submission)
            except Unavailable:
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.05)
                continue
            if text:
                self.acknowledged[text] = accepted.index
            time.sleep(pause_s)  # each comparison reads every log and the stream in full
            number += 1
            text, submission = f"{name} {self._number} {number}", None
            draft = Draft(stream=stream, data=FindingLogged(finding=text))
        if client is not None:
            client.close()

    def _subscribe(self, stop: threading.Event) -> None:
        subscriptions = Subscriptions(self.folder / "subscriber.db")
        subscriptions.run("CREATE TABLE IF NOT EXISTS done (event_index INTEGER, finding TEXT)")
        while not stop.is_set():
            try:
                with self._client(self.scene.agents[0]) as client:
                    reactor = Reactor(client, subscriptions, "one", wait_s=0.5)
                    reactor.on("finding.logged")(_store)
                    reactor.start_at(0)
                    reactor.run(stop)
            except Unavailable:
                time.sleep(0.05)
        subscriptions.close()

    def effects(self) -> list[str]:
        """Return the effects of the subscriber, in order."""
        if not (self.folder / "subscriber.db").exists():
            return []
        subscriptions = Subscriptions(self.folder / "subscriber.db")
        try:
            return [text for (text,) in subscriptions.run("SELECT finding FROM done ORDER BY rowid")]
        finally:
            subscriptions.close()

    # The result.

    def settle(self, fault: str, count: int = 1) -> None:
        """Compare the logs, the stream, the acknowledged findings and the effects."""
        least = max(self.acknowledged.values())
        eventually(
            lambda: all(self._size(name) > least for name in self.names), "every log holds what was acknowledged"
        )
        stream = asyncio.run(self._stream())
        for name in self.names:
            entries = self._entries(name)
            size = min(len(entries), len(stream))
            assert size > least
            assert entries[:size] == stream[:size], f"{name} holds others than the stream"
        entries = [read_event(index, data) for index, data in enumerate(stream)]
        published = [entry.data.finding for entry in entries if entry.kind == "finding.logged" and _is_counted(entry)]
        for text, index in self.acknowledged.items():
            assert entries[index].data.finding == text
        begin, self._settled = self._settled, len(published)
        events = sorted(self.acknowledged, key=self.acknowledged.__getitem__)[begin:]
        settle(fault, count, events=events, published=published[begin:], effects=self.effects()[begin:])

    def _size(self, name: str) -> int:
        return int(self.scene.view(name)["nodes"][0]["size"])

    def _entries(self, name: str) -> list[bytes]:
        with Log(self.scene.homes[name]) as log, log.snapshot() as snapshot:
            return [snapshot.entry(index) for index in range(snapshot.size)]

    async def _stream(self) -> list[bytes]:
        """Return the entries of the stream in use, as its messages give them."""
        async with self._log_stream(self.names[0]) as (client, generation):
            state = (await client.jetstream().stream_info(generation.name)).state
            assert (state.first_seq, state.messages) == (1, state.last_seq)
            entries = list[bytes]()
            while len(entries) < state.last_seq:
                end = min(len(entries) + 256, state.last_seq)
                for seq, message in (await read_messages(client, generation, len(entries) + 1, end)).items():
                    entry = entry_at(seq, message)
                    assert entry is not None, f"message {seq} is damaged"
                    entries.append(entry)
            return entries

    async def limit_stream(self, via: str) -> int:
        """Set a limit of the stream in use, as an operator of the bus could; return its generation's number."""
        async with self._log_stream(via) as (client, generation):
            config = (await client.jetstream().stream_info(generation.name)).config
            await client.jetstream().update_stream(config.evolve(max_msgs=10**6))
            return generation.number

    @contextlib.asynccontextmanager
    async def _log_stream(self, name: str) -> AsyncIterator[tuple[NodeClient, Generation]]:
        """A connection to a node's server, and the stream in use."""
        client, url = NodeClient(), f"nats://{self.hosts[name]}:{self.ports[name]}"
        seed = Home(self.scene.homes[name]).bus_seed(name)
        await client.connect(url, nkeys_seed_str=seed, inbox_prefix=INBOX_OF_NODES.encode(), error_cb=_ignore)
        try:
            generation = await stream_in_use(client, read_key_file(Home(self.scene.homes[name]).key_file(name)).ledger)
            assert generation is not None
            yield client, generation
        finally:
            await client.close()


def _is_counted(event: Event[Any]) -> bool:
    """Return whether one of the agents that only write logged a finding: a test may have other agents."""
    return event.name.startswith("of-")


def _store(event: Event[Any], db: sqlite3.Connection) -> None:
    if _is_counted(event):
        db.execute("INSERT INTO done VALUES (?, ?)", (event.index, event.data.finding))


async def _ignore(_: Exception) -> None:
    """Ignore the errors of a server whose node ends."""
