"""The interface of a view store, which SQLite's file and PostgreSQL's schema both implement.

A **view version** is one generation of a view's tables: the *live* one, which queries read, or the one being *built* in
shadow tables beside it, until it has caught up and replaces the live one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, TypeAlias, Union, get_args, get_origin

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.projections.views.projection import NoState, Projection, Row, Table

Value: TypeAlias = str | int | float | bytes | None
stretch_events: Final = 1_024
"""The distance between boundaries of the log.

States that change after a boundary are stored as of the boundary (``projections.answers.past``). No batch crosses a
boundary, so the stored states do not depend on the batches. With 1,024 instead of 4,096, a fold takes the same time
(measured), and a past folds only a quarter of the entries.
"""
word_places_max: Final = 2**20  # in one row, because an entry has fewer bytes
rows_hashed: Final = 512
"""Rows hashed at a time. With 4,096, the garbage collector visits each of them: a quarter of the time (measured)."""
_SQL_TYPES: Final = {str: "TEXT", int: "INTEGER", bool: "INTEGER", float: "REAL", bytes: "BLOB"}
ADVICE: Final = "delete the file, and `deed project` rebuilds it from the log"


class DamagedStore(Corrupted):
    """The store itself cannot be read. It can be moved away and rebuilt, because views hold no data of their own."""


class MovedViews(Exception):
    """The view versions are not the expected ones: another process updated or rebuilt the views."""


class StateRow(Row, frozen=True):
    """A packed state, stored beside the rows of its view; ``changed`` is the last event that was folded into it."""

    key: str
    changed: int
    data: bytes


def states_table(view: str) -> Table:
    """Return the table that keeps the packed states of a view."""
    return Table(f"deedbook_states_{view}", StateRow, primary_key=("key",), owner="key")


class BoundaryStateRow(Row, frozen=True):
    """A packed state as of the boundary ``until``.

    ``changed`` is its last event then; a later event changed it again.
    """

    until: int
    key: str
    changed: int
    data: bytes


def boundary_states_table(view: str) -> Table:
    """Return the table of a view's states as they were at each earlier boundary of the log (see ``stretch_events``).

    It stores only states that changed after the boundary. All others are still the same in ``states_table``.
    """
    return Table(
        f"deedbook_kept_{view}", BoundaryStateRow, primary_key=("until", "key"), indexes=(("until", "changed"),)
    )


def boundary_before(position: int) -> int:
    """Return the last boundary at or before an index; a boundary is before the entry with its index."""
    return position - position % stretch_events


def boundary_behind(position: int) -> int:
    """Return the first boundary after an index; no batch that begins at the index crosses it."""
    return boundary_before(position) + stretch_events


class SkippedRow(Row, frozen=True):
    """An entry that a view skipped because it does not follow from those before it: no gate admitted it.

    Or an entry of a family without a usable package here; lists of all events show it without text.
    """

    event_index: int
    code: str
    message: str


def skipped_table(view: str) -> Table:
    """Return the table of the entries that a view skipped."""
    return Table(f"deedbook_skipped_{view}", SkippedRow, primary_key=("event_index",))


def tables_of(view: Projection[Any]) -> tuple[Table, ...]:
    """Return a view's tables: its own, those of its states (present and at boundaries), and that of skipped entries."""
    states = () if view.state is NoState else (states_table(view.name), boundary_states_table(view.name))
    return (*view.tables, *states, skipped_table(view.name))


@functools.cache
def columns_sql(row: type[Row]) -> tuple[tuple[str, str, str], ...]:
    """Return for each column its quoted name, its type, and `` NOT NULL`` or an empty text."""
    return tuple((f'"{field.name}"', *_sql_type(field.type)) for field in msgspec.structs.fields(row))


def _sql_type(annotation: Any) -> tuple[str, str]:
    options = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    (type_,) = (option for option in options if option is not NoneType)
    if get_origin(type_) is Literal:
        type_ = str
    return _SQL_TYPES[type_], "" if NoneType in options else " NOT NULL"


VIEW_VERSIONS_SQL: Final = (
    "SELECT view, version, is_live, position, last_id, log_size FROM deedbook_views ORDER BY view, is_live DESC"
)
"""The query for ``view_versions_of``, in both stores."""


class ViewVersion(msgspec.Struct, frozen=True):
    """One generation of a view in the store.

    ``position`` is the index of the next event it needs. ``last_id`` is the id of the event before that ("" at the
    start): a log that was rolled back and grew again has another event there. ``log_size`` is the size of the log
    before the fold began. So the fold has read no text that an earlier redaction erased.
    """

    view: str
    version: int
    is_live: bool
    position: int
    last_id: str
    log_size: int = 0


def view_versions_of(rows: Iterable[tuple[Any, ...]]) -> list[ViewVersion]:
    """Return the view versions that ``VIEW_VERSIONS_SQL`` reads."""
    return [ViewVersion(view, version, bool(is_live), *others) for view, version, is_live, *others in rows]


