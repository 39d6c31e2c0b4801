"""Exchanges the log's file for one without what was erased: pages that LMDB freed still hold it, and others in part.

The new environment is filled beside the log, while others read and write the log (``admission.rewriter``). It never
holds what was erased. Then, under the log's write lock, it takes the log's place:

1. ``log.rewritten`` is complete and synced. If we crash before, or here, the log is as before, and the next attempt
   deletes what is there.
2. ``log`` becomes ``log.replaced``. If we crash here, whoever opens the log next does step 3
   (``environment.finish_swap``).
3. ``log.rewritten`` becomes ``log``, and ``log.replaced`` is deleted. If we crash before that, whoever opens the log
   next deletes it.

No commit can go to the old file: a process that waited for its lock sees that the file lost its name, and opens the
new one. The mark ``REWRITE_KEY`` in the log says that it has to be rewritten. Only the rewritten log lacks it.

Source: LMDB writes a changed page elsewhere and frees the old one without clearing it, and copies pages in parts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from deedbook.ledger.log.environment import FILE, finish_swap, new_path, old_path, remove_old, translate_errors
from deedbook.ledger.log.keys import NOT_REPLAYED, PREDECESSORS_KEY, REWRITE_KEY
from deedbook.ledger.log.tables import Tables
from deedbook.ledger.system.files import sync_folder

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.state import Snapshot

_rows_per_transaction: Final = 10_000


@contextlib.contextmanager
def new_tables(tables: Tables) -> Iterator[Tables]:
    """Yield empty tables in ``log.rewritten``, and delete them if they do not take the log's place in the block.

    Others need the disk's space. Hold ``tables.rewriting`` meanwhile.
    """
    path = new_path(tables.path)
    with translate_errors(tables.path, tables.setting):
        _remove(path)
        _remove(old_path(tables.path))
    built = Tables(path.parent, database=path.name, map_size=tables.map_size, create=True)
    try:
        yield built
    finally:
        built.close()
        if os.path.lexists(tables.path / FILE):  # else whoever opens the log next needs the new file
            shutil.rmtree(path, ignore_errors=True)
            remove_old(tables.path)


def replace_file(tables: Tables, txn: lmdb.Transaction, snapshot: Snapshot, built: Tables) -> None:
    """Put the file of ``built``, which has all entries, in the place of the log's; ``txn`` holds its write lock.

    What no entry explains is copied now. If this raises, the log is as before.
    """
    blobs = iter(txn.cursor(db=tables.blobs))
    while page := list(islice(blobs, _rows_per_transaction)):
        with built.writing() as writing:
            writing.cursor(db=built.blobs).putmulti(page, append=True)
    predecessors = [*tables.predecessors(txn), _identity(tables.path)]
    with built.writing() as writing:
        for key, value in snapshot.not_replayed(NOT_REPLAYED - {REWRITE_KEY}).items():
            writing.put(key, value, db=built.state)
        writing.put(PREDECESSORS_KEY, msgspec.msgpack.encode(predecessors), db=built.state)
    built.close()
    new, old = new_path(tables.path), old_path(tables.path)
    shutil.copymode(tables.path, new)
    shutil.copymode(tables.path / FILE, new / FILE)
    sync_folder(new)
    tables.path.rename(old)
    if not finish_swap(tables.path):  # both stay, and whoever opens the log next tries it again
        raise OSError(errno.EIO, "the rewritten log could not take its place")
    sync_folder(tables.path.parent)


def _remove(path: Path) -> None:
    """Remove what an attempt that was stopped left. A link goes without its target, which we would write into.

    Raises OSError: it cannot be removed.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif os.path.lexists(path):
        shutil.rmtree(path)


def _identity(path: Path) -> tuple[int, int]:
    present = (path / FILE).stat()
    return present.st_dev, present.st_ino
