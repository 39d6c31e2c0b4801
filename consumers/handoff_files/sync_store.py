"""What a watcher remembers of a folder: for each file, the bytes on which it and the ledger last agreed.

One SQLite file for each folder and acting agent. Losing it loses no work: a file that differs from the ledger is then
shown beside it, and nothing is signed until somebody has looked.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, base BLOB NOT NULL, position INTEGER NOT NULL, seen TEXT NOT NULL, said TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1), next_index INTEGER NOT NULL);
"""
_busy_timeout_s: Final = 10.0


class Agreed(NamedTuple):
    """What is remembered of a file.

    ``base`` are the bytes on which file and ledger last agreed (none yet: empty), ``position`` the index of the
    handoff's last event then. ``seen`` is the digest of what was looked at and left alone, ``said`` of what was told.
    """

    base: bytes = b""
    position: int = -1
    seen: str = ""
    said: str = ""


class SyncStore:
    """The memory of one watcher; every change is one transaction, and durable when its method returns."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``, as from every method.
        """
        self._path = path
        with self._translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, timeout=_busy_timeout_s, isolation_level=None)
            try:
                self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _SCHEMA)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def agreed(self, id_: str) -> Agreed | None:
        """Return what is remembered of a handoff's file, or None."""
        with self._translated():
            row = self._db.execute("SELECT base, position, seen, said FROM files WHERE id = ?", (id_,)).fetchone()
        return None if row is None else Agreed(*row)

    def agree(self, id_: str, agreed: Agreed) -> None:
        """Remember what file and ledger agree on."""
        with self._translated():
            self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", (id_, *agreed))

    def ids(self) -> list[str]:
        """Return the handoffs (and, with their ending, the tables) whose files are remembered."""
        with self._translated():
            return [row[0] for row in self._db.execute("SELECT id FROM files ORDER BY id")]

    def position(self) -> int | None:
        """Return the index of the log up to which the folder is in step, or None when it never was."""
        with self._translated():
            row = self._db.execute("SELECT next_index FROM position").fetchone()
        return None if row is None else int(row[0])

    def move(self, next_index: int) -> None:
        """Remember the index up to which the folder is in step."""
        with self._translated():
            self._db.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (next_index,))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            code = "STORE_FULL" if is_full else "STORE_UNAVAILABLE"
            raise Unavailable(code, f"{self._path} cannot be used: {error}", path=str(self._path)) from error
