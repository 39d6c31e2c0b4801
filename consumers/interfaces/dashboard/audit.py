"""The audit that a page starts: the auditor in a process of its own, one at a time, ended with the server.

Replaying a long log takes a core for minutes, which the pages' own process does not have. The last result is kept in
``cache/audit.json`` of the ledger's folder, signed by nobody: a note of this machine, and shown as that.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from deedbook.consumers.auditor.signatures import PROCESSES, apart
from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.sdk.ledger import asking
from deedbook.ledger.client.opening import open_client
from deedbook.ledger.client.stream_reader import pinned_root
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.system.files import read_regular, write_whole

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from deedbook.ledger.home.config import Settings

result_size_max_bytes: Final = 4 * 1024**2
end_wait_max_s: Final = 10.0


class AuditState(msgspec.Struct, frozen=True, kw_only=True):
    """How far an audit is, or what came of it: the ``report`` of `deed verify`, or the ``error`` why there is none."""

    status: Literal["none", "running", "done", "failed"] = "none"
    views: bool = False
    done: int = 0
    total: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    report: dict[str, Any] | None = None
    error: str = ""


class Audit:
    """The one audit of a dashboard; threads share it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = settings.home / "cache" / "audit.json"
        self._lock = threading.Lock()
        self._running: tuple[SpawnProcess, threading.Thread] | None = None
        self.state = AuditState()
        with suppress(DeedbookError, msgspec.DecodeError):  # not there, or not ours: then nothing is known
            content = read_regular(self._file, size_max_bytes=result_size_max_bytes)
            self.state = msgspec.json.decode(content or b"", type=AuditState)

    def start(self, *, views: bool, now_ms: int) -> None:
        """Begin an audit, with the views compared if asked, unless one is running."""
        with self._lock:
            if self._running is not None:
                return
            answers, answering = PROCESSES.Pipe(duplex=False)
            # Not daemonic: such a process may have no workers of its own.
            process = PROCESSES.Process(target=_verify, args=(self._settings, views, answering), daemon=False)
            with apart():
                process.start()
            answering.close()  # else the end of the process would not be seen
            self.state = AuditState(status="running", views=views, started_ms=now_ms)
            listener = threading.Thread(target=self._listen, args=(process, answers), daemon=True)
            self._running = process, listener
            listener.start()

    def close(self) -> None:
        """End an audit that is running: nothing of it is kept."""
        if self._running is not None:
            process, listener = self._running
            process.terminate()
            listener.join(end_wait_max_s)

    def _listen(self, process: SpawnProcess, answers: Connection) -> None:
        state = self.state
        with answers, suppress(EOFError):  # it is over, one way or the other
            while state.status == "running":
                self.state = state
                state = replace(state, **answers.recv())
        process.join()
        state = replace(state, ended_ms=time.time_ns() // 1_000_000)
        if state.status == "running":
            error = f"its process ended early (exit code {process.exitcode}): start it again"
            state = replace(state, status="failed", error=error)
        else:
            with suppress(DeedbookError, OSError):  # a folder that only may be read keeps none
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._file, msgspec.json.encode(state))
        self.state, self._running = state, None


def _verify(settings: Settings, views: bool, answers: Connection) -> None:  # noqa: FBT001 - a process is given them so
    """Audit the ledger and send what changes of its state: the process's whole life."""
    # Ended so, its own workers are ended with it; killed, they would wait for ever. When the server was killed, what
    # is sent next finds nobody, and ends it likewise.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def tell(done: int, total: int) -> None:
        answers.send({"done": done, "total": total})

    with suppress(BrokenPipeError):
        try:
            with open_client(asking(settings)) as client:
                root = pinned_root(settings.home, client.ledger)
                report = verify_log(client, root=root, views=settings if views else None, progress=tell)
        except DeedbookError as error:
            answers.send({"status": "failed", "error": error.message})
        else:
            named = {name: getattr(report, name) for name in ("ok", "outcome", "verdict", "trust")}
            answers.send({"status": "done", "report": msgspec.to_builtins(report) | named})
