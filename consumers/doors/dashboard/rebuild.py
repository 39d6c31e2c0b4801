"""Views that are far behind are folded in the background, and a page says how far they are instead of waiting.

That happens once for a large log that was just imported or got a new version of Baton, and when it is searched for the
first time. What is behind by less is folded by the question itself, as everywhere.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ledger.errors import BatonError, Unavailable
from projections.views import ON_DEMAND, VIEW_VERSIONS

if TYPE_CHECKING:
    from consumers.sdk.ledger import Ledger
    from projections.reader import Reader
    from projections.runner import Progress

behind_max: Final = 5_000
"""Entries that a question may fold while somebody waits for it: about half a second (measured)."""


class Rebuild:
    """The views of a ledger's folder; behind a server they are the server's, and nothing is done here."""

    def __init__(self, ledger: Ledger) -> None:
        from projections.reader import Reader  # noqa: PLC0415 - opens sqlite

        self._ledger = ledger
        # One of its own: the client's reader answers between the batches that this one folds.
        self._reader = Reader(ledger.client, ledger.settings) if ledger.settings.server is None else None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BatonError | None = None
        self._position = 0

    def close(self) -> None:
        """Close the views; what is still folded ends with the process."""
        if self._reader is not None:
            self._reader.close()

    def demand(self, head: int, *, searches: bool) -> None:
        """Let a question pass whose views are near the end of the log, and else begin to fold them.

        Raises Unavailable: ``BUSY`` with ``position`` and ``size``, how far they are; what folding raised.
        """
        size = head + 1
        reader = self._reader
        if reader is None or size - _folded(reader, searches=searches) <= behind_max:
            return
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fold, args=(reader,), daemon=True)
                self._thread.start()
        message = "the views are being made from the log: this page loads again by itself"
        raise Unavailable("BUSY", message, position=self._position, size=size)

    def _fold(self, reader: Reader) -> None:
        try:
            reader.catch_up(progress=self._note)
        except BatonError as error:
            self._error = error

    def _note(self, progress: Progress) -> None:
        self._position = progress.position


def _folded(reader: Reader, *, searches: bool) -> int:
    """Return how far those views are that a page asks."""
    with reader.store.reading() as reading:
        live = {slot.view: slot for slot in reading.slots() if slot.is_live}
    wanted = {name: version for name, version in VIEW_VERSIONS.items() if searches or name not in ON_DEMAND}
    return min(
        live[name].position if name in live and live[name].version == version else 0 for name, version in wanted.items()
    )
