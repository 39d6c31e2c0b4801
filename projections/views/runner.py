"""The runner: follow the log, decode each event once for all views, fold in batches, commit rows and position.

A batch is read and decoded without any lock, so that a slow log never makes another process wait. Then the store's
write lock is taken and the positions are read again: if another process folded meanwhile, the batch is dropped. States
that this process left in the store are kept in memory for as long as the positions say that nobody else wrote.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.client.client import read_reset
from deedbook.ledger.client.reads import LogReads
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry
from deedbook.projections.stores.store import (
    ADVICE,
    Changes,
    SkippedRow,
    Slot,
    StateRow,
    Store,
    Writing,
    boundary_behind,
)
from deedbook.projections.views.projection import Logged, Projection, Row, Rows

S = TypeVar("S", bound=msgspec.Struct)

batch_events_max: Final = 1_024  # no more than lie between two boundaries
in_place_events_max: Final = 4_096
batch_size_max_bytes: Final = 16 * 1024**2
states_cached_max: Final = 20_000

_pack = msgspec.msgpack.Encoder().encode


class Progress(NamedTuple):
    """How far a long fold has come: events applied, of how many in the log."""

    position: int
    size: int


class Runner:
    """Keeps some views of one store up to date with one log; used by one thread at a time."""

    def __init__(self, client: LogReads, store: Store, views: Sequence[Projection[Any]]) -> None:
        """Fold what ``client`` reads into ``store``.

        Raises Unavailable: ``STORE_UNAVAILABLE``; also when a newer version of Deedbook made the views. Corrupted: the
        store is damaged.
        """
        self._client = client
        self._store = store
        self._views = {view.name: view for view in views}
        self._works: dict[tuple[str, bool], Work[Any]] = {}
        self._expected: list[Slot] = []
        self._prepare(())

    def catch_up(self, *, progress: Callable[[Progress], None] | None = None) -> int:
        """Fold up to the end of the log; return the position reached.

        Raises Unavailable: the log or the store cannot be used. Corrupted: the store is damaged, or holds views of
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
                raise Refused("NOT_FOUND", f"there is no view {name}: there are {', '.join(self._views)}", view=name)
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
        """Start building what has no slot of its version, and what is wanted anew."""
        with self._store.reading() as reading:
            missing = self._missing(reading.slots(), anew)
        if not missing:
            return
        is_short = self._client.head().size <= in_place_events_max
        with self._store.writing() as writing:
            for view in self._missing(writing.slots(), anew):
                writing.start_building(view, in_place=is_short)
        self._works.clear()

    def _missing(self, slots: list[Slot], anew: Iterable[str]) -> list[Projection[Any]]:
        for slot in slots:
            view = self._views.get(slot.view)
            if view is not None and slot.version > view.version:
                raise Unavailable(
                    "STORE_UNAVAILABLE",
                    f"the view {view.name} was made by a newer version of Deedbook: use that, or delete the views file",
                    view=view.name,
                )
        held = {(slot.view, slot.version) for slot in slots}
        return [view for view in self._views.values() if (view.name, view.version) not in held or view.name in anew]

    def _mine(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return the slots this software can fold: a live one of an older version waits to be replaced."""
        return [slot for slot in slots if slot.view in self._views and slot.version == self._views[slot.view].version]

    def _step(self, progress: Callable[[Progress], None] | None) -> int | None:
        """Fold one batch; return the position when there was nothing more to fold, else None."""
        with self._store.reading() as reading:
            slots = self._mine(reading.slots())
        if {slot.view for slot in slots} != self._views.keys():
            self._prepare(())  # the store was deleted or replaced meanwhile
            return None
        start = min((slot.position for slot in slots), default=0)
        batch = self._read(start)
        if self._store.is_shared and any(slot.position > batch.size for slot in slots) and self._is_behind(batch.size):
            return batch.size  # a node whose log is ahead has folded, and folds on
        if _is_of_another_past(slots, batch, start):
            self._start_over(slots, batch)
            return None
        is_current = all(slot.is_live and slot.position >= batch.size for slot in slots)
        if is_current and not batch.events:
            return start
        with self._store.writing() as writing:
            if self._mine(writing.slots()) != slots:
                return None  # another process folded meanwhile
            self._apply(writing, slots, batch)
        if progress is not None:
            progress(Progress(batch.next_index, batch.size))
        return None

    def _is_behind(self, size: int) -> bool:
        if size == 0:
            return True
        last = read_logged(size - 1, self._client.entries(size - 1, limit=1).entries[0][1]).event.id
        with self._store.reading() as reading:
            return reading.rows("SELECT id FROM events WHERE event_index = ?", (size - 1,)) == [{"id": last}]

    def _start_over(self, slots: list[Slot], batch: Batch) -> None:
        """Fold from the beginning what was folded of a past that a history reset has given up.

        Raises Corrupted: ``HISTORY_CHANGED``: no reset of the log gives up as much as was folded.
        """
        folded = max(slot.position for slot in slots)
        resets = [read_reset(self._client, id_) for id_ in self._client.consistency(0).resets]
        if all(reset.abandoned_size < folded for reset in resets):
            message = f"the views were made from another past of this log, which now has {batch.size} entries: {ADVICE}"
            raise Corrupted("HISTORY_CHANGED", message, size=batch.size, position=folded)
        with self._store.writing() as writing:
            if self._mine(writing.slots()) == slots:  # else another process was first
                for view in self._views.values():
                    writing.drop(view.name, is_live=True)
                    writing.start_building(view, in_place=True)
        self._works.clear()
        self._expected = []

    def _apply(self, writing: Writing, slots: list[Slot], batch: Batch) -> None:
        if slots != self._expected:
            self._works.clear()
        self._expected = []  # until the commit, nothing that is kept in memory is true
        moved: dict[tuple[str, bool], Slot] = {}
        kinds = {logged.event.kind for logged in batch.events}
        for slot in slots:
            view, key = self._views[slot.view], (slot.view, slot.is_live)
            moved[key] = slot
            if batch.next_index > slot.position:
                work = self._works.setdefault(key, Work(view, is_whole=slot.position == 0))
                if view.handles is None or not kinds.isdisjoint(view.handles):
                    wanted = [logged for logged in batch.events if logged.event.index >= slot.position]
                    writing.write(slot, view, work.fold(wanted, functools.partial(writing.load, slot)))
                moved[key] = replace(slot, position=batch.next_index, last_id=batch.events[-1].event.id)
                writing.move(moved[key])
                work.shrink(states_cached_max)
        for name in [name for (name, is_live), slot in moved.items() if not is_live and slot.position >= batch.size]:
            writing.make_live(self._views[name])
            moved[name, True] = replace(moved.pop((name, False)), is_live=True)
            self._works[name, True] = self._works.pop((name, False), Work(self._views[name]))
        self._expected = sorted(moved.values(), key=lambda slot: (slot.view, not slot.is_live))

    def _read(self, start: int) -> Batch:
        """Read a batch from ``start`` on, and the entry before it, which says whether this is the same log."""
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
    """A stretch of the log, decoded: its events, the one before them, the index after it, the log's size then."""

    events: list[Logged]
    before: Logged | None
    next_index: int
    size: int


def _is_of_another_past(slots: list[Slot], batch: Batch, start: int) -> bool:
    """Whether the log is not the one which the views were folded from: shorter, or of another past."""
    is_shorter = any(slot.position > batch.size for slot in slots)
    last_ids = {slot.last_id for slot in slots if slot.position == start and start > 0}
    return is_shorter or (batch.before is not None and bool(last_ids - {batch.before.event.id}))


def read_logged(index: int, data: bytes) -> Logged:
    """Return the event of an entry, with the SHA-256 of its body and the entry's size.

    Raises Corrupted: the log holds bytes that could never have been admitted; ``index`` says where.
    """
    try:
        entry = decode_entry(data)
        event = read_event(index, entry)
    except Refused as error:
        raise Corrupted("CORRUPTED", f"entry {index} cannot be read: {error}", index=index) from error
    return Logged(event, "sha256:" + hashlib.sha256(entry.body).hexdigest(), len(data))


class Work(Generic[S]):
    """One view's share of batches: which states events change, and what to write; it keeps stored states in memory.

    ``is_whole``: what is not in memory is not in the store, as where nothing was folded before.
    """

    def __init__(self, view: Projection[S], *, is_whole: bool = False) -> None:
        self._view = view
        self._is_whole = is_whole
        self._states: dict[str, S] = {}
        self._decoder = msgspec.msgpack.Decoder(view.state)

    def fold(self, events: Sequence[Logged], load: Callable[[Iterable[str]], dict[str, bytes]]) -> Changes:
        """Return what ``events`` change; ``load`` reads the packed states of keys that are not in memory.

        An event that does not follow from those before it, which none that a gate admitted can do, is left out and
        listed.
        """
        view, states, fold = self._view, self._states, self._view.fold
        handled = events if view.handles is None else [logged for logged in events if logged.event.kind in view.handles]
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
        rows: defaultdict[type[Row], list[Row]] = defaultdict(list)
        for logged, keys in keyed:
            try:
                folded = {key: fold(states[key], logged.event) for key in keys}
            except Refused as error:
                # Somebody wrote it past the gate. One such entry must not end every question about all the others.
                rows[SkippedRow].append(SkippedRow(logged.event.index, error.code, error.message))
                continue
            states |= folded
            for row in view.added(states[keys[0]] if keys else None, logged):
                rows[type(row)].append(row)
        for key, changed in touched.items():
            for row in view.rows(states[key]):
                rows[type(row)].append(row)
            rows[StateRow].append(StateRow(key, changed, _pack(states[key])))
        return Changes(rows, replaced)

    def rows_of(self, data: bytes) -> Rows:
        """Return the rows of a packed state."""
        return self._view.rows(self._decoder.decode(data))

    def shrink(self, limit: int) -> None:
        """Forget all states when there are more than ``limit``: they are in the store."""
        if len(self._states) > limit:
            self._states.clear()
            self._is_whole = False
