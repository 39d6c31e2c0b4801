"""Runs an operator's command: one line for sh, with a document on its standard input, within a time limit.

Only the operator writes the line. Text of authors reaches the command on standard input or in environment variables,
which sh does not evaluate if the line quotes them. The command runs in a process session of its own. At the time limit,
or when the caller stops, every process in it is killed. Background processes of a finished command keep running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

from deedbook.consumers.sdk.text import cut, sanitize_line

stop_poll_s: Final = 0.1
errors_kept_max_bytes: Final = 4 * 1024
errors_wait_s: Final = 0.5
error_max_chars: Final = 300


class Ended(NamedTuple):
    """The result of a command: ``problem`` is None for exit code 0, else what happened, with its last error line."""

    problem: str | None
    is_stopped: bool = False


def run_command(
    line: str,
    stdin: bytes,
    environment: Mapping[str, str],
    *,
    limit_s: float,
    stop: threading.Event | None = None,
    drops_output: bool = False,
) -> Ended:
    """Run ``line`` with sh, add ``environment`` to ours, and return the result; ``stop`` ends it early."""
    reading, writing = os.pipe()
    try:
        # Only the operator writes the line; no text of an event becomes part of it.
        process = subprocess.Popen(  # noqa: S603 - see above
            ["/bin/sh", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if drops_output else None,
            stderr=writing,
            env=os.environ | dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        os.close(reading)
        return Ended(f"the command could not be started: {error.strerror}")
    finally:
        os.close(writing)
    errors = _Errors(reading)
    with process:
        try:
            is_over = _wait(process, stdin, time.monotonic() + limit_s, stop)
        except BaseException:
            kill_group(process)  # for example at ^C, which does not reach another process session
            raise
        if not is_over:
            kill_group(process)
    last_error = errors.last_line()
    if is_over and not process.returncode:
        return Ended(None)
    if not is_over and stop is not None and stop.is_set():
        return Ended("the command was stopped", is_stopped=True)
    how = f"ended with exit code {process.returncode}" if is_over else f"took longer than {limit_s:g} s"
    return Ended(f"the command {how}{last_error and f': {last_error}'}")


def _wait(process: subprocess.Popen[bytes], stdin: bytes, until_s: float, stop: threading.Event | None) -> bool:
    """Return True when the command has ended by itself, False at the time limit or when the caller stops."""
    given: bytes | None = stdin
    while (left_s := until_s - time.monotonic()) > 0 and not (stop is not None and stop.is_set()):
        try:
            process.communicate(given, timeout=left_s if stop is None else min(left_s, stop_poll_s))
        except subprocess.TimeoutExpired:
            given = None  # communicate continues with the input that it has begun to write
        else:
            return True
    return False


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its children, unless it has ended; it must run in a process session of its own."""
    if process.returncode is None:  # it was not waited for, so no other process can have its pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Errors:
    """Copies a command's standard error to ours, and keeps the end of it.

    A daemon thread reads it, because a background process of the command may hold the pipe open for ever.
    """

    def __init__(self, descriptor: int) -> None:
        self._kept = b""
        self._reader = threading.Thread(target=self._copy, args=(os.fdopen(descriptor, "rb", 0),), daemon=True)
        self._reader.start()

    def last_line(self) -> str:
        self._reader.join(errors_wait_s)
        for line in reversed(self._kept.decode("utf-8", "replace").split("\n")):
            if text := sanitize_line(line, " "):
                return cut(text, error_max_chars)
        return ""

    def _copy(self, pipe: BinaryIO) -> None:
        with pipe, contextlib.suppress(OSError):  # our standard error is closed: drop the text
            while chunk := pipe.read(errors_kept_max_bytes):
                self._kept = (self._kept + chunk)[-errors_kept_max_bytes:]
                os.write(2, chunk)
