"""One open log for reading: its entries and its tree."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.format.merkle import Frontier
from deedbook.ledger.log.read import EntrySnapshot
from deedbook.ledger.log.tables import Tables
from deedbook.ledger.system.resource import Resource


class LogReader(Resource):
    """The log in a folder. Close it, or use it in a ``with`` block.

    ``map_size`` limits the bytes of the log. It reserves address space, not disk.
    """

    def __init__(self, folder: Path, *, map_size: int = limits.map_size_bytes, create: bool = False) -> None:
        """Open the log and check that its head, tree and entries end at the same position.

        Raises Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE`` or ``STORE_FULL``. Corrupted: head and entries
        disagree.
        """
        self.tables = Tables(folder, map_size=map_size, create=create)
        # The number of announcements that the log grew; None while nobody watches the log.
        self.announced: int | None = None
        self._announcing = threading.Condition()
        try:
            with self.tables.reading() as txn:
                _check_head(EntrySnapshot(self.tables, txn))
        except BaseException:
            self.tables.close()
            raise

    def close(self) -> None:
        """Close the log; it cannot be used afterwards."""
        self.tables.close()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[EntrySnapshot]:
        """Open a snapshot of the log; keep the block short."""
        with self.tables.reading() as txn:
            yield EntrySnapshot(self.tables, txn)

    def announce(self) -> None:
        """Wake the waiting threads. The caller must watch the log from now on, also for other processes' writes."""
        with self._announcing:
            self.announced = (self.announced or 0) + 1
            self._announcing.notify_all()

    def wait(self, announced: int, wait_s: float) -> None:
        """Wait until there is an announcement after number ``announced``, at most ``wait_s`` seconds."""
        with self._announcing:
            self._announcing.wait_for(lambda: self.announced != announced, wait_s)


def _check_head(snapshot: EntrySnapshot) -> None:
    """Check in a few reads that head, entries and frontier end at the same position.

    If they disagree, the file was damaged or replaced, because a crash cannot do that. Nothing may be appended then.
    """
    head = snapshot.head
    if head is None:
        return
    Frontier.from_bytes(head.size, head.frontier)
    if head.size == 0:
        raise Corrupted("CORRUPTED", "the log has a head but no entries: run `deed fsck`", index=0)
    snapshot.entry(head.size - 1)
    if snapshot.has_entry_beyond_end():
        message = f"the log has entries beyond its end at {head.size}: run `deed fsck`"
        raise Corrupted("CORRUPTED", message, index=head.size)
