"""Unpacks a bundle, and runs the ``verify.py`` in it, as a stranger does."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def members(path: Path) -> dict[str, tuple[int, int]]:
    """Return the offset and the length of the content of each member."""
    with tarfile.open(path) as tar:
        return {member.name: (member.offset_data, member.size) for member in tar}


def unpacked(path: Path, folder: Path) -> Path:
    """Unpack a bundle as a stranger would."""
    folder.mkdir()
    # The oldest Python that we support, 3.11.2, has no filters; newer ones warn if no filter is passed.
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as tar:
        tar.extractall(folder, **options)
    return folder


def run_alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's ``verify.py`` in a new isolated interpreter, which sees installed packages only."""
    command = [sys.executable, "-I", str(folder / "verify.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
