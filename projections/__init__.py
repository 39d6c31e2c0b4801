"""Projections answer questions about events; they can always be rebuilt from the log.

    >>> from projections import Reader                                           # doctest: +SKIP
    >>> with open_client(settings) as client, Reader(client, settings) as reader:   # doctest: +SKIP
    ...     reader.answer("handoffs.why", {"id": "2026-02-12-reactive-phase-2a"})["sentence"]
    '2026-02-12-reactive-phase-2a is not ready: it waits for the approval of alex.'
    >>> from projections import VIEWS
    >>> [view.name for view in VIEWS][:5]
    ['catalog', 'agents', 'reasoning', 'briefs', 'handoffs']

The words used here: a *fold* is a pure function that takes a state and the next event to the next state; a
*projection* is a fold with the tables it fills; a *view* is those tables in a store; its *rows* are what queries read;
its *position* is the index of the next event it needs. Rows and position commit together.

``VIEWS`` and ``QUERIES`` are the only lists of views and queries. Names are loaded when first asked for: importing
this package opens nothing and loads no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from projections.projection import Logged, Projection, Table
    from projections.reader import AsOf, Reader
    from projections.runner import Progress, Runner
    from projections.store.sqlite import SqliteStore
    from projections.verify import Difference, verify_views
    from projections.views import QUERIES, VIEWS

__all__ = [
    "QUERIES",
    "VIEWS",
    "AsOf",
    "Difference",
    "Logged",
    "Progress",
    "Projection",
    "Reader",
    "Runner",
    "SqliteStore",
    "Table",
    "verify_views",
]

__getattr__ = front_door(
    __name__,
    {
        "projection": ("Logged", "Projection", "Table"),
        "reader": ("AsOf", "Reader"),
        "runner": ("Progress", "Runner"),
        "store.sqlite": ("SqliteStore",),
        "verify": ("Difference", "verify_views"),
        "views": ("QUERIES", "VIEWS"),
    },
)
