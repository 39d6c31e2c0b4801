"""What a runner and a reader ask of a view store; SQLite answers it now, PostgreSQL can later.

A **slot** is one copy of a view's tables: the *live* one that queries read, or the one being *built* beside it under
other table names, until it has caught up and takes the live one's place. Each slot has a **position**: the index of
the next event to apply. Rows, states and position of a batch commit together, or not at all.

SQL in queries keeps to what SQLite and PostgreSQL share: ``?`` placeholders, ``LIMIT``, ``WITH RECURSIVE``, joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from projections.projection import Projection, Row

Value: TypeAlias = "str | int | float | bytes | None"


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

    ``rows`` are the rows, by table, of the changed keys; ``added`` the rows of events; ``states`` the packed states by
    key; ``replaced`` the changed keys that had a state before (whose old rows have to go).
    """

    rows: dict[str, list[Row]]
    added: dict[str, list[Row]]
    states: list[tuple[str, bytes]]
    replaced: list[str]


class Reading(Protocol):
    """The views of one moment."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts."""
        ...

    def slots(self) -> list[Slot]:
        """Return the slots as of this moment."""
        ...

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        """Return, for each table of a live view and for its states, the BLAKE3 (hex) over its sorted rows."""
        ...


class Writing(Protocol):
    """One write transaction; it holds the store's write lock until it commits or is undone."""

    def slots(self) -> list[Slot]:
        """Return the slots, read under the write lock."""
        ...

    def load(self, slot: Slot, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the packed states of those keys that have one."""
        ...

    def write(self, slot: Slot, view: Projection[Any], changes: Changes) -> None:
        """Replace and add rows and states."""
        ...

    def move(self, slot: Slot) -> None:
        """Set the position and last event of a slot to what ``slot`` says."""
        ...

    def start_building(self, view: Projection[Any]) -> None:
        """Make an empty slot beside the live one (or in place of an older one being built)."""
        ...

    def make_live(self, view: Projection[Any]) -> None:
        """Let the slot being built take the place of the live one, whose tables are dropped."""
        ...


class Store(Protocol):
    """A place for views."""

    def reading(self) -> AbstractContextManager[Reading]:
        """The views of one moment, as long as the block lasts.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE``.
            Corrupted: the store is damaged.
        """
        ...

    def writing(self) -> AbstractContextManager[Writing]:
        """A write transaction that commits at the end of the block.

        Raises:
            Unavailable: ``STORE_UNAVAILABLE``, ``STORE_FULL``.
            Corrupted: the store is damaged.
        """
        ...

    def close(self) -> None:
        """Close the store."""
        ...
