"""Views that are far behind are folded in the background, and whoever asks is told how far they are.

That is so once for a large log that was imported or met a new version of Deedbook, and when it is searched for the
first time. What is behind by less is folded by the question itself, as everywhere; behind a server, that one folds.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import ON_DEMAND, VIEW_VERSIONS
from deedbook.projections.views.runner import Progress

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.home.config import Settings

behind_max: Final = 5_000
"""Entries that a question may fold while somebody waits for it."""


class Rebuild:
    """Folds the views of a ledger's folder, with a reader of its own: the client's answers between its batches."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.reader = Reader(client, settings)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: DeedbookError | None = None
        self._reached = Progress(0, 0)
        self._known = {False: -behind_max, True: -behind_max}

    def position(self, *, searches: bool = False) -> int:
        """Return how far the views are folded that every question brings up to date, or all."""
        with self.reader.store.reading() as reading:
            ends = {
                one.view: one.position for one in reading.view_versions() if VIEW_VERSIONS.get(one.view) == one.version
            }
        return min(ends.get(name, 0) for name in VIEW_VERSIONS if searches or name not in ON_DEMAND)

    def demand(self, size: int, *, searches: bool) -> None:
        """Let a question pass whose views are near the log's end, and else begin to fold them.

        Raises Unavailable: ``BUSY``, with the ``position`` they are at, and the log's ``size``; what folding raised.
        """
        if size - self._known[searches] > behind_max:  # they never go back, but where they are made anew while we run
            self._known[searches] = self.position(searches=searches)
        if size - self._known[searches] <= behind_max:
            return
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fold, daemon=True)
                self._thread.start()
        position = self._reached.position
        message = f"the views are being made from the log ({position} of {size} entries): ask again in a moment"
        raise Unavailable("BUSY", message, position=position, size=size)

    def _fold(self) -> None:
        try:
            self.reader.catch_up(progress=partial(setattr, self, "_reached"))
        except DeedbookError as error:
            self._error = error
