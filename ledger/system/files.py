"""Files: opened without waiting for a pipe or device, and replaced as a whole, even after a crash.

In a folder that another user may have filled, a name can be a pipe, a device, a socket or a link. Opening a pipe waits
for its other end, perhaps forever. So every file that another user may have made is opened here. This module also
checks whether another user could have made or replaced a folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import IO, BinaryIO, Final

from deedbook.ledger.errors import Refused, Unavailable, did_you_mean, near

TEMPORARY: Final = ".deedbook-"
_block_bytes: Final = 1024**2
_lock_poll_s: Final = 0.02
_random_chars: Final = 8  # in the name of a temporary file
# ``open`` fails in this way for a socket (ENXIO), a device without a driver (ENODEV), a refused link (ELOOP) and a
# folder.
_NOT_REGULAR_ERRORS: Final = frozenset({errno.ENXIO, errno.ENODEV, errno.ELOOP, errno.EISDIR})


@contextmanager
def as_unavailable(path: Path, problem: str = "cannot be written") -> Iterator[None]:
    """Convert an OSError of the block to our error: ``path``, ``problem``, and the system's reason.

    Raises Unavailable: ``STORE_UNAVAILABLE``.
    """
    try:
        yield
    except OSError as error:
        message = f"{path} {problem}: {error.strerror or error}"
        raise Unavailable("STORE_UNAVAILABLE", message, path=str(path)) from error


@contextmanager
def open_regular(path: Path, *, follow: bool = False, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Yield a descriptor of a regular file. Anything else under this name is refused at once, without waiting.

    A link is refused too; with ``follow``, its target is opened. Raises Refused: ``INVALID_FORMAT``, with the type of
    what has this name. OSError: the file is missing or cannot be opened.
    """
    try:
        # Without O_NONBLOCK a pipe waits for a writer. Without O_NOCTTY a terminal could become this process's own.
        all_flags = flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(path, all_flags, 0o600)
    except OSError as error:
        if error.errno in _NOT_REGULAR_ERRORS:
            raise _not_regular(path, path.stat().st_mode if follow else path.lstat().st_mode) from error
        raise
    try:
        # Check the opened file, not the name: the name could be replaced between a check and the opening.
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            raise _not_regular(path, mode)
        yield descriptor
    finally:
        os.close(descriptor)


def absent(path: Path, message: str = "") -> Refused:
    """Return the refusal of a file or folder that does not exist; it names those beside it that are spelled alike."""
    files: list[Path] = []
    with suppress(OSError):
        files = sorted(path.parent.iterdir())
    names = near_files(path, files)
    message = f"{message or f'there is no file {path}'}{did_you_mean(names)}"
    return Refused("NOT_FOUND", message, path=str(path), reference=str(path), near=names)


def near_files(path: PurePath, files: Sequence[PurePath]) -> list[str]:
    """Return up to three ``files`` like a missing one: similar names with its suffix, else its name with another."""
    alike = near(path.stem, (file.stem for file in files))  # a common suffix does not make names similar
    names = [str(file) for file in files if file.stem in alike and file.suffix == path.suffix]
    return (names or [str(file) for file in files if file.stem == path.stem])[:3]


def check_regular(path: Path) -> None:
    """Check, without opening it, that a name is that of a regular file.

    Raises Refused: ``INVALID_FORMAT``, with the type of what has this name. FileNotFoundError: nothing has this name.
    """
    if not stat.S_ISREG(mode := path.lstat().st_mode):
        raise _not_regular(path, mode)


def read_regular(path: Path, *, size_max_bytes: int, follow: bool = False, is_own: bool = False) -> bytes | None:
    """Return the bytes of a regular file; None if nothing has this name.

    With ``is_own``, only this user may own, read or write the file. Raises Refused: ``INVALID_FORMAT`` for a pipe, a
    device, a socket, a folder, a link (without ``follow``), or a file that fails ``is_own``; ``TOO_LARGE``.
    Unavailable: ``STORE_UNAVAILABLE`` if it cannot be read.
    """
    readable = as_unavailable(path, "cannot be read")
    with readable, suppress(FileNotFoundError), open_regular(path, follow=follow) as descriptor:
        if is_own:
            _check_own(path, os.fstat(descriptor))  # the opened file: another one may have this name by now
        return read_all(descriptor, path, size_max_bytes)
    return None


def _check_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {status.st_uid}): replace it by a file of your own"
        raise Refused("INVALID_FORMAT", message, path=str(path))
    if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        message = f"{path} has mode {mode:04o}, so others may have written it: check its content, then `chmod 600` it"
        raise Refused("INVALID_FORMAT", message, path=str(path))


def read_all(descriptor: int, path: Path, size_max_bytes: int) -> bytes:
    """Return the bytes of an open file from its current offset on.

    Raises Refused: ``TOO_LARGE``, after at most one byte more than the limit. OSError: it cannot be read.
    """
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(size_max_bytes + 1)
    if len(content) > size_max_bytes:
        message = f"{path} has more than {size_max_bytes} bytes, the limit for this file"
        raise Refused("TOO_LARGE", message, path=str(path), limit=size_max_bytes)
    return content


