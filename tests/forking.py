"""A program that imports all of Deedbook, then forks a process for each request that runs `deed` (``forked_deed``).

It prints the address at which it listens. It ends when its standard input is closed, that is, when the process that
runs the tests ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, NoReturn

from nacl.pwhash import argon2id

from deedbook.consumers.sdk import child

number_bytes: Final = 4
descriptors_max: Final = 8
CHEAP: Final = {"OPSLIMIT_MODERATE": argon2id.OPSLIMIT_MIN, "MEMLIMIT_MODERATE": argon2id.MEMLIMIT_MIN}
"""The cost of passphrases in tests."""
moved_to: Final = 500  # descriptors are moved to numbers from here on, which no test uses
READ_AT_START: Final = ("PYTHON", "LC_", "LANG")
"""The beginnings of variables that only a starting Python reads. Of these, a forked process can get only its own
PYTHONPATH.
"""


def import_all() -> None:
    """Import every module that a verb may import."""
    package = importlib.import_module("deedbook.consumers")
    for module in pkgutil.walk_packages(package.__path__, "deedbook.consumers."):
        if not module.name.endswith(".__main__") and ".sample_project" not in module.name:
            with contextlib.suppress(ImportError):  # its extra is not installed
                importlib.import_module(module.name)


class Children:
    """The forked processes that have not ended, and the connections for their exit codes."""

    def __init__(self) -> None:
        # The key is a descriptor that becomes readable when the process ends.
        self._waiting: dict[int, tuple[int, socket.socket]] = {}

    def add(self, pid: int, connection: socket.socket) -> int:
        """Send the pid now; return the descriptor that becomes readable when ``end`` can send the exit code."""
        descriptor = os.pidfd_open(pid)
        self._waiting[descriptor] = pid, connection
        send_number(connection, pid)
        return descriptor

    def end(self, descriptor: int) -> None:
        """Send the exit code of a process that has ended."""
        pid, connection = self._waiting.pop(descriptor)
        send_number(connection, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        connection.close()
        os.close(descriptor)

    def forget(self) -> None:
        """In a new process, close the descriptors that belong to its siblings."""
        for descriptor, (_, connection) in self._waiting.items():
            os.close(descriptor)
            connection.close()


def send_number(connection: socket.socket, number: int) -> None:
    """Send a pid or an exit code."""
    with contextlib.suppress(OSError):  # the process that sent the request has ended
        connection.sendall(number.to_bytes(number_bytes, signed=True))


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and its descriptors: the three standard streams, then others that the process inherits."""
    begin, streams, _, _ = socket.recv_fds(connection, number_bytes, descriptors_max)
    request = b""
    while len(request) < int.from_bytes(begin):
        request += connection.recv(int.from_bytes(begin) - len(request))
    return json.loads(request), streams


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Return the request in each new process, and None in the parent when its input ends."""
    events, children = select.poll(), Children()
    for source in (listener.fileno(), sys.stdin.fileno()):
        events.register(source, select.POLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor == sys.stdin.fileno():
                return None
            if descriptor != listener.fileno():
                events.unregister(descriptor)
                children.end(descriptor)
                continue
            connection = listener.accept()[0]
            request, streams = receive(connection)
            if read_at_start(request["environment"]) != read_at_start(dict(os.environ)):
                connection.close()
            elif pid := os.fork():
                events.register(children.add(pid, connection), select.POLLIN)
            else:
                for ours in (children.forget, connection.close, listener.close):
                    ours()
                become(request, streams)
                return request
            for stream in streams:
                os.close(stream)


def read_at_start(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that must be the same in a forked process."""
    own = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    return {name: value for name, value in own.items() if name != "PYTHONPATH"}


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this process the folder, environment, streams and descriptors of the request, as if it was just started."""
    if request["has_own_session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # it was read from the environment
    for number, stream in enumerate(streams):
        os.dup2(stream, moved_to + number, inheritable=False)
        os.close(stream)
    for number, descriptor in enumerate(request["descriptors"]):
        os.dup2(moved_to + number, descriptor)
        os.close(moved_to + number)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    if folders := os.environ.get("PYTHONPATH"):
        sys.path[:0] = folders.split(os.pathsep)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")


def run_script() -> NoReturn:
    """Run the file that the first argument names, as ``python FILE`` does."""
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


def end(code: int) -> NoReturn:
    """End as Python does, but without freeing all objects, which takes 0.08 s with all these imports."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def main() -> NoReturn:
    """Import all modules, serve, and become `deed` in each forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is meant for the tests and the forked processes, not for this one
    gc.disable()
    import_all()
    for name, value in CHEAP.items():
        setattr(argon2id, name, value)
    gc.freeze()
    folder = tempfile.mkdtemp(prefix="deed-")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        print(f"{folder}/socket", flush=True)
        request = serve(listener)
    if request is None:
        shutil.rmtree(folder)
        sys.exit()
    sys.argv[1:] = request["arguments"]
    if request["program"] == "child":
        child.run(int(sys.argv[1]))
        end(0)
    try:
        if request["program"] == "script":
            run_script()
        runpy.run_module("deedbook", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            end(ended.code)
        raise
    sys.exit()


if __name__ == "__main__":
    main()
