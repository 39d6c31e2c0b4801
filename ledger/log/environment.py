"""One LMDB environment: opened once, its transactions, and the translation of LMDB's errors.

**A folder without write permission** (read-only media, an evidence copy, another owner's folder) is read without
LMDB's lock, because the lock file cannot be written. Writers then do not know which pages this process reads. If
another process writes meanwhile, ``reading`` fails at its end, because LMDB may have reused pages that it read.

**While the environment is open**, every transaction first checks that the file is still the opened one, and not
shorter. If another file took its name, we would write into a file that nobody else can open. This check cannot see
changes within a transaction: if the file is cut while we read a page of it, the process still dies.

**A rewritten file** (``log.rewrite``) is another file that names ours as its source: we open it and continue.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import lmdb

from deedbook.ledger import limits
from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.home.membership import BEGUN_FILE, unfinished_join
from deedbook.ledger.log.data_file import RESTORE, check_data_file
from deedbook.ledger.system.files import can_write, check_regular

FILE: Final = "data.mdb"
_LOCK_FILE: Final = "lock.mdb"
_lock_file_bytes: Final = 4096 + 64 * limits.readers_max
"""More than LMDB needs for its header and one line for each reader. LMDB uses an existing file of any size."""
_free_min_bytes: Final = 1024**2
_swaps_seen_max: Final = 100
"""Each failed attempt means that another process has just replaced the file again."""


def log_not_found(path: Path) -> Unavailable:
    """Return the error for a folder without the database ``path``; for a project, it suggests the ledger below it.

    In the folder of an unfinished `deed join` it names the command to repeat.
    """
    folder = path.parent
    if os.path.lexists(folder / BEGUN_FILE):
        return Unavailable("NO_LEDGER", unfinished_join(folder), folder=str(folder))
    subfolder = folder / FOLDER
    is_project = os.path.lexists(subfolder / path.name / FILE) or os.path.lexists(folder / ".git")
    remedy = f"did you mean {subfolder}?" if is_project else "run `deed init` first"
    return Unavailable("NO_LEDGER", f"there is no log in {folder}: {remedy}", folder=str(folder))


class Environment:
    """An open LMDB environment with its tables. A process opens each folder once: LMDB's locks are per process."""

    def __init__(self, path: Path, tables: Sequence[str], *, map_size: int, setting: str, create: bool = False) -> None:
        """Open the environment in ``path``; with ``create``, create it if it is missing.

        ``setting`` names the setting of ``config.toml`` that limits its size. Raises Unavailable: ``NO_LEDGER`` if it
        is missing and ``create`` is false; ``STORE_UNAVAILABLE`` if it cannot be opened (permissions, opened twice);
        ``STORE_FULL``. Corrupted: the file is not a store, or is damaged.
        """
        self.path = path.absolute()
        self._file = self.path / FILE
        self.setting = setting
        self._names, self.map_size = tuple(tables), map_size
        self._users = self._waiting = 0
        self._turn, self._nested = threading.Condition(), threading.local()
        if create:
            finish_swap(self.path)
        elif not os.path.lexists(path / FILE) and not finish_swap(self.path):
            raise log_not_found(path)
        self._open(create=create)

    def _open(self, *, create: bool = False) -> None:
        """Open the file at our path; if another process replaces it meanwhile, open the new one (``log.rewrite``).

        Otherwise we could write into a file that no longer has a name. While we hold a file open, its inode number is
        not used again. So if the path leads to this inode before and after LMDB opens it, LMDB opened the same file.
        """
        with translate_errors(self.path, self.setting):
            for _ in range(_swaps_seen_max):
                descriptor = None if self._present() is None else self._hold()
                try:
                    self._open_file(create=create)
                    if descriptor is None or self._is_named(os.fstat(descriptor)):
                        return
                    self.env.close()
                except (OSError, lmdb.Error):
                    if descriptor is None or self._is_named(os.fstat(descriptor)):
                        raise
                finally:
                    if descriptor is not None:
                        os.close(descriptor)
            raise OSError(errno.EBUSY, "other processes replace its file again and again")

    def _hold(self) -> int | None:
        try:
            return os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None  # the attempt to open it below reports the reason

    def _open_file(self, *, create: bool) -> None:
        check_data_file(self._file, may_be_new=create)
        self.is_read_only = is_read_only(self.path)
        if create and not self.is_read_only:
            _allocate_lock_file(self.path)
        self.env = lmdb.open(
            str(self.path),
            map_size=self.map_size,
            max_dbs=8,
            max_readers=limits.readers_max,
            metasync=True,
            sync=True,
            writemap=False,
            max_spare_txns=4,
            readonly=self.is_read_only,
            lock=not self.is_read_only,
            create=create and not self.is_read_only,  # never create the folder of a log that is being replaced
        )
        try:
            self._last_transaction = 0
            self.env.reader_check()
            opened = self._file.stat()
            self._opened, self._file_bytes = _identity(opened), opened.st_size
            self.tables = {name: self._table(name) for name in self._names}
        except BaseException:
            self.env.close()  # else this process could not open it again
            raise

    def close(self) -> None:
        """Close the environment; every transaction must have ended."""
        self.env.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """Open a read transaction; keep it short.

        Raises Corrupted: ``HISTORY_CHANGED`` if an older file was written over this one. Unavailable: ``STORE_IN_USE``
        if the environment is read without a lock, and another process wrote meanwhile.
        """
        with translate_errors(self.path, self.setting), self._using():
            # read before the transaction begins: another thread may begin a later one first
            last = self._last_transaction
            with self.env.begin() as txn:
                if (number := txn.id()) < last:
                    message = f"an older file was written over {self._file} while it was open"
                    raise Corrupted(
                        "HISTORY_CHANGED", f"{message}: stop the processes that use it, and run `deed doctor`"
                    )
                self._last_transaction = number
                yield txn
                if self.is_read_only and self.env.info()["last_txnid"] != txn.id():
                    message = (
                        f"another process writes to the store in {self.path}. Without permission for its lock file "
                    )
                    message += "it cannot be read safely: ask its server with --server, or read a copy"
                    raise Unavailable("STORE_IN_USE", message, path=str(self.path))

    @contextlib.contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """Open the write transaction: it commits when the block ends, and aborts when the block raises.

        Raises Unavailable: ``STORE_UNAVAILABLE`` if the folder is read-only; ``STORE_FULL`` or ``STORE_STOPPED`` if the
        commit fails. Earlier commits stay.
        """
        if self.is_read_only:
            message = f"{self.path} is read-only here: write as a user who may write to it, or with --server"
            raise Unavailable("STORE_UNAVAILABLE", message, path=str(self.path))
        with translate_errors(self.path, self.setting), contextlib.ExitStack() as stack:
            while True:
                stack.enter_context(self._using())
                txn = stack.enter_context(self.env.begin(write=True))
                present = self._present()
                if present is not None and _identity(present) == self._opened:
                    break
                stack.pop_all().close()  # the file was rewritten while we waited for the lock
            yield txn

    @contextlib.contextmanager
    def rewriting(self, *, waits: bool = True) -> Iterator[bool]:
        """Take the lock for rewriting the file. Without ``waits``, yield False if another process has it."""
        descriptor = self._lock_folder(waits=waits)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _lock_folder(self, *, waits: bool) -> int | None:
        while True:
            with translate_errors(self.path, self.setting), self._using():  # this finishes an interrupted swap
                descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except FileNotFoundError:  # the process with the lock is replacing the folder
                pass
            os.close(descriptor)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Count a transaction of this process.

        If the file was rewritten, first wait until the other transactions have ended, and open the new file.
        """
        depth = getattr(self._nested, "depth", 0)
        with self._turn:
            # a transaction within another one of this thread uses the same file, even if the file was replaced since
            if depth == 0:
                self._check_present()
            self._users += 1
        self._nested.depth = depth + 1
        try:
            yield
        finally:
            self._nested.depth = depth
            with self._turn:
                self._users -= 1
                if self._waiting:
                    self._turn.notify_all()

    def _check_present(self) -> None:
        """Check that the open file is still the one in the folder, or was rewritten, and not shorter.

        Each round reads the status of the file once, because another process may replace the file between two reads.
        """
        known_bytes = self._file_bytes  # read before stat: another thread may record growth
        while (present := self._present()) is not None and _identity(present) != self._opened:
            # In a file without a name, we would acknowledge entries that nobody else would ever see.
            before = self._opened
            self._waiting += 1
            # Another thread may open the file first. Its transaction may wait for us, so we must not wait for the end
            # of it.
            self._turn.wait_for(partial(self._is_free, before))
            self._waiting -= 1
            if self._opened == before:
                self._open_rewritten()
                self._turn.notify_all()
            known_bytes = self._file_bytes
        if present is None:
            message = f"{self._file} was removed while it was open: start this process again"
            raise Unavailable("STORE_UNAVAILABLE", message, path=str(self._file))
        if present.st_size < known_bytes:  # LMDB never shortens it
            message = f"{self._file} was cut to {present.st_size} bytes while it was open: \
stop its processes, and {RESTORE}"
            raise Corrupted("CORRUPTED", message, path=str(self._file), size=present.st_size)
        self._file_bytes = present.st_size

    def _is_free(self, before: tuple[int, int]) -> bool:
        """Whether no transaction uses the file ``before`` any more."""
        return self._users == 0 or self._opened != before

    def _open_rewritten(self) -> None:
        """Open the file that replaced ours, if it was made from ours."""
        before = self._opened
        present = self._present()
        if present is None or _identity(present) == before:
            return  # another thread has opened it meanwhile
        self.env.close()
        self._open()
        with self.env.begin() as txn:
            if before not in self.predecessors(txn):
                self._opened = before  # so that every later transaction fails, too
                message = (
                    f"{self._file} was replaced while it was open: start this process again, and run `deed doctor`"
                )
                raise Corrupted("HISTORY_CHANGED", message, path=str(self._file))

    def predecessors(self, _txn: lmdb.Transaction) -> list[tuple[int, int]]:
        """Return the device and inode numbers of the files from which this one was rewritten."""
        return []

    def _present(self) -> os.stat_result | None:
        """Return the status of the file that now has the name of ours; None if there is none."""
        for _ in range(_swaps_seen_max):
            with contextlib.suppress(FileNotFoundError):
                return self._file.stat()
            if not finish_swap(self.path):
                return None
        return None

    def _is_named(self, file: os.stat_result) -> bool:
        """Whether this file now has the name of ours."""
        present = self._present()
        return present is not None and _identity(present) == _identity(file)

    def get(self, txn: lmdb.Transaction, table: lmdb._Database, key: bytes) -> bytes | None:
        """Return the value under ``key``, or None. It is bytes, because no transaction here is opened with buffers."""
        return cast("bytes | None", txn.get(key, db=table))

    def values(self, txn: lmdb.Transaction, table: lmdb._Database, start: bytes) -> Iterator[bytes]:
        """Yield the values from the key ``start`` on; nothing if this key is missing."""
        cursor = txn.cursor(db=table)
        if cursor.set_key(start):
            yield from cast("Iterator[bytes]", cursor.iternext(keys=False, values=True))

    def items(
        self, txn: lmdb.Transaction, table: lmdb._Database, prefix: bytes, start: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with ``prefix``, with their values, in the order of keys, from ``start`` on."""
        cursor = txn.cursor(db=table)
        if cursor.set_range(max(prefix, start)):
            for key, value in cast("Iterator[tuple[bytes, bytes]]", cursor.iternext()):
                if not key.startswith(prefix):
                    return
                yield key, value

    def last_transaction(self) -> tuple[tuple[int, int], int]:
        """Return the file and the number of the last write transaction that readers can see: each commit changes them.

        ``env.info()`` already has the number of a transaction that is still being synced. A waiting reader that stored
        this number would read the log without the transaction, and would not read again (measured: one waiting read in
        forty).
        """
        with self.reading() as txn:
            return self._opened, txn.id()

    def used_ratio(self) -> float:
        """Return the used part of the map, 0 to 1; above ``limits.map_alarm_ratio`` the operator must act."""
        info = self.env.info()
        return float((info["last_pgno"] + 1) * int(self.env.stat()["psize"]) / info["map_size"])

    def _table(self, name: str) -> lmdb._Database:
        try:
            return self.env.open_db(name.encode(), create=not self.is_read_only)
        except (lmdb.NotFoundError, lmdb.ReadonlyError) as error:
            raise Corrupted("CORRUPTED", f"the store in {self.path} has no table {name}: {RESTORE}") from error


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def finish_swap(path: Path) -> bool:
    """Finish the swap of a rewritten environment that a killed process left; return whether the environment exists.

    ``path.rewritten`` is complete once ``path`` has gone to ``path.replaced`` (``log.rewrite``). An empty folder may
    have taken the name since. Call this before you conclude from a missing file that there is no log.
    """
    old, new = old_path(path), new_path(path)
    if not os.path.lexists(path / FILE) and os.path.lexists(old):
        with contextlib.suppress(OSError):  # another process was faster, or nobody may write here
            new.rename(path)
    return os.path.lexists(path / FILE)


