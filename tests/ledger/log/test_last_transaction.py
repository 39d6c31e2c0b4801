"""``last_transaction`` is never newer than the transaction that a reader then gets: waiting readers rely on this."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from deedbook.ledger.log.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 40


def test_last_transaction_is_never_ahead_of_what_a_reader_sees(tmp_path: Path) -> None:
    tables = Tables(tmp_path, map_size=1024**2, create=True)
    done = threading.Event()

    def write() -> None:
        for number in range(COMMITS):
            with tables.writing() as txn:
                txn.put(b"x", number.to_bytes(2, "big"), db=tables.state)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    ahead = 0
    while not done.is_set():
        _, last = tables.last_transaction()
        with tables.reading() as txn:
            ahead += txn.id() < last
    writer.join()
    tables.close()
    assert ahead == 0


def test_last_transaction_changes_with_every_commit(tmp_path: Path) -> None:
    tables = Tables(tmp_path, map_size=1024**2, create=True)
    numbers = [tables.last_transaction()]
    for number in range(3):
        with tables.writing() as txn:
            txn.put(b"x", bytes([number]), db=tables.state)
        numbers.append(tables.last_transaction())
    tables.close()
    assert len(set(numbers)) == len(numbers)
