"""The shape of a projection: a pure fold from events to rows (DESIGN §8).

A projection owns some tables. Of each event it *handles* it names the keys whose state the event changes; the
runner folds the event into each of those states, and writes two sorts of rows:

- rows of a **state**: ``rows(state)`` stand in tables that have an ``owner`` column, and are replaced whenever the
  state of that key changed;
- rows of an **event**: ``added(state, logged)`` stand in tables without an owner, and are written once, never changed.

A view like the catalog lives almost wholly of the second sort: its folds stay cheap however long a stream grows.

Rules: every function here is a plain function of its arguments. No clock, no disk, no network, no randomness, and no
iteration over sets (their order differs from process to process). A state is a msgspec struct, kept as msgpack
beside the rows, so that folding goes on after a restart without reading the log again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.events.body import Event

S = TypeVar("S", bound=msgspec.Struct)
Row: TypeAlias = "tuple[str | int | float | bytes | None, ...]"
Rows: TypeAlias = "Mapping[str, Sequence[Row]]"


class Logged(NamedTuple):
    """An event with what its bytes alone can tell: the SHA-256 of its body, and the size of its entry in bytes."""

    event: Event
    body_ref: str
    size: int


@dataclass(frozen=True)
class Table:
    """One table of a view. Column types are TEXT, INTEGER, REAL or BLOB, followed by NOT NULL where it holds.

    ``owner`` names the column that holds the key of the state which a row belongs to; it is the first column of the
    primary key, so that the rows of one key lie side by side. A table without an owner is only ever added to.
    ``is_full_text``: a number and words set apart by spaces, of which the store keeps an index to search in, no more.
    """

    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    owner: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    is_full_text: bool = False

    def __post_init__(self) -> None:
        """Refuse a table that could not be replaced key by key, and a full-text table that is more than an index."""
        if self.owner is not None and self.primary_key[0] != self.owner:
            raise ValueError(f"the primary key of {self.name} begins with its owner {self.owner}")
        if self.is_full_text and (self.owner or self.indexes or len(self.columns) != 2):
            raise ValueError(f"the full-text table {self.name} has a number and words, no owner and no indexes")


class NoState(msgspec.Struct, frozen=True):
    """The state of a projection that keeps none."""


def no_keys(_event: Event) -> tuple[str, ...]:
    """Return no key: the event changes no state, it only adds rows."""
    return ()


def no_rows(_state: Any) -> Rows:
    """Return no rows of a state."""
    return {}


def nothing_added(_state: Any, _logged: Logged) -> Rows:
    """Return no rows of an event."""
    return {}


@dataclass(frozen=True)
class Projection(Generic[S]):
    """A view: its name, the version of its meaning, its tables and its pure functions.

    A new ``version`` (any change of tables, fold or rows) is rebuilt from the log beside the old rows. ``handles`` are
    the kinds it wants, None for all. ``initial(key)`` is the state before the first event of a key.
    """

    name: str
    version: int
    handles: frozenset[str] | None
    tables: tuple[Table, ...]
    state: type[S]
    initial: Callable[[str], S]
    fold: Callable[[S, Event], S]
    keys: Callable[[Event], tuple[str, ...]] = no_keys
    rows: Callable[[S], Rows] = no_rows
    added: Callable[[S | None, Logged], Rows] = nothing_added

    def table(self, name: str) -> Table:
        """Return the table of that name."""
        return next(table for table in self.tables if table.name == name)


def event_rows(
    name: str, version: int, kinds: frozenset[str], table: Table, added: Callable[[NoState | None, Logged], Rows]
) -> Projection[NoState]:
    """Return the projection that keeps no state: each event of ``kinds`` adds its rows to ``table``, for good."""
    return Projection(
        name=name,
        version=version,
        handles=kinds,
        tables=(table,),
        state=NoState,
        initial=lambda _key: NoState(),
        fold=lambda state, _event: state,
        added=added,
    )


def by_name_of_stream(event: Event) -> tuple[str, ...]:
    """Return the one key of an event whose state is its stream's: the stream's name without its sort."""
    return (event.name,)
