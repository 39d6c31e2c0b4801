"""The stage of the demo: a ledger, a node, and one process an actor; everything is taken down by its own pid."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path
from shutil import copytree
from typing import IO, TYPE_CHECKING, Any, Final, Self

import msgspec

from consumers.doors.demo.script import CAST
from ledger.author import Author, Draft
from ledger.config import FOLDER, Settings
from ledger.errors import BatonError, Unavailable
from ledger.events.authority import AgentRegistered
from ledger.home import Home, create_ledger, new_bus_key
from ledger.identity import Key, open_key, write_key
from ledger.lifecycle.authority import ROOT
from ledger.limits import map_size_bytes
from ledger.local import LocalClient

if TYPE_CHECKING:
    from types import TracebackType

stop_wait_s: Final = 15.0


class Process:
    """A child process that answers a JSON line for each JSON line."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Start ``python ARGUMENTS``."""
        # In a session of its own: ^C reaches the demo alone, which then ends its processes in order.
        self._child = subprocess.Popen(  # noqa: S603 - this Python, with arguments of our own
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.pid = self._child.pid

    def send(self, line: Any) -> None:
        """Write one line."""
        stream = _pipe(self._child.stdin)
        stream.write(msgspec.json.encode(line) + b"\n")
        stream.flush()

    def read(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            Unavailable: the process ended instead.
        """
        line = _pipe(self._child.stdout).readline()
        if not line:
            code = self._child.wait(stop_wait_s)
            raise Unavailable("BUS_UNAVAILABLE", f"process {self.pid} ended early with exit code {code}")
        answer: dict[str, Any] = msgspec.json.decode(line)
        failed = answer.get("failed") or answer.get("error")
        if failed:
            raise BatonError.from_dict(failed)
        return answer

    def act(self, act: str, **arguments: Any) -> dict[str, Any]:
        """Let an actor do something; return its answer."""
        self.send({"act": act, "arguments": arguments})
        return self.read()

    def end(self) -> None:
        """End the process: ask, wait, and only then kill it."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._child.stdin).close()
        self._child.terminate()
        try:
            self._child.wait(stop_wait_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        _pipe(self._child.stdout).close()


class Stage:
    """A ledger in ``folder`` with its cast registered; ``open`` starts the node and the actors."""

    def __init__(self, folder: Path) -> None:
        """Make the sample project and the ledger beside it."""
        self.folder = folder
        self.home = Home(folder / FOLDER)
        self.settings = Settings(home=self.home.path)
        self.url = ""
        self.actors: dict[str, Process] = {}
        self.keys: dict[str, str] = {}
        self._passphrases = {"alex": secrets.token_urlsafe(12)}
        self._exit = contextlib.ExitStack()
        with as_file(files("consumers.doors.demo").joinpath("sample_project")) as sample:
            copytree(sample, folder / "project")
        create_ledger(self.home, origin="demo.baton.example/reactive", map_size=map_size_bytes)
        self._register()

    def __enter__(self) -> Self:
        """Return the stage itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Take everything down, the last started first."""
        self._exit.close()

    def open(self) -> None:
        """Start the node, then the actors.

        Raises:
            Unavailable: something did not start.
        """
        node = self.start(["-m", "consumers.doors.cli", "serve", "--json"])
        self.url = node.read()["data"]["url"]
        for name in CAST:
            actor = self.start(["-m", "consumers.doors.demo.actor"])
            actor.send(
                {
                    "name": name,
                    "home": str(self.home.path),
                    "server": self.url,
                    "passphrase": self._passphrases.get(name),
                }
            )
            self.actors[name] = actor
        for actor in self.actors.values():
            actor.read()

    def start(self, arguments: list[str]) -> Process:
        """Start a process of this demo with its ledger as BATON_HOME."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        process = Process(arguments, environment | {"BATON_HOME": str(self.home.path)})
        self._exit.callback(process.end)
        return process

    def run_baton(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run one `baton` command to its end as a process of its own; return its pid and its data.

        Raises:
            BatonError: what the command refused or failed with.
        """
        process = self.start(["-m", "consumers.doors.cli", *arguments, "--json"])
        data: dict[str, Any] = process.read()["data"]
        return process.pid, data

    def watch_command(self, *arguments: str) -> str:
        """Return a shell command that calls `baton` with ``arguments``, as a watcher runs it."""
        from shlex import join  # noqa: PLC0415 - used here only

        return join([sys.executable, "-m", "consumers.doors.cli", "--server", self.url, *arguments])

    def _register(self) -> None:
        with LocalClient(self.settings) as client:
            root = open_key(self.home.key_file(ROOT))
            author = Author(client, ROOT, lambda _: root)
            for name, (roles, label) in CAST.items():
                key = Key.generate()
                passphrase = self._passphrases.get(name)
                write_key(self.home.key_file(name), key, ledger=client.ledger, name=name, passphrase=passphrase)
                registered = AgentRegistered(
                    name=name,
                    key=key.public.hex(),
                    proof=key.prove_possession(client.ledger, name),
                    roles=list(roles),  # type: ignore[arg-type]  # the cast's roles are roles
                    nkey=new_bus_key(self.home.nkey_file(name)),
                    ai_id=label,
                )
                author.emit(Draft(stream=f"agent/{name}", data=registered))
                self.keys[name] = key.public.hex()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - both were asked for as pipes
    return stream
