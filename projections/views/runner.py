"""The runner: follow the log, decode each event once for all views, fold in batches, commit rows and position.

A batch is read and decoded without any lock, so a slow log never makes another process wait. Then the runner takes the
store's write lock and reads the positions again. If another process has folded meanwhile, the batch is dropped. States
that this process stored stay in memory as long as the positions show that no other process wrote.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.client.client import read_reset
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, Refused, Unavailable, newer_version
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.body import unread_refusal
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.fields import UnreadData
from deedbook.ledger.format.codec import msgpack_decoder
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.system import traces
from deedbook.projections.stores.store import (
    ADVICE,
    Changes,
    SkippedRow,
    StateRow,
    Store,
    ViewVersion,
    WriteTransaction,
    boundary_behind,
    owners_in,
    states_table,
)
from deedbook.projections.views.projection import Join, Logged, Projection, Row, Rows, Table, handled_as

S = TypeVar("S", bound=msgspec.Struct)

batch_events_max: Final = 1_024  # at most the distance of two boundaries
in_place_events_max: Final = 4_096
batch_size_max_bytes: Final = 16 * 1024**2
states_cached_max: Final = 20_000
joined_states_max: Final = 1_024

ERASING: Final = "entry.redacted"

_pack = msgspec.msgpack.Encoder().encode


class Progress(NamedTuple):
    """The progress of a long fold: events applied, and events in the log."""

    position: int
    size: int


class Runner:
    """Keeps the views of a store up to date with a log; one thread at a time may use it."""

    def __init__(self, client: LogReads, store: Store, views: Sequence[Projection[Any]]) -> None:
        """Fold what ``client`` reads into ``store``.

        Raises Unavailable: ``STORE_UNAVAILABLE``. Refused: ``UNSUPPORTED_VERSION``: a newer Deedbook made the views.
        Corrupted: the store is damaged.
        """
        self._client = client
        self._store = store
        self._views = {view.name: view for view in views}
        self._works: dict[tuple[str, bool], Work[Any]] = {}
        self._expected: list[ViewVersion] = []
        self._prepare(())

    def catch_up(self, *, progress: Callable[[Progress], None] | None = None) -> int:
        """Fold up to the end of the log; return the position reached.

        Raises Unavailable: the log or the store cannot be used. Corrupted: the store is damaged, or has views of
        entries that the log does not have.
        """
        while True:
            position = self._step(progress)
            if position is not None:
                return position

    def rebuild(self, names: Iterable[str], *, progress: Callable[[Progress], None] | None = None) -> int:
        """Rebuild views beside their live rows; return the position. Raises Refused: ``NOT_FOUND``: no such view."""
        for name in (names := list(names)):
            if name not in self._views:
                raise Refused(
                    "NOT_FOUND", f"there is no view {name}. The views are {', '.join(self._views)}", view=name
                )
        self._prepare(names)
        return self.catch_up(progress=progress)

    def digest(self, name: str) -> str:
        """Return the BLAKE3 (hex) over a view's tables, equal for equal rows. Raises Refused: as ``rebuild``."""
        if name not in self._views:
            raise Refused("NOT_FOUND", f"there is no view {name}", view=name)
        with self._store.reading() as reading:
            digests = reading.table_digests(self._views[name])
        return blake3("\n".join(f"{table} {digest}" for table, digest in sorted(digests.items())).encode()).hexdigest()

    def _prepare(self, anew: Iterable[str]) -> None:
        """Start to build the views without tables of the present version, and those to rebuild (``anew``)."""
        with self._store.reading() as reading:
            missing = self._missing(reading.view_versions(), anew)
        if not missing:
            return
        size = self._client.head().size
        with self._store.writing() as writing:
            for view in self._missing(writing.view_versions(), anew):
                writing.start_building(view, log_size=size, in_place=size <= in_place_events_max)
        self._works.clear()

    def _missing(self, versions: list[ViewVersion], anew: Iterable[str]) -> list[Projection[Any]]:
        for version in versions:
            view = self._views.get(version.view)
            if view is not None and version.version > view.version:
                otherwise = ", or delete the views: `deed project` rebuilds them from the log"
                raise newer_version(f"the view {view.name}", version.version, view.version, otherwise)
        existing = {(version.view, version.version) for version in versions}
        return [view for view in self._views.values() if (view.name, view.version) not in existing or view.name in anew]

    def _mine(self, versions: Iterable[ViewVersion]) -> list[ViewVersion]:
        """Return the view versions that this software can fold.

        A live version that is older stays until it is replaced.
        """
        return [
            version
            for version in versions
            if version.view in self._views and version.version == self._views[version.view].version
        ]

    def _step(self, progress: Callable[[Progress], None] | None) -> int | None:
        """Fold one batch; return the position if there was nothing more to fold, else None."""
        with self._store.reading() as reading:
            versions = self._mine(reading.view_versions())
        if {version.view for version in versions} != self._views.keys():
            self._prepare(())  # the store was deleted or replaced meanwhile
            return None
        start = min((version.position for version in versions), default=0)
        batch = self._read(start)
        if (
            self._store.is_shared
            and any(version.position > batch.size for version in versions)
            and self._is_behind(batch.size)
        ):
            return batch.size  # another node, whose log is ahead, has folded further
        # Compare with the size of the log at the beginning of the fold.
        is_ahead = any(version.log_size > batch.size for version in versions)
        if _is_of_another_past(versions, batch, start) or (is_ahead and not self._store.is_shared):
            self._check_reset(versions, batch)
            self._start_over(versions)
            return None
        if is_ahead:  # this node may not have erased the bodies yet that the other node has erased
            message = "a node whose log is ahead of this one's builds the views: try again"
            raise Unavailable("STORE_UNAVAILABLE", message, size=batch.size)
        if _erases_what_was_folded(versions, batch):
            self._start_over(versions)
            return None
        is_current = all(version.is_live and version.position >= batch.size for version in versions)
        if is_current and not batch.events:
            return start
        with (
            traces.span("deedbook.fold", events=len(batch.events), entries=batch.next_index),
            self._store.writing() as writing,
        ):
            if self._mine(writing.view_versions()) != versions:
                return None  # another process folded meanwhile
            self._apply(writing, versions, batch)
        if progress is not None:
            progress(Progress(batch.next_index, batch.size))
        return None

    def _is_behind(self, size: int) -> bool:
        if size == 0:
            return True
        last = read_logged(size - 1, self._client.entries(size - 1, limit=1).entries[0][1]).event.id
        with self._store.reading() as reading:
            return reading.rows("SELECT id FROM events WHERE event_index = ?", (size - 1,)) == [{"id": last}]

    def _check_reset(self, versions: list[ViewVersion], batch: Batch) -> None:
        """Check that a history reset abandoned the folded entries. Raises Corrupted: ``HISTORY_CHANGED``."""
        folded = max(max(version.position, version.log_size) for version in versions)
        resets = [read_reset(self._client, id_) for id_ in self._client.consistency(0).resets]
        if all(reset.abandoned_size < folded for reset in resets):
            message = (
                f"the views were made from another history of this log, which now has {batch.size} entries: {ADVICE}"
            )
            raise Corrupted("HISTORY_CHANGED", message, size=batch.size, position=folded)

    def _start_over(self, versions: list[ViewVersion]) -> None:
        """Empty the store, unless another process was first, so that all views are folded from the beginning.

        If we crash before that, the next fold meets the same entry again.
        """
        self._store.empty(lambda present: self._mine(present) == versions)
        self._works.clear()
        self._expected = []

    def _apply(self, writing: WriteTransaction, versions: list[ViewVersion], batch: Batch) -> None:
        if versions != self._expected:
            self._works.clear()
        self._expected = []  # until the commit, the states in memory are not those of the store
        moved: dict[tuple[str, bool], ViewVersion] = {}
        joins: list[tuple[ViewVersion, Changes, list[Logged]]] = []
        kinds = {handled_as(logged.event.kind) for logged in batch.events}
        for version in versions:
            view, key = self._views[version.view], (version.view, version.is_live)
            moved[key] = version
            if batch.next_index > version.position:
                work = self._works.setdefault(key, Work(view, is_whole=version.position == 0))
                if view.handles is None or not kinds.isdisjoint(view.handles | heeded_by(view)):
                    pending = [logged for logged in batch.events if logged.event.index >= version.position]
                    changes = work.fold(pending, functools.partial(writing.load, version))
                    writing.write(version, view, changes)
                    # otherwise the rows of a join are made once, when the view version becomes live
                    if version.is_live:
                        joins.append((version, changes, pending))
                # A bundle of one stream may have no entry in this part of its log.
                last_id = batch.events[-1].event.id if batch.events else version.last_id
                moved[key] = replace(version, position=batch.next_index, last_id=last_id)
                writing.move(moved[key])
                work.shrink(states_cached_max)
        # After all folds, so that a join reads the present states of every view, in any order of the views.
        for version, changes, pending in joins:
            write_joined(StoredLookup(writing, version, moved.values()), self._views[version.view], changes, pending)
        for name in [
            name for (name, is_live), version in moved.items() if not is_live and version.position >= batch.size
        ]:
            writing.make_live(self._views[name])
            moved[name, True] = replace(moved.pop((name, False)), is_live=True)
            join_all(StoredLookup(writing, moved[name, True], moved.values()), self._views[name])
            self._works[name, True] = self._works.pop((name, False), Work(self._views[name]))
        self._expected = sorted(moved.values(), key=lambda version: (version.view, not version.is_live))

    def _read(self, start: int) -> Batch:
        """Read a batch from ``start`` on, and the entry before it, which shows whether this is the same log."""
        events: list[Logged] = []
        before: Logged | None = None
        position, total = max(0, start - 1), 0
        last = min(start + batch_events_max, boundary_behind(start))
        while True:
            page = self._client.entries(position, limit=max(1, last - position))
            for index, data in page.entries:
                if index < start:
                    before = read_logged(index, data)
                elif index < last:
                    events.append(read_logged(index, data))
                total += len(data)
            position = page.next_index
            if position >= min(last, page.size) or total >= batch_size_max_bytes:
                return Batch(events, before, min(position, max(last, start)), page.size)


