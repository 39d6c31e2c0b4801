"""Where subscribers remember what they have done: any number of named subscriptions in one SQLite file or PostgreSQL.

What is remembered is written once, for both; a store says how it connects, begins, commits and keeps a second run out.
Attempts are counted and committed before the effect is tried, so an event that kills its subscriber is counted too
and ends as a dead letter instead of killing it for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from weakref import WeakValueDictionary

from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.system.files import held, locked
from deedbook.ledger.trust.history import Past, Trusted

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS deedbook_positions (
    name TEXT PRIMARY KEY, next_index BIGINT NOT NULL, ledger TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS deedbook_heads (
    name TEXT NOT NULL, size BIGINT NOT NULL, root TEXT NOT NULL, epochs TEXT NOT NULL, PRIMARY KEY (name, size));
CREATE TABLE IF NOT EXISTS deedbook_attempts (
    name TEXT NOT NULL, event_index BIGINT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (name, event_index));
CREATE TABLE IF NOT EXISTS deedbook_dead_letters (
    name TEXT NOT NULL, event_index BIGINT NOT NULL, event_id TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (name, event_index));
"""
_busy_timeout_s = 10.0
_turns: Final[WeakValueDictionary[Path, Any]] = WeakValueDictionary()


class DeadLetter(NamedTuple):
    """An event whose effect failed as often as it may: the log's index, the event's id, the last error."""

    event_index: int
    event_id: str
    error: str


