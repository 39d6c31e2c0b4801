"""Running the git program: bounded in time and output, no shell, prompt or hook, and errors that say who must act.

The program is the operator's and the repository is theirs too, so their configuration counts (a ``safe.directory``, a
credential helper, a proxy). What is taken away: variables that name another repository (a git hook that calls us sets
``GIT_DIR`` and ``GIT_INDEX_FILE``), prompts (no terminal, no askpass but a named one), hooks, signing, garbage
collection. The author is Baton, so a machine without a git identity can write notes.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ledger.errors import BatonError, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import IO

git_time_max_s: Final = 10.0
remote_time_max_s: Final = 300.0
output_size_max_bytes: Final = 16 * 1024**2
error_size_max_bytes: Final = 64 * 1024
error_shown_max_chars: Final = 600
attempts_max: Final = 40
retry_wait_first_s: Final = 0.01
retry_wait_max_s: Final = 0.5

_KEPT: Final = frozenset({
    "GIT_ASKPASS", "GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH", "GIT_PROXY_COMMAND", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
    "GIT_SSL_CERT", "GIT_SSL_KEY",
})  # fmt: skip
_SET: Final = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_AUTHOR_NAME": "Baton",
    "GIT_AUTHOR_EMAIL": "baton@localhost",
    "GIT_COMMITTER_NAME": "Baton",
    "GIT_COMMITTER_EMAIL": "baton@localhost",
}
_OPTIONS: Final = (
    "--no-pager", "--literal-pathspecs",
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=true",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "push.gpgSign=false", "-c", "log.showSignature=false",
    "-c", "i18n.commitEncoding=UTF-8", "-c", "i18n.logOutputEncoding=UTF-8",
)  # fmt: skip
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")
_SECRET: Final = re.compile(r"(?i)((?:token|password|passwd|secret|access_key)=)[^&\s'\"]+")


T = TypeVar("T")


class Answer(NamedTuple):
    """What git said: its exit code, its output, and its complaint without credentials, shortened."""

    code: int
    out: bytes
    error: str


class Git:
    """The git program, at work in one folder."""

    def __init__(self, folder: Path) -> None:
        """Look for the program.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` when there is none.
        """
        program = shutil.which("git")
        if program is None:
            raise Unavailable("STORE_UNAVAILABLE", "git notes are written with the program git, which is not installed")
        self._program = program
        self.folder = folder

    def call(
        self,
        *arguments: str,
        data: bytes = b"",
        variables: Mapping[str, str] | None = None,
        time_max_s: float = git_time_max_s,
        size_max: int = output_size_max_bytes,
    ) -> Answer:
        """Return what git answers, whether it succeeds or not.

        Raises:
            Unavailable: it cannot be run, or does not end. Refused: ``TOO_LARGE`` when it says more than ``size_max``.
        """
        command = (self._program, *_OPTIONS, "-C", str(self.folder), *arguments)
        what = f"git {arguments[0]}"
        try:
            with tempfile.TemporaryFile() as given:
                given.write(data)
                given.seek(0)
                return _run(command, what, given, _environment(variables or {}), (time_max_s, size_max))
        except OSError as error:
            raise Unavailable("STORE_UNAVAILABLE", f"{what} cannot be run: {error.strerror or error}") from error

    def ask(
        self,
        *arguments: str,
        data: bytes = b"",
        variables: Mapping[str, str] | None = None,
        time_max_s: float = git_time_max_s,
    ) -> str:
        """Return the text that git answers with, without the newline at its end.

        Raises:
            Refused: ``NOT_FOUND`` in no repository. Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``,
                ``STORE_IN_USE`` when another process holds what it needs.
        """
        answer = self.call(*arguments, data=data, variables=variables, time_max_s=time_max_s)
        if answer.code:
            raise failure(answer, f"git {arguments[0]}", self.folder)
        return answer.out.decode("utf-8", "replace").removesuffix("\n")

    def start(self, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start git to be asked many things through its pipes; whoever starts it ends it, by its process group.

        Raises:
            Unavailable: it cannot be run.
        """
        try:
            return subprocess.Popen(  # noqa: S603 - a fixed program without a shell
                (self._program, *_OPTIONS, "-C", str(self.folder), *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(variables or {}),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            text = f"git {arguments[0]} cannot be run: {error.strerror or error}"
            raise Unavailable("STORE_UNAVAILABLE", text) from error


def failure(answer: Answer, what: str, folder: Path) -> BatonError:
    """Return the error for what git complained about."""
    said = answer.error
    text = f"{what}: {said or f'exit code {answer.code}'}"
    details = {"folder": str(folder)}
    if "not a git repository" in said:
        return Refused("NOT_FOUND", f"{folder} is in no git repository", **details)
    if "dubious ownership" in said or "unsafe repository" in said:
        text = f"git does not use the repository at {folder}: it belongs to somebody else (allow it with `git config \
