"""Makes system calls of a command fail, or kills it, at every write and sync, by strace.

A command runs once, so that its calls can be counted, and then once for each call and fault, always with the same
content of its folder. A failing call has no effect; a kill comes before the call.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CALLS: Final = (
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    *("fsync", "fdatasync", "msync", "sync_file_range", "sync", "syncfs"),
    *("ftruncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
    *("mkdir", "mkdirat", "rmdir", "fchmod", "chmod"),
)
FAULTS: Final = {
    "EIO": "error=EIO:when={}",
    "ENOSPC": "error=ENOSPC:when={}",
    "EIO from then on": "error=EIO:when={}+",
    "killed": "signal=SIGKILL:when={}",
}
_LINE: Final = re.compile(r"(?P<thread>\d+) +(?P<call>\w+)\(")
command_max_s: Final = 60.0


class Fault(NamedTuple):
    """A fault at the Nth call of a name, counted from 1."""

    call: str
    number: int
    name: str


class Ran(NamedTuple):
    """How a traced command ended."""

    code: int
    out: str
    err: str
    trace: str

    @property
    def was_hit(self) -> bool:
        """Whether the fault occurred."""
        return "(INJECTED)" in self.trace or "+++ killed by SIGKILL +++" in self.trace


class Place:
    """A folder that is restored for every run of a command, always at the same path ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pattern = folder.with_name(f"{folder.name}.pattern")
        self._trace = folder.with_name(f"{folder.name}.trace")
        shutil.copytree(folder, self._pattern)

    def restore(self) -> None:
        """Restore the folder's original content."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._pattern, self.folder)

    def run(self, command: Sequence[str], given: str = "", fault: Fault | None = None) -> Ran:
        """Run a command, ``given`` on its standard input."""
        injected = [] if fault is None else ["-e", f"inject={fault.call}:{FAULTS[fault.name].format(fault.number)}"]
        calls = ",".join(f"?{call}" for call in CALLS)  # "?": some machines lack some of these calls
        # --seccomp-bpf would be a third faster, but with it strace 6.1 injects no signal.
        traced = ["strace", "-f", "-o", str(self._trace), "-e", f"trace={calls}", *injected, *command]
        # Otherwise Python would write compiled files at the first run only, and the runs would make different calls.
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            traced, input=given, env=environment, capture_output=True, text=True, check=False, timeout=command_max_s
        )
        # strace ends with the same signal as the traced process
        assert done.returncode >= 0 or done.returncode == -signal.SIGKILL, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr, self._trace.read_text("utf-8", "replace"))

    def calls(self, command: Sequence[str], given: str = "") -> list[str]:
        """Return the calls of the command without a fault, in order."""
        ran = self.run(command, given)
        assert ran.code == 0, ran.err
        self.restore()
        made = [found for line in ran.trace.splitlines() if (found := _LINE.match(line))]
        assert len({one["thread"] for one in made}) == 1, "strace counts for each thread: which is the Nth is not said"
        return [one["call"] for one in made]


def need_strace() -> None:
    """Skip the test, with the reason, unless strace is installed and may trace."""
    if shutil.which("strace") is None:
        pytest.skip("not run: the command `strace` is missing (`apt-get install strace`)")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("not run: this user may not trace processes here (`strace true` fails)")


class Table:
    """The results of faults, by scene, call and type: how many left a wrong state, and which did not occur."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self.missed: list[str] = []
        self._runs: Counter[tuple[str, str, str]] = Counter()
        self._bad: Counter[tuple[str, str, str]] = Counter()
        self._last: Counter[tuple[str, str, str]] = Counter()

    def add(self, scene: str, fault: Fault, ran: Ran, problem: str = "") -> None:
        """Count a run, and the problem of the state that it left, if any."""
        key = (scene, fault.call, fault.name)
        self._runs[key] += 1
        self._bad[key] += problem != ""
        self._last[key] = max(self._last[key], fault.number)
        if problem:
            self.bad.append(f"{scene}, {fault.call} {fault.number}, {fault.name}: {problem}\n{ran.err}")
        if not ran.was_hit:
            self.missed.append(f"{scene}, {fault.call} {fault.number}, {fault.name}")

    def __str__(self) -> str:
        rows = [("scene", "call", "the Nth", "fault", "times", "states found bad")]
        for key, runs in self._runs.items():
            scene, call, name = key
            rows.append((scene, call, f"1 to {self._last[key]}", name, str(runs), str(self._bad[key])))
        total = sum(self._runs.values())
        rows.append(("in all", "", "", "", str(total), str(sum(self._bad.values()))))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)
