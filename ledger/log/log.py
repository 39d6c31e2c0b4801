"""One open log: its tables, its appender, its blobs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from ledger import limits
from ledger.log.append import Appender
from ledger.log.blobs import Blobs
from ledger.log.read import Snapshot
from ledger.log.recover import check_head
from ledger.log.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import lmdb


class Log:
    """The log in a folder. Close it, or use it in a ``with`` block.

    ``map_size`` is the most bytes it can ever hold: address space, not disk, is reserved.
    """

    def __init__(self, folder: Path, *, map_size: int = limits.map_size_bytes, create: bool = False) -> None:
        """Open the log and check that its head, tree and entries end at the same place.

        Raises:
            Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE`` or ``STORE_FULL``.
            Corrupted: head and entries disagree.
        """
        self.tables = Tables(folder, map_size=map_size, create=create)
        self.appender = Appender(self.tables)
        self.blobs = Blobs(self.tables)
        try:
            with self.snapshot() as snapshot:
                check_head(snapshot)
        except BaseException:
            self.tables.close()
            raise

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the log."""
        self.close()

    def close(self) -> None:
        """Close the log; it cannot be used afterwards."""
        self.tables.close()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Look at the log of this moment; keep the block short."""
        with self.tables.reading() as txn:
            yield Snapshot(self.tables, txn)

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[lmdb.Transaction, Snapshot]]:
        """The write transaction with a snapshot of what it starts from; what did not commit is forgotten."""
        try:
            with self.tables.writing() as txn:
                yield txn, Snapshot(self.tables, txn)
        except BaseException:
            self.appender.forget()
            raise