class Batch(msgspec.Struct, frozen=True):
    """A decoded part of the log: its events, the one before them, the index after it, and the log's size."""

    events: list[Logged]
    before: Logged | None
    next_index: int
    size: int


def _is_of_another_past(versions: list[ViewVersion], batch: Batch, start: int) -> bool:
    """Whether the views were folded from another log: this one is shorter, or has another event there."""
    is_shorter = any(version.position > batch.size for version in versions)
    last_ids = {version.last_id for version in versions if version.position == start and start > 0}
    return is_shorter or (batch.before is not None and bool(last_ids - {batch.before.event.id}))


def _erases_what_was_folded(versions: list[ViewVersion], batch: Batch) -> bool:
    """Whether a body was erased after the fold of a view began: the fold may have read the body.

    Earlier redactions had already left only remnants in the log. So a fold starts over at most once, even if the log
    has many redactions.
    """
    erased = [logged.event.index for logged in batch.events if logged.event.kind == ERASING]
    return any(version.position <= index and version.log_size <= index for version in versions for index in erased)


def read_logged(index: int, data: bytes) -> Logged:
    """Return the event of an entry, with the facts about its bytes.

    Raises Corrupted: the log has bytes that no gate could have admitted; ``index`` says where.
    """
    try:
        entry = decode_entry(data)
        event = read_event(index, entry)
    except Refused as error:
        message = f"entry {index} cannot be read ({error}): run `deed fsck`"
        raise Corrupted("CORRUPTED", message, index=index) from error
    body_ref = "sha256:" + hashlib.sha256(entry.body).hexdigest()
    return Logged(event, body_ref, len(data), blobs_of(event.data, entry.body))


