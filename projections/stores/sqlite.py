"""Views in one SQLite file (``views.db``), WAL mode, under plain table names, so any SQL tool can read them.

- A write transaction begins with ``BEGIN IMMEDIATE``: the write lock is taken before the positions are read, so two
  processes that fold at once never apply an event twice.
- ``synchronous=NORMAL``: after a power failure the last commits may be missing, but rows and position are missing
  together, and the next fold makes them again from the log. Views hold no data of their own.
- A view that is being built has no secondary indexes; ``make_live`` creates them sorted. This is faster for many rows:
  indexes that grow row by row take a fifth longer (225,000 events). Only the shadow tables of a live view have the
  suffix ``__next``, until they are renamed: SQLite parses all other tables to rename one (2 ms).
- The file names its ledger and the format of its bookkeeping. A database of another program is refused and not touched.
  A damaged file, or one that is no database, can be moved away and rebuilt (``move_away``).
- Each transaction checks that the file is still the one that was opened. A deleted or replaced file is opened (or
  created) again, and the runner builds the missing views.
- Only regular files are opened, and the journals beside the file must be regular too: SQLite would follow a link out of
  the folder.
- A full-text table is an FTS5 index that stores the positions of words and not the text. The fold has normalised the
  words and separated them by spaces, so FTS5's plainest tokenizer is right: every ASCII character that is no letter or
  digit ends a word.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from deedbook.ledger.errors import Corrupted, Unavailable, newer_version
from deedbook.ledger.system.files import as_unavailable, lock_folder, temporary_folder
from deedbook.projections.stores import sqlite_file as views_file
from deedbook.projections.stores.store import (
    ADVICE,
    VIEW_VERSIONS_SQL,
    Changes,
    DamagedStore,
    MovedViews,
    Value,
    ViewVersion,
    boundary_before,
    boundary_states_table,
    columns_sql,
    rows_hashed,
    states_table,
    tables_of,
    view_versions_of,
    word_places_max,
)
from deedbook.projections.views.projection import Projection, Row, Table

FORMAT: Final = 3
busy_wait_max_s: Final = 60.0
cache_size_kib: Final = 65_536
wal_pages_max: Final = 8_192  # 32 MiB: a rebuild copies its pages into the file less often
wal_size_kept_max_bytes: Final = 32 * 1024**2
FULL_TEXT: Final = "fts5"

_VOCABULARY: Final = "temp.deedbook_vocabulary"
_pack = msgspec.msgpack.Encoder().encode
_BOOKKEEPING: Final = """
CREATE TABLE deedbook (ledger TEXT PRIMARY KEY);
CREATE TABLE deedbook_views (
    view TEXT NOT NULL, version INTEGER NOT NULL, is_live INTEGER NOT NULL, position INTEGER NOT NULL,
    last_id TEXT NOT NULL, log_size INTEGER NOT NULL, PRIMARY KEY (view, is_live)
);
CREATE TABLE deedbook_tables (
    view TEXT NOT NULL, is_live INTEGER NOT NULL, name TEXT NOT NULL, physical TEXT NOT NULL,
    PRIMARY KEY (view, is_live, name)
)"""


class SqliteStore:
    """A ``Store`` in a file, usable by any number of threads and processes."""

    is_shared: Final = False

    def __init__(self, path: Path, *, ledger: str, is_apart: bool = False) -> None:
        """Open the file, or create it; ``is_apart``: for shadow tables, which then are on disk.

        Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``. Corrupted: the file is damaged, is no views file, or
        belongs to another ledger.
        """
        self.path = path
        self.name = str(path)
        self._is_apart = is_apart
        self._ledger = ledger
        self._lock = threading.RLock()
        self._db, self._file = self._opened()

    def _opened(self) -> tuple[sqlite3.Connection, views_file.FileId]:
        path = self.path
        with views_file.translated(path):
            if not views_file.look(path):
                _make(path, self._ledger)
            file = views_file.file_id(path.stat())
            db = _connect(path)
            try:
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute(f"PRAGMA cache_size = -{cache_size_kib}")
                # The shadow tables of a long past are too large for memory.
                db.execute(f"PRAGMA temp_store = {'FILE' if self._is_apart else 'MEMORY'}")
                db.execute(f"PRAGMA wal_autocheckpoint = {wal_pages_max}")
                db.execute(f"PRAGMA journal_size_limit = {wal_size_kept_max_bytes}")
                _check_identity(db, path, self._ledger)
            except BaseException:
                db.close()
                raise
        views_file.open_files.add(file)
        return db, file

    def apart(self) -> SqliteStore:
        """Return the same store on a connection of its own, for shadow tables."""
        return SqliteStore(self.path, ledger=self._ledger, is_apart=True)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
            views_file.open_files.remove(self._file)

    def check(self) -> str:
        """Return ``ok``, or a description of the damage; this reads the whole file."""
        with self.reading() as reading:
            (row,) = reading.rows("PRAGMA quick_check(1)")
        return str(row["quick_check"])

    def move_away(self) -> str:
        """Move the damaged file away and return its new path; the next transaction creates another."""
        with self._lock:
            try:
                views_file.look(self.path)
            except DamagedStore:  # the present file is no database, even if another file took the name
                return str(views_file.move_away(self.path))
            return str(views_file.move_away(self.path, self._file))

    def reading(self, expected: Sequence[ViewVersion] | None = None) -> AbstractContextManager[SqliteTransaction]:
        """Read one snapshot of the views, for the duration of the block."""
        return self._transaction("BEGIN", expected)

    def writing(self) -> AbstractContextManager[SqliteTransaction]:
        """Write: wait for the write lock, and commit at the end of the block."""
        return self._transaction("BEGIN IMMEDIATE")

    def empty(self, is_expected: Callable[[list[ViewVersion]], bool]) -> None:
        """Delete the file if it has the expected view versions; the next transaction creates another.

        SQLite would leave deleted rows in free pages and in the write-ahead log, and could not clear them while other
        processes read.
        """
        with self.writing() as writing:  # so that no other process folds meanwhile
            if is_expected(writing.view_versions()):
                views_file.remove(self.path)

    @contextlib.contextmanager
    def _transaction(self, begin: str, expected: Sequence[ViewVersion] | None = None) -> Iterator[SqliteTransaction]:
        with self._lock, views_file.translated(self.path):
            self._reopen_if_replaced()
            self._db.execute(begin)
            try:
                if (
                    expected is not None
                    and view_versions_of(self._db.execute(VIEW_VERSIONS_SQL).fetchall()) != expected
                ):
                    raise MovedViews  # noqa: TRY301 - this ends the transaction
                yield SqliteTransaction(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _reopen_if_replaced(self) -> None:
        try:
            is_same = views_file.file_id(self.path.lstat()) == self._file
        except FileNotFoundError:
            is_same = False
        if not is_same and not self._db.in_transaction:
            db, file = self._opened()
            self._db.close()
            views_file.open_files.remove(self._file)
            self._db, self._file = db, file


@contextlib.contextmanager
def temporary(tables: Iterable[Table]) -> Iterator[SqliteTransaction]:
    """A temporary store for one query, without indexes and bookkeeping; large data goes to disk."""
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = OFF; BEGIN")
        for table in tables:
            create_table(db, table, table.name)
        yield SqliteTransaction(db)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy_wait_max_s, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def _make(path: Path, ledger: str) -> None:
    """Create an empty views file, completely or not at all.

    It is created under another name and linked into place, because SQLite refuses every other process at once, without
    waiting, while it changes a new file to WAL mode. If another process created the file first, its file stays.
    """
    with (
        as_unavailable(path, "cannot be made"),
        temporary_folder(path.parent, ".views-") as folder,
    ):
        new_path = Path(folder) / path.name
        new_path.touch(mode=0o600)
        db = _connect(new_path)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_BOOKKEEPING)
            db.execute("INSERT INTO deedbook VALUES (?)", (ledger,))
            db.execute(f"PRAGMA application_id = {views_file.APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
        finally:
            db.close()
        with lock_folder(path.parent), contextlib.suppress(FileExistsError):
            if not os.path.lexists(path):
                # SQLite would apply the journals of a deleted file to this one.
                for journal in views_file.journals_of(path):
                    journal.unlink(missing_ok=True)
            path.hardlink_to(new_path)


def _check_identity(db: sqlite3.Connection, path: Path, ledger: str) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != views_file.APPLICATION_ID:
        raise views_file.foreign(path)
    if version < FORMAT:
        raise DamagedStore(
            "CORRUPTED", f"an older version of Deedbook made {path}: {ADVICE}", cause="an older Deedbook made them"
        )
    if version > FORMAT:
        raise newer_version(str(path), version, FORMAT, f", or {ADVICE}")
    if db.execute("SELECT ledger FROM deedbook").fetchall() != [(ledger,)]:
        raise Corrupted("CORRUPTED", f"{path} holds the views of another ledger: {ADVICE}", ledger=ledger)


class SqliteTransaction:
    """An open transaction, which implements ``WriteTransaction`` and ``ShadowTransaction``."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql, tuple(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def together(self, *queries: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        return [self.rows(*query) for query in queries]

    def view_versions(self) -> list[ViewVersion]:
        return view_versions_of(self._db.execute(VIEW_VERSIONS_SQL))

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        return {table.name: self._digest(table) for table in tables_of(view)}

    def load(self, version: ViewVersion, keys: Iterable[str]) -> dict[str, bytes]:
        name = self._physical(version, states_table(version.view))
        sql = f'SELECT data FROM "{name}" WHERE key = ?'  # noqa: S608
        rows = ((key, self._db.execute(sql, (key,)).fetchone()) for key in keys)
        return {key: row[0] for key, row in rows if row is not None}

    def states(self, view: str, keys: Iterable[str]) -> dict[str, bytes]:
        return self.load(ViewVersion(view, 0, True, 0, ""), keys)  # noqa: FBT003 - live

    def write(self, version: ViewVersion, view: Projection[Any], changes: Changes) -> None:
        if changes.replaced and (boundary := boundary_before(version.position)):
            # If this is the state's first change after the boundary, store the state as it was at the boundary.
            stored, live = (self._physical(version, of(view.name)) for of in (boundary_states_table, states_table))
            sql = f'INSERT INTO "{stored}" SELECT ?1, key, changed, data FROM "{live}" WHERE key = ?2 AND changed < ?1'  # noqa: S608
            self._db.executemany(sql, [(boundary, key) for key in changes.replaced])
        for table in tables_of(view):
            # A state's only row is replaced by its key. A state with several rows may have lost some.
            outdated = () if table.primary_key == (table.owner,) else changes.outdated(view, table)
            if outdated:
                sql = f'DELETE FROM "{self._physical(version, table)}" WHERE "{table.owner}" = ?'  # noqa: S608
                self._db.executemany(sql, [(key,) for key in outdated])
            if rows := changes.rows.get(table.row):
                self._insert(self._physical(version, table), table, rows)

    def move(self, version: ViewVersion) -> None:
        sql = "UPDATE deedbook_views SET position = ?, last_id = ? WHERE view = ? AND is_live = ?"
        self._db.execute(sql, (version.position, version.last_id, version.view, version.is_live))

    def start_building(self, view: Projection[Any], *, log_size: int, in_place: bool) -> None:
        self.drop(view.name, is_live=False)
        is_beside = any(version.is_live for version in self.view_versions() if version.view == view.name)
        is_live = in_place and not is_beside
        for table in tables_of(view):
            physical = f"{table.name}__next" if is_beside else table.name
            self._db.execute(
                "INSERT INTO deedbook_tables VALUES (?, ?, ?, ?)", (view.name, is_live, table.name, physical)
            )
            create_table(self._db, table, physical)
            if is_live:
                self.index(table)
        values = (view.name, view.version, is_live, log_size)
        self._db.execute("INSERT INTO deedbook_views VALUES (?, ?, ?, 0, '', ?)", values)

    def make_live(self, view: Projection[Any]) -> None:
        self.drop(view.name, is_live=True)
        beside = "SELECT physical, name FROM deedbook_tables WHERE view = ? AND physical <> name"
        for names in self._db.execute(beside, (view.name,)).fetchall():
            self._db.execute('ALTER TABLE "{}" RENAME TO "{}"'.format(*names))
        for table in tables_of(view):
            self.index(table)
        for change in ("deedbook_views SET is_live = 1", "deedbook_tables SET is_live = 1, physical = name"):
            self._db.execute(f"UPDATE {change} WHERE view = ?", (view.name,))

    def temporary_names(self) -> set[str]:
        """Return the names of the tables and views that exist for this connection only."""
        return {name for (name,) in self._db.execute("SELECT name FROM temp.sqlite_master")}

    def cut(self, table: Table, size: int) -> None:
        """Shadow a table by its rows of the first entries, for this connection only."""
        rows = f'SELECT * FROM main."{table.name}" WHERE event_index < {size}'  # noqa: S608 - fixed names
        self._db.execute(f'CREATE TEMP VIEW "{table.name}" AS {rows}')

    def index(self, table: Table, schema: str = "main") -> None:
        """Create the indexes of a table."""
        for columns in table.indexes:
            name, listed = "_".join(("by", table.name, *columns)), ", ".join(f'"{column}"' for column in columns)
            self._db.execute(f'CREATE INDEX {schema}."{name}" ON "{table.name}" ({listed})')

    def shadow(
        self, table: Table, rows: Iterable[Row], states: str, boundary: int, outdated: Collection[str] = ()
    ) -> None:
        """Shadow a table for this connection by ``rows``, and by its own rows that are unchanged since a boundary."""
        create_table(self._db, table, table.name, schema="temp")
        self._insert(table.name, table, rows)
        self._db.execute(
            f'INSERT INTO temp."{table.name}" SELECT live.* FROM main."{table.name}" live '  # noqa: S608
            f'CROSS JOIN main."{states}" state ON state.key = live."{table.owner}" WHERE state.changed < ? '
            f'AND live."{table.owner}" NOT IN (SELECT value FROM json_each(?))',
            (boundary, msgspec.json.encode([*outdated]).decode()),
        )
        self.index(table, "temp")

    def drop(self, view: str, *, is_live: bool) -> None:
        # The names come from the bookkeeping: an older version of the view may have had other tables.
        rows = self._db.execute("SELECT physical FROM deedbook_tables WHERE view = ? AND is_live = ?", (view, is_live))
        for (physical,) in rows.fetchall():
            self._db.execute(f'DROP TABLE "{physical}"')
        for table in ("deedbook_views", "deedbook_tables"):
            self._db.execute(f"DELETE FROM {table} WHERE view = ? AND is_live = ?", (view, is_live))  # noqa: S608

    def _physical(self, version: ViewVersion, table: Table) -> str:
        """Return the name of a table of a view version in this file."""
        sql = "SELECT physical FROM deedbook_tables WHERE view = ? AND is_live = 0 AND name = ?"
        return table.name if version.is_live else str(self._db.execute(sql, (version.view, table.name)).fetchone()[0])

    def _insert(self, name: str, table: Table, rows: Iterable[Row]) -> None:
        verb, columns = "INSERT", ""
        if table.is_full_text:
            columns = f'(rowid, "{table.columns[1]}")'
        elif table.primary_key == (table.owner,):
            verb = "INSERT OR REPLACE"
        marks = ", ".join("?" * len(table.columns))
        self._db.executemany(f'{verb} INTO "{name}"{columns} VALUES ({marks})', map(msgspec.structs.astuple, rows))

    def _digest(self, table: Table) -> str:
        if table.is_full_text:
            return self._full_text_digest(table.name)
        order = ", ".join(f'"{column}"' for column in table.primary_key)
        hasher = blake3()
        cursor = self._db.execute(f'SELECT * FROM "{table.name}" ORDER BY {order}')  # noqa: S608
        while rows := cursor.fetchmany(rows_hashed):
            hasher.update(b"".join(map(_pack, rows)))
        return hasher.hexdigest()

    def _full_text_digest(self, name: str) -> str:
        """Return the BLAKE3 (hex) over every word of a full-text table, with its rows and positions, in order.

        The segments that hold the rows depend on batches. The *content* of the index does not, so comparing it detects
        an index that does not match the log. First the count of each word is hashed, then its positions, one number for
        each. Together they are unambiguous, in half the time of hashing the word beside each of its positions
        (measured).
        """
        hasher = blake3()
        for detail, columns in (("row", "term, doc, cnt"), ("instance", f'doc * {word_places_max} + "offset"')):
            self._db.execute(f"CREATE VIRTUAL TABLE {_VOCABULARY} USING fts5vocab('main', '{name}', '{detail}')")
            try:
                cursor = self._db.execute(f"SELECT {columns} FROM {_VOCABULARY}")  # noqa: S608 - fixed names
                while rows := cursor.fetchmany(rows_hashed):
                    hasher.update(_pack(rows))
                cursor.close()
            finally:
                self._db.execute(f"DROP TABLE {_VOCABULARY}")
        return hasher.hexdigest()


def create_table(db: sqlite3.Connection, table: Table, name: str, *, schema: str = "main") -> None:
    """Create an empty table under a name; its columns have the types of the row's fields.

    Raises Unavailable: ``STORE_UNAVAILABLE`` if this Python's SQLite was built without FTS5.
    """
    if not table.is_full_text:
        key = ", ".join(f'"{column}"' for column in table.primary_key)
        columns = ", ".join(f"{column} {kind}{null}" for column, kind, null in columns_sql(table.row))
        # A clustered table stores the rows of one owner together; with a single key, SQLite's row number stays.
        option = " WITHOUT ROWID" if len(table.primary_key) > 1 else ""
        db.execute(f'CREATE TABLE {schema}."{name}" ({columns}, PRIMARY KEY ({key})){option}')
        return
    words = table.columns[1]
    try:
        db.execute(f"""CREATE VIRTUAL TABLE "{name}" USING {FULL_TEXT}("{words}", content = '', tokenize = 'ascii')""")
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        message = "search needs FTS5, which the SQLite of this Python lacks: use a Python whose sqlite3 has it"
        raise Unavailable("STORE_UNAVAILABLE", message, cause=str(error)) from error
