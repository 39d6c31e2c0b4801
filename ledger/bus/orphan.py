"""End the nats-server that a killed owner left behind, and nothing else.

The pid file is only a hint. A process is ours if its command line is exactly ours *and* it has our lock
file open; no other process can have both. Where a system cannot tell (no ``/proc``, no pidfd), refuse.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Final

from ledger import limits
from ledger.errors import Unavailable

_pid_wait_max_s: Final = 2.0


def end_orphan(folder: Path, config: Path) -> None:
    """End the server whose pid file is in this folder, by force if need be, once it is proved to be ours.

    Raises:
        Unavailable: ``STORE_IN_USE`` if the process cannot be proved to be ours.
    """
    pid = _pid_in(folder / "server.pid")
    deadline = time.monotonic() + _pid_wait_max_s
    while pid is None and time.monotonic() < deadline:
        time.sleep(0.01)  # Its owner was killed so soon that it has not written the file yet.
        pid = _pid_in(folder / "server.pid")
    handle = _open_handle(pid)
    try:
        if handle is None or pid is None or not _is_ours(pid, folder / "server.lock", config):
            raise Unavailable(
                "STORE_IN_USE",
                f"a nats-server seems to run on {folder}, and it cannot be proved to be this ledger's: end it by hand",
                folder=str(folder),
                pid=pid,
            )
        _end(handle)
    finally:
        if handle is not None:
            os.close(handle)


def _pid_in(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _open_handle(pid: int | None) -> int | None:
    # Opened before the process is looked at: it stays bound to that process, whatever becomes of the pid.
    if pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _is_ours(pid: int, lock: Path, config: Path) -> bool:
    process = Path("/proc", str(pid))
    try:
        program, *arguments = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if not program.endswith(b"nats-server") or arguments != [b"-c", os.fsencode(config)]:
            return False
        ours = lock.stat()
        return any(os.path.samestat(ours, opened.stat()) for opened in (process / "fd").iterdir() if opened.exists())
    except OSError:
        return False


def _end(handle: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        # A pidfd becomes readable when its process has ended.
        if select.select([handle], [], [], limits.server_stop_max_s)[0]:
            return
