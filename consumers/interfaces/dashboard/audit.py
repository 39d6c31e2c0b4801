"""The audit that a page starts: the auditor in a separate process, one at a time, ended with the server.

Replaying a long log keeps a core busy for minutes and would block the pages. The last result is stored, unsigned, in
``cache/audit.json`` of the ledger's folder: it is a note of this machine, and the page says so.
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

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.sdk.child import Child
from deedbook.consumers.sdk.ledger import asking
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.stream_reader import pinned_root
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.format.codec import read_json
from deedbook.ledger.system.files import read_regular, write_whole

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from deedbook.ledger.home.config import Settings

result_size_max_bytes: Final = 4 * 1024**2
end_wait_max_s: Final = 10.0


class AuditState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an audit, or its result: the ``report`` of `deed verify`, or an ``error`` if there is none."""

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
        self._running: tuple[Child, threading.Thread] | None = None
        self.state = AuditState()
        with suppress(DeedbookError, msgspec.DecodeError):  # the file is missing or not ours: start without a result
            content = read_regular(self._file, size_max_bytes=result_size_max_bytes)
            self.state = read_json(content or b"", AuditState)

    def start(self, *, views: bool, now_ms: int) -> None:
        """Start an audit unless one is running; ``views`` also compares the views with the log."""
        with self._lock:
            if self._running is not None:
                return
            child = Child(_verify, self._settings, views)
            self.state = AuditState(status="running", views=views, started_ms=now_ms)
            listener = threading.Thread(target=self._listen, args=(child,), daemon=True)
            self._running = child, listener
            listener.start()

    def close(self) -> None:
        """Stop a running audit; its result is discarded."""
        if self._running is not None:
            child, listener = self._running
            child.terminate()
            listener.join(end_wait_max_s)

    def _listen(self, child: Child) -> None:
        state = self.state
        with child.connection, suppress(EOFError):  # EOF: the process has ended
            while state.status == "running":
                self.state = state
                state = replace(state, **child.receive())
        exit_code = child.wait()
        state = replace(state, ended_ms=time.time_ns() // 1_000_000)
        if state.status == "running":
            error = f"the audit process stopped early (exit code {exit_code}): start the audit again"
            state = replace(state, status="failed", error=error)
        else:
            with suppress(DeedbookError, OSError):  # a read-only folder stores no result
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._file, msgspec.json.encode(state))
        self.state, self._running = state, None


def _verify(answers: Connection, settings: Settings, views: bool) -> None:  # noqa: FBT001 - Child passes it by position
    """Audit the ledger and send each change of the state; this is the main function of the process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end as after an exception: the workers are stopped, too

    def report_progress(done: int, total: int) -> None:
        answers.send({"done": done, "total": total})

    try:
        with open_client(asking(settings)) as client:
            root = pinned_root(settings.home, client.ledger)
            report = verify_log(client, root=root, views=settings if views else None, progress=report_progress)
    except DeedbookError as error:
        answers.send({"status": "failed", "error": error.message})
    else:
        computed = {name: getattr(report, name) for name in ("ok", "outcome", "verdict", "gate_line", "trust")}
        answers.send({"status": "done", "report": msgspec.to_builtins(report) | computed})
