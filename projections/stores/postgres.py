"""Views in PostgreSQL: a schema for each ledger, plain table names, many readers and several workers.

- A write transaction takes the schema's advisory lock before it reads the positions, so one worker folds at a time, on
  whichever machine. The lock belongs to the connection: if a worker dies, or stalls inside a transaction for
  ``idle_max_s``, another continues from the last commit.
- A query is one read-only transaction at REPEATABLE READ, limited to ``query_max_s``. It locks ``deedbook_views`` in
  share mode before its snapshot is taken (the LOCK itself takes no snapshot), and a worker that swaps tables locks it
  exclusively. So a name never leads to tables that are newer than the snapshot.
- Connections are pooled, last in first out, by a list and a semaphore. The driver's pool opens connections in threads
  of its own, where a wrong password would become a timeout half a minute later.
- Text is compared by its bytes (``COLLATE "C"``), as in SQLite, whatever the database's own collation is.
- U+0000, which PostgreSQL's text cannot hold, is stored as two characters and restored when read.
- No setting contains a password: libpq finds it in ``PGPASSFILE`` (``passfile=``), a service file or the environment.

PostgreSQL 16 or newer (a subquery without a name). A pooler in front of it must pool by session (pasts use temporary
tables).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import psycopg
from blake3 import blake3
from psycopg import conninfo
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable, newer_version
from deedbook.ledger.format.forms import STORE_PATTERN, WORDS
from deedbook.projections.stores.postgres_connection import Connection, SqlStatement
from deedbook.projections.stores.postgres_schema import BOOKS, FORMAT
from deedbook.projections.stores.postgres_transaction import END, PostgresTransaction
from deedbook.projections.stores.store import VIEW_VERSIONS_SQL, DamagedStore, ViewVersion

connections_max: Final = 8
query_max_s: Final = 30
lock_wait_max_s: Final = 60
idle_max_s: Final = 60
connect_max_s: Final = 10

_CONNECTION: Final[dict[str, Any]] = {
    "application_name": "deedbook",
    "connect_timeout": connect_max_s,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "client_encoding": "utf8",
}
# Server-side keepalives: a machine that disappears loses its locks.
_SESSION: Final = (
    "SET search_path = {}; SET random_page_cost = 1.1; SET work_mem = '32MB'; "  # as for an SSD
    # JIT and parallel workers cost more time than they save (measured, a million events).
    "SET jit = off; SET max_parallel_workers_per_gather = 0; "
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; "
    f"SET tcp_keepalives_count = 3; SET lock_timeout = '{lock_wait_max_s}s'; "
    f"SET idle_in_transaction_session_timeout = '{idle_max_s}s'"
)
_LIMIT: Final = f"SET LOCAL statement_timeout = '{query_max_s}s'"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 0))"
_PAST: Final = [
    *map(
        SqlStatement,
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "LOCK TABLE deedbook_views IN ACCESS SHARE MODE", VIEW_VERSIONS_SQL),
    )
]
_READING: Final = [SqlStatement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), SqlStatement(_LIMIT), *_PAST[1:]]
_WRITING: Final = [*map(SqlStatement, ("BEGIN", _LOCK, VIEW_VERSIONS_SQL))]
# SQLSTATEs of missing or corrupted data: the views are rebuilt.
_MISSING: Final = ("3F000", "42P01", "42703", "XX001", "XX002")
_ADVICE: Final = "drop the schema, and `deed project` rebuilds it from the log"


def schema_of(ledger: str) -> str:
    """Return the name of the schema for a ledger's views."""
    return "deedbook_" + blake3(ledger.encode()).hexdigest()[:16]


