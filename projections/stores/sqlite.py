"""Views in one SQLite file (``views.db``), WAL mode, tables under their plain names for anybody's SQL tool.

- A write transaction begins with ``BEGIN IMMEDIATE``: the write lock is taken before the positions are read, so two
  processes that fold at once never apply an event twice.
- ``synchronous=NORMAL``: after a power cut the last commits may be missing, but rows and position are missing
  together, and the next fold makes them again from the log. Views hold nothing of their own.
- A view that is built has no secondary indexes; ``make_live`` sorts them into place at once. That pays for many rows:
  indexes that grow row by row take a fifth longer (225,000 events). Only where it is built beside a live one have its
  tables the suffix ``__next``, until they are renamed: SQLite parses all others to rename one (2 ms).
- The file names the ledger it was made from and the format of its bookkeeping; another database is refused, and not
  touched. What is no database, or a damaged one, can be set aside and made again (``set_aside``).
- Each transaction asks whether the file is still the one that was opened: one that somebody deleted or replaced is
  opened (or made) again, and the runner finds its views missing.
- Nothing but a regular file is opened, nor are the journals beside it: SQLite would follow a link out of the folder.
- A full-text table is an FTS5 index that keeps where words stand, and not the text they stand in. The words come from
  the fold, normalised and set apart by spaces, so FTS5's plainest tokenizer is right: whatever is no ASCII letter or
  digit and no character beyond ASCII ends a word.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.system.files import as_unavailable, locked, temporary_folder
from deedbook.projections.stores import sqlite_file as views_file
from deedbook.projections.stores.store import (
    ADVICE,
    SLOTS,
    Changes,
    Damaged,
    Moved,
    Slot,
    Value,
    boundary_before,
    columns_sql,
    kept_table,
    rows_hashed,
    slots_of,
    states_table,
    tables_of,
    word_places_max,
)
from deedbook.projections.views.projection import Projection, Row, Table

FORMAT: Final = 2
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
    last_id TEXT NOT NULL, PRIMARY KEY (view, is_live)
);
CREATE TABLE deedbook_tables (
    view TEXT NOT NULL, is_live INTEGER NOT NULL, name TEXT NOT NULL, physical TEXT NOT NULL,
    PRIMARY KEY (view, is_live, name)
)"""