def read_chunks(file: BinaryIO, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the content of a seekable file from its beginning. Raises OSError."""
    file.seek(0)
    while chunk := file.read(chunk_bytes):
        yield chunk


def can_write(path: Path) -> bool:
    """Return whether a file can be written, or created with its missing parent folders.

    The kernel decides, because it knows about read-only media, other owners and immutable files, also for root.
    """
    present = next((ancestor for ancestor in (path, *path.parents) if ancestor.exists()), path)
    return os.access(present, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o600, is_durable: bool = True, label: str = "", check: Callable[[], None] = lambda: None
) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces ``path`` when the block ends. If the block raises, it is deleted.

    If we crash in the block, the old file stays, with at most a hidden file beside it, whose name begins with
    ``TEMPORARY``. Give large files a ``label``: the next call with the same label deletes such leftovers. Without
    ``is_durable`` nothing is synced: after a power failure the file may be the old one, or empty. ``check`` is called
    last, just before the replacement. Raises OSError: the file cannot be written. Then, and if ``check`` raises, the
    old file stays.
    """
    with _temporary(path.parent, label) as file:
        # a path in the caller's form: in some Python versions the name is absolute
        temporary = path.parent / Path(file.name).name
        try:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            if is_durable:
                os.fsync(file.fileno())  # else a power failure could leave an empty file under the name
            check()
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # the first error is the one to raise
                temporary.unlink(missing_ok=True)
            raise
    if not is_durable:
        return
    # otherwise the old file could come back after a power failure, and look like a person's edit
    sync_folder(path.parent)


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace ``path`` with a file of this content (see ``replacing``).

    Raises Unavailable: ``STORE_UNAVAILABLE``; then the old file stays.
    """
    with as_unavailable(path), replacing(path, mode=mode) as file:
        file.write(content)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder during the block; wait for it if another process holds it.

    The kernel frees the lock when the process ends. Raises OSError: the folder is missing, or cannot be locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path, taken: Unavailable, *, wait_max_s: float = 0.0) -> Iterator[None]:
    """Hold a lock file during the block, and create it if it is missing. Raise ``taken`` after ``wait_max_s`` seconds.

    The kernel frees the lock when the process ends. Raises Unavailable: ``taken``, or ``STORE_UNAVAILABLE`` if the file
    cannot be opened or locked. Refused: ``INVALID_FORMAT`` if ``path`` is not a regular file.
    """
    until = time.monotonic() + wait_max_s
    with ExitStack() as stack:
        with as_unavailable(path):
            lock = stack.enter_context(open_regular(path, flags=os.O_RDWR | os.O_CREAT))
        with as_unavailable(path, "cannot be locked"):
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= until:
                        raise taken from error
                time.sleep(_lock_poll_s)
        yield


def _temporary(folder: Path, label: str) -> IO[bytes]:
    prefix = TEMPORARY + label
    if label:
        _sweep(folder, prefix)
    while True:
        file = new_file(folder, prefix)
        if label:
            with suppress(OSError):  # without locks no process can sweep this file either
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:  # else another process swept the file before we locked it
            return file
        file.close()


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


def new_file(folder: Path, prefix: str) -> IO[bytes]:
    """Return a new file with an unpredictable name, which only its owner may read or write. Raises OSError."""
    while True:
        path = folder / (prefix + os.urandom(_random_chars // 2).hex())
        with suppress(FileExistsError):
            return open(path, "x+b", opener=_open_private)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder that only its owner may use; delete it and its files after the block. Raises OSError."""
    folder = parent / (prefix + os.urandom(_random_chars // 2).hex())
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
        folder.rmdir()


def _sweep(folder: Path, prefix: str) -> None:
    """Delete the unfinished files of killed processes. A file that is still being written is locked, and stays."""
    for path in folder.glob(f"{prefix}{'?' * _random_chars}"):
        with suppress(OSError, Refused), open_regular(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


@contextmanager
def create_exclusively(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that only its owner may read or write. It gets the name ``path`` when the block ends.

    An existing file is never replaced. If we crash in the block, at most a hidden file is left, as with ``replacing``.
    Raises FileExistsError: the name is taken. OSError: the file cannot be written.
    """
    with new_file(path.parent, TEMPORARY) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # a rename would replace a file that another process created meanwhile
        finally:
            Path(file.name).unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_regular(path: Path, mode: int) -> Refused:
    file_type = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }.get(stat.S_IFMT(mode), "something else")
    return Refused(
        "INVALID_FORMAT",
        f"{path} is {file_type}, not a regular file: name a regular file, or put one there",
        path=str(path),
    )


def find_ownership_risk(folder: Path) -> str | None:
    """Return why a folder (a path without links) may be another user's work; None if only this user can have made it.

    The reasons are: another user owns it, everybody may write in it, or everybody may rename it or a folder above it.
    The sticky bit of a folder like /tmp keeps others from renaming our folders.
    """
    for ancestor in (folder, *folder.parents):
        try:
            status = ancestor.stat()
        except OSError:
            continue  # it is missing or hidden from us: opening the files below it fails with the reason
        is_folder_itself = ancestor is folder
        if is_folder_itself and status.st_uid != os.geteuid():
            return f"{ancestor} belongs to another user (uid {status.st_uid})"
        if status.st_mode & stat.S_IWOTH and (is_folder_itself or not status.st_mode & stat.S_ISVTX):
            return f"every user may write in {ancestor}"
    return None


def files_that_hold(paths: Iterable[Path], texts: Collection[str]) -> list[Path]:
    """Return the files among some paths whose raw bytes hold one of these texts, in UTF-8. Links are left out."""
    needles = {text.encode() for text in texts}
    overlap = max(map(len, needles), default=1) - 1
    return [path for path in sorted(paths) if not path.is_symlink() and _holds(path, needles, overlap)]


def _holds(path: Path, needles: Collection[bytes], overlap: int) -> bool:
    if not path.is_file():  # opening a pipe would wait
        return False
    tail = b""
    with suppress(OSError), path.open("rb") as file:
        while block := file.read(_block_bytes):
            tail += block
            if any(needle in tail for needle in needles):
                return True
            tail = tail[-overlap:] if overlap else b""
    return False
