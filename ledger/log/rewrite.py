"""Replaces the log's file by one without the erased bodies, because freed pages of LMDB still hold them.

The new environment is filled beside the log, while others read and write the log (``admission.rewriter``). It never
contains the erased bodies. Then, under the log's write lock, it replaces the log:

1. ``log.rewritten`` is complete and synced. If we crash before, or here, the log is as before, and the next attempt
   deletes what is there.
2. ``log`` becomes ``log.replaced``. If we crash here, the next process that opens the log does step 3
   (``environment.finish_swap``).
3. ``log.rewritten`` becomes ``log``, and ``log.replaced`` is deleted. If we crash before that, the next process that
   opens the log deletes it.

No commit can go to the old file: a process that waited for its lock sees that the file lost its name, and opens the new
one. The mark ``REWRITE_KEY`` in the log means that it must be rewritten. The rewritten log does not have the mark.

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
    """Yield empty tables in ``log.rewritten``.

    Delete them if they do not replace the log within the block, because they take space on the disk. Hold
    ``tables.rewriting`` meanwhile.
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
        if os.path.lexists(tables.path / FILE):  # otherwise the next process that opens the log needs the new file
            shutil.rmtree(path, ignore_errors=True)
            remove_old(tables.path)


def replace_file(tables: Tables, txn: lmdb.Transaction, snapshot: Snapshot, built: Tables) -> None:
    """Replace the log's file by that of ``built``, which has all entries; ``txn`` holds the write lock of the log.

    Records that do not follow from entries are copied now. If this raises, the log is as before.
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
    if not finish_swap(tables.path):  # both files stay, and the next process that opens the log tries again
        raise OSError(errno.EIO, "the rewritten log could not take its place")
    sync_folder(tables.path.parent)


def _remove(path: Path) -> None:
    """Remove the remains of a stopped attempt.

    Of a link, only the link is removed, so that we never write into its target. Raises OSError: it cannot be removed.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif os.path.lexists(path):
        shutil.rmtree(path)


def _identity(path: Path) -> tuple[int, int]:
    present = (path / FILE).stat()
    return present.st_dev, present.st_ino
