"""Reads a table of a log that may be damaged, in a process that may crash, and sends its records to the parent.

LMDB maps its file into memory and believes what the pages say, so a damaged page can end the process with SIGSEGV or
SIGBUS, or raise. The parent uses what arrived before the end.

This module imports nothing of the ledger, because the process is started again for every range that is searched.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import lmdb

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

group_bytes: Final = 1024**2
value_size_max_bytes: Final = 16 * 1024**2

Record = tuple[bytes, bytes]


class TableRead(NamedTuple):
    """The records to read: those of a table of the log in ``folder``, from the key ``start`` on; ``limit`` 0: all.

    ``is_careful`` sends each record at once, so that the parent knows the last one before a crash. A folder that cannot
    be written is read without a lock (``has_lock``).
    """

    folder: str
    table: str
    start: bytes
    limit: int
    is_careful: bool
    has_lock: bool


def send_records(connection: Connection, read: TableRead) -> None:
    """Send the records in groups, and at the end None; or if the rest cannot be read, the reason as a text."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an expected answer: leave no core file
    try:
        options: Any = {"readonly": True, "max_dbs": 8, "max_readers": 512, "map_size": 0, "create": False}
        with lmdb.open(read.folder, **options, lock=read.has_lock) as env:
            database = env.open_db(read.table.encode(), create=False)
            with env.begin(db=database, buffers=True) as txn:
                for group in _groups(txn.cursor(), read):
                    connection.send(group)
    except (lmdb.Error, MemoryError, _TooLargeError) as error:
        connection.send(f"{type(error).__name__}: {error}")
    else:
        connection.send(None)


def _groups(cursor: lmdb.Cursor, read: TableRead) -> Iterator[list[Record]]:
    has_records = cursor.set_range(read.start) if read.start else cursor.first()
    group: list[Record] = []
    size = 0
    for key, value in islice(cursor.iternext() if has_records else (), read.limit or None):
        if len(value) > value_size_max_bytes:
            raise _TooLargeError(f"a value has {len(value)} bytes")
        group.append((bytes(key), bytes(value)))
        size += len(value)
        if read.is_careful or size >= group_bytes:
            yield group
            group, size = [], 0
    yield group


class _TooLargeError(Exception):
    """A value larger than any the log stores: its length is damaged."""
