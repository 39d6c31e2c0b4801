"""Calling the command line: in this process, which is fast, or as a separate process for tests about processes.

``Deed`` is a user's shell for one ledger. It calls verbs with its ``--home`` (and ``--server``), and checks each call
against the rules of all verbs: one JSON document on stdout, errors with their code and exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import inside
import pytest
from building import trusted
from forked_deed import DeedProcess, run_deed
from ports import port_option

from deedbook.consumers.interfaces.cli.program import run
from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

wait_max_s: Final = 60.0


class Place(NamedTuple):
    """A ledger's folder and, for calls through a server, the server."""

    home: Path
    server: str | None = None


class Said(NamedTuple):
    """The result of a call: exit code, output and errors."""

    code: int
    out: str
    err: str


def with_passphrase(passphrase: str, verb: Callable[..., Any], *words: object) -> Any:
    """Call a verb with a passphrase on a descriptor."""
    reading, writing = os.pipe()
    os.write(writing, passphrase.encode() + b"\n")
    os.close(writing)
    try:
        return verb(*words, "--passphrase-fd", reading)
    finally:
        os.close(reading)


class Deed:
    """Calls verbs on one ledger, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], place: Place | None) -> None:
        self.place = place
        self._capsys = capsys

    @property
    def home(self) -> Path:
        """The ledger's folder."""
        assert self.place is not None
        return self.place.home

    @property
    def is_remote(self) -> bool:
        """Whether the ledger is asked through a server."""
        return self.place is not None and self.place.server is not None

    def run(self, *arguments: object) -> Said:
        """Call a verb and return its result."""
        before: list[str] = []
        if self.place is not None:
            before = ["--home", str(self.place.home)]
            before += ["--server", self.place.server] if self.place.server else []
        self._capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            if self.place is not None:  # this folder is found without --home, so printed commands do not repeat it
                patch.setenv("DEEDBOOK_HOME", str(self.place.home))
            code = run([*before, *map(str, arguments)])
        return Said(int(code), *self._capsys.readouterr())

    def __call__(self, *arguments: object) -> str:
        """Call a verb that succeeds, and return its output for people."""
        said = self.run(*arguments)
        assert said.code == 0, said.err
        return said.out

    def data(self, *arguments: object) -> Any:
        """Call a verb with ``--json`` and return its data."""
        return self.document(*arguments)["data"]

    def document(self, *arguments: object) -> dict[str, Any]:
        """Call a verb with ``--json`` and return its one document."""
        said = self.run(*arguments, "--json")
        assert said.code == 0, said.out
        document: dict[str, Any] = json.loads(said.out)
        # Standard error is empty, except for a page that is not the last: then it says how to get the rest.
        assert said.err == "" or ("; continue with: " in said.err and said.err.endswith(" --json\n")), said.err
        assert said.err == "" or document["next"] in said.err
        assert document["schema_version"] == 1
        assert document.keys() <= {"schema_version", "kind", "data", "next", "bundle"}
        return document

    def as_read(self, handoff: str, part: str = "version") -> tuple[str, str]:
        """Return the option with the version (or ``result``) of a handoff that a reviewer has read: the present one."""
        return f"--{part}", self("handoff", "show", handoff, f"--{part}").strip()

    def refuses(self, code: str, *arguments: object) -> dict[str, Any]:
        """Call a verb that is refused with ``code`` both for people and for programs; return the error."""
        said = self.run(*arguments)
        assert said.err.startswith(f"{code}: "), said
        assert said.out == ""
        assert said.code == CODES[code].exit
        return self.refuses_programs(code, *arguments)

    def refuses_programs(self, code: str, *arguments: object) -> dict[str, Any]:
        """Call a verb with ``--json`` that is refused with ``code``; return the error."""
        said = self.run(*arguments, "--json")
        document: dict[str, Any] = json.loads(said.out)
        assert said.err == ""
        assert said.code == CODES[code].exit
        assert document.keys() == {"schema_version", "kind", "error"}
        assert document["kind"] == "error"
        error: dict[str, Any] = document["error"]
        assert error.keys() == {"code", "message", "recoverable", "details"}
        assert (error["code"], error["recoverable"]) == (code, CODES[code].recoverable)
        return error

    def refuses_verification(self, *arguments: object, verdict: str = "INVALID") -> dict[str, Any]:
        """Call a verb that fails to verify something; return its report."""
        said = self.run(*arguments)
        assert said.code == CODES["VERIFICATION_FAILED"].exit
        assert said.out == ""
        assert f"VERIFICATION_FAILED: {verdict}" in said.err
        said = self.run(*arguments, "--json")
        assert said.code == CODES["VERIFICATION_FAILED"].exit
        report: dict[str, Any] = json.loads(said.out)["error"]["details"]["report"]
        assert report["ok"] is False
        return report

    def written(self) -> int:
        """Return the number of events that no service agent signed: a node's own events may come at any moment."""
        while True:
            of_services, total = self._by_services(), self.size()
            if of_services == self._by_services():
                return total - of_services

    def _by_services(self) -> int:
        agents = [agent["name"] for agent in self.data("agent", "list")["agents"] if "service" in agent["roles"]]
        return sum(int(self.data("log", "--author", agent, "--limit", 1)["total"]) for agent in agents)

    def size(self) -> int:
        """Return the number of entries in the log."""
        total: int = self.data("log", "--limit", 1)["total"]
        return total


