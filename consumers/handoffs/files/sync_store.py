"""What a watcher remembers of a folder: for each file, the bytes on which it and the ledger last agreed.

One SQLite file for each folder and acting agent. Losing it loses no work: a file that differs from the ledger is then
shown beside it, and nothing is signed until somebody has looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from consumers.sdk.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, base BLOB NOT NULL, position INTEGER NOT NULL, seen TEXT NOT NULL, said TEXT NOT NULL
) WITHOUT ROWID;
"""
_NAME: Final = "files"


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
        self._subscriptions = Subscriptions(path)
        self._db = self._subscriptions.db
        self._translated = self._subscriptions.translated
        try:
            with self._translated():
                self._db.executescript(_SCHEMA)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._subscriptions.close()

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
        return self._subscriptions.position(_NAME)

    def move(self, next_index: int) -> None:
        """Remember the index up to which the folder is in step."""
        with self._subscriptions.transaction():
            self._subscriptions.move(_NAME, next_index)
