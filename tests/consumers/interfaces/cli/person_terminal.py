"""A terminal on which a person runs a verb, reads and types."""

from __future__ import annotations

import contextlib
import os
import pty
from typing import TYPE_CHECKING

from forked_deed import DeedProcess

if TYPE_CHECKING:
    from pathlib import Path


class Terminal:
    """A person's terminal on which one verb runs."""

    def __init__(self, home: Path | None, *words: str, cwd: Path | None = None) -> None:
        """Run a verb; without ``home`` it finds the ledger by its working directory."""
        self._ours, theirs = pty.openpty()
        self._unread = b""
        before = [] if home is None else ["--home", str(home)]
        self._child = DeedProcess(*before, *words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd)
        os.close(theirs)

    def until(self, text: str | None) -> str:
        """Return the output up to and with a text, or to the end; what came after the text is for the next call."""
        wanted, shown = None if text is None else text.encode(), self._unread
        with contextlib.suppress(OSError):  # the process of this terminal has ended
            while (wanted is None or wanted not in shown) and (part := os.read(self._ours, 4096)):
                shown += part
        end = len(shown) if wanted is None or wanted not in shown else shown.index(wanted) + len(wanted)
        self._unread = shown[end:]
        return shown[:end].decode()

    def type(self, line: str) -> str:
        """Type a line; return it."""
        os.write(self._ours, f"{line}\n".encode())
        return line

    def answer(self, line: str) -> tuple[int, str]:
        """Type a line, and return exit code and output."""
        self.type(line)
        rest = self.until(None)
        return self.end(), rest

    def end(self) -> int:
        """Return the exit code."""
        os.close(self._ours)
        return self._child.wait(60)