def environment(**changed: str) -> dict[str, str]:
    """Return this process's environment without anything that steers Deedbook."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")} | changed


def call(*arguments: object, cwd: Path | None = None, **changed: str) -> Said:
    """Call a verb as a process of its own."""
    done = run_deed(*arguments, timeout=wait_max_s, cwd=cwd, env=environment(**changed))
    return Said(done.returncode, done.stdout, done.stderr)


def call_all(home: Path, *verbs: Sequence[object], **changed: str) -> None:
    """Call verbs that succeed, in this process, so that the setup of a test prints nothing into its output."""
    for verb in verbs:
        answer = inside.deed("--home", home, *verb, **changed)
        assert answer.code == 0, answer.err


class Running:
    """A verb that keeps running as a separate process; the end of the block ends it by its process id."""

    def __init__(self, *arguments: object, **changed: str) -> None:
        self._child = DeedProcess(
            *arguments,
            env=environment(**changed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._child.poll() is None:
            self._child.terminate()
        self._child.communicate(timeout=wait_max_s)

    def line(self) -> str:
        """Return its next line; empty when it ended instead."""
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def error_line(self) -> str:
        """Return its next line of errors."""
        assert self._child.stderr is not None
        return self._child.stderr.readline()

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._child.poll() is not None

    def signal(self, number: int) -> Said:
        """Send it a signal and return how it ended."""
        self._child.send_signal(number)
        out, err = self._child.communicate(timeout=wait_max_s)
        return Said(self._child.returncode, out, err)


class Serving(Running):
    """`deed serve`, by default on a free port, ready for requests."""

    def __init__(self, home: Path, *more: str, **changed: str) -> None:
        super().__init__("--home", home, "serve", "--json", *port_option(home, *more), *more, **changed)
        first = self.line()
        if not first:
            raise AssertionError(self.signal(0).err)
        self.document = json.loads(first)
        self.place = Place(home, self.document["data"]["url"])


class Kept:
    """A folder that was built once, with this machine's trust store of its ledger, and is restored for each test.

    It is restored to the same path, because the trust store names that path.
    """

    def __init__(self, folder: Path, memory: Path, kept: Path) -> None:
        self._folder = folder
        self._kept = kept
        shutil.copytree(folder, kept / "folder")
        shutil.copytree(memory, kept / "memory")

    def put_back(self, memory: Path) -> Path:
        """Return the folder as it was built; ``memory`` becomes this machine's trust store."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._kept / "folder", self._folder)
        shutil.copytree(self._kept / "memory", memory)
        trusted(self._folder / ".deedbook")
        return self._folder


def wait_until(what: Any, said: str) -> Any:
    """Return the result of ``what()`` once it is true."""
    deadline = time.monotonic() + wait_max_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {said}")


def start_session(deed: Deed, name: str, agent: str = "a") -> str:
    """Start a session and return its stream."""
    stream = f"session/{name}"
    deed("emit", "session.started", "--stream", stream, "--as", agent, "--data", "{}")
    return stream


def emit_finding(deed: Deed, stream: str, finding: str = "it is so", *more: object) -> dict[str, Any]:
    """Emit a finding and return the answer."""
    data = json.dumps({"finding": finding})
    answer: dict[str, Any] = deed.data("emit", "finding.logged", "--stream", stream, "--as", "a", "--data", data, *more)
    return answer
