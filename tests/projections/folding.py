"""For tests of the form *given these events, expect these rows*: folds events into a view's rows without a store."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
from given import fact

from deedbook.ledger.events.blob import blobs_of
from deedbook.projections.views.projection import Logged, Row
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData
    from deedbook.projections.stores.sqlite import SqliteStore
    from deedbook.projections.views.projection import Projection

Rows = dict[str, list[dict[str, Any]]]


def facts(stream: str, *authored: tuple[str, EventData]) -> list[Event]:
    """Return the events of one stream, at indexes from 0 on, a second apart."""
    return [fact(author, data, stream=stream, index=index, at_s=index) for index, (author, data) in enumerate(authored)]


def logged(event: Event) -> Logged:
    """Return an event as read from a log, with a made-up hash of its body and a made-up size."""
    return Logged(event, f"sha256:{event.index:064x}", 100, blobs_of(event.data))


def rows_of(view: Projection[Any], key: str, events: list[Event]) -> Rows:
    """Return the rows of a key after events: the rows of its state, and the rows that single events added."""
    state = view.state(key)
    made: list[Row] = []
    for event in events:
        assert view.takes(event.kind)
        if key in view.keys(event):
            state = view.fold(state, event)
        made += view.added(state, logged(event))
    made += view.rows(state)
    names = {table.row: table.name for table in view.tables}
    found: Rows = defaultdict(list)
    for row in made:
        found[names[type(row)]].append(msgspec.structs.asdict(row))
    return found


def state_after(view: Projection[Any], key: str, events: list[Event]) -> Any:
    """Return the state of one key after events."""
    return reduce(view.fold, events, view.state(key))


def digests_of(store: SqliteStore) -> dict[str, dict[str, str]]:
    """Return the digest of every table, by view. Equal rows have equal digests, however events were batched."""
    with store.reading() as reading:
        return {view.name: reading.table_digests(view) for view in VIEWS}
