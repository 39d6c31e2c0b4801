"""What a runner asks of a view store, and nothing that only SQLite could answer: PostgreSQL is to be the second.

A **slot** is one copy of a view's tables: the *live* one that queries read, or the one being *built* beside it under
other table names, until it has caught up and takes the live one's place. Each slot has a **position**: the index of
the next event to apply. Rows, states and position of a batch commit together, or not at all.

What is not common is the SQL of the queries: it is SQLite's (numbered parameters, ``json_each``, ``rowid``, FTS5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ledger.errors import Corrupted
from projections.projection import NoState, Projection, Row, Table

Value: TypeAlias = str | int | float | bytes | None
stretch_events: Final = 1_024
"""The log's boundaries are so far apart: at each, states that are about to change are kept (``projections.past``).

No batch reaches over one, so what is kept is the same whatever batches the log was folded in. 1,024 instead of 4,096
cost no time of a fold (measured), and a past folds a quarter.
"""
ADVICE: Final = "delete the file, and `baton project` rebuilds it from the log"


class Damaged(Corrupted):
    """The store itself cannot be read: it can be set aside and made again, because views hold nothing of their own."""


class StateRow(Row, frozen=True):
    """A state of a view, packed, beside the rows of the view; ``changed`` is the last event that was folded into it."""

    key: str
    changed: int
    data: bytes


def states_table(view: str) -> Table:
    """Return the table that keeps the packed states of a view."""
    return Table(f"baton_states_{view}", StateRow, primary_key=("key",), owner="key")


class KeptRow(Row, frozen=True):
    """A state as its event ``changed`` left it; at the boundary ``until`` it was so, and behind it changed again."""

    until: int
    key: str
    changed: int
    data: bytes


def kept_table(view: str) -> Table:
    """Return the table of the states that a view had at the boundaries of the log, of what was under way there."""
    return Table(f"baton_kept_{view}", KeptRow, primary_key=("until", "key"), indexes=(("until", "changed"),))


def boundary_before(position: int) -> int:
    """Return the last boundary at or before an index; it lies before the entry that bears it."""
    return position - position % stretch_events


def boundary_behind(position: int) -> int:
    """Return the first boundary behind an index, which no batch that begins there reaches over."""
    return boundary_before(position) + stretch_events


class QuarantineRow(Row, frozen=True):
    """An entry that a view left out because it does not follow from those before it: no gate admitted it."""

    event_index: int
    code: str
    message: str


def quarantine_table(view: str) -> Table:
    """Return the table that lists which entries a view left out."""
    return Table(f"baton_quarantine_{view}", QuarantineRow, primary_key=("event_index",))


def tables_of(view: Projection[Any]) -> tuple[Table, ...]:
    """Return the tables of a view, with those of its states, now and at boundaries, and of what it left out."""
    states = () if view.state is NoState else (states_table(view.name), kept_table(view.name))
    return (*view.tables, *states, quarantine_table(view.name))


class Slot(NamedTuple):
    """One copy of a view in the store.

    ``position`` is the index of the next event it needs, ``last_id`` the id of the event before that ("" at the start):
    a log that was rolled back and grew again holds another event there.
    """

    view: str
    version: int
    is_live: bool
    position: int
    last_id: str


class Changes(NamedTuple):
    """What a batch changed in one slot.

    ``rows`` are the rows to write by their type: those of events, those of changed keys, and the keys' packed states.
    ``replaced`` are the changed keys that had a state before, whose old rows have to go.
    """

    rows: Mapping[type[Row], Sequence[Row]]
    replaced: Sequence[str]


class Reading(Protocol):
    """The views of one moment."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""

    def slots(self) -> list[Slot]:
        """Return the slots as of this moment; within ``writing``, as read under the write lock."""

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        """Return, for each table of a live view and for its states, the BLAKE3 (hex) over its sorted rows."""


class Writing(Reading, Protocol):
    """One write transaction; it holds the store's write lock until it commits or is undone."""

    def load(self, slot: Slot, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of those keys that have one."""

    def write(self, slot: Slot, view: Projection[Any], changes: Changes) -> None:
        """Replace and add rows and states; those of before the boundary that ``slot`` is behind are kept."""

    def move(self, slot: Slot) -> None:
        """Set the position and last event of a slot to what ``slot`` says."""

    def start_building(self, view: Projection[Any], *, in_place: bool) -> None:
        """Make an empty slot, also in place of one being built; ``in_place``, for few rows: live where none is."""

    def make_live(self, view: Projection[Any]) -> None:
        """Let the slot being built take the place of the live one, whose tables are dropped."""

    def drop(self, view: str, *, is_live: bool) -> None:
        """Drop a slot of a view, if there is one."""


class Store(Protocol):
    """A place for views; both transactions last as long as their block.

    Raises Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``. Corrupted: the store is damaged.
    """

    def reading(self) -> AbstractContextManager[Reading]:
        """Read the views of one moment."""

    def writing(self) -> AbstractContextManager[Writing]:
        """Write; what was written commits at the end of the block."""
