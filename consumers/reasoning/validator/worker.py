"""The validator as a service agent: every concluded reasoning is checked against one folder, and the report published.

It reacts on the log like any subscriber; the report carries an idempotency key (``publishing``), so however often it
is tried, one is published for the same graph and the same files. The service agent is never the author of a reasoning,
so its report is the independent one that acting on a full graph needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.reasoning.validator.commits import open_tree
from consumers.reasoning.validator.publishing import publish, validate_ref
from consumers.sdk.reactor import Reactor
from consumers.sdk.subscriptions import Subscriptions

if TYPE_CHECKING:
    import sqlite3
    import threading
    from pathlib import Path

    from consumers.reasoning.validator.validator import Judge
    from ledger.author import Author
    from ledger.events.body import Event
    from projections.reader import Reader

KINDS: Final = ("reasoning.concluded",)
stop_wait_s: Final = 0.1


class ValidatorWorker:
    """Publishes a report on every concluded reasoning from now on."""

    def __init__(self, author: Author, reader: Reader, store: Path, tree: Path, judge: Judge | None = None) -> None:
        """Write as ``author`` (role service); look for evidence in ``tree``; keep the position in ``store``."""
        self._author = author
        self._reader = reader
        self._store = store
        self._tree = tree
        self._judge = judge

    def run(self, stop: threading.Event, *, until: int | None = None) -> None:
        """Validate until ``stop`` is set, or until everything before index ``until`` was handled.

        Raises:
            Unavailable: the ledger or the store cannot be used.
        """
        subscriptions = Subscriptions(self._store)
        try:
            reactor = Reactor(self._author.client, subscriptions, "validator", wait_s=stop_wait_s)
            reactor.on(*KINDS)(self._validate)
            reactor.run(stop, until=until)
        finally:
            subscriptions.close()

    def _validate(self, event: Event, _: sqlite3.Connection) -> None:
        with open_tree(self._tree) as tree:
            validated = validate_ref(self._reader.answer, event.name, tree=tree, judge=self._judge)
        publish(self._author, validated)
