"""Projections answer questions about events; they can always be rebuilt from the log.

    >>> from projections import Reader                                           # doctest: +SKIP
    >>> with open_client(settings) as client, Reader(client, settings) as reader:   # doctest: +SKIP
    ...     reader.answer("handoffs.why", {"id": "2026-02-12-reactive-phase-2a"})["sentence"]
    '2026-02-12-reactive-phase-2a is not ready: it waits for the approval of alex.'
    >>> from projections import VIEWS
    >>> [view.name for view in VIEWS][:5]
    ['catalog', 'agents', 'reasoning', 'briefs', 'handoffs']

``VIEWS`` and ``QUERIES`` are the only lists of views and queries. Names are loaded when first asked for: importing
this package opens nothing and loads no store.
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from projections.projection import Logged as Logged
    from projections.projection import Projection as Projection
    from projections.projection import Table as Table
    from projections.reader import Reader as Reader
    from projections.runner import Progress as Progress
    from projections.runner import Runner as Runner
    from projections.sqlite import SqliteStore as SqliteStore
    from projections.verify import Difference as Difference
    from projections.verify import verify_views as verify_views
    from projections.views import QUERIES as QUERIES
    from projections.views import VIEWS as VIEWS
else:
    __getattr__, __dir__ = front_door(__name__)
