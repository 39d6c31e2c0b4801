"""A program that reads pages of a log that may be damaged, in a process of its own because it may crash.

    python -P -m deedbook.consumers.auditor.pages FOLDER TABLE START LIMIT fast|careful lock|read-only

LMDB maps its file into memory and believes what the pages say, so a damaged page can end the process with SIGSEGV or
SIGBUS, or raise. This program writes the records of a table to standard output, from the key START (hex, may be
empty) on, at most LIMIT of them unless it is 0. ``careful`` sends each record at once, so the caller knows the last
one before a crash. ``read-only`` takes no lock, because a lock needs a folder that can be written. The caller uses what
arrived before the end. A record is two u32 (little endian: the lengths of key and value), the key and the value. A last
frame of two ffffffff means that all records were read.

It imports nothing of the ledger, because it is started again for every range that is searched.
"""

from __future__ import annotations

import resource
import struct
import sys
from itertools import islice
from typing import Any, Final

import lmdb

FRAME: Final = struct.Struct("<II")
END: Final = FRAME.pack(0xFFFFFFFF, 0xFFFFFFFF)
UNREADABLE: Final = 6
_flush_bytes: Final = 1024**2
value_size_max_bytes: Final = 16 * 1024**2


def main(arguments: list[str]) -> int:
    """Write the records; return the exit code."""
    folder, table, start, limit, mode, access = arguments
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an expected answer: leave no core file
    try:
        options: Any = {"readonly": True, "max_dbs": 8, "max_readers": 512, "map_size": 0, "create": False}
        with lmdb.open(folder, **options, lock=access == "lock") as env:
            database = env.open_db(table.encode(), create=False)
            with env.begin(db=database, buffers=True) as txn:
                flush_bytes = _flush_bytes if mode == "fast" else 0
                _write(txn.cursor(), bytes.fromhex(start), int(limit), flush_bytes=flush_bytes)
    except (lmdb.Error, MemoryError, _TooLargeError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}")
        return UNREADABLE
    sys.stdout.buffer.write(END)
    sys.stdout.buffer.flush()
    return 0


def _write(cursor: lmdb.Cursor, start: bytes, limit: int, *, flush_bytes: int) -> None:
    out = sys.stdout.buffer
    has_records = cursor.set_range(start) if start else cursor.first()
    waiting: list[bytes] = []
    size = 0
    for key, value in islice(cursor.iternext() if has_records else (), limit or None):
        if len(value) > value_size_max_bytes:
            raise _TooLargeError(f"a value has {len(value)} bytes")
        waiting += (FRAME.pack(len(key), len(value)), bytes(key), bytes(value))
        size += len(value)
        if size >= flush_bytes:
            out.write(b"".join(waiting))
            out.flush()
            waiting, size = [], 0
    out.write(b"".join(waiting))


class _TooLargeError(Exception):
    """A value larger than any the log stores: its length is damaged."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
