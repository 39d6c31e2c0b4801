"""Verbs called in this process, as if in a shell of their own: with a folder, an environment, and empty standard input.

Starting Python takes a second on a busy machine, and few tests need it: only those that are about the process itself
(signals, start-up, output to a closed pipe) start one.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import structlog

from deedbook.consumers.interfaces.cli.program import run

if TYPE_CHECKING:
    from collections.abc import Iterator


class Said(NamedTuple):
    """The result of a call: exit code, output and errors."""

    code: int
    out: str
    err: str


@contextlib.contextmanager
def surroundings(cwd: Path | None, changed: dict[str, str]) -> Iterator[None]:
    """Change to a folder with the environment of a fresh shell; restore all afterwards, also signals and logs."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    logger = logging.getLogger("deedbook")
    level, log_handlers = logger.level, [*logging.root.handlers]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    with mock.patch.dict(os.environ, kept | changed, clear=True), contextlib.chdir(cwd or Path.cwd()):
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            structlog.reset_defaults()
            logger.setLevel(level)
            logging.root.handlers[:] = log_handlers


def deed(*words: object, cwd: Path | None = None, stdin: bytes = b"", **changed: str) -> Said:
    """Call a verb and return its result; ``changed`` is added to the environment."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        surroundings(cwd, changed),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
    ):
        code = run(list(map(str, words)))
    return Said(int(code), *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]
