"""What SQLite raises, said in Baton's words, where SQLite is called."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from ledger.errors import BatonError, Corrupted, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADVICE: Final = "delete the file, and `baton project` rebuilds it from the log"


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the errors of SQLite within the block.

    Raises:
        Unavailable: ``STORE_FULL`` for a full disk, ``STORE_UNAVAILABLE`` for a file that is locked or out of reach.
        Corrupted: the file is damaged, or its tables are not what this software made.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error


def _translate(error: sqlite3.Error, path: Path) -> BatonError:
    name = getattr(error, "sqlite_errorname", "") or ""
    details = {"path": str(path), "cause": str(error)}
    if name.startswith("SQLITE_FULL"):
        return Unavailable("STORE_FULL", f"the disk has no room for the views in {path}", **details)
    damage = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT", "SQLITE_ERROR", "SQLITE_MISMATCH")
    if name.startswith(damage):
        return Corrupted("CORRUPTED", f"the views in {path} are damaged ({error}): {ADVICE}", **details)
    return Unavailable("STORE_UNAVAILABLE", f"the views in {path} cannot be used: {error}", **details)
