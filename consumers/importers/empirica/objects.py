"""Git objects, one after the other, from one running `git cat-file --batch`: never a process an object.

An object is asked for and read before the next one is: so no pipe fills while the other side waits. A damaged object
ends git; it is told, and the next object is asked of a new git. How often that may happen is limited, and so is the
time that git may be silent.
"""

from __future__ import annotations

import os
import select
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from blake3 import blake3

from ledger.errors import Unavailable

if TYPE_CHECKING:
    from types import TracebackType

    from consumers.sessions.stores.git import Git

silence_max_s: Final = 60.0
starts_max: Final = 1_000
chunk_max_bytes: Final = 256 * 1024
header_max_bytes: Final = 8 * 1024


class Found(NamedTuple):
    """An object: its type, its BLAKE3 as a ref, and its content; None where it is larger than was asked for."""

    sort: str
    size: int
    ref: str
    content: bytes | None


class Objects:
    """The objects of one repository; to be used in a ``with`` block."""

    def __init__(self, git: Git) -> None:
        """Start nothing yet."""
        self._git = git
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._starts = 0

    def __enter__(self) -> Self:
        """Return the objects."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """End git."""
        self._end()

    def get(self, name: str, size_max: int) -> Found | None:
        """Return an object by its id (or ``ID^{tree}``), without its content if it is larger than ``size_max``.

        None: there is no such object, or it is damaged.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` when git is silent, or ends again and again.
        """
        process = self._running()
        try:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.write(name.encode("ascii") + b"\n")
            header = self._line().split(b" ")
            if len(header) != 3:  # "NAME missing", "NAME ambiguous"
                return None
            size = int(header[2])
            content = self._content(size, size_max)
            self._take(1)
        except (EOFError, BrokenPipeError, ValueError):
            self._end()
            return None
        return Found(header[1].decode("ascii"), size, *content)

    def _content(self, size: int, size_max: int) -> tuple[str, bytes | None]:
        digest = blake3()
        kept: list[bytes] = []
        left = size
        while left:
            chunk = self._take(min(left, chunk_max_bytes))
            left -= len(chunk)
            digest.update(chunk)
            if size <= size_max:
                kept.append(chunk)
        return f"blake3:{digest.hexdigest()}", b"".join(kept) if size <= size_max else None

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > header_max_bytes:
                raise ValueError("git cat-file answered with no header")
            self._buffer += self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _more(self) -> bytes:
        """Return what git says next.

        Raises:
            EOFError: it ended. Unavailable: it is silent.
        """
        process = self._running()
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        descriptor = process.stdout.fileno()
        if not select.select([descriptor], [], [], silence_max_s)[0]:
            raise Unavailable("STORE_UNAVAILABLE", f"git cat-file said nothing for {silence_max_s:g} s")
        said = os.read(descriptor, chunk_max_bytes)
        if not said:
            raise EOFError
        return said

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self._starts >= starts_max:
                text = f"git cat-file ended {starts_max} times: `git fsck` tells what is damaged in {self._git.folder}"
                raise Unavailable("STORE_UNAVAILABLE", text)
            self._starts += 1
            self._buffer = b""
            # What a partial clone lacks is told, and not fetched over the network one by one.
            self._process = self._git.start("cat-file", "--batch", variables={"GIT_NO_LAZY_FETCH": "1"})
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.kill()
        process.wait()
