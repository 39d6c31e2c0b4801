"""Running an operator's command: one line for sh, with a document on its standard input, within a limit of time.

The line is the operator's text alone: what an author wrote reaches it on standard input or in environment variables,
which sh does not evaluate as long as the line quotes them. The command runs in a session of its own; at the limit, and
when the caller is stopped, everything in it is killed. What one that ended well left in the background goes on.
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
    """How a command ended; ``problem`` is None where its exit code was 0, else what happened and its last error."""

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
    """Run ``line`` by sh, with ``environment`` added to ours; ``stop`` ends it early."""
    reading, writing = os.pipe()
    try:
        # The line is the operator's own; nothing of an event becomes part of it.
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
            kill_group(process)  # as for an interrupt from the keyboard, which a session of its own does not get
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
    """Wait for a command to end by itself; return False at the limit, and when the caller is stopped."""
    given: bytes | None = stdin
    while (left_s := until_s - time.monotonic()) > 0 and not (stop is not None and stop.is_set()):
        try:
            process.communicate(given, timeout=left_s if stop is None else min(left_s, stop_poll_s))
        except subprocess.TimeoutExpired:
            given = None  # communicate goes on with what it has begun to write
        else:
            return True
    return False


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started in a session of its own, with its children, unless it has ended by itself."""
    if process.returncode is None:  # not waited for yet, so its number is still its own, and its group's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Errors:
    """Copies what a command says of errors to where ours go, and keeps its end.

    It is read by a thread that nobody has to wait for: what a command left in the background may hold the pipe open.
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
        with pipe, contextlib.suppress(OSError):  # nobody reads what we say of errors: then nobody misses it
            while chunk := pipe.read(errors_kept_max_bytes):
                self._kept = (self._kept + chunk)[-errors_kept_max_bytes:]
                os.write(2, chunk)
