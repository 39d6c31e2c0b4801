"""The files of blobs: ``blobs/ab/HASH`` has the content of a blob, ``blobs/HASH.UPLOAD`` the received part of one.

HASH is the BLAKE3 of the content in hex, ``ab`` its first two digits, UPLOAD a random number. Readers open only files
of blobs that have a record. A part is synced, and then renamed within the write transaction that writes the record. If
we crash before the rename, a part is left. If we crash between rename and commit, a file without a record is left.
``log.expiry`` deletes both later. Links are refused: a clone or an archive may bring the folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from blake3 import blake3

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.limits import blob_chunk_bytes
from deedbook.ledger.log.blob_table import BlobRecord
from deedbook.ledger.log.environment import translate_errors
from deedbook.ledger.system.files import open_regular, sync_folder

FOLDER: Final = "blobs"
SETTING: Final = "blobs_size_max_bytes"
BLOB_NAME: Final = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})")
PART_NAME: Final = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{32})")


class ContentDigests:
    """The size and digests of content that arrives chunk by chunk; with ``keeps_text``, ``text`` has all of it."""

    def __init__(self, *, keeps_text: bool = False) -> None:
        self._blake3, self._sha256 = blake3(), hashlib.sha256()
        self._keeps_text = keeps_text
        self.size, self.text = 0, bytearray()

    def add(self, chunk: bytes) -> None:
        """Add the next bytes."""
        self._blake3.update(chunk)
        self._sha256.update(chunk)
        self.size += len(chunk)
        if self._keeps_text:
            self.text += chunk

    def record(self) -> BlobRecord:
        """Return the record of a blob with this content."""
        return BlobRecord(self.size, self._blake3.digest(), self._sha256.digest())


class BlobFiles:
    """The files of blobs and of unfinished uploads in one ledger's folder; the first upload makes their folder."""

    def __init__(self, home: Path) -> None:
        self.path = home / FOLDER

    @contextmanager
    def open(self, digest: bytes) -> Iterator[BinaryIO | None]:
        """Yield the file of a blob; None if there is no regular file under its name.

        Raises Unavailable: ``STORE_UNAVAILABLE`` if it cannot be opened.
        """
        with ExitStack() as stack:
            file = None
            with translate_errors(self.path, SETTING), suppress(FileNotFoundError, NotADirectoryError, Refused):
                descriptor = stack.enter_context(open_regular(self._blob(digest)))
                file = stack.enter_context(os.fdopen(descriptor, "rb", closefd=False))
            yield file

    def digests_of(self, digest: bytes) -> BlobRecord | None:
        """Return the record that the file of a blob should have; None if there is no such regular file."""
        digests = ContentDigests()
        with self.open(digest) as file:
            if file is None:
                return None
            while chunk := file.read(blob_chunk_bytes):
                digests.add(chunk)
        return digests.record()

    def status(self, digest: bytes) -> tuple[int, int]:
        """Return the length of a blob's file, and when it was written (Unix ms); (-1, 0) if there is none."""
        with self.open(digest) as file:
            status = None if file is None else os.fstat(file.fileno())
        return (-1, 0) if status is None else (status.st_size, status.st_mtime_ns // 1_000_000)

    def store(self, digest: bytes, upload: bytes, record: BlobRecord) -> None:
        """Rename a synced part to the name of its blob, in the write transaction that then writes ``record``."""
        target = self._blob(record.blake3)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.path)
        self._part(digest, upload).rename(target)
        sync_folder(target.parent)

    def delete(self, digest: bytes) -> None:
        """Delete the file of a blob, if any. Call it in a write transaction, so that no process stores the blob now."""
        with suppress(FileNotFoundError, IsADirectoryError):
            self._blob(digest).unlink()
            sync_folder(self._blob(digest).parent)

    @contextmanager
    def part(self, digest: bytes, upload: bytes) -> Iterator[BinaryIO]:
        """Yield the part of an upload, open for reading and writing and locked; it is created if it is missing.

        Call it outside of write transactions: it waits for another process that has the lock.
        Raises Unavailable: ``STORE_FULL``, ``STORE_UNAVAILABLE``.
        """
        with translate_errors(self.path, SETTING):
            path = self._part(digest, upload)
            if not self.path.exists():
                self.path.mkdir(mode=0o700, exist_ok=True)
                sync_folder(self.path.parent)
            while True:
                with open_regular(path, flags=os.O_RDWR | os.O_CREAT) as part:
                    fcntl.flock(part, fcntl.LOCK_EX)
                    # Before we had the lock, another process may have completed the upload: then the opened file is the
                    # blob.
                    if _has_inode(path, os.fstat(part)):
                        with os.fdopen(part, "r+b", closefd=False) as file:
                            yield file
                        return

    def part_size(self, digest: bytes, upload: bytes) -> int:
        """Return the length of the part of an upload; 0 if there is none."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return self._part(digest, upload).lstat().st_size
        return 0

    def delete_part(self, digest: bytes, upload: bytes, *, unless_locked: bool = False) -> None:
        """Delete the part of an upload, if there is one. ``unless_locked``: a part that is being written stays."""
        path = self._part(digest, upload)
        with suppress(FileNotFoundError, BlockingIOError, Refused), ExitStack() as stack:
            if unless_locked:
                fcntl.flock(stack.enter_context(open_regular(path)), fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()

    def delete_parts(self, digest: bytes) -> None:
        """Delete the parts of all uploads of a blob, also those that are being written."""
        for path in self.path.glob(f"{digest.hex()}.*"):
            path.unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Yield the relative path of everything below the folder: blobs, parts, and files that do not belong there."""
        with suppress(FileNotFoundError):
            for path in sorted(self.path.iterdir()):
                is_folder = path.is_dir() and not path.is_symlink()
                yield from sorted(f"{path.name}/{file.name}" for file in path.iterdir()) if is_folder else [path.name]

    def _blob(self, digest: bytes) -> Path:
        return self._below(blob_name(digest))

    def _part(self, digest: bytes, upload: bytes) -> Path:
        return self._below(part_name(digest, upload))

    def _below(self, name: str) -> Path:
        """Return the path of a file. Raises NotADirectoryError: a folder in the path is a link."""
        path = self.path / name
        if self.path.is_symlink() or path.parent.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "it is in a link", str(path))
        return path


def blob_name(digest: bytes) -> str:
    """Return the path of a blob's file, below the folder of blobs."""
    return f"{digest.hex()[:2]}/{digest.hex()}"


def part_name(digest: bytes, upload: bytes) -> str:
    """Return the name of the part of an upload, below the folder of blobs."""
    return f"{digest.hex()}.{upload.hex()}"


def _has_inode(path: Path, status: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), status)
    return False


def damaged(record: BlobRecord, reason: str) -> Corrupted:
    """Return the error for a blob whose file is missing or has changed."""
    message = f"blob {record.ref} is damaged: {FOLDER}/{blob_name(record.blake3)} {reason}: restore it from a backup"
    return Corrupted("CORRUPTED", message, ref=record.ref)
