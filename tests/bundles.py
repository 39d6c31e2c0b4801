"""What a stranger does with a bundle: unpack it, and run the program that lies in it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def members(path: Path) -> dict[str, tuple[int, int]]:
    """Return where the content of each member begins and how long it is."""
    with tarfile.open(path) as tar:
        return {one.name: (one.offset_data, one.size) for one in tar}


def unpacked(path: Path, folder: Path) -> Path:
    """Unpack a bundle as a stranger would."""
    folder.mkdir()
    # The oldest Python we support, 3.11.2, has no filters yet; newer ones warn without.
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as tar:
        tar.extractall(folder, **options)
    return folder


def run_alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's own program by a fresh interpreter that sees nothing of ours but installed packages."""
    command = [sys.executable, "-I", str(folder / "verify.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
