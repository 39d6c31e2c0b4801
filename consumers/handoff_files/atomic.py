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
from typing import TYPE_CHECKING, Final

from consumers.handoff_files.lines import file_size_max_bytes
from ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

TEMPORARY: Final = ".baton-"
_new_file_mode: Final = 0o644


def read_file(path: Path) -> bytes | None:
    """Return a file's bytes; None when there is none.

    Raises:
        Refused: ``TOO_LARGE``, or ``INVALID_FORMAT`` for what is no regular file. Unavailable: it cannot be read.
    """
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Refused("INVALID_FORMAT", f"{path.name} is no regular file: links and folders are left alone")
        if found.st_size > file_size_max_bytes:
            raise Refused("TOO_LARGE", f"{path.name} has {found.st_size} bytes; at most {file_size_max_bytes} are read")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def write_file(path: Path, content: bytes, *, expected: bytes | None = None) -> bool:
    """Put ``content`` in a file's place and return True; leave it when somebody just saved another than ``expected``.

    Raises:
        Unavailable: ``STORE_FULL`` or ``STORE_UNAVAILABLE``; then the file is what it was.
    """
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=TEMPORARY, delete=False) as made:
            temporary = path.parent / made.name
            made.write(content)
            made.flush()
            os.fchmod(made.fileno(), _mode_of(path))
            os.fsync(made.fileno())
        if expected is not None and read_file(path) != expected:
            return False
        temporary.replace(path)
        temporary = None
    except OSError as error:
        code = "STORE_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "STORE_UNAVAILABLE"
        raise Unavailable(code, f"{path} cannot be written: {error.strerror}", path=str(path)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return True


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return _new_file_mode
