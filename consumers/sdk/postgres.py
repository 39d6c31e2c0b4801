"""Positions of subscribers in PostgreSQL, in one transaction with the tables that their functions write.

A running subscription holds an advisory lock of the database session through which its effects are written. When that
session ends, for any reason, the lock is free and the session can commit nothing more. So the URI must lead to the
server itself, or to a pooler in session mode (not in transaction mode).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, cast

from deedbook.consumers.sdk.subscription_store import COMMITTED_TOGETHER, SCHEMA, SubscriptionStore
from deedbook.ledger import limits
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.packages import install_command

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    missing = f"a store in PostgreSQL needs psycopg ({error}): {install_command('postgres')}"
    raise Unavailable("EXTRA_MISSING", missing, package="psycopg", extra="postgres") from error

_KEY: Final = "SELECT pg_{}(hashtextextended('deedbook subscription ' || ?, 0))"
_CONNECTION: Final[dict[str, Any]] = {"connect_timeout": 10, "keepalives_idle": 30, "application_name": "deedbook"}
"""Defaults that the URI may override. A lost peer is noticed within minutes, not hours."""

retry_wait_s: Final = 0.2


class PostgresSubscriptions(SubscriptionStore):
    """The subscriptions in one database, in the first schema of the search path."""

    def __init__(self, uri: str) -> None:
        """Connect, and create missing tables; libpq also reads its environment variables.

        Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``, as from every method. Refused: ``USAGE``.
        """
        try:
            self._given = {**_CONNECTION, **conninfo_to_dict(uri)}
        except psycopg.ProgrammingError:  # psycopg's error repeats the URI, which may contain a password
            message = "the store is not a PostgreSQL URI: write postgresql://USER@HOST:PORT/DATABASE"
            raise Refused("USAGE", message) from None
        self.place = f"the database {self._given.get('dbname', '')} of PostgreSQL"
        self._turn = threading.RLock()
        self._held = set[str]()
        self.db = self._connect()
        try:
            if self.run("SELECT to_regclass('deedbook_dead_letters')") == [(None,)]:
                with self.transaction():  # two processes at once take turns: else one would fail
                    self.run(_KEY.format("advisory_xact_lock"), "")
                    self.run(SCHEMA)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.db.close()

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        # A session can take its own lock twice, so this set separates the threads that share the session.
        if name in self._held or self.run(_KEY.format("try_advisory_lock"), name) != [(True,)]:
            raise self._running_already(name)
        self._held.add(name)
        try:
            yield
        finally:
            self._held.discard(name)
            with contextlib.suppress(Unavailable):  # the session has ended, and its locks with it
                self.run(_KEY.format("advisory_unlock"), name)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        # In this block psycopg refuses commit() and rollback(), and a transaction block of a function is a savepoint.
        with self._turn, self._translated(is_ours=False), self._open().transaction():
            yield self.db

    def check_open(self) -> None:
        status = self.db.info.transaction_status
        if status == psycopg.pq.TransactionStatus.INERROR:
            # PostgreSQL would answer COMMIT with a ROLLBACK and no error, so effect and position would be lost.
            message = (
                "a statement failed, and the function continued: put `with db.transaction():` around a "
                "statement that may fail"
            )
            raise Refused("USAGE", message)
        if status != psycopg.pq.TransactionStatus.INTRANS:
            message = "the function ended its transaction: remove COMMIT and ROLLBACK"
            raise Refused("USAGE", f"{message}. {COMMITTED_TOGETHER}")

    def run(self, sql: str, *values: Any) -> list[Any]:
        with self._turn, self._translated():
            # Without values, psycopg can send several statements at once.
            cursor = self._open().execute(sql.replace("?", "%s").encode(), [*map(_storable, values)] or None)
            return cursor.fetchall() if cursor.description else []

    def uncount_attempt(self, name: str, index: int) -> None:
        """Uncount an attempt; if the connection was lost, do so as soon as the server answers again.

        Otherwise five outages during one event would make it a dead letter.
        """
        deadline = time.monotonic() + limits.request_timeout_s
        while True:
            try:
                if self.db.closed:
                    self.db = self._connect()  # it lacks the lock, so the interrupted run still ends with this error
                return super().uncount_attempt(name, index)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(retry_wait_s)

    def _connect(self) -> psycopg.Connection:
        with self._translated():
            return psycopg.connect(**self._given, autocommit=True)

    def _open(self) -> psycopg.Connection:
        if self.db.closed and not self._held:  # a running subscription must take the lock again before it reconnects
            self.db = self._connect()
        return cast("psycopg.Connection", self.db)

    @contextlib.contextmanager
    def _translated(self, *, is_ours: bool = True) -> Iterator[None]:
        """Translate psycopg's errors.

        If the connection is lost, translate all errors in a caller's block (not ``is_ours``), because the event is not
        at fault then.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, DeedbookError) or not (
                isinstance(error, psycopg.Error) if is_ours else self.db.closed
            ):
                raise
            code = "STORE_FULL" if isinstance(error, psycopg.errors.DiskFull) else "STORE_UNAVAILABLE"
            message = f"{self.place} cannot be used: {str(error).strip()}; run it again when PostgreSQL is available"
            raise Unavailable(code, message, path=self.place) from error


def _storable(value: Any) -> Any:
    """Return a value that PostgreSQL can store: its texts cannot hold zero bytes or lone surrogates."""
    return value.encode("utf-8", "replace").decode().replace("\0", "?") if isinstance(value, str) else value
