"""Positions of named subscriptions, any number in one SQLite file or PostgreSQL database.

``SubscriptionStore`` has the operations that both stores share; each connects, begins, commits and locks in its own
way. An attempt is committed before the effect is tried. So an event that kills its subscriber is counted, too, and
becomes a dead letter instead of killing it for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from deedbook.consumers.sdk.subscription_store import COMMITTED_TOGETHER, SCHEMA, SubscriptionStore
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.system.files import lock_file, lock_folder

_busy_timeout_s = 10.0
_turns: Final[WeakValueDictionary[Path, Any]] = WeakValueDictionary()


class Subscriptions(SubscriptionStore):
    """The subscriptions in one SQLite file; a subclass adds its own tables by ``schema``."""

    schema: ClassVar[str] = ""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``, as every method."""
        # The real path, so that all links to the file share the lock beside it.
        self.path = path = Path(os.path.realpath(path))
        self.place = str(path)
        self._turn = _turns.setdefault(path, threading.RLock())
        with self.translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self.db = sqlite3.connect(path, timeout=_busy_timeout_s, isolation_level=None, check_same_thread=False)
            try:
                # While SQLite changes a new file to WAL mode, it refuses other connections without waiting.
                with lock_folder(path.parent):
                    self.db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA + self.schema)
            except BaseException:
                self.db.close()
                raise

    def close(self) -> None:
        self.db.close()

    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return lock_file(self.path.with_name(f"{self.path.name}.{digest}.lock"), self._running_already(name))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        # Threads take turns: one effect may take longer than SQLite waits for the lock of another.
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
            message = "the function ended its transaction: remove commit(), rollback(), executescript() and `with db:`"
            raise Refused("USAGE", f"{message}. {COMMITTED_TOGETHER}")

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Translate SQLite's errors. Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            number = getattr(error, "sqlite_errorcode", None)
            code = "STORE_FULL" if number == sqlite3.SQLITE_FULL else "STORE_UNAVAILABLE"
            raise Unavailable(code, f"{self.path} cannot be used: {error}", path=str(self.path)) from error


def open_subscriptions(store: Path | str) -> SubscriptionStore:
    """Return the open store that ``store`` names: a database by its ``postgresql://`` URI, or a file.

    Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``; ``EXTRA_MISSING``. Refused: ``USAGE`` for a wrong URI.
    """
    if isinstance(store, str) and store.startswith(("postgresql:", "postgres:")):
        from deedbook.consumers.sdk.postgres import PostgresSubscriptions  # noqa: PLC0415 - extra `postgres`

        return PostgresSubscriptions(store)
    return Subscriptions(Path(store))
