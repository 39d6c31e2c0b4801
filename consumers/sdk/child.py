"""Child processes: each runs one function of this package in an interpreter of its own.

``multiprocessing`` is not used to start them: its ``spawn`` runs the caller's script again in each child, and its
``fork`` copies an open LMDB. A child starts with this module, reads the function and its arguments from a connection,
and calls the function with that connection.

A child has a session of its own, so that Ctrl-C reaches the parent alone. If the parent ends, even by a kill, the
connection breaks at the child's next use of it, and the child ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final

MAIN: Final = "import sys; from deedbook.consumers.sdk.child import run; run(int(sys.argv[1]))"


class Child:
    """A running child process and the ``connection`` to it."""

    def __init__(self, function: Callable[Concatenate[Connection, ...], None], *args: Any) -> None:
        """Start a process that calls ``function(connection, *args)``; a module defines the function, not a script."""
        self.connection, child_end = Pipe()
        isolation = "-I" if sys.flags.isolated else "-P"  # the working folder is never searched for modules
        with child_end:
            descriptor = child_end.fileno()
            command = [sys.executable, isolation, "-c", MAIN, str(descriptor)]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, and a number
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        with suppress(OSError):  # it has ended already: receive raises EOFError
            self.connection.send((function, args))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def receive(self) -> Any:
        """Return the next object that the child sends. Raises EOFError: the child has ended."""
        try:
            return self.connection.recv()
        except ConnectionResetError:  # it was killed before it had read everything
            raise EOFError from None

    def poll(self) -> int | None:
        """Return the exit code of the process, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        return self._process.wait()

    def end(self, wait_max_s: float) -> None:
        """Wait for a process that ends by itself, because its connection is closed; kill it if it does not."""
        try:
            self._process.wait(wait_max_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM), without waiting for it."""
        self._process.terminate()

    def stop(self) -> None:
        """End the process and wait for its end."""
        self._process.terminate()
        self._process.wait()
        self.connection.close()


def run(descriptor: int) -> None:
    """Call the function that the parent sends; this is all that a child does."""
    with Connection(descriptor) as connection, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        function, args = connection.recv()
        function(connection, *args)
