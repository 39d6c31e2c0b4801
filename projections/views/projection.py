"""The form of a projection: a pure fold from events to rows, of two types.

- Rows of a **state**: ``rows(state)`` go into tables with an ``owner`` column. They are replaced whenever the state of
  that key changes.
- Rows of an **event**: ``added(state, logged)`` go into tables without an owner. They are written once and never
  change.

Some rows of a state depend on other states, too: a handoff waits for somebody only if its dependencies are done. A
``Join`` makes these rows. It also names the states whose rows must be made again after another state changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from deedbook.ledger.events import kinds_on
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.format.forms import OWN, is_own

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event

S = TypeVar("S", bound=msgspec.Struct)


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row of a table: its fields are the columns, in order, of type str, int, bool, float or bytes, or None.

    A state without further fields can be the row itself: its first field is the key, and the others have defaults.
    """


R = TypeVar("R", bound=Row)
Rows: TypeAlias = Sequence[Row]


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event with facts about its bytes: the SHA-256 of its body, and the size of its entry in bytes.

    ``blobs`` are the refs of the blobs that it needs (``events.blob.blobs_of``).
    """

    event: Event
    body_ref: str
    size: int
    blobs: list[str]


class Table(msgspec.Struct, frozen=True):
    """One table of a view; the type of its rows gives the columns, and maps a row to its table.

    ``owner`` names the column with the key of the state that a row belongs to. It is the first column of the primary
    key, so that the rows of one key are stored together. Rows of a table without an owner are only ever added.
    ``is_full_text``: the row is a number and words separated by spaces, and the store holds only an index of them.
    ``long`` names columns with text of any length, which an index of whole values cannot hold.
    """

    name: str
    row: type[Row]
    primary_key: tuple[str, ...]
    owner: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    is_full_text: bool = False
    long: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a table whose rows cannot be replaced key by key, and a full-text table that is not only an index."""
        if self.owner is not None and self.primary_key[0] != self.owner:
            raise ValueError(f"the primary key of {self.name} begins with its owner {self.owner}")
        if self.is_full_text and (self.owner or self.indexes or len(self.columns) != 2):
            raise ValueError(f"the full-text table {self.name} has a number and words, no owner and no indexes")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.row.__struct_fields__


class NoState(msgspec.Struct, frozen=True):
    """The state of a projection that has none: it has no keys either."""

    key: str = ""


T = TypeVar("T", bound=msgspec.Struct)


class States(Protocol):
    """The states of all views at one time."""

    def states(self, view: str, form: type[T], keys: Iterable[str]) -> Mapping[str, T]:
        """Return the states of those keys that have one; ``form`` is the type of the view's states."""


class Lookup(States, Protocol):
    """The states of all views, and the tables of one of them."""

    def owners(self, table: Table, column: str, values: Collection[str]) -> list[str]:
        """Return the owners of the rows that have one of these values in a column."""


class Join(msgspec.Struct, Generic[S], frozen=True):
    """Rows of a state that depend on other states. ``rows`` makes the rows of several states for ``table``.

    ``shared`` is the part of a state that affects rows of others. ``related`` returns the keys of these others, given
    the keys whose shared part changed and the names of other streams with an event of a kind in ``heeds``.
    """

    table: Table
    rows: Callable[[Mapping[str, S], States], Rows]
    shared: Callable[[S], object]
    related: Callable[[Lookup, Collection[str], Collection[str]], Collection[str]]
    heeds: frozenset[str] = frozenset()


class Projection(msgspec.Struct, Generic[S], frozen=True):
    """A view: its name, version, tables and pure functions.

    A new ``version`` (any change of tables, fold or rows) is rebuilt from the log beside the old rows. ``handles`` are
    the handled kinds, None for all; ``OWN`` means all declared kinds. ``state(key)`` is the state before the first
    event of a key.
    """

    name: str
    version: int
    handles: frozenset[str] | None
    tables: tuple[Table, ...]
    state: type[S]
    fold: Callable[[S, Event], S]
    keys: Callable[[Event], tuple[str, ...]] = lambda _event: ()  # the default changes no state and only adds rows
    rows: Callable[[S], Rows] = lambda _state: ()
    added: Callable[[S | None, Logged], Rows] = lambda _state, _logged: ()
    join: Join[S] | None = None

    def takes(self, kind: str) -> bool:
        """Return whether the view folds events of a kind."""
        return self.handles is None or handled_as(kind) in self.handles


def handled_as(kind: str) -> str:
    """Return the name by which views handle a kind: its own, or ``OWN`` for each declared kind."""
    return OWN if is_own(kind) else kind


def event_rows(
    name: str, version: int, kinds: frozenset[str], tables: tuple[Table, ...], added: Callable[[Logged], Rows]
) -> Projection[NoState]:
    """Return a projection without states: each event of ``kinds`` adds its rows to ``tables``."""
    return Projection(
        name=name,
        version=version,
        handles=kinds,
        tables=tables,
        state=NoState,
        fold=lambda state, _event: state,
        added=lambda _state, logged: added(logged),
    )


def kinds_of(stream: str) -> frozenset[str]:
    """Return the kinds of events on streams ``stream/NAME``."""
    return frozenset(kinds_on(stream))


def names_of(stream: str) -> Callable[[Event], tuple[str, ...]]:
    """Return the ``keys`` function of a view of streams ``stream/NAME``: it returns NAME, or nothing for others."""
    start = f"{stream}/"
    return lambda event: (event.stream[len(start) :],) if event.stream.startswith(start) else ()


def unfolded(event: Event) -> NotImplementedError:
    """Return the error of a fold that handles a kind but has no case for it."""
    return NotImplementedError(f"this fold handles {event.kind} but has no case for it")


def row_of(row: type[R], *sources: Any, **values: Any) -> R:
    """Return a row from ``values`` and from the sources that have its columns.

    Raises TypeError: no source, or more than one, has a column.
    """
    for source, names in zip(sources, _columns_by_source(row, tuple(map(type, sources)), tuple(values)), strict=True):
        for name in names:
            values[name] = getattr(source, name)
    return row(**values)


@cache
def _columns_by_source(
    row: type[Row], sources: tuple[type[msgspec.Struct], ...], named: tuple[str, ...]
) -> list[list[str]]:
    """Return the columns that each source supplies, computed once for all rows with the same sources."""
    taken: list[list[str]] = [[] for _ in sources]
    for column in row.__struct_fields__:
        if column not in named:
            matches = [position for position, source in enumerate(sources) if hasattr(source, column)]
            if len(matches) != 1:
                raise TypeError(f"{column} of {row.__name__} is in {len(matches)} of its sources")
            taken[matches[0]].append(column)
    return taken


def json_text(value: object) -> str:
    """Return a value for a column that holds JSON: keys are sorted, so that equal values are equal rows."""
    return encode_sorted(value).decode()
