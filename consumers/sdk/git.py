"""Runs the git program: limited in time and output, without shell, prompts or hooks, and with typed errors.

In the operator's own repository, git uses the operator's configuration (a ``safe.directory``, a credential helper, a
proxy). This module removes variables that name another repository (a git hook that calls us sets ``GIT_DIR`` and
``GIT_INDEX_FILE``), and disables prompts, hooks, signing and garbage collection. The author of commits is Deedbook, so
a machine without a git identity can write notes.

A repository that is only read may be a stranger's, and its configuration may name programs. With ``is_own=False`` git
gets no variables, no configuration but the repository's, and no transport. The caller then uses only commands that read
plain objects (``rev-parse``, ``ls-tree``, ``cat-file`` …).
"""

from __future__ import annotations

import os
import re
import select
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

from blake3 import blake3

from deedbook.consumers.sdk.command import kill_group
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.system.resource import Resource

git_time_max_s: Final = 10.0
remote_time_max_s: Final = 300.0
output_size_max_bytes: Final = 16 * 1024**2
error_size_max_bytes: Final = 64 * 1024
error_shown_max_chars: Final = 600
chunk_max_bytes: Final = 256 * 1024
daemon_wait_max_s: Final = 0.2
exit_poll_first_s: Final = 0.000_05
exit_poll_max_s: Final = 0.05

object_silence_max_s: Final = 60.0
object_header_max_bytes: Final = 8 * 1024
starts_max: Final = 1_000

_KEPT: Final = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EXEC_PATH",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
    }
)
_SET: Final = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_AUTHOR_NAME": "Deedbook",
    "GIT_AUTHOR_EMAIL": "deedbook@localhost",
    "GIT_COMMITTER_NAME": "Deedbook",
    "GIT_COMMITTER_EMAIL": "deedbook@localhost",
}
_STRANGERS: Final = _SET | {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # not the name of a protocol, so no protocol is allowed
    "GIT_NO_LAZY_FETCH": "1",
}
_OPTIONS: Final = (
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.quotePath=true",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "push.gpgSign=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "i18n.commitEncoding=UTF-8",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
)
TRANSFER_RUNS: Final = (
    r"core\.(sshcommand|gitproxy|askpass|alternaterefscommand)|credential\..*helper|protocol\..*allow"
    # git can write cookies into any file, even into a shell's start file
    r"|remote\..*\.(uploadpack|receivepack|vcs)|http\..*savecookies"
)
"""The settings by which git runs programs when it fetches or pushes."""
RUNS: Final = (
    rf"{TRANSFER_RUNS}|core\.(fsmonitor|hookspath|editor|pager)|alias\..*|pager\..*|sequence\.editor|diff\.external"
    r"|(diff|difftool|merge|mergetool|filter)\..*\.(command|cmd|textconv|driver|clean|smudge|process)"
    r"|gpg\.(.*\.)?program|include(if\..*)?\.path|submodule\..*\.update"
)
"""The settings by which any command of git may run programs, or read more settings."""
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")
_OWN: Final = frozenset({"local", "worktree"})
_LOCKED: Final = (
    r"cannot lock ref|could not lock config file|Unable to create '.*\.lock'|but expected|reference already exists"
)
_SECRET: Final = re.compile(r"(?i)((?:token|password|passwd|secret|access_key)=)[^&\s'\"]+")


class Answer(NamedTuple):
    """Git's answer: exit code, output, and error text, which is shortened and has no credentials."""

    code: int
    out: bytes
    error: str