--global --add safe.directory DIR`)"
        return Unavailable("STORE_UNAVAILABLE", text, **details)
    if "No space left" in said or "quota exceeded" in said.lower():
        return Unavailable("STORE_FULL", text, **details)
    if re.search(r"exists; cannot create|there are still refs under|cannot process .* at the same time", said):
        return Refused("INVALID_FORMAT", f"{text}: another tool has a ref where this one must stand", **details)
    if re.search(
        r"cannot lock ref|could not lock config file|Unable to create '.*\.lock'|but expected|reference already exists",
        said,
    ):
        denied = re.search(r"Permission denied|Read-only|Not a directory", said)
        return Unavailable("STORE_UNAVAILABLE" if denied else "STORE_IN_USE", text, **details)
    return Unavailable("STORE_UNAVAILABLE", text, **details)


def until_free(action: Callable[[], T]) -> T:
    """Return what ``action`` does, called again while another process holds or just changed what it needs.

    Raises:
        Unavailable: ``STORE_IN_USE`` when others held it all the time; whatever else ``action`` raises.
    """
    wait_s = retry_wait_first_s
    for _ in range(attempts_max - 1):
        try:
            return action()
        except Unavailable as error:
            if error.code != "STORE_IN_USE":
                raise
        time.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311 - so that two writers do not keep step
        wait_s = min(2 * wait_s, retry_wait_max_s)
    return action()


def masked(text: str) -> str:
    """Return a text without the user, password or token of an address in it, in one line."""
    return " ".join(_SECRET.sub(r"\1***", _CREDENTIALS.sub("***", text)).split())


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    return {"GIT_ASKPASS": "", **kept, **_SET, **variables}


def _run(
    command: Sequence[str], what: str, given: IO[bytes], environment: dict[str, str], most: tuple[float, int]
) -> Answer:
    """Run a program in a session of its own: it has no terminal to ask at, and ends with all that it started."""
    time_max_s, size_max = most
    is_late = threading.Event()
    complaint: list[bytes] = []
    with subprocess.Popen(  # noqa: S603 - a fixed program without a shell; what varies was checked
        command,
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - it is a pipe

        def stop() -> None:
            is_late.set()
            _end(process)

        watchdog = threading.Timer(time_max_s, stop)
        listener = threading.Thread(target=_listen, args=(process.stderr, complaint), daemon=True)
        watchdog.start()
        listener.start()
        try:
            out = process.stdout.read(size_max + 1)
            if len(out) > size_max:
                _end(process)
            process.wait()
            listener.join()
        finally:
            watchdog.cancel()
            _end(process)
    if is_late.is_set():
        raise Unavailable("STORE_UNAVAILABLE", f"{what} did not end within {time_max_s:g} s")
    if len(out) > size_max:
        raise Refused("TOO_LARGE", f"{what} answered with more than {size_max} bytes")
    said = masked(b"".join(complaint).decode("utf-8", "replace"))
    return Answer(process.returncode, out, _shortened(said))


def _shortened(text: str) -> str:
    """Return the end of a long complaint: git's reason stands there, after what a remote sent and progress."""
    return text if len(text) <= error_shown_max_chars else "… " + text[-error_shown_max_chars:]


def _listen(pipe: IO[bytes], into: list[bytes]) -> None:
    """Keep the end of what is said, and let nobody wait for a full pipe."""
    kept = b""
    while said := os.read(pipe.fileno(), 8192):
        kept = (kept + said)[-error_size_max_bytes:]
    into.append(kept)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that runs on, with its children."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
