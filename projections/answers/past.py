"""The views as they were after an earlier entry: made from the present views and a fold of less than 1,024 entries.

- Rows of events never change. Those of the first N events are the rows with ``event_index < N``: an SQL view with the
  table's name, visible to one connection only, so every index of the table still works.
- Rows of states are replaced. The store keeps each state that was in progress at a boundary of the log
  (``store.boundary_states_table``); states that have not changed since then are still the present rows. The view's own
  fold continues the stored states up to the entry. Temporary tables with all their indexes hold those rows and a copy
  of the others, made by the first query that names such a table. (Joining both in an SQL view would make every later
  query slower to plan: SQLite flattens no UNION under an aggregate.)
- The full-text index is the present one. Later events are no hits and do not count in scores, but BM25 ranks two hits
  by word frequencies of the whole log.

Approvals and queues are those of that time; compromised signatures are marked with today's knowledge
(``agents.compromised``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from deedbook.ledger.client.reads import HeadView, LogReads
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.format.codec import msgpack_decoder
from deedbook.projections.answers.instants import Instant, accepted_ms
from deedbook.projections.answers.query import QueryContext, json_list
from deedbook.projections.stores.store import (
    LocalStore,
    ShadowTransaction,
    Value,
    ViewVersion,
    boundary_before,
    boundary_states_table,
    owners_in,
    states_table,
    tables_of,
)
from deedbook.projections.views.projection import Join, Logged, Projection, Row, Table
from deedbook.projections.views.registry import VIEWS, versions_for, view_named
from deedbook.projections.views.runner import Work, read_logged

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

pasts_open_max: Final = 4
counts_cached_max: Final = 1_024
_COUNTING: Final = "SELECT count(*) FROM "


class StalePast(Exception):
    """The views end before this past, or belong to another log than the one from which this past was made."""


class Pasts:
    """The points in the past that were queried last; threads may share them."""

    def __init__(self, client: LogReads) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], _Past] = {}

    def ask(self, store: LocalStore, at: Instant | int, question: Callable[[QueryContext], T], *, group: str) -> T:
        """Return the result of ``question`` on the views of a store, as of an instant.

        With an index alone, it answers only if nothing was written since that index was resolved, because resolving
        folds the views up to the log's end. Raises StalePast: the caller must fold and resolve the index; also raises
        as ``question``.
        """
        while True:
            past = self._at(store, at)
            with past.lock:
                if not past.is_closed:  # otherwise other threads queried so many pasts that this one was closed
                    return past.ask(question, at, group=group)

    def close(self) -> None:
        """Close them, each when its last reader is done."""
        with self._lock:
            pasts, self._open = list(self._open.values()), {}
        for past in pasts:
            past.close()

    def _at(self, store: LocalStore, at: Instant | int) -> _Past:
        size = at + 1 if isinstance(at, int) else at.size
        with self._lock:
            past = self._open.pop((store.name, size), None)
            if past is None or past.is_closed:
                if isinstance(at, int):
                    raise StalePast
                past = _Past(store, self._client, size)
            self._open[store.name, size] = past
            evicted = [self._open.pop(key) for key in [*self._open][:-pasts_open_max]]
        for expired in evicted:
            expired.close()
        return past


class _Past:
    """The views as of one instant, on a connection of their own."""

    def __init__(self, store: LocalStore, client: LogReads, size: int) -> None:
        self._client = client
        self.size = size
        self._head, self._root = client.head(), self._present_root()
        self._checked: tuple[HeadView, list[ViewVersion]] | None = None
        self._log_sizes: dict[str, int] = {}
        self._accepted_ms = 0
        self.is_closed = False
        self.owned = {table.name: view for view in VIEWS for table in view.tables if table.owner is not None}
        self.counts: dict[tuple[str, tuple[Value, ...]], list[dict[str, Any]]] = {}
        self._folded: dict[str, dict[str, bytes]] = {}
        self.lock = threading.RLock()
        self._store = store.apart()

    def ask(self, question: Callable[[QueryContext], T], at: Instant | int, *, group: str) -> T:
        self._wanted = {*versions_for(group)}
        self._is_again = isinstance(at, int)
        try:
            with self._store.reading() as transaction:
                reading = _PastTransaction(transaction, self)
                if isinstance(at, int):
                    at = Instant(self.size, self._accepted_ms or accepted_ms(reading, at))
                    self._accepted_ms = at.now_ms
                return question(QueryContext(reading, at.now_ms))
        except StalePast:
            if not self._is_again:
                self.close()
            raise
        except Unavailable as error:
            if error.code != "STORE_FULL":
                raise
            message = (
                "the folder for temporary files is too full for the views of the past: free some space, or set TMPDIR"
            )
            raise Unavailable(error.code, message, **error.details) from error

    def close(self) -> None:
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self._store.close()

    def is_of(self, versions: list[ViewVersion]) -> bool:
        """Whether the views reach that far and the log still begins the same. It is called inside the transaction.

        A tree does not show that bodies were erased, but after an erasure all views are rebuilt.
        """
        head = self._client.head()
        reached = {version.view: version.position for version in versions if version.is_live}
        positions = [reached.get(name, -1) for name in self._wanted]
        log_sizes = {version.view: version.log_size for version in versions if version.is_live}
        if any(log_sizes.get(name, size) != size for name, size in self._log_sizes.items()):
            return False  # the views were rebuilt: the rows here may contain erased texts
        self._log_sizes |= log_sizes
        if self._is_again:
            return self._checked == (head, versions) and min(positions) == head.size
        if head != self._head and self._present_root() == self._root:
            self._head = head  # computing that root takes three times as long as a short answer (measured)
        self._checked = (head, versions)
        return head == self._head and min(positions) >= self.size

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

    def folded(self, view: Projection[Any], present: ShadowTransaction) -> dict[str, bytes]:
        """Return the packed states at this past position of those keys that changed since the boundary before it."""
        if view.name not in self._folded:
            stored = stored_states(view, present, boundary_before(self.size))
            changes = Work(view).fold(self.events, lambda keys: {key: stored[key] for key in keys if key in stored})
            self._folded[view.name] = {row.key: row.data for row in changes.states}
        return self._folded[view.name]


def stored_states(view: Projection[Any], present: ShadowTransaction, boundary: int) -> dict[str, bytes]:
    """Return the packed states at a boundary of the keys that changed after it."""
    sql = f"SELECT key, data FROM {boundary_states_table(view.name).name} WHERE until >= ?1 AND changed < ?1"  # noqa: S608
    return {row["key"]: row["data"] for row in present.rows(sql, (boundary,))}


class _PastTransaction:
    """One query on a past; the tables that it makes stay if the query is answered."""

    def __init__(self, transaction: ShadowTransaction, past: _Past) -> None:
        versions = transaction.view_versions()
        if not past.is_of(versions):
            raise StalePast
        self._present = transaction
        self._past = past
        self._owned = past.owned
        # Some temporary tables may be missing: the store was replaced, a view rebuilt, or the last query refused.
        self._temporary = transaction.temporary_names()
        built = {version.view for version in versions if version.is_live}  # a view made on demand may not exist
        for table in (table for view in VIEWS if view.name in built for table in tables_of(view)):
            is_of_events = table.owner is None and "event_index" in table.columns and not table.is_full_text
            if is_of_events and table.name not in self._temporary:
                transaction.cut(table, past.size)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[dict[str, Any]]:
        for name in (name for name in self._owned if name in sql):
            if name not in self._temporary:
                self._make(self._owned[name])
        if not sql.startswith(_COUNTING):
            return self._present.rows(sql, values)
        # SQLite knows the row count of a whole table but must count a cut table; as this never changes, cache it.
        counts, key = self._past.counts, (sql, tuple(values))
        if key not in counts and len(counts) < counts_cached_max:
            counts[key] = self._present.rows(sql, values)
        return counts.get(key) or self._present.rows(sql, values)

    def together(self, *queries: tuple[str, Sequence[Value]]) -> list[list[dict[str, Any]]]:
        return [self.rows(*query) for query in queries]

    def view_versions(self) -> list[ViewVersion]:
        size = self._past.size
        return [replace(version, position=min(version.position, size)) for version in self._present.view_versions()]

    def table_digests(self, view: Projection[Any]) -> dict[str, str]:
        return self._present.table_digests(view)

    def states(self, view: str, keys: Iterable[str]) -> dict[str, bytes]:
        names, boundary = list(keys), boundary_before(self._past.size)
        folded = self._past.folded(view_named(view), self._present)
        states = {name: folded[name] for name in names if name in folded}
        others = json_list(name for name in names if name not in folded)
        # States that changed later are stored as of the boundary. The others have not changed since then.
        for table, conditions in (
            (boundary_states_table(view), "until >= ?2 AND changed < ?2"),
            (states_table(view), "changed < ?2"),
        ):
            sql = f"SELECT key, data FROM {table.name} WHERE key IN (SELECT value FROM json_each(?1)) AND {conditions}"  # noqa: S608
            states |= {row["key"]: row["data"] for row in self._present.rows(sql, (others, boundary))}
        return states

    def _make(self, view: Projection[Any]) -> None:
        states, boundary = states_table(view.name).name, boundary_before(self._past.size)
        changed = stored_states(view, self._present, boundary) | self._past.folded(view, self._present)
        work = Work(view)
        rows: dict[type[Row], list[Row]] = {}
        for row in (row for data in changed.values() for row in work.rows_of(data)):
            rows.setdefault(type(row), []).append(row)
        for table in (table for table in view.tables if table.owner is not None):
            if view.join is None or table is not view.join.table:
                self._present.shadow(table, rows.get(table.row, ()), states, boundary)
                self._temporary.add(table.name)
        if view.join is not None:
            self._make_joined(view, view.join)

    def _make_joined(self, view: Projection[Any], join: Join[Any]) -> None:
        """Make the rows again that depend on a state that changed since the boundary."""
        states, boundary = states_table(view.name).name, boundary_before(self._past.size)
        sql = f"SELECT key FROM {states} WHERE changed >= ?"  # noqa: S608 - a fixed name
        changed = {row["key"] for row in self._present.rows(sql, (boundary,))}
        kinds = "kind IN (SELECT value FROM json_each(?))"
        sql = f"SELECT DISTINCT stream FROM main.events WHERE event_index >= ? AND {kinds}"  # noqa: S608 - fixed texts
        heeded = self._present.rows(sql, (boundary, json_list(sorted(join.heeds))))
        lookup = _PastLookup(self)
        others = join.related(lookup, changed, {row["stream"].partition("/")[2] for row in heeded})
        outdated = sorted(changed.union(others))
        rows = join.rows(lookup.states(view.name, view.state, outdated), lookup)
        self._present.shadow(join.table, rows, states, boundary, outdated)
        self._temporary.add(join.table.name)


class _PastLookup:
    """A ``Lookup`` in the states and tables of a past."""

    def __init__(self, reading: _PastTransaction) -> None:
        self._reading = reading

    def states(self, view: str, form: type[S], keys: Iterable[str]) -> dict[str, S]:
        decoder = msgpack_decoder(form)
        return {key: decoder.decode(data) for key, data in self._reading.states(view, keys).items()}

    def owners(self, table: Table, column: str, values: Collection[str]) -> list[str]:
        return owners_in(self._reading, table, column, values)
