"""Environment variables that are not settings of a ledger."""

from __future__ import annotations

import os
from pathlib import Path


def environment_variable(name: str) -> str | None:
    """Return a variable that the configuration names, such as the one with a model's API key."""
    return os.environ.get(name)


def present_session() -> str | None:
    """Return the session for session commands that name none (``DEEDBOOK_SESSION``)."""
    return os.environ.get("DEEDBOOK_SESSION") or None


def wants_traceback() -> bool:
    """Whether to print the traceback of an unexpected error (``DEEDBOOK_TRACEBACK``)."""
    return bool(os.environ.get("DEEDBOOK_TRACEBACK"))


def wants_colour() -> bool:
    """Whether to print in colour on a terminal (``NO_COLOR``: no-color.org)."""
    return not os.environ.get("NO_COLOR")


def temporary_files_folder() -> Path:
    """Return the folder for temporary files (``TMPDIR``)."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - the names of files there cannot be guessed
