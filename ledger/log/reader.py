"""One open log, to be read: its entries and its tree."""

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

    ``map_size`` is the most bytes it can ever hold: address space, not disk, is reserved.
    """

    def __init__(self, folder: Path, *, map_size: int = limits.map_size_bytes, create: bool = False) -> None:
        """Open the log and check that its head, tree and entries end at the same place.

        Raises Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE`` or ``STORE_FULL``. Corrupted: head and entries
        disagree.
        """
        self.tables = Tables(folder, map_size=map_size, create=create)
        # How often somebody who watches the log has announced that it grew; None where nobody does.
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
        """Look at the log of this moment; keep the block short."""
        with self.tables.reading() as txn:
            yield EntrySnapshot(self.tables, txn)

    def announce(self) -> None:
        """Wake who waits in this process. Whoever calls this watches the log from now on, whichever process writes."""
        with self._announcing:
            self.announced = (self.announced or 0) + 1
            self._announcing.notify_all()

    def wait(self, announced: int, wait_s: float) -> None:
        """Wait for an announcement after the one of this number, at most so long."""
        with self._announcing:
            self._announcing.wait_for(lambda: self.announced != announced, wait_s)


def _check_head(snapshot: EntrySnapshot) -> None:
    """Check that head, entries and frontier end at the same place, in a few reads.

    Where they disagree the file was damaged or exchanged (a crash cannot do it), and nothing must be appended to it.
    """
    head = snapshot.head
    if head is None:
        return
    Frontier.from_bytes(head.size, head.frontier)
    if head.size == 0:
        raise Corrupted("CORRUPTED", "the log has a head and no entries: run `deed fsck`", index=0)
    snapshot.entry(head.size - 1)
    if snapshot.has_entry_beyond_end():
        message = f"entries lie beyond the log's end at {head.size}: run `deed fsck`"
        raise Corrupted("CORRUPTED", message, index=head.size)
