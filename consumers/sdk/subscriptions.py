"""Acting on events: durable subscriptions whose effect happens once.

A ``Reactor`` follows the log by index and calls one function for each event of the kinds it asks for:

    reactor = Reactor(client, Subscriptions(path), "mail")

    @reactor.on("handoff.completed")
    def note(event, db):
        db.execute("INSERT INTO done VALUES (?)", (event.name,))

    reactor.run(stop)

Position, attempts and dead letters live in the subscriber's own SQLite file. What the function writes through ``db``
commits in one transaction with the position: after any crash the effect has happened once or not at all, and a gap
is impossible because the position is an index of the log. Effects outside that file (a command, a webhook) are at least
once; they get the event's id as a stable key.

Attempts are counted and committed before the effect is tried, so an event that kills its subscriber is counted too
and ends as a dead letter instead of killing it for ever.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from ledger.client import follow, read_event
from ledger.errors import Refused, Unavailable, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger.client import Client
    from ledger.events.body import Event

    Effect = Callable[[Event, sqlite3.Connection], None]

log = structlog.get_logger("baton.reactor")

attempts_max: Final = 5
poll_wait_s: Final = 5.0
retry_wait_first_s: Final = 0.2
retry_wait_max_s: Final = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS positions (
    name TEXT PRIMARY KEY, next_index INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    name TEXT NOT NULL, event_index INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (name, event_index)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
    name TEXT NOT NULL, event_index INTEGER NOT NULL, event_id TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (name, event_index)) WITHOUT ROWID;
"""
_busy_timeout_s = 10.0


class DeadLetter(NamedTuple):
    """An event whose effect failed as often as it may: the log's index, the event's id, the last error."""

    event_index: int
    event_id: str
    error: str


