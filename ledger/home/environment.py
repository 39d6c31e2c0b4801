"""Variables of the environment that are no settings of a ledger."""

from __future__ import annotations

import os
from pathlib import Path


def environment_variable(name: str) -> str | None:
    """Return a variable that the configuration names, as the one with a model's API key."""
    return os.environ.get(name)


def present_session() -> str | None:
    """Return the session that the verbs of sessions mean when they name none (``DEEDBOOK_SESSION``)."""
    return os.environ.get("DEEDBOOK_SESSION") or None


def wants_traceback() -> bool:
    """Return whether an unforeseen error is shown with its traceback (``DEEDBOOK_TRACEBACK``)."""
    return bool(os.environ.get("DEEDBOOK_TRACEBACK"))


def wants_colour() -> bool:
    """Return whether a terminal is printed to in colour (``NO_COLOR``: no-color.org)."""
    return not os.environ.get("NO_COLOR")


def temporary_files_folder() -> Path:
    """Return the folder for temporary files (``TMPDIR``)."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - under names that nobody foresees
