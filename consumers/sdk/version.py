"""The version of Deedbook, and the commit of its sources."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

from deedbook.consumers.sdk.git import Git
from deedbook.ledger.errors import DeedbookError

_DESCRIBE: Final = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def commit() -> str:
    """Return the commit that was built (``deploy/build_hook.py``) or that is checked out; nothing if neither is known.

    It ends in ``-dirty`` if the sources differed from the commit.
    """
    package = Path(__file__).parents[2]
    built = package / "commit.txt"
    if built.exists():
        return built.read_text("ascii").strip()
    try:
        return Git(package.parent).ask(*_DESCRIBE) if (package.parent / ".git").exists() else ""
    except DeedbookError:
        return ""


def version_text() -> str:
    """Return the version, and the commit if it is known: ``0.1.0 (commit 0123456789ab)``."""
    return version("deedbook") + (f" (commit {known})" if (known := commit()) else "")