class Git:
    """The git program in one folder."""

    def __init__(self, folder: Path, *, is_own: bool = True) -> None:
        """Find the program; not ``is_own``: the repository may be a stranger's. Raises Unavailable: git is missing."""
        program = shutil.which("git")
        if program is None:
            raise Unavailable("STORE_UNAVAILABLE", "the program git is not installed: install it and try again")
        self._command = (program, *_OPTIONS, "-C", str(folder))
        self._is_own = is_own
        self.folder = folder

    def call(
        self,
        *arguments: str,
        data: bytes = b"",
        variables: Mapping[str, str] | None = None,
        time_max_s: float = git_time_max_s,
        size_max: int = output_size_max_bytes,
    ) -> Answer:
        """Return git's answer, also for a failed command.

        Raises Unavailable: it cannot be run, or does not end. Refused: ``TOO_LARGE`` for more than ``size_max`` bytes.
        """
        what = f"git {arguments[0]}"
        try:
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.seek(0)
                with self.start(*arguments, stdin=file, stderr=subprocess.PIPE, variables=variables) as process:
                    try:
                        return _answer(process, what, time_max_s, size_max)
                    finally:
                        kill_group(process)
        except OSError as error:
            raise Unavailable("STORE_UNAVAILABLE", f"{what} cannot be run: {error.strerror or error}") from error

    def own_settings(self, names: str) -> list[tuple[str, str]]:
        """Return the settings of the repository itself whose names match a pattern, with values; none outside of one.

        Git reads them and runs nothing. A value is shown without credentials.
        """
        answer = self.call("config", "--show-scope", "--includes", "-z", "--get-regexp", rf"^({names})$")
        words = answer.out.decode("utf-8", "replace").split("\0")
        found = [pair.partition("\n") for scope, pair in zip(words[::2], words[1::2], strict=False) if scope in _OWN]
        return [(name, _CREDENTIALS.sub("***", value)) for name, _, value in found]

    def ask(
        self,
        *arguments: str,
        data: bytes = b"",
        variables: Mapping[str, str] | None = None,
        time_max_s: float = git_time_max_s,
    ) -> str:
        """Return git's output as text, without the newline at its end.

        Raises Refused: ``NOT_FOUND`` outside a repository. Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``,
        ``STORE_IN_USE`` if another process holds a lock.
        """
        answer = self.call(*arguments, data=data, variables=variables, time_max_s=time_max_s)
        if answer.code:
            raise failure(answer, f"git {arguments[0]}", self.folder)
        return answer.out.decode("utf-8", "replace").removesuffix("\n")

    def start(
        self,
        *arguments: str,
        stdin: IO[bytes] | int = subprocess.PIPE,
        stderr: int = subprocess.DEVNULL,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start git in a process session of its own: without a terminal, and killed as a group. Raises Unavailable."""
        try:
            return subprocess.Popen(  # noqa: S603 - a fixed program without a shell; the callers check the arguments
                (*self._command, *arguments),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=(_own_environment() if self._is_own else _STRANGERS) | dict(variables or {}),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            text = f"git {arguments[0]} cannot be run: {error.strerror or error}"
            raise Unavailable("STORE_UNAVAILABLE", text) from error


class Found(NamedTuple):
    """A git object: its type, its BLAKE3 as a ref, and its content (None if it is larger than ``size_max``)."""

    type: str
    size: int
    ref: str
    content: bytes | None


class Objects(Resource):
    """The objects of one repository, read through one running ``git cat-file --batch``.

    Each object is read before the next is requested, so no pipe fills up while the other side waits. A damaged object
    ends git: the object counts as missing, and a new git process reads the next one.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._starts = 0

    def get(self, name: str, size_max: int) -> Found | None:
        """Return an object by its id, ``ID^{tree}`` or ``ID:PATH``; without its content above ``size_max`` bytes.

        None: there is no such object, or it is damaged. Raises Unavailable: ``STORE_UNAVAILABLE`` if git does not
        answer in time, or ends repeatedly.
        """
        process = self._running()
        try:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.write(name.encode() + b"\n")
            header = self._line().split(b" ")
            if len(header) != 3:  # "NAME missing", "NAME ambiguous"
                return None
            size = int(header[2])
            content = self._content(size, size_max)
            self._take(1)
        except (EOFError, BrokenPipeError, ValueError):
            self.close()
            return None
        return Found(header[1].decode("ascii"), size, *content)

    def _content(self, size: int, size_max: int) -> tuple[str, bytes | None]:
        digest = blake3()
        chunks: list[bytes] = []
        left = size
        while left:
            chunk = self._take(min(left, chunk_max_bytes))
            left -= len(chunk)
            digest.update(chunk)
            if size <= size_max:
                chunks.append(chunk)
        return f"blake3:{digest.hexdigest()}", b"".join(chunks) if size <= size_max else None

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > object_header_max_bytes:
                raise ValueError("git cat-file answered without a header")
            self._buffer += self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _more(self) -> bytes:
        """Return the next bytes of git's answer. Raises EOFError: git ended. Unavailable: it did not answer in time."""
        process = self._running()
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        descriptor = process.stdout.fileno()
        if not select.select([descriptor], [], [], object_silence_max_s)[0]:
            raise Unavailable("STORE_UNAVAILABLE", f"git cat-file did not answer for {object_silence_max_s:g} s")
        chunk = os.read(descriptor, chunk_max_bytes)
        if not chunk:
            raise EOFError
        return chunk

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self._starts >= starts_max:
                text = f"git cat-file ended {starts_max} times: run `git fsck` in {self._git.folder}"
                raise Unavailable("STORE_UNAVAILABLE", text)
            self._starts += 1
            self._buffer = b""
            # Objects that a partial clone lacks count as missing: git would fetch them one by one over the network.
            self._process = self._git.start("cat-file", "--batch", variables={"GIT_NO_LAZY_FETCH": "1"})
        return self._process

    def close(self) -> None:
        """End git if it is running."""
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)
            with process:  # closes its pipes and waits for its end
                pass