class SubscriptionStore(ABC):
    """The subscriptions kept in one place; ``db`` is the connection that effects write through, ``place`` names it."""

    place: str
    db: Any

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Be the only one who runs the subscription ``name``: a second one would bring about its effects again.

        Whoever gets past it nevertheless (somebody removed the lock's file) is refused by ``check_is_next``.
        Raises Unavailable: ``STORE_IN_USE``; ``STORE_UNAVAILABLE`` where nothing can be locked.
        """

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """One transaction: everything inside commits together, or nothing does.

        Only what beginning and committing raises is translated: an error inside the block is the block's own.
        """

    @abstractmethod
    def check_open(self) -> None:
        """Refuse (``USAGE``), within a transaction, what ended it: its effect would be there without the position."""

    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of one statement, also for those who keep tables of their own beside these."""

    def check_is_next(self, name: str, index: int) -> None:
        """Refuse (``STORE_IN_USE``), in a transaction, to go back behind the position: somebody else runs this, too."""
        position = self.position(name)
        if position is not None and position > index:
            raise self._running_already(name)

    def _running_already(self, name: str) -> Unavailable:
        message = f"the subscription {name} is running already: end that one, or take another name"
        return Unavailable("STORE_IN_USE", message, path=self.place)

    def position(self, name: str) -> int | None:
        """Return the index a subscription reads next, or None when it is new."""
        rows = self.run("SELECT next_index FROM deedbook_positions WHERE name = ?", name)
        return int(rows[0][0]) if rows else None

    def start_at(self, name: str, index: int, ledger: str = "") -> int:
        """Begin at ``index`` if it is new; return the index it reads next. Raises Refused: ``WRONG_LEDGER``."""
        sql = "SELECT next_index, ledger FROM deedbook_positions WHERE name = ?"
        if not (rows := self.run(sql, name)):  # asked first: to write waits for the effect of whoever runs it
            self.run(
                "INSERT INTO deedbook_positions VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING", name, index, ledger
            )
            rows = self.run(sql, name)
        ((position, known),) = rows
        if ledger and known not in ("", ledger):
            message = f"the subscription {name} in {self.place} reads another ledger: take another name, or store"
            raise Refused("WRONG_LEDGER", message, ledger=known)
        return int(position)

    def move(self, name: str, next_index: int) -> None:
        """Remember the index to read next; forget the attempts at what lies before it. Called in a transaction."""
        sql = "INSERT INTO deedbook_positions (name, next_index) VALUES (?, ?) ON CONFLICT (name) "
        self.run(f"{sql}DO UPDATE SET next_index = excluded.next_index", name, next_index)
        self.run("DELETE FROM deedbook_attempts WHERE name = ? AND event_index < ?", name, next_index)

    def past(self, name: str) -> Past:
        """Return the heads of the log that a subscription trusted, kept by ``trust``."""
        rows = self.run("SELECT size, root, epochs FROM deedbook_heads WHERE name = ? ORDER BY size", name)
        where = f"what {self.place} remembers of it is"
        return Past([Trusted(size, root, epochs.split()) for size, root, epochs in rows], where)

    def trust(self, name: str, past: Past) -> None:
        """Keep the heads that are trusted now, in the transaction that moves the position over what they hold."""
        heads = {head.size: (name, head.size, head.root, " ".join(head.epochs)) for head in past.heads}
        known = self.run("SELECT * FROM deedbook_heads WHERE name = ?", name)
        for row in known:
            if heads.get(row[1]) != row:
                self.run("DELETE FROM deedbook_heads WHERE name = ? AND size = ?", name, row[1])
        for new in set(heads.values()) - set(known):
            self.run("INSERT INTO deedbook_heads VALUES (?, ?, ?, ?)", *new)

    def count_attempt(self, name: str, index: int) -> int:
        """Count one more attempt at an event, durably, and return how many that makes."""
        with self.transaction():
            sql = "INSERT INTO deedbook_attempts VALUES (?, ?, 1) ON CONFLICT (name, event_index) "
            more = "DO UPDATE SET count = deedbook_attempts.count + 1 RETURNING count"
            ((count,),) = self.run(sql + more, name, index)
        return int(count)

    def uncount_attempt(self, name: str, index: int) -> None:
        """Take back an attempt that could not even begin, because something else was not there."""
        with self.transaction():
            self.run("UPDATE deedbook_attempts SET count = count - 1 WHERE name = ? AND event_index = ?", name, index)

    def bury(self, name: str, letter: DeadLetter) -> None:
        """Give an event up as a dead letter and go on after it. Raises Unavailable: as ``check_is_next``."""
        with self.transaction():
            self.check_is_next(name, letter.event_index)
            self.keep_aside(name, letter)
            self.move(name, letter.event_index + 1)

    def keep_aside(self, name: str, letter: DeadLetter) -> None:
        """Keep an event as a dead letter, in the transaction of what else came of it."""
        sql = "INSERT INTO deedbook_dead_letters VALUES (?, ?, ?, ?) ON CONFLICT (name, event_index) "
        self.run(f"{sql}DO UPDATE SET event_id = excluded.event_id, error = excluded.error", name, *letter)

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the dead letters of a subscription, oldest first."""
        sql = "SELECT event_index, event_id, error FROM deedbook_dead_letters WHERE name = ? ORDER BY event_index"
        return [DeadLetter(*row) for row in self.run(sql, name)]

    def unbury(self, name: str, index: int) -> None:
        """Forget a dead letter, in the transaction in which its effect happens. Raises Refused: ``NOT_FOUND``."""
        sql = "DELETE FROM deedbook_dead_letters WHERE name = ? AND event_index = ? RETURNING name"
        if not self.run(sql, name, index):
            raise Refused("NOT_FOUND", f"entry {index} is no dead letter of {name}", index=index)


class Subscriptions(SubscriptionStore):
    """The subscriptions kept in one SQLite file; a subclass keeps tables of its own beside, made by its ``schema``."""

    schema: ClassVar[str] = ""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``, as from every method."""
        # One name for one file, whatever links led here: the lock beside it keeps a second run out.
        self.path = path = Path(os.path.realpath(path))
        self.place = str(path)
        self._turn = _turns.setdefault(path, threading.RLock())
        with self.translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self.db = sqlite3.connect(path, timeout=_busy_timeout_s, isolation_level=None, check_same_thread=False)
            try:
                # While SQLite changes a new file to WAL mode it refuses all other connections at once, without waiting.
                with locked(path.parent):
                    self.db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA + self.schema)
            except BaseException:
                self.db.close()
                raise

    def close(self) -> None:
        self.db.close()

    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return held(self.path.with_name(f"{self.path.name}.{digest}.lock"), self._running_already(name))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        # Threads take turns: an effect may wait for longer than SQLite does for a file that another of them has locked.
        with self._turn:
            with self.translated():
                self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                with self.translated():
                    self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def run(self, sql: str, *values: Any) -> list[Any]:
        with self.translated():
            rows: list[Any] = self.db.execute(sql, values).fetchall()
            return rows

    def check_open(self) -> None:
        if not self.db.in_transaction:
            message = "the function ended its transaction: leave out commit(), rollback(), executescript(), `with db:`"
            raise Refused("USAGE", f"{message}; what it wrote is committed with the position")

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Translate what SQLite raises inside. Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            number = getattr(error, "sqlite_errorcode", None)
            code = "STORE_FULL" if number == sqlite3.SQLITE_FULL else "STORE_UNAVAILABLE"
            raise Unavailable(code, f"{self.path} cannot be used: {error}", path=str(self.path)) from error


def open_subscriptions(store: Path | str) -> SubscriptionStore:
    """Open what ``store`` names: a database by its ``postgresql://`` URI, or a file.

    Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``; ``EXTRA_MISSING``. Refused: ``USAGE`` for a wrong URI.
    """
    if isinstance(store, str) and store.startswith(("postgresql:", "postgres:")):
        from deedbook.consumers.sdk.postgres import PostgresSubscriptions

        return PostgresSubscriptions(store)
    return Subscriptions(Path(store))