class Subscriptions:
    """The subscriptions kept in one file; ``db`` is the connection that effects write through."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``, as from every method.
        """
        self._path = path
        with self.translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self.db = sqlite3.connect(path, timeout=_busy_timeout_s, isolation_level=None, check_same_thread=False)
            try:
                self.db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _SCHEMA)
            except BaseException:
                self.db.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction: everything inside commits together, or nothing does.

        Only what beginning and committing raises is translated: an error inside the block is the block's own.
        """
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

    def position(self, name: str) -> int | None:
        """Return the index a subscription reads next, or None when it is new."""
        with self.translated():
            row = self.db.execute("SELECT next_index FROM positions WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def move(self, name: str, next_index: int) -> None:
        """Remember the index to read next; forget the attempts at what lies before it. Called in a transaction."""
        with self.translated():
            self.db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (name, next_index))
            self.db.execute("DELETE FROM attempts WHERE name = ? AND event_index < ?", (name, next_index))

    def count_attempt(self, name: str, index: int) -> int:
        """Count one more attempt at an event, durably, and return how many that makes."""
        with self.transaction() as db, self.translated():
            (count,) = db.execute(
                "INSERT INTO attempts VALUES (?, ?, 1) ON CONFLICT (name, event_index) "
                "DO UPDATE SET count = count + 1 RETURNING count",
                (name, index),
            ).fetchone()
        return int(count)

    def uncount_attempt(self, name: str, index: int) -> None:
        """Take back an attempt that could not even begin, because something else was not there."""
        with self.transaction() as db, self.translated():
            db.execute("UPDATE attempts SET count = count - 1 WHERE name = ? AND event_index = ?", (name, index))

    def bury(self, name: str, letter: DeadLetter) -> None:
        """Give an event up as a dead letter and go on after it."""
        with self.transaction():
            self.keep_aside(name, letter)
            self.move(name, letter.event_index + 1)

    def keep_aside(self, name: str, letter: DeadLetter) -> None:
        """Keep an event as a dead letter, in the transaction of what else came of it."""
        with self.translated():
            self.db.execute("INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?)", (name, *letter))

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the dead letters of a subscription, oldest first."""
        sql = "SELECT event_index, event_id, error FROM dead_letters WHERE name = ? ORDER BY event_index"
        with self.translated():
            rows = self.db.execute(sql, (name,)).fetchall()
        return [DeadLetter(*row) for row in rows]

    def unbury(self, name: str, index: int) -> None:
        """Forget a dead letter, in the transaction in which its effect happens.

        Raises:
            Refused: ``NOT_FOUND``.
        """
        with self.translated():
            done = self.db.execute("DELETE FROM dead_letters WHERE name = ? AND event_index = ?", (name, index))
        if not done.rowcount:
            raise Refused("NOT_FOUND", f"entry {index} is no dead letter of {name}", index=index)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Translate what SQLite raises inside, also for those who keep tables of their own in this file.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``.
        """
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            number = getattr(error, "sqlite_errorcode", None)
            code = "STORE_FULL" if number == sqlite3.SQLITE_FULL else "STORE_UNAVAILABLE"
            raise Unavailable(code, f"{self._path} cannot be used: {error}", path=str(self._path)) from error


class Reactor:
    """One subscription: a name, the kinds it asks for, and what it does with each event."""

    def __init__(
        self,
        client: Client,
        subscriptions: Subscriptions,
        name: str,
        *,
        attempts: int = attempts_max,
        retry_wait_s: float = retry_wait_first_s,
        wait_s: float = poll_wait_s,
    ) -> None:
        """Subscribe as ``name`` to what ``client`` reads; a new subscription starts at the head unless told.

        ``wait_s`` is how long one read waits for news, and so how long ``run`` may take to see that it should stop.
        """
        self._client = client
        self._subscriptions = subscriptions
        self._name = name
        self._attempts = attempts
        self._retry_wait_s = retry_wait_s
        self._wait_s = wait_s
        self._effects: dict[str, Effect] = {}

    def on(self, *kinds: str) -> Callable[[Effect], Effect]:
        """Register the function that is called for each event of ``kinds``, in the order of the log."""

        def register(effect: Effect) -> Effect:
            self._effects |= dict.fromkeys(kinds, effect)
            return effect

        return register

    def start_at(self, index: int) -> None:
        """Begin at ``index`` if this subscription is new."""
        if self._subscriptions.position(self._name) is None:
            with self._subscriptions.transaction():
                self._subscriptions.move(self._name, index)

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """React until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the subscription's store cannot be used; call again to go on.
        """
        self.start_at(self._client.head().size)
        position = self._subscriptions.position(self._name) or 0
        if until is not None and position >= until:
            return
        for item in follow(self._client, position, kinds=sorted(self._effects), stop=stop, wait_s=self._wait_s):
            if isinstance(item, int):
                with self._subscriptions.transaction():
                    self._subscriptions.move(self._name, item)
                if until is not None and item >= until:
                    return
            elif not self._handle(item, stop):
                return

    def retry(self, index: int) -> None:
        """Try the effect of a dead letter again; when it succeeds, it is forgotten in the same transaction.

        Raises:
            Refused: ``NOT_FOUND``; ``USAGE`` when this subscription does not ask for its kind.
            Exception: whatever the effect raises.
        """
        event = read_event(index, self._client.entry(index))
        with self._subscriptions.transaction() as db:
            self._subscriptions.unbury(self._name, index)
            if event.kind not in self._effects:
                raise Refused("USAGE", f"{self._name} does not react to {event.kind}", kind=event.kind)
            self._effects[event.kind](event, db)

    def _handle(self, event: Event, stop: threading.Event) -> bool:
        """Bring about the effect of one event; return whether to go on."""
        wait_s = self._retry_wait_s
        while not stop.is_set():
            attempt = self._subscriptions.count_attempt(self._name, event.index)
            if attempt > self._attempts:
                # The last attempt ended with the process itself: nothing could be said of it any more.
                self._bury(event, "the subscriber died while it handled this event")
                return True
            try:
                with self._subscriptions.transaction() as db:
                    self._effects[event.kind](event, db)
                    self._subscriptions.move(self._name, event.index + 1)
            except Unavailable:
                # Not the event's fault: an outage, however often it is met, must never make it a dead letter.
                self._subscriptions.uncount_attempt(self._name, event.index)
                raise
            except Exception as error:  # noqa: BLE001 - an effect may fail in any way; it is counted and kept
                if stop.is_set():
                    # It was cut short, as a command is that runs when we are told to stop: that is not its fault.
                    self._subscriptions.uncount_attempt(self._name, event.index)
                    return False
                log.warning(
                    "effect failed", subscription=self._name, index=event.index, attempt=attempt, error=repr(error)
                )
                if attempt >= self._attempts:
                    self._bury(event, f"{type(error).__name__}: {message_of(error)}")
                    return True
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, retry_wait_max_s)
            else:
                return True
        return False

    def _bury(self, event: Event, reason: str) -> None:
        self._subscriptions.bury(self._name, DeadLetter(event.index, event.id, reason))
        log.error("dead letter", subscription=self._name, index=event.index, id=event.id, error=reason)
