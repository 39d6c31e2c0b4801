"""Whether the views are what the log says: fold it anew beside them, and compare digests."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from ledger.client import Client
from ledger.local import LocalClient
from projections.projection import Projection, Row, Table
from projections.reader import Reader
from projections.runner import Runner
from projections.sqlite import SqliteStore, _Transaction
from projections.store import Slot, Store
from projections.views import ON_DEMAND, VIEWS

if TYPE_CHECKING:
    from ledger.config import Settings

_pack = msgspec.msgpack.Encoder().encode


class Difference(msgspec.Struct, frozen=True):
    """A table whose rows are not what the log gives; ``baton_states_VIEW`` is where a view keeps its states."""

    view: str
    table: str
    stored: str
    rebuilt: str


def verify_views(client: Client, store: Store, views: Sequence[Projection[Any]]) -> list[Difference]:
    """Return where the stored views differ from the log; empty when every view is right.

    Brings the views up to date first, then folds the same stretch of the log into a temporary store. A view that is
    made on demand, and was not asked for yet, is not made in order to be verified.

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
    begun = partial(_Hashed, hashers=defaultdict(blake3))
    with (
        tempfile.TemporaryDirectory(prefix="baton-verify-") as folder,
        contextlib.closing(SqliteStore(Path(folder) / "views.db", ledger=client.ledger, begun=begun)) as fresh,
    ):
        Runner(client, fresh, views, until=size).catch_up()
        with fresh.reading() as reading:
            rebuilt = {view.name: reading.table_digests(view) for view in views}
    return [
        Difference(view, table, digest, rebuilt[view][table])
        for view, digests in stored.items()
        for table, digest in digests.items()
        if digest != rebuilt[view][table]
    ]


def compare(client: Client, settings: Settings) -> list[Difference]:
    """Return where the views in the ledger's folder differ from the log; raises as ``verify_views``."""
    with Reader(client, settings) as reader:
        return verify_views(client, reader.store, VIEWS)


def compare_folder(settings: Settings) -> list[Difference]:
    """Return the same in a process that has not opened the ledger."""
    with LocalClient(settings) as client:
        return compare(client, settings)


class _Hashed(_Transaction):
    """Writes views to be compared: of the rows of events, which come in the order of their keys, it keeps the hash."""

    def __init__(self, db: sqlite3.Connection, hashers: defaultdict[str, blake3]) -> None:
        super().__init__(db)
        self._hashers = hashers

    def _index(self, table: Table) -> None:
        """Nobody asks anything of these rows but their digest."""

    def _insert(self, slot: Slot, table: Table, rows: Sequence[Row]) -> None:
        if not _is_of_events(table):
            super()._insert(slot, table, rows)
            return
        # SQLite gives True back as 1 and -0.0 as 0.0: as the sum with 0.
        plain = ([v + 0 if v.__class__ in (bool, float) else v for v in msgspec.structs.astuple(row)] for row in rows)
        self._hashers[table.name].update(b"".join(map(_pack, plain)))

    def _digest(self, table: Table) -> str:
        return self._hashers[table.name].hexdigest() if _is_of_events(table) else super()._digest(table)


def _is_of_events(table: Table) -> bool:
    return table.owner is None and table.primary_key[0] == "event_index" and not table.is_full_text
