"""Positions of subscribers in PostgreSQL, in one transaction with the tables that their functions write.

Whoever runs a subscription holds an advisory lock of its session, the one that the effects are written through: when
the session ends, however it does, the lock is free and nothing more can be committed by it. So the URI must lead to the
server itself, or to a pooler that keeps sessions (not one that hands out a connection for each transaction).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, cast

from deedbook.consumers.sdk.subscription_store import SCHEMA, SubscriptionStore
from deedbook.ledger import limits
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    missing = f"a store in PostgreSQL needs psycopg ({error}): pip install 'deedbook[postgres]'"
    raise Unavailable("EXTRA_MISSING", missing, package="psycopg", extra="postgres") from error

_KEY: Final = "SELECT pg_{}(hashtextextended('deedbook subscription ' || ?, 0))"
_CONNECTION: Final[dict[str, Any]] = {"connect_timeout": 10, "keepalives_idle": 30, "application_name": "deedbook"}
"""Defaults that the URI may override. A lost peer is noticed within minutes, not hours."""

retry_wait_s: Final = 0.2


class PostgresSubscriptions(SubscriptionStore):
    """The subscriptions kept in one database, in the schema that comes first in the search path."""

    def __init__(self, uri: str) -> None:
        """Connect, and make the tables if they are not there; what libpq takes of the environment counts, too.

        Raises Unavailable: ``STORE_UNAVAILABLE`` or ``STORE_FULL``, as from every method. Refused: ``USAGE``.
        """
        try:
            self._given = {**_CONNECTION, **conninfo_to_dict(uri)}
        except psycopg.ProgrammingError:  # it would repeat the URI, which may hold a password
            message = "the store is not a PostgreSQL URI: write postgresql://USER@HOST:PORT/DATABASE"
            raise Refused("USAGE", message) from None
        self.place = f"the database {self._given.get('dbname', '')} of PostgreSQL"
        self._turn = threading.RLock()
        self._held = set[str]()
        self.db = self._connect()
        try:
            if self.run("SELECT to_regclass('deedbook_dead_letters')") == [(None,)]:
                with self.transaction():  # two that make them at once would refuse each other
                    self.run(_KEY.format("advisory_xact_lock"), "")
                    self.run(SCHEMA)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.db.close()

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        # A session may take its own lock twice: threads that share this one are told apart here.
        if name in self._held or self.run(_KEY.format("try_advisory_lock"), name) != [(True,)]:
            raise self._running_already(name)
        self._held.add(name)
        try:
            yield
        finally:
            self._held.discard(name)
            with contextlib.suppress(Unavailable):  # then the session has ended, and its locks with it
                self.run(_KEY.format("advisory_unlock"), name)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        # Within this block psycopg refuses commit() and rollback(), and a function's own block is a savepoint.
        with self._turn, self._translated(is_ours=False), self._open().transaction():
            yield self.db

    def check_open(self) -> None:
        status = self.db.info.transaction_status
        if status == psycopg.pq.TransactionStatus.INERROR:
            # COMMIT would be answered with ROLLBACK, and no error: neither effect nor position would be there.
            message = "a statement failed and the function continued: put `with db.transaction():` around what may fail"
            raise Refused("USAGE", message)
        if status != psycopg.pq.TransactionStatus.INTRANS:
            message = "the function ended its transaction: remove COMMIT and ROLLBACK"
            raise Refused("USAGE", f"{message}; what it wrote is committed with the position")

    def run(self, sql: str, *values: Any) -> list[Any]:
        with self._turn, self._translated():
            # Without values several statements may be sent at once.
            cursor = self._open().execute(sql.replace("?", "%s").encode(), [*map(_storable, values)] or None)
            return cursor.fetchall() if cursor.description else []

    def uncount_attempt(self, name: str, index: int) -> None:
        """Take back an attempt, also when the connection was lost in it, as soon as the server is back.

        Else five outages in the middle of one event would make a dead letter of it.
        """
        deadline = time.monotonic() + limits.request_timeout_s
        while True:
            try:
                if self.db.closed:
                    self.db = self._connect()  # without the locks: whoever ran is on the way out, with the error
                return super().uncount_attempt(name, index)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(retry_wait_s)

    def _connect(self) -> psycopg.Connection:
        with self._translated():
            return psycopg.connect(**self._given, autocommit=True)

    def _open(self) -> psycopg.Connection:
        if self.db.closed and not self._held:  # who runs must take the lock again first
            self.db = self._connect()
        return cast("psycopg.Connection", self.db)

    @contextlib.contextmanager
    def _translated(self, *, is_ours: bool = True) -> Iterator[None]:
        """Translate what psycopg raises inside; of a block that is not ours, all if the connection is lost.

        Then it is no fault of the event's that its function failed, however it says so.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, DeedbookError) or not (
                isinstance(error, psycopg.Error) if is_ours else self.db.closed
            ):
                raise
            code = "STORE_FULL" if isinstance(error, psycopg.errors.DiskFull) else "STORE_UNAVAILABLE"
            message = f"{self.place} cannot be used: {str(error).strip()}; run it again when it can"
            raise Unavailable(code, message, path=self.place) from error


def _storable(value: Any) -> Any:
    """Return a value as PostgreSQL keeps it: its texts hold neither zero bytes nor halves of characters."""
    return value.encode("utf-8", "replace").decode().replace("\0", "?") if isinstance(value, str) else value