def heeded_by(view: Projection[Any]) -> frozenset[str]:
    """Return the kinds of other streams that change rows of a view."""
    return frozenset() if view.join is None else view.join.heeds


class StoredLookup:
    """A ``Lookup`` in the tables of a store, for the rows of one live view version."""

    def __init__(self, writing: WriteTransaction, version: ViewVersion, versions: Iterable[ViewVersion]) -> None:
        """Read the states of other views from those of ``versions`` that have folded the most."""
        self._writing = writing
        self._version = version
        self._versions: dict[str, ViewVersion] = {}
        for other in sorted(versions, key=lambda version: version.position):
            self._versions[other.view] = other

    def states(self, view: str, form: type[S], keys: Iterable[str]) -> dict[str, S]:
        """Return the states of those keys that have one."""
        if view not in self._versions:
            return {}
        decoder = msgpack_decoder(form)
        loaded = self._writing.load(self._versions[view], keys)
        return {key: decoder.decode(data) for key, data in loaded.items()}

    def owners(self, table: Table, column: str, values: Collection[str]) -> list[str]:
        """Return the owners of the rows that have one of these values in a column."""
        return owners_in(self._writing, table, column, values)

    def keys(self, view: str, after: str) -> list[str]:
        """Return the next keys of states of a live view, in order."""
        sql = f"SELECT key FROM {states_table(view).name} WHERE key > ? ORDER BY key LIMIT ?"  # noqa: S608 - a fixed name
        return [row["key"] for row in self._writing.rows(sql, (after, joined_states_max))]

    def join(self, join: Join[Any], view: Projection[Any], keys: Sequence[str]) -> None:
        """Write the rows of a join for some states."""
        rows = join.rows(self.states(view.name, view.state, keys), self)
        self._writing.write(self._version, view, Changes({join.table.row: rows}, [], joined=keys))


