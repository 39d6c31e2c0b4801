"""Reading and replacing the files of a folder that people edit at the same time.

A file is replaced by renaming a finished one into its place: whoever reads sees the old one or the new one, and a crash
leaves at most a hidden temporary file. Links are not followed: what is written stays in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import time
from typing import TYPE_CHECKING, Final

from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

TEMPORARY: Final = ".baton-"
file_size_max_bytes: Final = 1024**2
# What is wrong with one file or its name, and not with the folder: waiting does not help.
_OF_THE_FILE: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENOTDIR})
_new_file_mode: Final = 0o644


def read_file(path: Path, *, size_max_bytes: int = file_size_max_bytes) -> bytes | None:
    """Return a file's bytes; None when there is none.

    Raises:
        Refused: ``TOO_LARGE``, or ``INVALID_FORMAT`` for what is no regular file or has an impossible name.
        Unavailable: it cannot be read.
    """
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Refused("INVALID_FORMAT", f"{path.name} is no regular file: links and folders are left alone")
        if found.st_size > size_max_bytes:
            raise Refused("TOO_LARGE", f"{path.name} has {found.st_size} bytes; at most {size_max_bytes} are read")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failure(path, "read", error) from error


def settled_for_s(path: Path) -> float | None:
    """Return for how long a file has been left alone, in seconds; None when it is not there, or from the future."""
    try:
        changed_s = path.lstat().st_ctime
    except OSError:
        return None
    age_s = time.time() - changed_s
    return age_s if age_s >= 0 else None


def remove_file(path: Path) -> None:
    """Remove a file that may be there.

    Raises:
        Unavailable: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(path, "removed", error) from error


def write_file(path: Path, content: bytes, *, expected: bytes | None = None) -> bool:
    """Put ``content`` in a file's place and return True; leave it when somebody just saved another than ``expected``.

    Raises:
        Refused: ``INVALID_FORMAT`` for an impossible name. Unavailable: ``STORE_FULL`` or ``STORE_UNAVAILABLE``; then
            the file is what it was.
    """
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=TEMPORARY, delete=False) as made:
            temporary = path.parent / made.name
            made.write(content)
            made.flush()
            os.fchmod(made.fileno(), _mode_of(path))
            os.fsync(made.fileno())
        if expected is not None and read_file(path, size_max_bytes=max(len(expected), file_size_max_bytes)) != expected:
            return False
        temporary.replace(path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise _failure(path, "written", error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name durable: an old file that came back after a power failure would read as somebody's edit."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failure(path: Path, what: str, error: OSError) -> Refused | Unavailable:
    text = f"{path} cannot be {what}: {error.strerror}"
    if error.errno in _OF_THE_FILE:
        return Refused("INVALID_FORMAT", text, path=str(path))
    code = "STORE_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "STORE_UNAVAILABLE"
    return Unavailable(code, text, path=str(path))


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return _new_file_mode