def remove_old(path: Path) -> None:
    """Delete the former environment, which a killed process left after rewriting it.

    While the new one exists, another process is replacing the former, and ``finish_swap`` needs both.
    """
    if not os.path.lexists(new_path(path)) and os.path.lexists(path / FILE):
        old = old_path(path)
        with contextlib.suppress(OSError):  # it may also be a link, whose target belongs to somebody else
            for file in () if old.is_symlink() else old.iterdir():
                file.unlink()
            old.rmdir()


def new_path(path: Path) -> Path:
    """Return where a rewritten environment is built."""
    return path.with_name(path.name + ".rewritten")


def old_path(path: Path) -> Path:
    """Return the path of a former environment, from its rewriting until its deletion.

    It is not called ``log.old``: a person may give this name to a log of their own, which we must not delete.
    """
    return path.with_name(path.name + ".replaced")


def is_read_only(path: Path) -> bool:
    """Return whether this process cannot write the environment in ``path`` or its lock file.

    Raises Refused: its lock file is a link or not a file. LMDB would overwrite the link's target, even as a reader.
    """
    with contextlib.suppress(FileNotFoundError):
        check_regular(path / _LOCK_FILE)
    return not (can_write(path / FILE) and can_write(path / _LOCK_FILE))


def _allocate_lock_file(folder: Path) -> None:
    """Make the folder and a lock file whose blocks are on the disk, if there is none.

    LMDB would make one without blocks and map it. On a full disk its first write there ends the process (SIGBUS). The
    file gets its name when it is complete, so another process that opens the folder never finds a part of it. If we
    crash before that, an unused file stays.
    """
    folder.mkdir(exist_ok=True)
    if (folder / _LOCK_FILE).exists():
        return
    part = folder / f"{_LOCK_FILE}.{os.getpid()}"
    try:
        part.write_bytes(bytes(_lock_file_bytes))
        os.link(part, folder / _LOCK_FILE)
    except OSError as error:
        # Another process was faster, or this file system has no hard links: then LMDB makes the file.
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def translate_errors(path: Path, setting: str = "map_size_bytes") -> Iterator[None]:
    """Raise LMDB's and the file system's errors as our own, with the next step."""
    try:
        yield
    except DeedbookError:
        raise
    except (lmdb.MapFullError, lmdb.DiskError) as error:
        message = f"the store in {path} is full ({error}): free disk space, or raise {setting} in config.toml"
        raise Unavailable("STORE_FULL", message) from error
    except lmdb.PanicError as error:
        # LMDB could not write its meta page: the commit may be on disk or not. Only opening the file again shows that.
        message = f"a write to the store in {path} failed, and this process cannot use it any more: start it again"
        raise Unavailable("STORE_STOPPED", message, path=str(path)) from error
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as error:
        raise Corrupted("CORRUPTED", f"the store in {path} is damaged ({error}): {RESTORE}") from error
    except UNREADABLE as error:
        raise Corrupted(
            "CORRUPTED", f"the store in {path} has a record that cannot be decoded ({error}): {RESTORE}"
        ) from error
    except (lmdb.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable("STORE_FULL", f"the disk of the store in {path} is full: free disk space") from error
        if "Input/output error" in str(error) and _free_bytes(path) < _free_min_bytes:
            # LMDB reports a short write as an I/O error; a disk with room for a part of the write causes one.
            raise Unavailable("STORE_FULL", f"the disk of the store in {path} is full: free disk space") from error
        lacks_memory = isinstance(error, lmdb.MemoryError) or "Cannot allocate memory" in str(error)
        advice = ": allow more address space (ulimit -v), or set a smaller map_size_bytes" if lacks_memory else ""
        raise Unavailable("STORE_UNAVAILABLE", f"the store in {path} cannot be used: {error}{advice}") from error


def _free_bytes(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize
