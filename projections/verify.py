"""Whether the views are what the log says: fold it anew beside them, and compare digests."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ledger.client import Client
from projections.projection import Projection
from projections.runner import Runner
from projections.sqlite import SqliteStore
from projections.store import Store
from projections.views import ON_DEMAND


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
    with (
        tempfile.TemporaryDirectory(prefix="baton-verify-") as folder,
        contextlib.closing(SqliteStore(Path(folder) / "views.db", ledger=client.ledger)) as fresh,
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
