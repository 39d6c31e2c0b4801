"""What a runner and a reader ask of a view store: SQLite's file and PostgreSQL's schema both answer it.

A **view version** is one copy of a view's tables: the *live* one that queries read, or the one being *built* beside it under
other table names, until it has caught up and takes the live one's place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, TypeAlias, Union, get_args, get_origin

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.projections.views.projection import NoState, Projection, Row, Table

Value: TypeAlias = str | int | float | bytes | None
stretch_events: Final = 1_024
"""The log's boundaries are so far apart: at each, states that are about to change are kept
(``projections.answers.past``).

No batch reaches over one, so what is kept is the same whatever batches the log was folded in. 1,024 instead of 4,096
cost no time of a fold (measured), and a past folds a quarter.
"""
word_places_max: Final = 2**20  # of a row: an entry has fewer bytes
rows_hashed: Final = 4_096
_SQL_TYPES: Final = {str: "TEXT", int: "INTEGER", bool: "INTEGER", float: "REAL", bytes: "BLOB"}
ADVICE: Final = "delete the file, and `deed project` rebuilds it from the log"


class DamagedStore(Corrupted):
    """The store itself cannot be read: it can be set aside and made again, because views hold nothing of their own."""


class MovedViews(Exception):
    """The views are not in the view versions that were expected: they were folded on, or made anew."""


class StateRow(Row, frozen=True):
    """A state of a view, packed, beside the rows of the view; ``changed`` is the last event that was folded into it."""

    key: str
    changed: int
    data: bytes


def states_table(view: str) -> Table:
    """Return the table that keeps the packed states of a view."""
    return Table(f"deedbook_states_{view}", StateRow, primary_key=("key",), owner="key")


class BoundaryStateRow(Row, frozen=True):
    """A state as its event ``changed`` left it; at the boundary ``until`` it was so, and behind it changed again."""

    until: int
    key: str
    changed: int
    data: bytes


def boundary_states_table(view: str) -> Table:
    """Return the table of the states that a view had at the boundaries of the log, of what was under way there."""
    return Table(
        f"deedbook_kept_{view}", BoundaryStateRow, primary_key=("until", "key"), indexes=(("until", "changed"),)
    )


def boundary_before(position: int) -> int:
    """Return the last boundary at or before an index; it lies before the entry that bears it."""
    return position - position % stretch_events


def boundary_behind(position: int) -> int:
    """Return the first boundary behind an index, which no batch that begins there reaches over."""
    return boundary_before(position) + stretch_events


class SkippedRow(Row, frozen=True):
    """An entry that a view left out because it does not follow from those before it: no gate admitted it."""

    event_index: int
    code: str
    message: str


def skipped_table(view: str) -> Table:
    """Return the table that lists which entries a view left out."""
    return Table(f"deedbook_skipped_{view}", SkippedRow, primary_key=("event_index",))


def tables_of(view: Projection[Any]) -> tuple[Table, ...]:
    """Return the tables of a view, with those of its states, now and at boundaries, and of what it left out."""
    states = () if view.state is NoState else (states_table(view.name), boundary_states_table(view.name))
    return (*view.tables, *states, skipped_table(view.name))


@functools.cache
def columns_sql(row: type[Row]) -> tuple[tuple[str, str, str], ...]:
    """Return of each column its quoted name, its type, and whether it is never NULL, as it is declared."""
    return tuple((f'"{field.name}"', *_sql_type(field.type)) for field in msgspec.structs.fields(row))


def _sql_type(annotation: Any) -> tuple[str, str]:
    options = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    (type_,) = (option for option in options if option is not NoneType)
    if get_origin(type_) is Literal:
        type_ = str
    return _SQL_TYPES[type_], "" if NoneType in options else " NOT NULL"


VIEW_VERSIONS_SQL: Final = (
    "SELECT view, version, is_live, position, last_id FROM deedbook_views ORDER BY view, is_live DESC"
)
"""What reads ``view_versions_of`` in either store."""


class ViewVersion(msgspec.Struct, frozen=True):
    """One copy of a view in the store.

    ``position`` is the index of the next event it needs, ``last_id`` the id of the event before that ("" at the start):
    a log that was rolled back and grew again holds another event there.
    """

    view: str
    version: int
    is_live: bool
    position: int
    last_id: str


def view_versions_of(rows: Iterable[tuple[Any, ...]]) -> list[ViewVersion]:
    """Return the view versions that ``VIEW_VERSIONS_SQL`` reads."""
    return [ViewVersion(view, version, bool(is_live), at, last_id) for view, version, is_live, at, last_id in rows]


class Changes(msgspec.Struct, frozen=True):
    """What a batch changed in one view version.

    ``rows`` are the rows to write by their type: those of events, those of changed keys, and the keys' packed states.
    ``replaced`` are the changed keys that had a state before, whose old rows have to go.
    """

    rows: Mapping[type[Row], Sequence[Row]]
    replaced: Sequence[str]


class ReadTransaction(Protocol):
    """The views of one moment."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""

    def together(self, *args: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        """Return the rows of each of several queries, none of which rests on another's."""

    def view_versions(self) -> list[ViewVersion]:
        """Return the view versions as of this moment; within ``writing``, as read under the write lock."""

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        """Return, for each table of a live view and for its states, the BLAKE3 (hex) over its sorted rows."""


class WriteTransaction(ReadTransaction, Protocol):
    """One write transaction; it holds the store's write lock until it commits or is undone."""

    def load(self, version: ViewVersion, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of those keys that have one."""

    def write(self, version: ViewVersion, view: Projection[Any], changes: Changes) -> None:
        """Replace and add rows and states; those of before the boundary that ``view_version`` is behind are kept."""

    def move(self, version: ViewVersion) -> None:
        """Set the position and last event of a view version to what ``view_version`` says."""

    def start_building(self, view: Projection[Any], *, in_place: bool) -> None:
        """Make an empty view version, also in place of one being built; ``in_place``, for few rows: live where none is."""

    def make_live(self, view: Projection[Any]) -> None:
        """Let the view version being built take the place of the live one, whose tables are dropped."""

    def drop(self, view: str, *, is_live: bool) -> None:
        """Drop a view version of a view, if there is one."""


class Store(Protocol):
    """A place for views. Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``. Corrupted: the store is damaged."""

    @property
    def is_shared(self) -> bool:
        """Whether nodes share it: then it may be ahead of this one's log, as far as another's has come."""

    def reading(self, expected: Sequence[ViewVersion] | None = None) -> AbstractContextManager[ReadTransaction]:
        """Read the views of one moment. Raises MovedViews, at the block's end at last: the view versions are not ``expected``."""

    def writing(self) -> AbstractContextManager[WriteTransaction]:
        """Write; what was written commits at the end of the block."""


class ShadowTransaction(ReadTransaction, Protocol):
    """A transaction on a connection of its own, which may hide tables behind others for itself alone."""

    def shown(self) -> set[str]:
        """Return the names of what it has for itself."""

    def cut(self, table: Table, size: int) -> None:
        """Let a table show the rows of the first ``size`` entries."""

    def shadow(self, table: Table, rows: Iterable[Row], states: str, boundary: int) -> None:
        """Let ``rows`` stand in a table's place, beside those whose states have not changed since ``boundary``."""


class SeparateStore(Protocol):
    """A store on a connection of its own."""

    def reading(self) -> AbstractContextManager[ShadowTransaction]:
        """Read the views of one moment; what is made for it stays, if the block ends well."""

    def close(self) -> None:
        """Close the connection."""


class LocalStore(Store, Protocol):
    """A store that this process opened itself."""

    name: str
    """Where it is, for people and to tell it from others; no secret is in it."""

    def apart(self) -> SeparateStore:
        """Return the same store on a connection of its own."""

    def check(self) -> str:
        """Return ``ok``, or what is damaged."""

    def set_aside(self) -> str:
        """Put away what is damaged, make room for another, and return where it is now."""

    def close(self) -> None:
        """Close what is open."""
