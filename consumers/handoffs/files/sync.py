"""What keeping a folder in step needs and says: who does it, what he remembers of each file, and what is told of it.

What is remembered stands in one SQLite file for each folder and acting agent. Losing it loses no work: a file that
differs from the ledger is then shown beside it, and nothing is signed until somebody has looked.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from consumers.handoffs.files.plan import Held
from consumers.sdk.subscriptions import Subscriptions
from ledger.author import Author
from ledger.client import Ask, Client
from ledger.errors import Refused


class Told(NamedTuple):
    """Something that happened to a file, or was left undone: what, of which handoff, and the words for it."""

    what: str
    id: str
    text: str
    details: dict[str, Any] = {}


def refusal_told(id_: str, refusal: Refused) -> Told:
    """Return what is told of a file that the ledger, or its own form, refused."""
    line = refusal.details.get("line")
    where = f"line {line}: " if line else ""
    return Told("refused", id_, f"{where}{refusal.code}: {refusal.message}", {"code": refusal.code, "line": line})


def held_told(id_: str, held: Held) -> Told:
    """Return what is told of an edit that is somebody else's to make."""
    return Told("held", id_, f"{held.what}: {held.who or 'somebody'} runs {held.command}", held._asdict())


def left_to_sender(id_: str, what: str, file: Path, sender: str | None, client: Client) -> Told:
    """Return what is told of a handoff From somebody else; where he is no agent here, anybody may import it."""
    is_agent = any(one.name == sender for one in client.agents())
    command = shlex.join(("baton", "handoff", "import", str(file), "--as", sender if sender and is_agent else "NAME"))
    return held_told(id_, Held(what, sender or "", command))


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


class Keeper(NamedTuple):
    """The folder, the agent who signs, the views he asks, what he remembers, and who is told of it.

    ``reviewer`` reviews new files and rows that name nobody.
    """

    path: Path
    author: Author
    answer: Ask
    store: SyncStore
    tell: Callable[[Told], None]
    reviewer: str | None = None
