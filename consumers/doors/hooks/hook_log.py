"""The log of hooks: what went wrong in one, as JSON lines in the ledger's folder, because a host must not see it.

Bounded: a full file becomes ``hooks.log.1``, in the place of an older one. Where nothing can be written (a full disk),
nothing is: a hook has nobody to tell.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "hooks.log"
size_max_bytes: Final = 256 * 1024
message_max_chars: Final = 500


def log_failure(home: Path, harness: str, event: str, code: str, message: str) -> None:
    """Add one line to the log of a ledger's folder."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "harness": harness,
        "event": event[:message_max_chars],
        "code": code,
        "message": message[:message_max_chars],
    }
    content = json.dumps(line).encode() + b"\n"
    path = home / NAME
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size + len(content) > size_max_bytes:
                path.replace(path.with_name(f"{NAME}.1"))
        # One write of a file opened for appending: lines of hooks that run at the same time do not mix.
        # What somebody put in its place, a link or a pipe that nobody reads, is neither followed nor waited for.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
