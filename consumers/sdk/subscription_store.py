"""The store of subscriptions: operations that SQLite and PostgreSQL share."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.trust.history import HeadHistory, TrustedHead

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS deedbook_positions (
    name TEXT PRIMARY KEY, next_index BIGINT NOT NULL, ledger TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS deedbook_heads (
    name TEXT NOT NULL, size BIGINT NOT NULL, root TEXT NOT NULL, resets TEXT NOT NULL, PRIMARY KEY (name, size));
CREATE TABLE IF NOT EXISTS deedbook_attempts (
    name TEXT NOT NULL, event_index BIGINT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (name, event_index));
CREATE TABLE IF NOT EXISTS deedbook_dead_letters (
    name TEXT NOT NULL, event_index BIGINT NOT NULL, event_id TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (name, event_index));
"""
COMMITTED_TOGETHER: Final = "Deedbook commits the function's writes together with the subscription's position."


class DeadLetter(NamedTuple):
    """An event whose function failed too often: its index in the log, its id, and the last error."""

    event_index: int
    event_id: str
    error: str


class SubscriptionStore(ABC):
    """The subscriptions in one file or database.

    ``db`` is the connection for effects, ``place`` names the store.
    """

    place: str
    db: Any

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Lock the subscription ``name`` for the block: a second run would repeat its effects.

        If somebody removes the lock's file, ``check_is_next`` still refuses a second run. Raises Unavailable:
        ``STORE_IN_USE``; ``STORE_UNAVAILABLE`` if nothing can be locked.
        """

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """One transaction: the block's writes commit together, or none does.

        Errors of its beginning and commit are translated; errors inside the block are raised unchanged.
        """

    @abstractmethod
    def check_open(self) -> None:
        """Refuse (``USAGE``) a function that ended our transaction: its effect would be stored without the position."""

    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of one statement; subclasses may have tables of their own."""

    def check_is_next(self, name: str, index: int) -> None:
        """Refuse (``STORE_IN_USE``) an index before the position: another run has already handled it."""
        position = self.position(name)
        if position is not None and position > index:
            raise self._running_already(name)

    def _running_already(self, name: str) -> Unavailable:
        message = f"the subscription {name} is already running: stop it, or use another name"
        return Unavailable("STORE_IN_USE", message, path=self.place)

    def position(self, name: str) -> int | None:
        """Return the index that a subscription reads next; None for a new one."""
        rows = self.run("SELECT next_index FROM deedbook_positions WHERE name = ?", name)
        return int(rows[0][0]) if rows else None

    def start_at(self, name: str, index: int, ledger: str = "") -> int:
        """Start a new subscription at ``index``; return the index to read next. Raises Refused: ``WRONG_LEDGER``."""
        sql = "SELECT next_index, ledger FROM deedbook_positions WHERE name = ?"
        if not (rows := self.run(sql, name)):  # read first: a write would wait for the transaction of a running effect
            self.run(
                "INSERT INTO deedbook_positions VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING", name, index, ledger
            )
            rows = self.run(sql, name)
        ((position, known),) = rows
        if ledger and known not in ("", ledger):
            message = f"the subscription {name} in {self.place} reads another ledger: use another name or store"
            raise Refused("WRONG_LEDGER", message, ledger=known)
        return int(position)

    def move(self, name: str, next_index: int) -> None:
        """Store the index to read next, and delete the attempts before it. Call it in a transaction."""
        sql = "INSERT INTO deedbook_positions (name, next_index) VALUES (?, ?) ON CONFLICT (name) "
        self.run(f"{sql}DO UPDATE SET next_index = excluded.next_index", name, next_index)
        self.run("DELETE FROM deedbook_attempts WHERE name = ? AND event_index < ?", name, next_index)

    def past(self, name: str) -> HeadHistory:
        """Return the trusted heads of a subscription's log, which ``trust`` stored."""
        rows = self.run("SELECT size, root, resets FROM deedbook_heads WHERE name = ? ORDER BY size", name)
        source = f"the subscription {name} in {self.place}"
        return HeadHistory([TrustedHead(size, root, resets.split()) for size, root, resets in rows], source)

    def trust(self, name: str, past: HeadHistory) -> None:
        """Store the trusted heads, in the transaction that moves the position."""
        heads = {head.size: (name, head.size, head.root, " ".join(head.resets)) for head in past.heads}
        known = self.run("SELECT * FROM deedbook_heads WHERE name = ?", name)
        for row in known:
            if heads.get(row[1]) != row:
                self.run("DELETE FROM deedbook_heads WHERE name = ? AND size = ?", name, row[1])
        for new in set(heads.values()) - set(known):
            self.run("INSERT INTO deedbook_heads VALUES (?, ?, ?, ?)", *new)

    def count_attempt(self, name: str, index: int) -> int:
        """Commit one more attempt at an event, and return the number of attempts."""
        with self.transaction():
            sql = "INSERT INTO deedbook_attempts VALUES (?, ?, 1) ON CONFLICT (name, event_index) "
            more = "DO UPDATE SET count = deedbook_attempts.count + 1 RETURNING count"
            ((count,),) = self.run(sql + more, name, index)
        return int(count)

    def uncount_attempt(self, name: str, index: int) -> None:
        """Uncount an attempt that an outage or a stop prevented."""
        with self.transaction():
            self.run("UPDATE deedbook_attempts SET count = count - 1 WHERE name = ? AND event_index = ?", name, index)

    def bury(self, name: str, letter: DeadLetter) -> None:
        """Make an event a dead letter and move the position after it. Raises Unavailable: as ``check_is_next``."""
        with self.transaction():
            self.check_is_next(name, letter.event_index)
            self.keep_aside(name, letter)
            self.move(name, letter.event_index + 1)

    def keep_aside(self, name: str, letter: DeadLetter) -> None:
        """Store an event as a dead letter, in the caller's transaction."""
        sql = "INSERT INTO deedbook_dead_letters VALUES (?, ?, ?, ?) ON CONFLICT (name, event_index) "
        self.run(f"{sql}DO UPDATE SET event_id = excluded.event_id, error = excluded.error", name, *letter)

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the dead letters of a subscription, oldest first."""
        sql = "SELECT event_index, event_id, error FROM deedbook_dead_letters WHERE name = ? ORDER BY event_index"
        return [DeadLetter(*row) for row in self.run(sql, name)]

    def unbury(self, name: str, index: int) -> None:
        """Delete a dead letter, in the transaction of its effect. Raises Refused: ``NOT_FOUND``."""
        sql = "DELETE FROM deedbook_dead_letters WHERE name = ? AND event_index = ? RETURNING name"
        if not self.run(sql, name, index):
            raise Refused("NOT_FOUND", f"entry {index} is not a dead letter of {name}", index=index)
