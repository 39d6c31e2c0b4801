"""The child processes that an audit has started."""

from __future__ import annotations

import os
from pathlib import Path


def children() -> list[int]:
    """Return the process ids of this process's running audit children; one that has ended has no command line.

    ``/proc/PID/task/TID/children`` is not read: it may omit a child while another one ends.
    """
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    return [pid for pid in pids if _parent(pid) == os.getpid() and b"auditor.child" in _read(pid, "cmdline")]


def _parent(pid: int) -> int:
    status = _read(pid, "stat").rpartition(b")")[2].split()  # a name in brackets may contain spaces
    return int(status[1]) if status else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
