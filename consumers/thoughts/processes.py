"""The six processes of a task: started, watched, started again when they die, and ended by their own pids."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

import msgspec

from consumers.thoughts.task import AGENTS
from ledger.config import Config
from ledger.errors import BatonError, Refused, Unavailable
from ledger.events import tot as kinds

if TYPE_CHECKING:
    from types import TracebackType


restarts_max: Final = 3
stop_wait_s: Final = 10.0


class Part(msgspec.Struct, frozen=True):
    """What a process is told: the ledger, the task, its thinker, where to read from, and what opens it if it is new."""

    home: str
    config: Config
    server: str | None
    task_id: str
    thinker: str
    start: int
    opening: kinds.TotStarted | None = None


class Cast:
    """The six processes of one task."""

    def __init__(self, part: Part) -> None:
        """Start them; the orchestrator alone is told what opens the task."""
        self._parts = {
            role: part if role == "orchestrator" else msgspec.structs.replace(part, opening=None) for role in AGENTS
        }
        self._children: dict[kinds.Role, subprocess.Popen[bytes]] = {}
        self._restarts = dict.fromkeys(AGENTS, 0)
        try:
            for role in AGENTS:
                self._start(role)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        """Return the cast itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """End what still runs."""
        self.end()

    @property
    def pids(self) -> dict[kinds.Role, int]:
        """The process of each role."""
        return {role: child.pid for role, child in self._children.items()}

    def is_done(self) -> bool:
        """Return whether all six saw the end of the task; one that died is started again, ``restarts_max`` times.

        Raises:
            BatonError: one failed with it, or ended too often.
        """
        codes = {role: child.poll() for role, child in self._children.items()}
        for role, code in codes.items():
            if code not in (None, 0):
                self._replace(role)
        return all(code == 0 for code in codes.values())

    def end(self) -> None:
        """End the processes that are ours: their input ends, and who does not follow in ``stop_wait_s`` is killed."""
        for child in self._children.values():
            _close(child)
        for child in self._children.values():
            try:
                child.wait(stop_wait_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self, role: kinds.Role) -> None:
        # In a session of its own: ^C reaches whoever runs the task alone, who then ends the six in order.
        child = subprocess.Popen(  # noqa: S603 - this Python, with arguments of our own
            [sys.executable, "-m", "consumers.thoughts", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._children[role] = child
        assert child.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # it died at once: ``is_done`` sees that
            child.stdin.write(msgspec.json.encode(self._parts[role]) + b"\n")
            child.stdin.flush()

    def _replace(self, role: kinds.Role) -> None:
        child = self._children[role]
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        said = child.stdout.read()
        code = child.wait()
        _close(child)
        failed = BatonError.from_dict(msgspec.json.decode(said)) if said else None
        if isinstance(failed, Refused):
            raise failed.with_details(role=role)
        if self._restarts[role] == restarts_max:
            raise failed or Unavailable(
                "STORE_UNAVAILABLE", f"the {role} ended {restarts_max + 1} times, at last {code}"
            )
        self._restarts[role] += 1
        self._start(role)


def _close(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
