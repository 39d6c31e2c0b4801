"""Whether the views are what the log says: fold it anew beside them, and compare digests."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from blake3 import blake3

from ledger.client import Client
from ledger.errors import BatonError
from ledger.local import LocalClient
from projections.projection import Projection, Row, Table
from projections.reader import Reader
from projections.runner import Progress, Runner
from projections.sqlite import SqliteStore, _Transaction
from projections.store import Slot, Store
from projections.views import ON_DEMAND, VIEWS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ledger.config import Settings

_pack = msgspec.msgpack.Encoder().encode


class Difference(msgspec.Struct, frozen=True):
    """A table whose rows are not what the log gives; ``baton_states_VIEW`` is where a view keeps its states."""

    view: str
    table: str
    stored: str
    rebuilt: str


def verify_views(
    client: Client,
    store: Store,
    views: Sequence[Projection[Any]],
    *,
    progress: Callable[[Progress], None] | None = None,
) -> list[Difference]:
    """Return where the stored views differ from the log; empty when every view is right.

    Brings the views up to date first, then folds the same stretch of the log into a temporary store. A view that is
    made on demand, and was not asked for yet, is not made in order to be verified. ``progress`` is of the second fold.

    Raises:
        Unavailable: the log or the store cannot be used.
        Corrupted: the store is damaged.
    """
    with store.reading() as reading:
        held = {slot.view for slot in reading.slots()}
    views = [view for view in views if view.name in held or view.name not in ON_DEMAND]
    Runner(client, store, views).catch_up()
    with store.reading() as reading:
        size = max(slot.position for slot in reading.slots() if slot.is_live)
        stored = {view.name: reading.table_digests(view) for view in views}
    with (
        tempfile.TemporaryDirectory(prefix="baton-verify-") as folder,
        contextlib.closing(_Rebuilt(Path(folder) / "views.db", ledger=client.ledger)) as fresh,
    ):
        Runner(client, fresh, views, until=size).catch_up(progress=progress)
        with fresh.reading() as reading:
            rebuilt = {view.name: reading.table_digests(view) for view in views}
    return [
        Difference(view, table, digest, rebuilt[view][table])
        for view, digests in stored.items()
        for table, digest in digests.items()
        if digest != rebuilt[view][table]
    ]


def compare(client: Client, settings: Settings, progress: Callable[[int], None]) -> list[Difference]:
    """Return where the views in the ledger's folder differ from the log; ``progress`` takes how much was folded.

    Raises as ``verify_views``.
    """
    with Reader(client, settings) as reader:
        return verify_views(client, reader.store, VIEWS, progress=lambda done: progress(done.position))


def compare_beside(settings: Settings, answers: Connection) -> None:
    """Compare in a process of its own: send how much was folded, again and again, then the differences or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the audit, stops the process that waits for this
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which ends this one, and its temporary files go
    answer: list[Difference] | BatonError
    with contextlib.suppress(BrokenPipeError):  # it was killed: nobody waits
        try:
            with LocalClient(settings) as client:
                answer = compare(client, settings, answers.send)
        except BatonError as error:
            answer = error
        answers.send(answer)


class _Rebuilt(SqliteStore):
    """Views that are made to be compared: of the rows of events, which come in order, only their hash is kept."""

    def __init__(self, path: Path, *, ledger: str) -> None:
        self._hashers: dict[str, blake3] = {}
        super().__init__(path, ledger=ledger)

    def _begun(self, db: sqlite3.Connection) -> _Transaction:
        return _Hashed(db, self._hashers)


class _Hashed(_Transaction):
    def __init__(self, db: sqlite3.Connection, hashers: dict[str, blake3]) -> None:
        super().__init__(db)
        self._hashers = hashers

    def _index(self, table: Table) -> None:
        """Nobody asks anything of these rows but their digest."""

    def _insert(self, slot: Slot, table: Table, rows: Sequence[Row]) -> None:
        if not _is_hashed(table):
            super()._insert(slot, table, rows)
            return
        altered = _altered(table.row)
        if altered:
            rows = [_as_stored(row, altered) for row in rows]
        self._hashers.setdefault(table.name, blake3()).update(b"".join(map(_pack, rows)))

    def _digest(self, table: Table) -> str:
        if not _is_hashed(table):
            return super()._digest(table)
        return self._hashers.get(table.name, blake3()).hexdigest()


def _is_hashed(table: Table) -> bool:
    """Whether the rows of a table come in the order of its primary key, which is that of events."""
    return table.owner is None and table.primary_key[0] == "event_index" and not table.is_full_text


@cache
def _altered(row: type[Row]) -> dict[str, type[float]]:
    """Return the columns whose values SQLite gives back in another form: True as 1, and -0.0 as 0.0."""
    kinds = {field.name: {field.type, *get_args(field.type)} for field in msgspec.structs.fields(row)}
    return {name: int if bool in held else float for name, held in kinds.items() if held & {bool, float}}


def _as_stored(row: Row, altered: dict[str, type[float]]) -> Row:
    values = {name: getattr(row, name) for name in altered}
    changed = {name: altered[name](value) + 0 for name, value in values.items() if value is not None}
    return msgspec.structs.replace(row, **changed) if changed else row
