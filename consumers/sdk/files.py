"""Reads and replaces files in a folder that people edit at the same time.

A file is replaced by renaming a complete new file over it. So a reader gets the old file or the new one, and a crash
leaves at most a hidden temporary file. Links are not followed, so nothing is written outside the folder.
"""

from __future__ import annotations

import errno
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Final

from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.system.files import absent, open_regular, read_all, replacing

file_size_max_bytes: Final = 1024**2
# Errors that are about this file or its name: waiting does not help, and other files of the folder still work.
_OF_THE_FILE: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENOTDIR})
_new_file_mode: Final = 0o644
# Matches a path with a suffix, but no page (https://…), no line of a file (x.py:5) and no number (1.5).
_PATH: Final = re.compile(r"[\w./-]*\w\.[A-Za-z]\w{0,7}")


def read_file(path: Path, *, size_max_bytes: int = file_size_max_bytes) -> bytes | None:
    """Return a file's bytes; None if there is no such file.

    Raises Refused: ``TOO_LARGE``, or ``INVALID_FORMAT`` if it is no regular file or the name is impossible.
    Unavailable: it cannot be read.
    """
    try:
        with open_regular(path) as descriptor:
            return read_all(descriptor, path, size_max_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failure(path, "read", error) from error


def unknown_files(texts: Iterable[str]) -> list[str]:
    """Return a warning for each text that is the path of a file which does not exist here, with similar names."""
    paths = [Path(text) for text in texts if _PATH.fullmatch(text)]
    return [absent(path).message for path in paths if not path.exists()]


def settled_for_s(path: Path) -> float | None:
    """Return the seconds since a file last changed; None if it does not exist, or changed in the future."""
    try:
        changed_s = path.lstat().st_ctime
    except OSError:
        return None
    age_s = time.time() - changed_s
    return age_s if age_s >= 0 else None


def remove_file(path: Path) -> None:
    """Remove a file if it exists. Raises Unavailable: it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(path, "removed", error) from error


def write_file(path: Path, content: bytes, *, expected: bytes | None = None) -> bool:
    """Replace a file by ``content`` and return True; return False if its bytes are not the ``expected`` ones.

    Raises Refused: ``INVALID_FORMAT`` for an impossible name. Unavailable: ``STORE_FULL`` or ``STORE_UNAVAILABLE``;
    then the file is unchanged.
    """

    def check() -> None:  # the rename follows at once, so another save in between is unlikely
        if expected not in (None, read_file(path, size_max_bytes=max(len(expected or b""), file_size_max_bytes))):
            raise FileExistsError

    try:
        with replacing(path, mode=_mode_of(path), check=check) as file:
            file.write(content)
    except FileExistsError:
        return False
    except FileNotFoundError as error:
        make = f"mkdir -p {quote(str(path.parent))}"
        message = f"{path} cannot be written: there is no folder {path.parent}; make it first: {make}"
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(path)) from error
    except OSError as error:
        raise _failure(path, "written", error) from error
    return True


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
