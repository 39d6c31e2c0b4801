"""A PostgreSQL transaction for runners and queries."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from blake3 import blake3
from psycopg.pq.abc import PGresult

from deedbook.projections.stores.dialect import Expression, for_postgres, restated
from deedbook.projections.stores.postgres_connection import Connection, SqlStatement, unescaped
from deedbook.projections.stores.postgres_schema import counts_of, hits_of, stored_words, word_counts
from deedbook.projections.stores.store import (
    VIEW_VERSIONS_SQL,
    Changes,
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

Beginning: TypeAlias = Callable[[Sequence[SqlStatement], Connection | None], tuple[Connection, list[PGresult]]]
"""A function that begins a transaction with statements, on the given or on any connection.

The first result is the view versions.
"""
END: Final = SqlStatement("COMMIT")
# The row count of a whole table. SQLite reads it from its pages; PostgreSQL would visit each row.
_COUNT: Final = re.compile(r"^SELECT count\(\*\) FROM (\w+)(?: \w+)?$")
_COUNTED: Final = r"SELECT rows FROM deedbook_tables WHERE name = '\1' AND is_live = 1"
_COUNTING: Final = (
    "UPDATE deedbook_tables t SET rows = t.rows + c.rows, words = t.words + c.words "
    "FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS c (name, rows, words) "
    "WHERE t.name = c.name AND t.is_live = $4"
)
_COUNTING_WORDS: Final = (
    "INSERT INTO {} AS held SELECT * FROM unnest($1::text[], $2::bigint[]) "
    "ON CONFLICT (word) DO UPDATE SET rows = held.rows + excluded.rows"
)
_TYPES: Final = {"TEXT": 'text COLLATE "C"', "INTEGER": "bigint", "REAL": "double precision", "BLOB": "bytea"}
_pack = msgspec.msgpack.Encoder().encode


class PostgresTransaction:
    """An open transaction, which implements ``WriteTransaction`` and ``ShadowTransaction``."""

    def __init__(
        self, begin: Beginning, expected: Sequence[ViewVersion] | None, schema: str, *, is_apart: bool
    ) -> None:
        """The transaction begins with the first query, in the same round trip.

        With ``expected``, it also ends in that round trip, and the next query is a separate transaction. Equal view
        versions guarantee equal rows.
        """
        self.connection: Connection | None = None
        self._begin = begin
        self._expected = expected
        self._schema = schema
        self._is_apart = is_apart  # then a shadow table may replace the table whose rows are counted
        self._view_versions: list[ViewVersion] | None = None

    @property
    def _db(self) -> Connection:
        return self.connection or self._start([])[0]

    def begun(self) -> Connection:
        """Return the connection, with the transaction begun.

        Raises MovedViews: the view versions are not the expected ones.
        """
        return self._db

    def _start(self, statements: Sequence[SqlStatement]) -> tuple[Connection, list[PGresult]]:
        end = [] if self._expected is None else [END]
        self.connection, (versions, *results) = self._begin([*statements, *end], self.connection)
        rows = self.connection.read(versions)[1]
        self._view_versions = view_versions_of(rows)
        if self._expected is not None and self._view_versions != self._expected:
            raise MovedViews
        return self.connection, results[: len(statements)]

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""
        return self.together((sql, values))[0]

    def together(self, *queries: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        """Return the rows of each query, in one round trip."""
        statements = [self._translated(*query) for query in queries]
        results = self._db.together(statements) if self._expected is None else self._start(statements)[1]
        return [[dict(zip(names, row, strict=True)) for row in rows] for names, rows in map(self._db.read, results)]

    def _translated(self, sql: str, values: Sequence[Value]) -> SqlStatement:
        if values and isinstance(expression := values[0], Expression):  # it becomes part of the SQL text
            return SqlStatement(
                for_postgres(_with_words(restated(sql), expression), self._schema), values[1:], is_prepared=False
            )
        return SqlStatement(_translation(sql if self._is_apart else _COUNT.sub(_COUNTED, sql), self._schema), values)

    def view_versions(self) -> list[ViewVersion]:
        """Return the view versions of this snapshot."""
        db = self._db
        if self._view_versions is None:
            self._view_versions = view_versions_of(db.execute(VIEW_VERSIONS_SQL).fetchall())
        return list(self._view_versions)

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        """Return the digest of each table of a live view."""
        return {table.name: self._digest(table) for table in tables_of(view)}

    def load(self, version: ViewVersion, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of those keys that have one."""
        if not (names := list(keys)):
            return {}
        name = self._physical(states_table(version.view).name, is_live=version.is_live)
        sql = f"SELECT key, data FROM {name} WHERE key = ANY($1)"  # noqa: S608 - fixed names
        return dict(self._db.read(self._db.run(sql, (names,)))[1])

    def states(self, view: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of a live view, of those keys that have one."""
        sql = f"SELECT key, data FROM {states_table(view).name} WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608
        rows = self.rows(sql, (msgspec.json.encode([*keys]).decode(),))
        return {row["key"]: row["data"] for row in rows}

    def write(self, version: ViewVersion, view: Projection[Any], changes: Changes) -> None:
        """Replace and add rows and states."""
        replaced = list(changes.replaced)
        if replaced and (boundary := boundary_before(version.position)):
            # If this is the state's first change after the boundary, store the state as it was at the boundary.
            stored, live = (
                self._physical(of(view.name).name, is_live=version.is_live)
                for of in (boundary_states_table, states_table)
            )
            sql = f"INSERT INTO {stored} SELECT $1, key, changed, data FROM {live} WHERE key = ANY($2) AND changed < $1"  # noqa: S608
            self._db.run(sql, (boundary, replaced))
        counts: list[tuple[str, int, int]] = []
        for table in tables_of(view):
            name, rows_of_table = self._physical(table.name, is_live=version.is_live), changes.rows.get(table.row, ())
            words = [msgspec.structs.astuple(row)[1] for row in rows_of_table] if table.is_full_text else []
            count = len(rows_of_table)
            if outdated := [*changes.outdated(view, table)]:
                sql = f'DELETE FROM {name} WHERE "{table.owner}" = ANY($1)'  # noqa: S608
                count -= self._db.run(sql, (outdated,)).command_tuples or 0
            if rows_of_table:
                self._insert(name, table, rows_of_table)
            if words:
                name = self._physical(counts_of(table.name), is_live=version.is_live)
                self._db.run(_COUNTING_WORDS.format(name), [*map(list, zip(*word_counts(words).items(), strict=True))])
            counts.append((table.name, count, len(" ".join(words).split())))
        self._db.run(_COUNTING, (*map(list, zip(*counts, strict=True)), version.is_live))

    def move(self, version: ViewVersion) -> None:
        """Set the position and last event of a view version."""
        self._view_versions = None
        sql = "UPDATE deedbook_views SET position = $1, last_id = $2 WHERE view = $3 AND is_live = $4"
        self._db.run(sql, (version.position, version.last_id, version.view, version.is_live))

    def start_building(self, view: Projection[Any], *, log_size: int, in_place: bool) -> None:
        """Create an empty view version, and drop one that is being built. ``in_place``: it is live if none is."""
        self.drop(view.name, is_live=False)
        is_live = in_place and not any(version.is_live for version in self.view_versions() if version.view == view.name)
        for name in _names_of(view):
            sql = "INSERT INTO deedbook_tables (view, is_live, name) VALUES ($1, $2, $3)"
            self._db.execute(sql, (view.name, is_live, name))
        for table in tables_of(view):
            self._create(table, self._physical(table.name, is_live=is_live))
            if is_live:
                self.index(table, self._physical(table.name, is_live=True))
            if table.is_full_text:
                name = self._physical(counts_of(table.name), is_live=is_live)
                self._db.execute(f'CREATE TABLE {name} (word text COLLATE "C" PRIMARY KEY, rows bigint NOT NULL)')
        sql = "INSERT INTO deedbook_views VALUES ($1, $2, $3, 0, '', $4)"
        self._db.execute(sql, (view.name, view.version, is_live, log_size))
        self._view_versions = None

    def make_live(self, view: Projection[Any]) -> None:
        """Replace the live view version by the one being built."""
        for table in tables_of(view):  # during this, other processes can still read the live tables
            self.index(table, self._physical(table.name, is_live=False))
        self.drop(view.name, is_live=True)
        for name in _names_of(view):
            self._db.execute(f'ALTER TABLE {self._physical(name, is_live=False)} RENAME TO "{name}"')
        for name in ("deedbook_views", "deedbook_tables"):
            self._db.execute(f"UPDATE {name} SET is_live = 1 WHERE view = $1", (view.name,))  # noqa: S608
        self._view_versions = None

    def drop(self, view: str, *, is_live: bool) -> None:
        """Drop the live view version of a view, or the one being built, if it exists."""
        # The names come from the bookkeeping: an older version of the view may have had other tables.
        rows = self._db.execute("SELECT name FROM deedbook_tables WHERE view = $1 AND is_live = $2", (view, is_live))
        names = [name for (name,) in rows.fetchall()]
        if is_live:
            self._db.execute("LOCK TABLE deedbook_views IN ACCESS EXCLUSIVE MODE")  # wait for running queries
        for name in names:
            # Cascade: a past on another connection has SQL views on this table, and creates them again.
            self._db.execute(f"DROP TABLE {self._physical(name, is_live=is_live)} CASCADE")
        for table in ("deedbook_views", "deedbook_tables"):
            self._db.execute(f"DELETE FROM {table} WHERE view = $1 AND is_live = $2", (view, is_live))  # noqa: S608
        self._view_versions = None

    def index(self, table: Table, name: str) -> None:
        """Create the indexes of a table, and analyse it for the query planner."""
        if table.is_full_text:
            self._db.execute(f"CREATE INDEX ON {name} USING gin (lexemes) WITH (fastupdate = off)")
        # As in SQLite's indexes, the primary key comes last, so a page of events is read in order.
        last = table.primary_key if table.primary_key == ("event_index",) else ()
        for columns in table.indexes:
            # A B-tree entry has at most 2,704 bytes, so columns of unlimited length get a hash index.
            whole = dict.fromkeys((*columns, *last))
            short = list(itertools.takewhile(lambda column: column not in table.long, whole))
            method, indexed = ("btree", short) if short else ("hash", columns[:1])
            self._db.execute(f"CREATE INDEX ON {name} USING {method} ({_quoted(indexed)})")
        self._db.execute(f"ANALYZE {name}")

    def temporary_names(self) -> set[str]:
        """Return the names of the tables and views that exist for this connection only."""
        sql = "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind IN ('r', 'v')"
        return {name for (name,) in self._db.execute(sql).fetchall()}

    def cut(self, table: Table, size: int) -> None:
        """Shadow a table by its rows of the first entries, for this connection only."""
        rows_of_table = f"SELECT * FROM {self._physical(table.name, is_live=True)} WHERE event_index < {size}"  # noqa: S608
        self._db.execute(f'CREATE TEMP VIEW "{table.name}" AS {rows_of_table}')

    def shadow(
        self, table: Table, rows: Iterable[Row], states: str, boundary: int, outdated: Collection[str] = ()
    ) -> None:
        """Shadow a table for this connection by ``rows``, and by its own rows that are unchanged since a boundary."""
        name = f'pg_temp."{table.name}"'
        self._create(table, name)
        self._insert(name, table, rows)
        live = self._physical(table.name, is_live=True)
        sql = (
            f"INSERT INTO {name} SELECT live.* FROM {live} live JOIN {self._physical(states, is_live=True)} state "  # noqa: S608
            f'ON state.key = live."{table.owner}" WHERE state.changed < $1 AND live."{table.owner}" <> ALL($2)'
        )
        self._db.execute(sql, (boundary, [*outdated]))
        self.index(table, name)

    def _create(self, table: Table, name: str) -> None:
        if table.is_full_text:
            columns = (
                f"{table.columns[0]} bigint PRIMARY KEY, words text NOT NULL, length bigint NOT NULL, lexemes tsvector"
            )
            self._db.execute(f"CREATE TABLE {name} ({columns})")
            return
        columns = ", ".join(f"{column} {_TYPES[kind]}{null}" for column, kind, null in columns_sql(table.row))
        self._db.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({_quoted(table.primary_key)}))")

    def _insert(self, name: str, table: Table, rows_of_table: Iterable[Row]) -> None:
        written: Iterator[Sequence[Any]] = map(_as_stored, map(msgspec.structs.astuple, rows_of_table))
        if table.is_full_text:
            written = ((index, *stored_words(words)) for index, words in written)
        with self._db.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
            for row in written:
                copy.write_row(row)

    def _digest(self, table: Table) -> str:
        name = self._physical(table.name, is_live=True)
        hasher = blake3()
        if table.is_full_text:
            each = f"FROM {name}, unnest(string_to_array(btrim(words), '  ')) WITH ORDINALITY AS each (word, ordinal)"
            word = 'word COLLATE "C"'
            for sql in (
                f"SELECT word, count(DISTINCT event_index), count(*) {each} GROUP BY 1 ORDER BY {word}",
                f"SELECT event_index * {word_places_max} + ordinal - 1 {each} ORDER BY {word}, event_index, ordinal",
            ):
                self._read(sql, lambda read: hasher.update(_pack(read)))
            return hasher.hexdigest()
        sql = f"SELECT * FROM {name} ORDER BY {_quoted(table.primary_key)}"  # noqa: S608
        self._read(sql, lambda read: hasher.update(b"".join(map(_pack, read))))
        return hasher.hexdigest()

    def _read(self, sql: str, use: Callable[[list[tuple[Any, ...]]], object]) -> None:
        """Read many rows, a batch at a time."""
        self._db.execute("SET LOCAL statement_timeout = 0")
        with psycopg.RawServerCursor(self._db, "deedbook_stretch") as cursor:
            cursor.execute(sql)
            while read := cursor.fetchmany(rows_hashed):
                use(unescaped(read))

    def _physical(self, name: str, *, is_live: bool) -> str:
        return f'"{self._schema}"."{name}{"" if is_live else "__next"}"'


_translation = functools.lru_cache(maxsize=1_024)(for_postgres)


def _names_of(view: Projection[Any]) -> list[str]:
    names = [(table.name, counts_of(table.name)) if table.is_full_text else (table.name,) for table in tables_of(view)]
    return [*itertools.chain.from_iterable(names)]


def _with_words(sql: str, expression: Expression) -> str:
    """Return a query with its full-text query as part of the SQL text."""
    return sql.replace("deedbook_matches(?)", hits_of(expression, is_ranked="search_words.rank" in sql))


def _as_stored(row: tuple[Any, ...]) -> list[Any]:
    """Return a row's values as SQLite stores them: True as 1, and -0.0 as 0.0."""
    return [value + 0 if value.__class__ in (bool, float) else value for value in row]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
