"""Replacing a file whole: whoever reads it sees the old one or the new one, also after a crash or a power failure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

TEMPORARY: Final = ".baton-"


@contextmanager
def replacing(path: Path, *, mode: int = 0o600, is_durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of ``path`` when the block ends, and leaves no trace when the block raises.

    If we crash within, the old file stays, beside it at most a hidden one whose name begins with ``TEMPORARY``.
    What is not ``is_durable`` is not synced: after a power failure it may be the old one, or empty.

    Raises:
        OSError: it cannot be written; then the old file stays.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=TEMPORARY, delete=False) as file:
        temporary = path.parent / file.name
        try:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            if is_durable:
                os.fsync(file.fileno())  # Else a power failure could leave the new name with nothing in it.
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # what went wrong first is what counts
                temporary.unlink(missing_ok=True)
            raise
    if not is_durable:
        return
    # Else the old file could come back after a power failure, and would read as somebody's edit.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