def write_joined(lookup: StoredLookup, view: Projection[Any], changes: Changes, events: Sequence[Logged]) -> None:
    """Write the rows of a view's join again for the changed states, and for all states whose rows depend on them."""
    if (join := view.join) is None:
        return
    heeded = {logged.event.name for logged in events if logged.event.kind in join.heeds}
    keys = sorted({row.key for row in changes.states}.union(join.related(lookup, changes.moved, heeded)))
    for start in range(0, len(keys), joined_states_max):
        lookup.join(join, view, keys[start : start + joined_states_max])


def join_all(lookup: StoredLookup, view: Projection[Any]) -> None:
    """Write the rows of a view's join for all of its states; the view is live and has none."""
    last = ""
    while view.join is not None and (keys := lookup.keys(view.name, last)):
        last = keys[-1]
        lookup.join(view.join, view, keys)


class Work(Generic[S]):
    """One view's part of the fold: the states that events change, and the rows to write; it caches stored states.

    ``is_whole``: every stored state is in memory, as when nothing was folded before.
    """

    def __init__(self, view: Projection[S], *, is_whole: bool = False) -> None:
        self._view = view
        self._is_whole = is_whole
        self._states: dict[str, S] = {}
        self._decoder = msgpack_decoder(view.state)

    def fold(self, events: Sequence[Logged], load: Callable[[Iterable[str]], dict[str, bytes]]) -> Changes:
        """Return what ``events`` change; ``load`` reads the packed states of keys that are not in memory.

        An event that does not follow from those before it is skipped and listed. No gate admits such an event.
        """
        view, states, fold = self._view, self._states, self._view.fold
        # a batch has few kinds and many events, and each view looks at all of them
        taken = {kind for kind in {logged.event.kind for logged in events} if view.takes(kind)}
        handled = [logged for logged in events if logged.event.kind in taken] if taken else []
        keyed = [(logged, view.keys(logged.event)) for logged in handled]
        touched = {key: logged.event.index for logged, keys in keyed for key in keys}
        unknown = [] if self._is_whole else [key for key in touched if key not in states]
        stored = load(unknown) if unknown else {}
        replaced = [key for key in touched if key in states or key in stored]
        for key in touched:
            if key in stored:
                states[key] = self._decoder.decode(stored[key])
            elif key not in states:
                states[key] = view.state(key)
        before = {key: states[key] for key in touched}
        rows: defaultdict[type[Row], list[Row]] = defaultdict(list)
        for logged, keys in keyed:
            try:
                folded = {key: fold(states[key], logged.event) for key in keys}
            except Refused as error:
                # Somebody bypassed the gate. A single such entry must not break every query about other entries.
                rows[SkippedRow].append(SkippedRow(logged.event.index, error.code, error.message))
                continue
            states |= folded
            # only a view of all kinds gets such an event, without texts and with a mark
            if isinstance(logged.event.data, UnreadData):
                refusal = unread_refusal(logged.event.kind, logged.event.stream)
                rows[SkippedRow].append(SkippedRow(logged.event.index, refusal.code, refusal.message))
            for row in view.added(states[keys[0]] if keys else None, logged):
                rows[type(row)].append(row)
        for key, changed in touched.items():
            for row in view.rows(states[key]):
                rows[type(row)].append(row)
            rows[StateRow].append(StateRow(key, changed, _pack(states[key])))
        shared = view.join.shared if view.join is not None else None
        moved = [key for key, state in before.items() if shared is not None and shared(state) != shared(states[key])]
        return Changes(rows, replaced, moved)

    def rows_of(self, data: bytes) -> Rows:
        """Return the rows of a packed state."""
        return self._view.rows(self._decoder.decode(data))

    def shrink(self, limit: int) -> None:
        """Drop all states from memory if there are more than ``limit``: the store has them."""
        if len(self._states) > limit:
            self._states.clear()
            self._is_whole = False
