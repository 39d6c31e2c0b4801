"""One LMDB environment: opened once, its transactions, and the translation of LMDB's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import lmdb

from ledger import limits
from ledger.errors import BatonError, Corrupted, Unavailable

FILE: Final = "data.mdb"


class Environment:
    """An open LMDB environment with its tables. One a process and folder: LMDB's locks are per process."""

    def __init__(self, path: Path, tables: Sequence[str], *, map_size: int, setting: str, create: bool = False) -> None:
        """Open the environment in ``path``; with ``create``, make it.

        ``setting`` names what of ``config.toml`` would give it more room.

        Raises:
            Unavailable: ``NO_LEDGER`` when there is none and ``create`` is false; ``STORE_UNAVAILABLE`` when it cannot
                be opened (permissions, opened twice); ``STORE_FULL``.
            Corrupted: the file is no store, or a damaged one.
        """
        self.path = path
        self.setting = setting
        with translated(path, setting):
            is_there = (path / FILE).is_file()
        if not create and not is_there:
            folder = path.parent
            raise Unavailable("NO_LEDGER", f"there is no log in {folder}: run `baton init` first", folder=str(folder))
        with translated(path, setting):
            self.env = lmdb.open(
                str(path),
                map_size=map_size,
                max_dbs=8,
                max_readers=limits.readers_max,
                metasync=True,
                sync=True,
                writemap=False,
                max_spare_txns=4,
            )
            try:
                self.env.reader_check()
                self.tables = {name: self.env.open_db(name.encode()) for name in tables}
            except BaseException:
                self.env.close()  # else nobody in this process could open it again
                raise

    def close(self) -> None:
        """Close the environment; every transaction must have ended."""
        self.env.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: keep it short."""
        with translated(self.path, self.setting), self.env.begin() as txn:
            yield txn

    @contextlib.contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction: commits when the block ends, aborts when it raises.

        An error of the commit itself is ``Unavailable``: LMDB has then kept what was committed before.
        """
        with translated(self.path, self.setting), self.env.begin(write=True) as txn:
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
        page = int(self.env.stat()["psize"])
        return float((info["last_pgno"] + 1) * page / info["map_size"])


@contextlib.contextmanager
def translated(path: Path, setting: str = "map_size_bytes") -> Iterator[None]:
    """Turn LMDB's and the file system's errors into ours, saying what to do."""
    try:
        yield
    except BatonError:
        raise
    except (lmdb.MapFullError, lmdb.DiskError) as error:
        message = f"the store in {path} is full ({error}): free disk space, or raise {setting} in config.toml"
        raise Unavailable("STORE_FULL", message) from error
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError) as error:
        message = f"the store in {path} is damaged ({error}): run `baton fsck`, restore a copy"
        raise Corrupted("CORRUPTED", message) from error
    except (lmdb.Error, OSError) as error:
        raise Unavailable("STORE_UNAVAILABLE", f"the store in {path} cannot be used: {error}") from error
