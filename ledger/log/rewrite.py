"""Rewrites the log's file without what was erased: pages that LMDB freed still hold it, and so may parts of others.

The rewritten environment is built beside the log while the log's write lock is held. Then it takes the log's place:

1. ``log.rewritten`` is built and synced. If we crash here, the log is as before, and the next attempt deletes what is
   there.
2. ``log`` becomes ``log.replaced``. If we crash here, whoever opens the log next does step 3
   (``environment.finish_swap``).
3. ``log.rewritten`` becomes ``log``, and ``log.replaced`` is deleted. If we crash before that, whoever opens the log
   next deletes it.

No commit can go to the old file: a process that waited for its lock sees that the file lost its name, and opens the
new one. The mark ``REWRITE_KEY`` in the log says that it has to be rewritten. Only the rewritten log lacks it.

Source: LMDB writes a changed page elsewhere and frees the old one without clearing it, and copies pages in parts.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import lmdb
import msgspec

from deedbook.ledger.log.environment import FILE, Environment, finish_swap, new_path, old_path
from deedbook.ledger.log.keys import PREDECESSORS_KEY
from deedbook.ledger.log.tables import Tables
from deedbook.ledger.system.files import sync_folder

if TYPE_CHECKING:
    from deedbook.ledger.log.log import Log
    from deedbook.ledger.log.state import Snapshot

_rows_per_transaction: Final = 10_000


def rewrite(log: Log, compute_state: Callable[[Snapshot], dict[bytes, bytes]]) -> None:
    """Rewrite the log's file with the records of ``compute_state`` as its state, if it is marked; else do nothing.

    Raises Unavailable: ``STORE_FULL``; the log is as before, and still marked.
    """
    tables = log.tables
    new, old = new_path(tables.path), old_path(tables.path)
    with log.writing() as (txn, snapshot):
        if snapshot.needs_rewriting():
            _remove(new)
            _remove(old)
            state = compute_state(snapshot)
            predecessors = [*tables.predecessors(txn), _identity(tables.path)]
            state[PREDECESSORS_KEY] = msgspec.msgpack.encode(predecessors)
            try:
                _build(tables, txn, new, state)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)  # on a full disk, others need its space
                raise
            tables.path.rename(old)
            if not finish_swap(tables.path):  # both stay, and whoever opens the log next tries it again
                raise OSError(errno.EIO, "the rewritten log could not take its place")
            sync_folder(tables.path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove what an attempt that was stopped left. A link goes without its target, which we would write into.

    Raises OSError: it cannot be removed.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif os.path.lexists(path):
        shutil.rmtree(path)


def _build(tables: Tables, txn: lmdb.Transaction, path: Path, state: dict[bytes, bytes]) -> None:
    built = Environment(path, tuple(tables.tables), map_size=tables.map_size, setting=tables.setting, create=True)
    try:
        for name, table in tables.tables.items():
            rows = iter(sorted(state.items())) if name == "state" else _rows(txn, table)
            _copy(built, name, rows)
    finally:
        built.close()
    shutil.copymode(tables.path, path)
    shutil.copymode(tables.path / FILE, path / FILE)
    sync_folder(path)


def _copy(built: Environment, name: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
    is_done = False
    while not is_done:
        with built.writing() as txn:
            cursor = txn.cursor(db=built.tables[name])
            for number, (key, value) in enumerate(rows, 1):
                cursor.put(key, value, append=True)
                if number == _rows_per_transaction:
                    break
            else:
                is_done = True


def _rows(txn: lmdb.Transaction, table: lmdb._Database) -> Iterator[tuple[bytes, bytes]]:
    cursor = txn.cursor(db=table)
    yield from cast("Iterator[tuple[bytes, bytes]]", cursor.iternext())


def _identity(path: Path) -> tuple[int, int]:
    present = (path / FILE).stat()
    return present.st_dev, present.st_ino
