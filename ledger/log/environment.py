"""One LMDB environment: opened once, its transactions, and the translation of LMDB's errors.

**A folder that cannot be written** (read-only media, an evidence copy, another owner's) is read without LMDB's lock,
whose file has no place there. Nobody then tells writers which pages we read; where somebody does write meanwhile, a
reading that may have seen pages used again is refused at its end.

**While it is open**, every transaction first asks whether the file is still the one that was opened, and no shorter: a
copy that is moved into its place would leave us writing into a file without a name. This cannot see what happens within
a transaction: a file that is cut while a page of it is read still ends the process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import lmdb

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.log.data_file import RESTORE, check_data_file
from deedbook.ledger.system.files import can_write, check_regular

FILE: Final = "data.mdb"
_LOCK_FILE: Final = "lock.mdb"
_free_min_bytes: Final = 1024**2


def log_not_found(path: Path) -> Unavailable:
    """Return the refusal of a ledger's folder without the database ``path``; of a project, names the ledger's below."""
    folder = path.parent
    below = folder / FOLDER
    is_project = os.path.lexists(below / path.name / FILE) or os.path.lexists(folder / ".git")
    remedy = f"did you mean {below}?" if is_project else "run `deed init` first"
    return Unavailable("NO_LEDGER", f"there is no log in {folder}: {remedy}", folder=str(folder))


class Environment:
    """An open LMDB environment with its tables. One a process and folder: LMDB's locks are per process."""

    def __init__(self, path: Path, tables: Sequence[str], *, map_size: int, setting: str, create: bool = False) -> None:
        """Open the environment in ``path``; with ``create``, make it.

        ``setting`` names what of ``config.toml`` would give it more room. Raises Unavailable: ``NO_LEDGER`` when there
        is none and ``create`` is false; ``STORE_UNAVAILABLE`` when it cannot be opened (permissions, opened twice);
        ``STORE_FULL``. Corrupted: the file is no store, or a damaged one.
        """
        self.path = path.absolute()
        self._file = self.path / FILE
        self.setting = setting
        if not create and not os.path.lexists(path / FILE):
            raise log_not_found(path)
        with translate_errors(path, setting):
            check_data_file(self._file, may_be_new=create)
            self.is_read_only = is_read_only(self.path)
            self.env = lmdb.open(
                str(path),
                map_size=map_size,
                max_dbs=8,
                max_readers=limits.readers_max,
                metasync=True,
                sync=True,
                writemap=False,
                max_spare_txns=4,
                readonly=self.is_read_only,
                lock=not self.is_read_only,
                create=not self.is_read_only,
            )
            try:
                self._last_transaction = 0
                self.env.reader_check()
                opened = (self._file).stat()
                self._opened, self._file_bytes = (opened.st_dev, opened.st_ino), opened.st_size
                self.tables = {name: self._table(name) for name in tables}
            except BaseException:
                self.env.close()  # else nobody in this process could open it again
                raise

    def close(self) -> None:
        """Close the environment; every transaction must have ended."""
        self.env.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: keep it short.

        Raises Corrupted: ``HISTORY_CHANGED``: the file was written over with an older one.
        """
        with translate_errors(self.path, self.setting):
            self._check_present()
            last = self._last_transaction  # read first: another thread may begin a later one before we do
            with self.env.begin() as txn:
                if (number := txn.id()) < last:
                    message = f"{self._file} was written over with an older one while it was open"
                    raise Corrupted("HISTORY_CHANGED", f"{message}: end what uses it, and run `deed doctor`")
                self._last_transaction = number
                yield txn
                if self.is_read_only and self.env.info()["last_txnid"] != txn.id():
                    message = f"the store in {self.path} is being written, and without a lock, for which we may not "
                    message += "write, it cannot be read safely: ask its server with --server, or read a copy"
                    raise Unavailable("STORE_IN_USE", message, path=str(self.path))

    @contextlib.contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction: commits when the block ends, aborts when it raises.

        An error of the commit itself is ``Unavailable``: LMDB has then kept what was committed before.
        """
        if self.is_read_only:
            message = f"{self.path} is read-only: it can be read; write where it may be written, or with --server"
            raise Unavailable("STORE_UNAVAILABLE", message, path=str(self.path))
        with translate_errors(self.path, self.setting):
            self._check_present()
            with self.env.begin(write=True) as txn:
                yield txn

    def get(self, txn: lmdb.Transaction, table: lmdb._Database, key: bytes) -> bytes | None:
        """Return the value under ``key``: bytes, because no transaction here is opened with buffers."""
        return cast("bytes | None", txn.get(key, db=table))

    def values(self, txn: lmdb.Transaction, table: lmdb._Database, start: bytes) -> Iterator[bytes]:
        """Yield the values from the key ``start`` on; none when there is no such key."""
        cursor = txn.cursor(db=table)
        if cursor.set_key(start):
            yield from cast("Iterator[bytes]", cursor.iternext(keys=False, values=True))

    def items(
        self, txn: lmdb.Transaction, table: lmdb._Database, prefix: bytes, start: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values whose key begins with ``prefix``, in the order of keys, from ``start`` on."""
        cursor = txn.cursor(db=table)
        if cursor.set_range(max(prefix, start)):
            for key, value in cast("Iterator[tuple[bytes, bytes]]", cursor.iternext()):
                if not key.startswith(prefix):
                    return
                yield key, value

    def last_transaction(self) -> int:
        """Return the number of the last write transaction that readers can see: changes whenever anything was written.

        Not ``env.info()``, which tells of a transaction while it is still being synced: who remembers that number, and
        then looks at the log as it was before it, would not look again (measured: one waiting read in forty).
        """
        with self.reading() as txn:
            return txn.id()

    def used_ratio(self) -> float:
        """Return the part of the map in use, 0 to 1; above ``limits.map_alarm_ratio`` the operator must act."""
        info = self.env.info()
        return float((info["last_pgno"] + 1) * int(self.env.stat()["psize"]) / info["map_size"])

    def _table(self, name: str) -> lmdb._Database:
        try:
            return self.env.open_db(name.encode(), create=not self.is_read_only)
        except (lmdb.NotFoundError, lmdb.ReadonlyError) as error:
            raise Corrupted("CORRUPTED", f"the store in {self.path} has no table {name}: {RESTORE}") from error

    def _check_present(self) -> None:
        """Check that the file that is open is the one in the folder, and has not become shorter: a store never does."""
        file, known_bytes = self._file, self._file_bytes  # read first: another thread may see it longer than we
        try:
            present = file.stat()
        except FileNotFoundError:
            present = None
        if present is None:
            message = f"{file} was removed while it was open here: start this process again"
            raise Unavailable("STORE_UNAVAILABLE", message, path=str(file))
        if (present.st_dev, present.st_ino) != self._opened:
            # What we append from now on would be acknowledged, and nobody else would ever see it.
            message = f"{file} was replaced while it was open here: start this process again, and run `deed doctor`"
            raise Corrupted("HISTORY_CHANGED", message, path=str(file))
        if present.st_size < known_bytes:
            message = f"{file} was cut to {present.st_size} bytes while it was open: stop, and {RESTORE}"
            raise Corrupted("CORRUPTED", message, path=str(file), size=present.st_size)
        self._file_bytes = present.st_size


def is_read_only(path: Path) -> bool:
    """Tell whether the environment in ``path`` can be read and not written.

    Raises Refused: its lock is a link, say: LMDB writes over whatever that leads to, also when it only reads.
    """
    with contextlib.suppress(FileNotFoundError):
        check_regular(path / _LOCK_FILE)
    return not (can_write(path / FILE) and can_write(path / _LOCK_FILE))


@contextlib.contextmanager
def translate_errors(path: Path, setting: str = "map_size_bytes") -> Iterator[None]:
    """Turn LMDB's and the file system's errors into ours, saying what to do."""
    try:
        yield
    except DeedbookError:
        raise
    except (lmdb.MapFullError, lmdb.DiskError) as error:
        message = f"the store in {path} is full ({error}): free disk space, or raise {setting} in config.toml"
        raise Unavailable("STORE_FULL", message) from error
    except lmdb.PanicError as error:
        # The page by which LMDB commits could not be written, and may be on disk or not: only opening it again tells.
        message = f"a write to the store in {path} failed, and this process can use it no more: start it again"
        raise Unavailable("STORE_STOPPED", message, path=str(path)) from error
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as error:
        raise Corrupted("CORRUPTED", f"the store in {path} is damaged ({error}): {RESTORE}") from error
    except UNREADABLE as error:
        raise Corrupted("CORRUPTED", f"the store in {path} holds a record that is none ({error}): {RESTORE}") from error
    except (lmdb.Error, OSError) as error:
        if "Input/output error" in str(error) and _free_bytes(path) < _free_min_bytes:
            # What LMDB says of a write that was cut short, as a disk does on which some of it still found room.
            raise Unavailable("STORE_FULL", f"the disk of the store in {path} is full: free disk space") from error
        raise Unavailable("STORE_UNAVAILABLE", f"the store in {path} cannot be used: {error}") from error


def _free_bytes(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize
