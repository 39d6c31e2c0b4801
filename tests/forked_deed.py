"""Runs `deed` in a process that is forked from one that has imported all of Deedbook, so that it need not import it.

Starting Python and importing Deedbook takes 0.15 s of CPU time, for `deed serve` 0.35 s, for `deed mcp` 1 s, and tests
start a thousand of them. ``DeedProcess`` is a ``Popen``: a process with its own pid, streams, folder and environment,
which tests signal, kill and wait for as any other. Only its start differs from ``python -m deedbook``. So a test about
the start itself (imports, flags and variables of Python, modules in the working folder) starts a real process.

As a program (``deed_command``), this file runs `deed` in such a process, for callers that can only start commands.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

number_bytes: Final = 4


class DeedProcess(subprocess.Popen[Any]):
    """`deed` with some arguments; the options are those of ``Popen`` for streams, folder and environment."""

    address: ClassVar[str] = ""
    program: ClassVar[str] = "deed"

    def __init__(self, *arguments: object, **options: Any) -> None:
        known = {"cwd", "env", "stdin", "stdout", "stderr", "text", "bufsize", "pass_fds", "start_new_session"}
        assert options.keys() <= known, options.keys() - known
        super().__init__([str(argument) for argument in arguments], **options)

    def _execute_child(self, args: list[str], *given: Any) -> None:
        folder, environment, pipes = given[4] or Path.cwd(), given[5], given[9:15]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        wanted = {
            "program": self.program,
            "arguments": args,
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "descriptors": [0, 1, 2, *given[3]],
            "has_own_session": given[-2],
        }
        request = json.dumps(wanted).encode("ascii")
        self._ending = socket.socket(socket.AF_UNIX)
        self._ending.connect(self.address or start_forking())
        socket.send_fds(self._ending, [len(request).to_bytes(number_bytes)], [*streams, *given[3]])
        self._ending.sendall(request)
        self.pid = self._number()
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        self._await_end(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self._await_end(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _await_end(self, timeout: float | None) -> bool:
        """Wait until the process has ended or ``timeout`` is over; return whether it has ended."""
        if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:
                    self.returncode = self._number()
                    self._ending.close()
        return self.returncode is not None

    def _number(self) -> int:
        answer = self._ending.recv(number_bytes)
        if not answer:
            self._ending.close()
            raise AssertionError("the program that forks has ended, or this needs a start of Python: see READ_AT_START")
        return int.from_bytes(answer, signed=True)


class ChildProcess(DeedProcess):
    """The process of a ``Child`` (``sdk.child``); its argument is the number of a descriptor that it inherits."""

    program: ClassVar[str] = "child"


class ScriptProcess(DeedProcess):
    """A process that runs a Python file of tests; its first argument is the path of the file."""

    program: ClassVar[str] = "script"


def run_deed(*arguments: object, timeout: float, given: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `deed` to its end with the input ``given``, and return its exit code and output."""
    pipe = subprocess.PIPE
    with DeedProcess(*arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            out, errors = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def deed_command() -> list[str]:
    """Return a command that acts like `deed`; SIGINT and SIGTERM are passed on to the forked process."""
    return [sys.executable, "-I", "-S", __file__, start_forking()]


@cache
def start_forking() -> str:
    """Start the forking program, once in each process that runs tests; return the address at which it listens."""
    program = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("forking.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    atexit.register(program.communicate)
    assert program.stdout is not None
    return program.stdout.readline().decode().strip()


def _stand_for(arguments: list[str]) -> int:
    """Run `deed`, and return its exit code as a shell does: 128 plus the number of a signal that killed it."""
    descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir() if int(path.name) > 2]
    process = DeedProcess(*arguments, pass_fds=[number for number in descriptors if _is_inherited(number)])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda sent, _: os.kill(process.pid, sent))
    code = process.wait()
    return code if code >= 0 else 128 - code


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)  # false for descriptors that Python itself opened
    except OSError:  # the descriptor by which /proc/self/fd was listed is closed by now
        return False


if __name__ == "__main__":
    DeedProcess.address = sys.argv[1]
    sys.exit(_stand_for(sys.argv[2:]))
