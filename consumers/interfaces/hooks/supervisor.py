"""The supervisor of a hook: the host never waits long, never fails with the hook, and never sees half of its output.

A child process does the work. The parent waits until the deadline, kills the child, prints its whole answer or nothing,
and exits with 0 in any case (2 would block the host). A call may never return from the disk, the network or a lock. No
thread can interrupt such a call, but a process can be killed in it. Killing it is safe: LMDB and SQLite survive a
process that dies at any moment. The child also sets an alarm, for a host that kills only the parent.

Standard input is read to its end, so that the host can write all of it; only a limited size is stored.

Errors go to the log of hooks, JSON lines in the ledger's folder, because a host must not see them. A full log becomes
``hooks.log.1`` and replaces an older one. On a full disk nothing is written: a hook has nobody to report to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.ledger.errors import DeedbookError, Refused, message_of
from deedbook.ledger.home import trust
from deedbook.ledger.home.location import find_home

deadline_s: Final = 2.5
"""Shorter than the shortest timeout that setup requests (3 s), with room for the start of Python."""

input_size_max_bytes: Final = 1024**2
output_size_max_bytes: Final = 256 * 1024
_alarm_slack_s: Final = 0.3
_chunk_bytes: Final = 64 * 1024
LOG_NAME: Final = "hooks.log"
log_size_max_bytes: Final = 256 * 1024
message_max_chars: Final = 500


class Call(NamedTuple):
    """A call of a hook: the harness, the agent that acts, and the ledger if the command line names it."""

    harness: str
    agent: str
    home: Path | None
    server: str | None
    asks_at_stop: bool = False


class Work(NamedTuple):
    """A call with its JSON and the folder of its ledger."""

    call: Call
    home: Path
    payload: dict[str, Any]

    @property
    def event(self) -> str:
        """The name of the event."""
        return str(self.payload.get("hook_event_name", ""))


def supervise(call: Call, respond: Callable[[Work], bytes]) -> None:
    """Answer one call of a hook on standard output, within the deadline."""
    until = time.monotonic() + deadline_s
    try:
        payload = _decoded(_read_all(until))
        home = _home_of(call, payload)
        if home is None:
            return  # no ledger here: this project has nothing to do with Deedbook
        if isinstance(payload, Refused):
            log_failure(home, call.harness, "", payload.code, payload.message)
        else:
            _write_all(1, _answer(Work(call, home, payload), respond, until))
    except OSError:
        return  # no pipe, no process, or no reader: nothing can be done, and there is nobody to report to


def _read_all(until: float) -> bytes | None:
    """Return standard input; None if it is too long or does not end in time."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    content = _read(sys.stdin.fileno(), until, input_size_max_bytes + 1)
    return None if content is None or len(content) > input_size_max_bytes else content


def _read(descriptor: int, until: float, size_max_bytes: int) -> bytes | None:
    """Read a descriptor to its end and return at most ``size_max_bytes`` of it; None if the time is over first."""
    received = bytearray()
    while True:
        left = until - time.monotonic()  # checked in each round, for input that is always ready and never ends
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        piece = os.read(descriptor, _chunk_bytes)
        if not piece:
            return bytes(received)
        received += piece[: size_max_bytes - len(received)]


def _decoded(content: bytes | None) -> dict[str, Any] | Refused:
    """Return the JSON object of standard input, or the refusal of anything else."""
    if content is None:
        return Refused("TOO_LARGE", f"standard input has more than {input_size_max_bytes} bytes or did not end")
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        return Refused("INVALID_FORMAT", f"standard input is not JSON: {error}")
    return payload if isinstance(payload, dict) else Refused("INVALID_FORMAT", "standard input is not a JSON object")


def _home_of(call: Call, payload: dict[str, Any] | Refused) -> Path | None:
    """Return the ledger's folder: the named one, else one found from the folder in the JSON, else from here."""
    if call.home is not None:
        return call.home if call.home.is_dir() else None
    cwd = payload.get("cwd") if isinstance(payload, dict) else None
    home = find_home(Path(cwd) if isinstance(cwd, str) and "\0" not in cwd else Path.cwd())
    return home if home is not None and home.is_dir() else None


def _answer(work: Work, respond: Callable[[Work], bytes], until: float) -> bytes:
    """Return the whole answer of the child, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, respond, writing, until)
    os.close(writing)
    answer: bytes | None = None
    try:
        answer = _read(reading, until, output_size_max_bytes)
    finally:
        os.close(reading)
        if answer is None:
            os.kill(child, signal.SIGKILL)
        # A child that hangs in the kernel cannot be waited for, not even after SIGKILL.
        _, status = os.waitpid(child, os.WNOHANG if answer is None else 0)
    if answer is not None and not status:
        return answer
    message = f"the hook's process ended with {os.waitstatus_to_exitcode(status)}"
    if answer is None:
        message = f"the hook took longer than {deadline_s} s and was killed"
    log_failure(work.home, work.call.harness, work.event, "UNEXPECTED", message)
    return b""


def _work(work: Work, respond: Callable[[Work], bytes], writing: int, until: float) -> None:
    """Do the work in the child process, which ends here."""
    status = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.01, until - time.monotonic()) + _alarm_slack_s)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        answer = respond(work)
        if len(answer) <= output_size_max_bytes:
            _write_all(writing, answer)
        status = 0
    except BaseException as error:  # noqa: BLE001 - only the exit status may leave this process; the error is logged
        reason = f"{type(error).__name__}: {message_of(error)}"
        log_failure(work.home, work.call.harness, work.event, "UNEXPECTED", reason)
        status = 0
    finally:
        os._exit(status)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def log_error(work: Work, error: DeedbookError | OSError) -> None:
    """Add an error to the log in the ledger's folder."""
    code = error.code if isinstance(error, DeedbookError) else "STORE_UNAVAILABLE"
    message: Any = error.message if isinstance(error, DeedbookError) else error
    log_failure(work.home, work.call.harness, work.event, code, str(message))


def log_failure(home: Path, harness: str, event: str, code: str, message: str) -> None:
    """Add one line to the log in a ledger's folder; nothing is written into an untrusted folder."""
    if not trust.is_trusted(home):
        return
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "harness": harness,
        "event": event[:message_max_chars],
        "code": code,
        "message": message[:message_max_chars],
    }
    content = json.dumps(line).encode() + b"\n"
    path = home / LOG_NAME
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size + len(content) > log_size_max_bytes:
                path.replace(path.with_name(f"{LOG_NAME}.1"))
        # One write to a file opened for appending: lines of concurrent hooks do not mix.
        # If somebody put a link or an unread pipe in its place, it is neither followed nor waited for.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