class Changes(msgspec.Struct, frozen=True):
    """The changes that a batch makes to one view version.

    ``rows`` are the rows to write, by type: those of events, those of changed keys, and the keys' packed states.
    ``replaced`` are the changed keys that had a state before: their old rows must be deleted. ``joined`` are the keys
    whose old rows in the table of the view's join must be deleted. ``moved`` are the keys whose states affect rows of
    other keys.
    """

    rows: Mapping[type[Row], Sequence[Row]]
    replaced: Sequence[str]
    moved: Sequence[str] = ()
    joined: Sequence[str] = ()

    @property
    def states(self) -> list[StateRow]:
        """The packed states of the changed keys."""
        return [row for row in self.rows.get(StateRow, ()) if isinstance(row, StateRow)]

    def outdated(self, view: Projection[Any], table: Table) -> Sequence[str]:
        """Return the keys whose rows in a table must be deleted."""
        if table.owner is None:
            return ()
        return self.joined if view.join is not None and table is view.join.table else self.replaced


class ReadTransaction(Protocol):
    """A snapshot of the views."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""

    def together(self, *args: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        """Return the rows of each of several independent queries."""

    def states(self, view: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of a live view, of those keys that have one."""

    def view_versions(self) -> list[ViewVersion]:
        """Return the view versions of this snapshot; within ``writing``, as read under the write lock."""

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        """Return for each table of a live view, and for its states, the BLAKE3 (hex) of its sorted rows."""


def owners_in(reading: ReadTransaction, table: Table, column: str, values: Collection[str]) -> list[str]:
    """Return the owners of the rows of a live table that have one of these values in a column."""
    sql = (
        f"SELECT DISTINCT {table.owner} AS owner FROM {table.name} "  # noqa: S608 - fixed names
        f"WHERE {column} IN (SELECT value FROM json_each(?))"
    )
    return [row["owner"] for row in reading.rows(sql, (msgspec.json.encode([*values]).decode(),))]


class WriteTransaction(ReadTransaction, Protocol):
    """A write transaction; it holds the store's write lock until it commits or is rolled back."""

    def load(self, version: ViewVersion, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of those keys that have one."""

    def write(self, version: ViewVersion, view: Projection[Any], changes: Changes) -> None:
        """Replace and add rows and states; states that change for the first time after the last boundary are stored."""

    def move(self, version: ViewVersion) -> None:
        """Set the position and last event of a view version."""

    def start_building(self, view: Projection[Any], *, log_size: int, in_place: bool) -> None:
        """Create an empty view version, replacing one being built. ``in_place`` (for few rows): it is live if none is.

        The caller reads ``log_size`` before, and the entries after this transaction has committed.
        """

    def make_live(self, view: Projection[Any]) -> None:
        """Replace the live view version by the one being built; the old tables are dropped."""

    def drop(self, view: str, *, is_live: bool) -> None:
        """Drop the live view version of a view, or the one being built, if it exists."""


class Store(Protocol):
    """Storage for views. Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``. Corrupted: the store is damaged."""

    @property
    def is_shared(self) -> bool:
        """Whether several nodes share it. Then it may be ahead of this node's log."""

    def reading(self, expected: Sequence[ViewVersion] | None = None) -> AbstractContextManager[ReadTransaction]:
        """Read one snapshot of the views.

        Raises MovedViews, at the latest at the end of the block: the view versions are not ``expected``.
        """

    def writing(self) -> AbstractContextManager[WriteTransaction]:
        """Write; the transaction commits at the end of the block."""

    def empty(self, is_expected: Callable[[list[ViewVersion]], bool]) -> None:
        """Drop all views if their versions are the expected ones.

        Afterwards no file of the store contains their content.
        """


class ShadowTransaction(ReadTransaction, Protocol):
    """A transaction on a separate connection, which may shadow tables for that connection only."""

    def temporary_names(self) -> set[str]:
        """Return the names of the tables and views that exist for this connection only."""

    def cut(self, table: Table, size: int) -> None:
        """Shadow a table by its rows of the first ``size`` entries."""

    def shadow(
        self, table: Table, rows: Iterable[Row], states: str, boundary: int, outdated: Collection[str] = ()
    ) -> None:
        """Shadow a table by ``rows``, plus the live rows whose states have not changed since ``boundary``.

        Live rows of the keys in ``outdated`` are left out.
        """


class SeparateStore(Protocol):
    """A store on a connection of its own."""

    def reading(self) -> AbstractContextManager[ShadowTransaction]:
        """Read one snapshot of the views; shadow tables made in the block stay if it ends without an error."""

    def close(self) -> None:
        """Close the connection."""


class LocalStore(Store, Protocol):
    """A store that this process opened itself."""

    name: str
    """The location, for people and for comparison with other stores; it contains no secret."""

    def apart(self) -> SeparateStore:
        """Return the same store on a connection of its own."""

    def check(self) -> str:
        """Return ``ok``, or a description of the damage."""

    def move_away(self) -> str:
        """Move the damaged data away, make room for new views, and return the new location of the old data."""

    def close(self) -> None:
        """Close what is open."""
