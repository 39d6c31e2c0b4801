"""The views file: checks it before SQLite opens it, and moves a damaged one away.

A folder may contain files from strangers. SQLite would follow a link out of the folder, wait for a pipe, or roll back
the journal of another program's database.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.system.files import as_unavailable, check_regular, lock_folder, open_regular
from deedbook.projections.stores.store import ADVICE, DamagedStore

FileId: TypeAlias = tuple[int, int]
APPLICATION_ID: Final = 0x4241544E  # "BATN"
_HEADER: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_shared_memory_bytes: Final = 32 * 1024  # the first part of the -shm file
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ")


class OpenFiles:
    """The number of times that this process has each file open.

    A process that closes any descriptor of a file loses all its locks on that file (POSIX), SQLite's among them. So a
    file that is open is not inspected a second time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[FileId] = Counter()

    def add(self, file: FileId) -> None:
        """Count an opened file."""
        with self._lock:
            self._counts[file] += 1

    def remove(self, file: FileId) -> None:
        """Count a closed file."""
        with self._lock:
            self._counts[file] -= 1
            if self._counts[file] <= 0:
                del self._counts[file]

    def holds(self, file: FileId) -> bool:
        """Return whether this process has a file open."""
        with self._lock:
            return file in self._counts


open_files: Final = OpenFiles()


def file_id(status: os.stat_result) -> FileId:
    """Return the device and inode: they differ if another file has the same name later."""
    return status.st_dev, status.st_ino


def look(path: Path) -> bool:
    """Return whether the file exists, before SQLite opens it or a journal beside it.

    Raises DamagedStore: it is no database. Corrupted: another program made it. Refused: it, or a journal beside it, is
    no regular file.
    """
    for file in (path, *journals_of(path)):
        with contextlib.suppress(FileNotFoundError):
            check_regular(file)
    with as_unavailable(path, "cannot be used"):
        try:
            if open_files.holds(file_id(path.lstat())):
                return True
            with open_regular(path) as descriptor:
                header = os.pread(descriptor, _HEADER_BYTES, 0)
        except FileNotFoundError:
            return False
    if len(header) < _HEADER_BYTES or not header.startswith(_HEADER):
        raise DamagedStore("CORRUPTED", f"the views in {path} are damaged (not a database): {ADVICE}", path=str(path))
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise foreign(path)
    return True


def journals_of(path: Path) -> list[Path]:
    """Return the paths of the journals that SQLite writes beside a database."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def move_away(path: Path, damaged: FileId | None = None) -> Path:
    """Move a damaged file away and return its new path; an earlier damaged file there is replaced.

    Nothing happens if the file is no longer ``damaged``: another process was first. Raises Unavailable:
    ``STORE_UNAVAILABLE`` if it cannot be moved.
    """
    aside = _aside(path)
    cannot = as_unavailable(path, "is damaged and cannot be moved away")
    with cannot, lock_folder(path.parent), contextlib.suppress(FileNotFoundError):
        if damaged in (None, file_id(path.lstat())):
            # If we crash after the journals are deleted, the damaged file is found again. If they stayed, SQLite
            # would apply them to the next file.
            for journal in journals_of(path):
                journal.unlink(missing_ok=True)
            path.replace(aside)
    return aside


def remove(path: Path) -> None:
    """Delete the file, its journals, and a damaged file that was moved away."""
    with as_unavailable(path, "cannot be deleted"), lock_folder(path.parent):
        # If we crash after the file is deleted, the process that creates the next one deletes the journals first. In
        # the other order, SQLite would create new journals for a file whose old ones other processes still use.
        for file in (_aside(path), path, *journals_of(path)):
            file.unlink(missing_ok=True)


def foreign(path: Path) -> Corrupted:
    """Return the refusal of another program's database."""
    message = f"{path} is a database of another program: move it away, then Deedbook creates the views"
    return Corrupted("CORRUPTED", message, path=str(path))


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert SQLite's errors to those that a ``Store`` raises."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error


def _is_full(path: Path) -> bool:
    """Return whether the disk has no room for the shared memory of a reader: SQLite calls that an I/O error."""
    try:
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize < _shared_memory_bytes
    except OSError:
        return False


def _translate(error: sqlite3.Error, path: Path) -> DeedbookError:
    name = getattr(error, "sqlite_errorname", "") or ""
    details = {"path": str(path), "cause": str(error)}
    is_damaged = name.startswith(_DAMAGE) or str(error).startswith(("no such table", "no such column"))
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and not is_damaged and _is_full(path)):
        return Unavailable("STORE_FULL", f"the disk is full: the views in {path} cannot be written", **details)
    if is_damaged:
        return DamagedStore("CORRUPTED", f"the views in {path} are damaged ({error}): {ADVICE}", **details)
    damage = ("SQLITE_CONSTRAINT", "SQLITE_ERROR", "SQLITE_MISMATCH")
    if name.startswith(damage):
        return Corrupted("CORRUPTED", f"the views in {path} are damaged ({error}): {ADVICE}", **details)
    return Unavailable("STORE_UNAVAILABLE", f"the views in {path} cannot be used: {error}", **details)
