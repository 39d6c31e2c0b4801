"""The views as they were after an earlier entry: out of the present ones, and a fold of less than 1,024 entries.

- Rows of events are never changed: those of the first N events are the rows with ``event_index < N``, by a view of
  SQL's that bears the table's name for one connection alone, so that every index of the table serves as ever.
- Rows of states are replaced. Of what was under way at a boundary of the log the state is kept (``store.kept_table``);
  what has not changed since stands as it was. The view's own fold takes the kept ones on to the entry, and temporary
  tables with all their indexes hold those rows and a copy of the others, from the first question that names one. (To
  join both in a view would cost every later question its plan: SQLite flattens no UNION under an aggregate.)
- The full-text index is the present one: an event of later is no hit and counts for no score, but which of two hits
  stands first is BM25's, which weighs words by all that was ever written.

What an approval was worth, and so who waited for whom, is as it was believed then; marks of suspicion are of now
(``agents.suspects``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from deedbook.ledger.client.reads import HeadView, LogReads
from deedbook.ledger.errors import Unavailable
from deedbook.projections.answers.instants import Instant, accepted_ms
from deedbook.projections.answers.query import QueryContext
from deedbook.projections.stores.store import (
    Local,
    Shadowing,
    Slot,
    Value,
    boundary_before,
    kept_table,
    states_table,
    tables_of,
)
from deedbook.projections.views.projection import Logged, Projection
from deedbook.projections.views.registry import ON_DEMAND, VIEWS
from deedbook.projections.views.runner import Work, read_logged

T = TypeVar("T")

pasts_open_max: Final = 4
counts_kept_max: Final = 1_024
_COUNTING: Final = "SELECT count(*) FROM "


class Stale(Exception):
    """The views do not reach as far, or are not those of the log that this past was made from."""


class Pasts:
    """The moments that were asked for last; threads may share them."""

    def __init__(self, client: LogReads) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], _Past] = {}

    def ask(self, store: Local, at: Instant | int, question: Callable[[QueryContext], T], *, on_demand: bool) -> T:
        """Return what a question finds in the views of a store, as of a moment.

        Of an index alone it is answered where nothing was written since its moment was asked for: whoever names that
        has folded the views up to the log's end. Raises Stale: fold, and ask for the moment; and as the question.
        """
        while True:
            past = self._at(store, at)
            with past.lock:
                if not past.is_closed:  # else another thread was asked for so many others meanwhile
                    return past.ask(question, at, on_demand=on_demand)

    def close(self) -> None:
        """Close them, each when nobody reads it any more."""
        with self._lock:
            pasts, self._open = list(self._open.values()), {}
        for past in pasts:
            past.close()

    def _at(self, store: Local, at: Instant | int) -> _Past:
        size = at + 1 if isinstance(at, int) else at.size
        with self._lock:
            past = self._open.pop((store.name, size), None)
            if past is None or past.is_closed:
                if isinstance(at, int):
                    raise Stale
                past = _Past(store, self._client, size)
            self._open[store.name, size] = past
            oldest = [self._open.pop(key) for key in [*self._open][:-pasts_open_max]]
        for one in oldest:
            one.close()
        return past


class _Past:
    """The views of one moment, on a connection of their own."""

    def __init__(self, store: Local, client: LogReads, size: int) -> None:
        self._client = client
        self.size = size
        self._head, self._root = client.head(), self._present_root()
        self._seen: tuple[HeadView, list[Slot]] | None = None
        self._accepted_ms = 0
        self.is_closed = False
        self.owned = {table.name: view for view in VIEWS for table in view.tables if table.owner is not None}
        self.counts: dict[tuple[str, tuple[Value, ...]], list[dict[str, Any]]] = {}
        self.lock = threading.RLock()
        self._store = store.apart()

    def ask(self, question: Callable[[QueryContext], T], at: Instant | int, *, on_demand: bool) -> T:
        self._wanted = {view.name for view in VIEWS if on_demand or view.name not in ON_DEMAND}
        self._is_again = isinstance(at, int)
        try:
            with self._store.reading() as transaction:
                reading = _Reading(transaction, self)
                if isinstance(at, int):
                    at = Instant(self.size, self._accepted_ms or accepted_ms(reading, at))
                    self._accepted_ms = at.now_ms
                return question(QueryContext(reading, at.now_ms))
        except Stale:
            if not self._is_again:
                self.close()
            raise
        except Unavailable as error:
            if error.code != "STORE_FULL":
                raise
            message = "the folder of temporary files has no room for the views as they were: make room, or set TMPDIR"
            raise Unavailable(error.code, message, **error.details) from error

    def close(self) -> None:
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self._store.close()

    def is_of(self, slots: list[Slot]) -> bool:
        """Whether the views reach so far, and the log begins as it did: asked when the transaction has begun."""
        head = self._client.head()
        reached = {slot.view: slot.position for slot in slots if slot.is_live}
        wanted = [reached.get(name, -1) for name in self._wanted]
        if self._is_again:
            return self._seen == (head, slots) and min(wanted) == head.size
        if head != self._head and self._present_root() == self._root:
            self._head = head  # to compute the root of a past takes three times as long as a short answer (measured)
        self._seen = (head, slots)
        return head == self._head and min(wanted) >= self.size

    def _present_root(self) -> str:
        return self._client.consistency(0, self.size).root

    @cached_property
    def events(self) -> list[Logged]:
        events: list[Logged] = []
        position = boundary_before(self.size)
        while position < self.size:
            page = self._client.entries(position, limit=self.size - position)
            events += [read_logged(index, data) for index, data in page.entries]
            position = page.next_index
        return events


class _Reading:
    """One question to a past; what it makes for it stays, if the question is answered."""

    def __init__(self, transaction: Shadowing, past: _Past) -> None:
        slots = transaction.slots()
        if not past.is_of(slots):
            raise Stale
        self._present = transaction
        self._past = past
        self._owned = past.owned
        # Where the store was replaced, a view made anew, or the question before refused, not all of this is there yet.
        self._shown = transaction.shown()
        made = {slot.view for slot in slots if slot.is_live}  # one that waits until it is asked may not be there
        for table in (table for view in VIEWS if view.name in made for table in tables_of(view)):
            is_of_events = table.owner is None and "event_index" in table.columns and not table.is_full_text
            if is_of_events and table.name not in self._shown:
                transaction.cut(table, past.size)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        for name in (name for name in self._owned if name in sql):
            if name not in self._shown:
                self._make(self._owned[name])
        if not sql.startswith(_COUNTING):
            return self._present.rows(sql, values)
        # Of a whole table SQLite knows how many rows it has, of one that was cut it counts them; they stay so many.
        counts, args = self._past.counts, (sql, tuple(values))
        if args not in counts and len(counts) < counts_kept_max:
            counts[args] = self._present.rows(sql, values)
        return counts.get(args) or self._present.rows(sql, values)

    def together(self, *args: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        return [self.rows(*one) for one in args]

    def slots(self) -> list[Slot]:
        size = self._past.size
        return [replace(slot, position=min(slot.position, size)) for slot in self._present.slots()]

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        return self._present.table_digests(view)

    def _make(self, view: Projection[Any]) -> None:
        boundary, states = boundary_before(self._past.size), states_table(view.name).name
        sql = f"SELECT key, data FROM {kept_table(view.name).name} WHERE until >= ?1 AND changed < ?1"  # noqa: S608
        kept: dict[str, bytes] = {row["key"]: row["data"] for row in self._present.rows(sql, (boundary,))}
        work = Work(view)
        changes = work.fold(self._past.events, lambda keys: {key: kept.pop(key) for key in keys if key in kept})
        rows = {form: list(some) for form, some in changes.rows.items()}
        for row in (row for data in kept.values() for row in work.rows_of(data)):
            rows.setdefault(type(row), []).append(row)
        for table in (table for table in view.tables if table.owner is not None):
            self._present.shadow(table, rows.get(table.row, ()), states, boundary)
            self._shown.add(table.name)