class SqliteStore:
    """A ``Store`` in a file; used by any number of threads and processes."""

    is_shared: Final = False

    def __init__(self, path: Path, *, ledger: str, is_apart: bool = False) -> None:
        """Open the file, or make it; ``is_apart``: for tables that only it sees, on disk.

        Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``. Corrupted: the file is damaged, is no views file, or
        is of another ledger.
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
                # A long past has more than what should lie in memory.
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
        """Return the same store on a connection of its own, for tables that only it sees."""
        return SqliteStore(self.path, ledger=self._ledger, is_apart=True)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
            views_file.open_files.remove(self._file)

    def check(self) -> str:
        """Return ``ok``, or what is damaged: a look at the whole file."""
        with self.reading() as reading:
            (row,) = reading.rows("PRAGMA quick_check(1)")
        return str(row["quick_check"])

    def set_aside(self) -> str:
        """Move the file away, as ``set_aside`` does; the next transaction makes another."""
        with self._lock:
            try:
                views_file.look(self.path)
            except Damaged:  # what lies there now is no database, whichever file it is
                return str(views_file.set_aside(self.path))
            return str(views_file.set_aside(self.path, self._file))

    def reading(self, expected: Sequence[Slot] | None = None) -> AbstractContextManager[Transaction]:
        """The views of one moment, as long as the block lasts."""
        return self._transaction("BEGIN", expected)

    def writing(self) -> AbstractContextManager[Transaction]:
        """A write transaction: it waits for the write lock, and commits at the end of the block."""
        return self._transaction("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def _transaction(self, begin: str, expected: Sequence[Slot] | None = None) -> Iterator[Transaction]:
        with self._lock, views_file.translated(self.path):
            self._reopen_if_replaced()
            self._db.execute(begin)
            try:
                if expected is not None and slots_of(self._db.execute(SLOTS).fetchall()) != expected:
                    raise Moved  # noqa: TRY301 - which ends the transaction
                yield Transaction(self._db)
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
def temporary(tables: Iterable[Table]) -> Iterator[Transaction]:
    """A place for the rows of one question, without indexes and books, on disk what is large; gone after the block."""
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = OFF; BEGIN")
        for table in tables:
            create_table(db, table, table.name)
        yield Transaction(db)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy_wait_max_s, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def _make(path: Path, ledger: str) -> None:
    """Make an empty views file, complete or not at all.

    It is made under another name and linked into place: while SQLite changes a new file to WAL mode it refuses every
    other process at once, without waiting. If another process made the file first, theirs stands.
    """
    with (
        as_unavailable(path, "cannot be made"),
        temporary_folder(path.parent, ".views-") as folder,
    ):
        made = folder / path.name
        made.touch(mode=0o600)
        db = _connect(made)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_BOOKKEEPING)
            db.execute("INSERT INTO deedbook VALUES (?)", (ledger,))
            db.execute(f"PRAGMA application_id = {views_file.APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
        finally:
            db.close()
        with locked(path.parent), contextlib.suppress(FileExistsError):
            if not os.path.lexists(path):
                # Journals of a file that was deleted would be read into this one.
                for journal in views_file.journals_of(path):
                    journal.unlink(missing_ok=True)
            path.hardlink_to(made)


def _check_identity(db: sqlite3.Connection, path: Path, ledger: str) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != views_file.APPLICATION_ID:
        raise views_file.foreign(path)
    if version < FORMAT:
        raise Damaged("CORRUPTED", f"an older Deedbook made {path}: {ADVICE}", cause="an older Deedbook made them")
    if version > FORMAT:
        raise Corrupted("CORRUPTED", f"a newer Deedbook made {path}: use that", version=version)
    if db.execute("SELECT ledger FROM deedbook").fetchall() != [(ledger,)]:
        raise Corrupted("CORRUPTED", f"{path} holds the views of another ledger: {ADVICE}", ledger=ledger)


class Transaction:
    """The ``Writing`` of a transaction that was begun, which says what each of these does."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql, tuple(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def together(self, *args: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        return [self.rows(*one) for one in args]

    def slots(self) -> list[Slot]:
        return slots_of(self._db.execute(SLOTS))

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        return {table.name: self._digest(table) for table in tables_of(view)}

    def load(self, slot: Slot, keys: Iterable[str]) -> dict[str, bytes]:
        name = self._physical(slot, states_table(slot.view))
        sql = f'SELECT data FROM "{name}" WHERE key = ?'  # noqa: S608
        rows = ((key, self._db.execute(sql, (key,)).fetchone()) for key in keys)
        return {key: row[0] for key, row in rows if row is not None}

    def write(self, slot: Slot, view: Projection[Any], changes: Changes) -> None:
        if changes.replaced and (boundary := boundary_before(slot.position)):
            # What a state was at the boundary is kept when it changes for the first time behind it.
            kept, now = (self._physical(slot, of(view.name)) for of in (kept_table, states_table))
            sql = f'INSERT INTO "{kept}" SELECT ?1, key, changed, data FROM "{now}" WHERE key = ?2 AND changed < ?1'  # noqa: S608
            self._db.executemany(sql, [(boundary, key) for key in changes.replaced])
        for table in tables_of(view):
            # A row that is its state's only one is replaced by its key; of several, some may have gone.
            if table.owner is not None and table.primary_key != (table.owner,) and changes.replaced:
                sql = f'DELETE FROM "{self._physical(slot, table)}" WHERE "{table.owner}" = ?'  # noqa: S608
                self._db.executemany(sql, [(key,) for key in changes.replaced])
            if rows := changes.rows.get(table.row):
                self._insert(self._physical(slot, table), table, rows)

    def move(self, slot: Slot) -> None:
        sql = "UPDATE deedbook_views SET position = ?, last_id = ? WHERE view = ? AND is_live = ?"
        self._db.execute(sql, (slot.position, slot.last_id, slot.view, slot.is_live))

    def start_building(self, view: Projection[Any], *, in_place: bool) -> None:
        self.drop(view.name, is_live=False)
        is_beside = any(slot.is_live for slot in self.slots() if slot.view == view.name)
        is_live = in_place and not is_beside
        for table in tables_of(view):
            physical = f"{table.name}__next" if is_beside else table.name
            self._db.execute(
                "INSERT INTO deedbook_tables VALUES (?, ?, ?, ?)", (view.name, is_live, table.name, physical)
            )
            create_table(self._db, table, physical)
            if is_live:
                self.index(table)
        self._db.execute("INSERT INTO deedbook_views VALUES (?, ?, ?, 0, '')", (view.name, view.version, is_live))

    def make_live(self, view: Projection[Any]) -> None:
        self.drop(view.name, is_live=True)
        beside = "SELECT physical, name FROM deedbook_tables WHERE view = ? AND physical <> name"
        for names in self._db.execute(beside, (view.name,)).fetchall():
            self._db.execute('ALTER TABLE "{}" RENAME TO "{}"'.format(*names))
        for table in tables_of(view):
            self.index(table)
        for book in ("deedbook_views SET is_live = 1", "deedbook_tables SET is_live = 1, physical = name"):
            self._db.execute(f"UPDATE {book} WHERE view = ?", (view.name,))

    def shown(self) -> set[str]:
        """Return the names of what only this connection has."""
        return {name for (name,) in self._db.execute("SELECT name FROM temp.sqlite_master")}

    def cut(self, table: Table, size: int) -> None:
        """Let the first entries' rows stand in the place of a table's, for this connection alone."""
        rows = f'SELECT * FROM main."{table.name}" WHERE event_index < {size}'  # noqa: S608 - fixed names
        self._db.execute(f'CREATE TEMP VIEW "{table.name}" AS {rows}')

    def index(self, table: Table, schema: str = "main") -> None:
        """Make the indexes of a table."""
        for columns in table.indexes:
            name, listed = "_".join(("by", table.name, *columns)), ", ".join(f'"{column}"' for column in columns)
            self._db.execute(f'CREATE INDEX {schema}."{name}" ON "{table.name}" ({listed})')

    def shadow(self, table: Table, rows: Iterable[Row], states: str = "", boundary: int = 0) -> None:
        """Let rows stand in a table's place for this connection alone, beside those unchanged since a boundary."""
        create_table(self._db, table, table.name, schema="temp")
        self._insert(table.name, table, rows)
        if states:
            self._db.execute(
                f'INSERT INTO temp."{table.name}" SELECT live.* FROM main."{table.name}" live '  # noqa: S608
                f'CROSS JOIN main."{states}" state ON state.key = live."{table.owner}" WHERE state.changed < ?',
                (boundary,),
            )
            self.index(table, "temp")

    def drop(self, view: str, *, is_live: bool) -> None:
        # The names come from the books: an older version of the view may have had other tables.
        held = self._db.execute("SELECT physical FROM deedbook_tables WHERE view = ? AND is_live = ?", (view, is_live))
        for (physical,) in held.fetchall():
            self._db.execute(f'DROP TABLE "{physical}"')
        for book in ("deedbook_views", "deedbook_tables"):
            self._db.execute(f"DELETE FROM {book} WHERE view = ? AND is_live = ?", (view, is_live))  # noqa: S608

    def _physical(self, slot: Slot, table: Table) -> str:
        """Return the name that a table of a slot has here."""
        sql = "SELECT physical FROM deedbook_tables WHERE view = ? AND is_live = 0 AND name = ?"
        return table.name if slot.is_live else str(self._db.execute(sql, (slot.view, table.name)).fetchone()[0])

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
        """Return the BLAKE3 (hex) over every word of a full-text table, with its rows and places, in order.

        Which rows are merged into which segments depends on batches; what the index *says* does not, so an index that
        is out of step with the log is found. First how often each word stands, then where, one number a place: together
        they leave nothing open, in half the time that the words would take beside each of their places (measured).
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
    """Make an empty table under a name; its columns have the types of the row's fields.

    Raises Unavailable: ``STORE_UNAVAILABLE`` when this Python's SQLite was built without FTS5.
    """
    if not table.is_full_text:
        key = ", ".join(f'"{column}"' for column in table.primary_key)
        columns = ", ".join(f"{column} {kind}{null}" for column, kind, null in columns_sql(table.row))
        # A clustered table keeps the rows of one owner together; a single key keeps SQLite's own row number.
        option = " WITHOUT ROWID" if len(table.primary_key) > 1 else ""
        db.execute(f'CREATE TABLE {schema}."{name}" ({columns}, PRIMARY KEY ({key})){option}')
        return
    words = table.columns[1]
    try:
        db.execute(f"""CREATE VIRTUAL TABLE "{name}" USING {FULL_TEXT}("{words}", content = '', tokenize = 'ascii')""")
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        message = "the SQLite of this Python has no FTS5, which search needs: use a Python whose sqlite3 has it"
        raise Unavailable("STORE_UNAVAILABLE", message, cause=str(error)) from error
