"""The child processes that an audit has started."""

from __future__ import annotations

import os
from pathlib import Path


def children() -> list[int]:
    """Return the process ids of this process's running audit children.

    ``/proc/PID/task/TID/children`` is not read: it may omit a child while another one ends.
    """
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    return [pid for pid in pids if b"sdk.child" in _command(pid)]


def _command(pid: int) -> bytes:
    """Return the command line of a running child of this process, or nothing for any other process.

    While a process starts or ends, its command line is empty for a moment: then wait until it has one, or has ended.
    """
    while True:
        status = _read(pid, "stat").rpartition(b")")[2].split()  # a name in brackets may contain spaces
        if not status or int(status[1]) != os.getpid() or status[0] in b"ZX":
            return b""
        if command := _read(pid, "cmdline"):
            return command


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
