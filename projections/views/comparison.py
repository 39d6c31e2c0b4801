"""Verify the views: fold the log again into a temporary store, and compare digests table by table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.client.client import Client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.limits import range_events_max
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores.sqlite import temporary
from deedbook.projections.stores.store import Store, Value, ViewVersion, boundary_behind, tables_of
from deedbook.projections.views.projection import Projection, Row
from deedbook.projections.views.registry import EAGER_VERSIONS, VIEWS
from deedbook.projections.views.runner import (
    Runner,
    StoredLookup,
    Work,
    join_all,
    read_logged,
    states_cached_max,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from deedbook.ledger.home.config import Settings

_pack = msgspec.msgpack.Encoder().encode


class Difference(msgspec.Struct, frozen=True):
    """A table whose rows differ from the log; ``deedbook_states_VIEW`` is the table of a view's states."""

    view: str
    table: str
    stored: str
    rebuilt: str


def verify_views(
    client: Client,
    store: Store,
    views: Sequence[Projection[Any]],
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Difference]:
    """Return where the stored views differ from the log; empty if every view is right.

    Brings the views up to date first, then folds the same part of the log into a temporary store. A view that is made
    on demand and does not exist yet is not made. Raises Unavailable: the log or the store cannot be used. Corrupted:
    the store is damaged.
    """
    with store.reading() as reading:
        existing = {version.view for version in reading.view_versions()}
    views = [view for view in views if view.name in existing or view.name in EAGER_VERSIONS]
    Runner(client, store, views).catch_up(progress=lambda at: progress(at.position, 2 * at.size))
    with store.reading() as reading:
        size = max(version.position for version in reading.view_versions() if version.is_live)
        if size > client.head().size:  # another node's log is ahead
            raise Unavailable(
                "STORE_UNAVAILABLE", "the views are ahead of this node's log: verify them on the leading node"
            )
        stored = {view.name: reading.table_digests(view) for view in views}
    rebuilt = _rebuild(client, views, size, lambda done: progress(size + done, 2 * size))
    return [
        Difference(view, table, digest, rebuilt[view][table])
        for view, digests in stored.items()
        for table, digest in digests.items()
        if digest != rebuilt[view][table]
    ]


def compare_beside(answering: Connection, settings: Settings) -> None:
    """Send the differences of the views in the ledger's folder, or the error, from a separate process."""
    answer: list[Difference] | DeedbookError
    try:
        with LocalClient(settings) as client, Reader(client, settings) as reader:
            reported = -1

            def report(done: int, total: int) -> None:
                nonlocal reported
                if (
                    percent := 100 * done // max(total, 1)
                ) > reported:  # the parent reads after the replay, and a pipe holds only a few messages
                    reported = percent
                    answering.send((done, total))

            answer = verify_views(client, reader.store, VIEWS, progress=report)
    except DeedbookError as error:
        answer = error
    answering.send(answer)


def _rebuild(
    client: Client, views: Sequence[Projection[Any]], size: int, progress: Callable[[int], None]
) -> dict[str, dict[str, str]]:
    """Return the digests that the log gives. Rows of events are hashed, not stored (8 of 42 µs an event)."""
    folds = [
        (
            ViewVersion(view.name, view.version, True, 0, ""),  # noqa: FBT003 - live
            view,
            Work(view),
            {
                table: blake3()
                for table in tables_of(view)
                if table.primary_key[0] == "event_index" and not table.is_full_text
            },
        )
        for view in views
    ]
    position = 0
    with temporary(table for view in views for table in tables_of(view)) as writing:
        while position < size:
            start, end = position, min(boundary_behind(position), size)
            page = client.entries(start, limit=min(range_events_max, end - start))
            events = [read_logged(index, data) for index, data in page.entries]
            position = page.next_index
            for version, view, work, hashers in folds:
                changes = work.fold(events, partial(writing.load, version))
                rows = dict(changes.rows)
                for table, hasher in hashers.items():
                    hasher.update(b"".join(map(_pack, map(_as_returned, rows.pop(table.row, ())))))
                writing.write(replace(version, position=start), view, replace(changes, rows=rows))
                work.shrink(states_cached_max)
            progress(position)
        for version, view, _, _ in folds:
            join_all(StoredLookup(writing, version, [version for version, *_ in folds]), view)
        return {
            view.name: writing.table_digests(view)
            | {table.name: hasher.hexdigest() for table, hasher in hashers.items()}
            for _, view, _, hashers in folds
        }


def _as_returned(row: Row) -> Row | list[Value]:
    """Return a row, or its values, as SQLite returns it: True as 1, and -0.0 as 0.0."""
    columns = _changed_columns(type(row))
    if not columns:
        return row
    values = [*msgspec.structs.astuple(row)]
    for column in columns:
        if values[column] is not None:
            values[column] += 0
    return values


@cache
def _changed_columns(row: type[Row]) -> list[int]:
    """Return the positions of the columns that hold bool or float."""
    types = [{field.type, *get_args(field.type)} for field in msgspec.structs.fields(row)]
    return [position for position, of in enumerate(types) if of & {bool, float}]
