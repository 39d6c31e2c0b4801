"""Views that are far behind the log are built in the background; requests meanwhile get the progress.

This happens once for a large log after an import or an upgrade of Deedbook, and for the first search. If views are only
a little behind, the request itself brings them up to date, as in every interface. With a remote server, the server
builds the views.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import versions_for
from deedbook.projections.views.runner import Progress

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.home.config import Settings

behind_max: Final = 5_000
"""The most entries that a request may fold while its client waits."""


class Rebuild:
    """Builds the views of a ledger's folder with its own reader, so that the client can answer between batches."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.reader = Reader(client, settings)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: DeedbookError | None = None
        self._reached = Progress(0, 0)
        self._known: dict[str, int] = {}

    def position(self, group: str = "") -> int:
        """Return the position of the view that is furthest behind, of those that queries of a group need."""
        versions = versions_for(group)
        with self.reader.store.reading() as reading:
            ends = {
                version.view: version.position
                for version in reading.view_versions()
                if versions.get(version.view) == version.version
            }
        return min(ends.get(name, 0) for name in versions)

    def demand(self, size: int, group: str) -> None:
        """Return if the views are near the end of the log; otherwise start to build them.

        Raises Unavailable: ``BUSY``, with the ``position`` of the views and the log's ``size``; the error of the build.
        """
        # A position decreases only if the views are rebuilt while we run.
        if size - self._known.get(group, -behind_max) > behind_max:
            self._known[group] = self.position(group)
        if size - self._known[group] <= behind_max:
            return
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fold, daemon=True)
                self._thread.start()
        position = self._reached.position
        message = f"the views are being made from the log ({position} of {size} entries): try again in a few seconds"
        raise Unavailable("BUSY", message, position=position, size=size)

    def _fold(self) -> None:
        try:
            self.reader.catch_up(progress=partial(setattr, self, "_reached"))
        except DeedbookError as error:
            self._error = error