def failure(answer: Answer, what: str, folder: Path) -> DeedbookError:
    """Return the error for a failed git command."""
    complaint = answer.error
    text = f"{what}: {complaint or f'exit code {answer.code}'}"
    details = {"folder": str(folder)}
    if "not a git repository" in complaint:
        is_linked = "/worktrees/" in complaint
        advice = ": run this in a repository, or name one"
        gone = ": its main tree is gone, and `git worktree repair` mends a moved one" if is_linked else ""
        return Refused("NOT_FOUND", f"{folder} is in no git repository{gone or advice}", **details)
    if "dubious ownership" in complaint or "unsafe repository" in complaint:
        text = f"git does not use the repository at {folder}: it belongs to somebody else (allow it with `git config \
--global --add safe.directory DIR`)"
        return Unavailable("STORE_UNAVAILABLE", text, **details)
    if "No space left" in complaint or "quota exceeded" in complaint.lower():
        return Unavailable("STORE_FULL", text, **details)
    if re.search(r"exists; cannot create|there are still refs under|cannot process .* at the same time", complaint):
        text = f"{text}: another tool has a ref with a conflicting name: delete or rename it"
        return Refused("INVALID_FORMAT", text, **details)
    if re.search(_LOCKED, complaint):
        is_denied = re.search(r"Permission denied|Read-only|Not a directory", complaint)
        return Unavailable("STORE_UNAVAILABLE" if is_denied else "STORE_IN_USE", text, **details)
    return Unavailable("STORE_UNAVAILABLE", text, **details)


def masked(text: str) -> str:
    """Return a text on one line, with user, password and token removed from every address in it."""
    return " ".join(_SECRET.sub(r"\1***", _CREDENTIALS.sub("***", text)).split())


def _own_environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    return {"GIT_ASKPASS": "", **variables, **_SET}


def _answer(process: subprocess.Popen[bytes], what: str, time_max_s: float, size_max: int) -> Answer:
    deadline = time.monotonic() + time_max_s
    try:
        out, complaint = _output(process, deadline, size_max)
        code = _end_of(process, deadline)
    except subprocess.TimeoutExpired as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{what} did not end within {time_max_s:g} s") from error
    if len(out) > size_max:
        raise Refused("TOO_LARGE", f"{what} answered with more than {size_max} bytes")
    text = masked(complaint.decode("utf-8", "replace"))
    # Keep the end of a long error text: git's reason comes after the remote's lines and progress.
    return Answer(code, out, text if len(text) <= error_shown_max_chars else "… " + text[-error_shown_max_chars:])


def _output(process: subprocess.Popen[bytes], deadline: float, size_max: int) -> tuple[bytes, bytes]:
    """Return a process's output and the end of its error text; kill it if it prints more than ``size_max`` bytes."""
    out, complaint = bytearray(), b""
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None  # noqa: S101 - it is a pipe
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            ready = selector.select(min(left_s, daemon_wait_max_s))
            # A daemon that git left behind (a credential cache, a shared ssh connection) may hold the pipes open.
            if not ready and process.poll() is not None:
                break
            for key, _ in ready:
                chunk = os.read(key.fd, chunk_max_bytes)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    complaint = (complaint + chunk)[-error_size_max_bytes:]
                else:
                    out += chunk
            if len(out) > size_max:
                kill_group(process)
                break
    return bytes(out), complaint


def _end_of(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Return a process's exit code. Poll in short pauses: ``wait`` would notice its end later."""
    pause_s = exit_poll_first_s
    while (code := process.poll()) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, 0)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, exit_poll_max_s)
    return code