class PostgresStore:
    """A ``Store`` in a schema of a database, usable by any number of threads, processes and machines."""

    is_shared: Final = True

    def __init__(self, url: str, *, ledger: str, is_apart: bool = False) -> None:
        """Connect, and create the schema if there is none; ``is_apart``: one connection, which may make shadow tables.

        Raises Refused: ``INVALID_FIELD``: the URL is invalid or contains a password. Unavailable:
        ``STORE_UNAVAILABLE``. Corrupted: the schema is damaged, or belongs to another ledger or version.
        """
        self.parameters = parameters_of(url)
        self.url = url
        self.name = " ".join(f"{name}={value}" for name, value in sorted(self.parameters.items()) if name in _SHOWN)
        self.schema = schema_of(ledger)
        self._ledger = ledger
        self._is_apart = is_apart
        self._idle: list[Connection] = []
        self._room = threading.BoundedSemaphore(1 if is_apart else connections_max)
        with _translated(self.name):
            connection = self._connected()
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    def apart(self) -> PostgresStore:
        """Return the same store on a connection of its own, for shadow tables."""
        return PostgresStore(self.url, ledger=self._ledger, is_apart=True)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def check(self) -> str:
        """Return ``ok``: PostgreSQL checks its own pages and reports damage."""
        with self.reading():
            return "ok"

    def move_away(self) -> str:
        """Rename the schema and create an empty one; an earlier schema with the new name is dropped."""
        aside = f"{self.schema}_damaged"
        with _translated(self.name), self._connected() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{aside}" CASCADE')
            with contextlib.suppress(psycopg.errors.InvalidSchemaName):
                connection.execute(f'ALTER SCHEMA "{self.schema}" RENAME TO "{aside}"')
            self._check(connection)
        return f"schema {aside}"

    def reading(self, expected: Sequence[ViewVersion] | None = None) -> AbstractContextManager[PostgresTransaction]:
        """Read one snapshot of the views, for the duration of the block."""
        return self._transaction(_PAST if self._is_apart else _READING, expected)

    def writing(self) -> AbstractContextManager[PostgresTransaction]:
        """Write: wait for the write lock, and commit at the end of the block."""
        return self._transaction(_WRITING, None)

    def empty(self, is_expected: Callable[[list[ViewVersion]], bool]) -> None:
        """Drop all tables if the view versions are those expected: PostgreSQL empties their files at the commit."""
        with self.writing() as writing:
            versions = writing.view_versions()
            if not is_expected(versions):
                return
            for version in versions:
                writing.drop(version.view, is_live=version.is_live)
        with _translated(self.name), self._connected() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self.schema}_damaged" CASCADE')
            # The planner's statistics contain frequent values, which may be erased texts. A user who does not own the
            # database only gets a warning here.
            connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")

    @contextlib.contextmanager
    def _transaction(
        self, begin: Sequence[SqlStatement], expected: Sequence[ViewVersion] | None
    ) -> Iterator[PostgresTransaction]:
        with self._room, _translated(self.name):
            transaction = PostgresTransaction(
                partial(self._begun, begin), expected, self.schema, is_apart=self._is_apart
            )
            try:
                if expected is None:
                    transaction.begun()
                yield transaction
                connection = transaction.begun()  # this also checks the view versions if no query was sent
                if begin is _WRITING:
                    connection.run(END.sql)
                # do not wait for the end of the transaction: the next user of the connection does
                elif expected is None:
                    connection.send([END])
            except BaseException:
                if transaction.connection is not None:
                    self._undo(transaction.connection)
                raise
            self._idle.append(connection)

    def _undo(self, connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                connection.run("ROLLBACK")
        if connection.info.transaction_status is TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _begun(
        self, begin: Sequence[SqlStatement], statements: Sequence[SqlStatement], own: Connection | None = None
    ) -> tuple[Connection, list[PGresult]]:
        """Return a connection in a transaction and the results; an idle connection that broke is replaced."""
        while True:
            is_new = False
            try:
                connection = own or self._idle.pop()
            except IndexError:
                connection, is_new = self._connected(), True
            try:
                connection.received()
                results = connection.together([*begin, *statements])[len(begin) - 1 :]
                connection.check(results[0])
            except psycopg.OperationalError as error:
                connection.close()
                if own or is_new or (error.sqlstate is not None and not error.sqlstate.startswith(("57P", "25P03"))):
                    raise  # the server is reachable, and refuses
            except BaseException:
                connection.close()
                raise
            else:
                return connection, results

    def _connected(self) -> Connection:
        # Parameters of the URL take precedence, except those that are needed here.
        connection = Connection.connect(
            **_CONNECTION | self.parameters, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
        )
        connection.execute(_SESSION.format(f'"{self.schema}"'))
        return connection

    def _check(self, connection: Connection) -> None:
        table = f'"{self.schema}".deedbook'
        self._is_there(connection)
        if connection.execute("SELECT to_regclass($1)", (table,)).fetchone() == (None,):
            self._make(connection, table)
        rows = connection.execute("SELECT ledger, format FROM deedbook").fetchall()
        if [ledger for ledger, _ in rows] != [self._ledger]:
            message = f"the schema {self.schema} holds the views of another ledger: {_ADVICE}"
            raise Corrupted("CORRUPTED", message, ledger=self._ledger, schema=self.schema)
        if (version := rows[0][1]) > FORMAT:
            raise newer_version(f"the schema {self.schema}", version, FORMAT, f", or {_ADVICE}")
        if version < FORMAT:
            message = f"an older version of Deedbook made the schema {self.schema}: {_ADVICE}"
            raise Corrupted("CORRUPTED", message, version=version, schema=self.schema)

    def _is_there(self, connection: Connection) -> bool:
        # The schema's name is predictable, and its owner can add functions and triggers that run as the writer.
        owned = "SELECT nspowner = current_user::regrole FROM pg_namespace WHERE nspname = $1"
        if (is_own := connection.execute(owned, (self.schema,)).fetchone()) == (False,):
            raise Corrupted("CORRUPTED", f"another role owns the schema {self.schema}: {_ADVICE}", schema=self.schema)
        return is_own is not None

    def _make(self, connection: Connection, table: str) -> None:
        """Create the schema and its bookkeeping, unless another worker did; a lock admits one worker at a time."""
        # Taken outside the transaction: a transaction that waits for a lock still sees the names from before its wait.
        # A failure closes the connection, which releases the lock.
        connection.execute("SELECT pg_advisory_lock(hashtextextended('deedbook', 0))")
        with connection.transaction():
            if not self._is_there(connection):
                connection.execute(f'CREATE SCHEMA "{self.schema}"')
            if connection.execute("SELECT to_regclass($1)", (table,)).fetchone() == (None,):
                connection.execute(BOOKS)
                connection.execute("INSERT INTO deedbook VALUES ($1, $2)", (self._ledger, FORMAT))
        connection.execute("SELECT pg_advisory_unlock(hashtextextended('deedbook', 0))")


def parameters_of(url: str) -> dict[str, Any]:
    """Return the parameters of a PostgreSQL URL. Raises Refused: ``INVALID_FIELD``, without repeating the URL."""
    with contextlib.suppress(psycopg.ProgrammingError):
        if re.match(STORE_PATTERN, url) and "password" not in (parameters := conninfo.conninfo_to_dict(url)):
            return parameters
    message = f"this is no valid store for the views: {WORDS[repr(STORE_PATTERN)]}"
    raise Refused("INVALID_FIELD", message, field="store")


_SHOWN: Final = frozenset({"host", "hostaddr", "port", "dbname", "service"})


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, name) from error


def _translate(error: psycopg.Error, name: str) -> DeedbookError:
    """Convert an error of the driver. Its text names host, user and database, and never a password."""
    state, cause = error.sqlstate or "", " ".join(str(error).split())
    details = {"store": name, "cause": cause}
    if state.startswith("53"):
        return Unavailable(
            "STORE_FULL", f"PostgreSQL has no space or no connection left for the views ({name}): {cause}", **details
        )
    if state == "57014":
        message = f"PostgreSQL did not finish the query within {query_max_s} s: narrow it down"
        return Unavailable("STORE_UNAVAILABLE", message, **details)
    if state == "55P03":
        message = f"another worker has held the lock on these views for {lock_wait_max_s} s: try again"
        return Unavailable("STORE_UNAVAILABLE", message, **details)
    if state in _MISSING:
        return DamagedStore("CORRUPTED", f"the views in {name} are damaged ({cause}): {_ADVICE}", **details)
    if state.startswith(("22", "23", "42")) and state != "42501":
        return Corrupted("CORRUPTED", f"the views in {name} are damaged ({cause}): {_ADVICE}", **details)
    return Unavailable("STORE_UNAVAILABLE", f"the views in {name} cannot be used: {cause}", **details)
