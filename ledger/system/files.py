"""Files: opened so that nothing but a regular file is waited for, and replaced whole, also after a crash.

A name in a folder that somebody else may have filled can be a pipe, a device, a socket or a link. Opening a pipe waits
for its other end, for ever; so whatever is not known to be ours is opened here. Asking who besides this user
could have made a folder, or put another in its place, is done here, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from deedbook.ledger.errors import Refused, Unavailable

TEMPORARY: Final = ".deedbook-"
_lock_poll_s: Final = 0.02
_random_chars: Final = 8  # Of a temporary file's name.
# What opening says of a name that is a socket (ENXIO), a device without a driver (ENODEV) or a link where none may be.
_OF_NO_FILE: Final = frozenset({errno.ENXIO, errno.ENODEV, errno.ELOOP, errno.EISDIR})


@contextmanager
def as_unavailable(path: Path, what: str = "cannot be written") -> Iterator[None]:
    """Raise what the system refuses within the block as an error of ours, which says it of ``path``.

    Raises Unavailable: ``STORE_UNAVAILABLE``.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{path} {what}: {error.strerror or error}", path=str(path)) from error


@contextmanager
def open_regular(path: Path, *, follow: bool = False, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Yield a descriptor of a regular file; whatever else has this name is refused at once, and never waited for.

    A link is refused too, unless ``follow``; then what it leads to is looked at. Raises Refused: ``INVALID_FORMAT``,
    saying what lies there. OSError: it is not there, or cannot be opened.
    """
    try:
        # O_NONBLOCK: else a pipe waits for a writer. O_NOCTTY: else a terminal could become this process's own.
        given = flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(path, given, 0o600)
    except OSError as error:
        if error.errno in _OF_NO_FILE:
            raise _no_file(path, path.stat().st_mode if follow else path.lstat().st_mode) from error
        raise
    try:
        # Asked of what was opened: between a look at the name and the opening it could be exchanged.
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            raise _no_file(path, mode)
        yield descriptor
    finally:
        os.close(descriptor)


def check_regular(path: Path) -> None:
    """Check, without opening it, that a name is a regular file's.

    Raises Refused: ``INVALID_FORMAT``, saying what lies there. FileNotFoundError: nothing does.
    """
    if not stat.S_ISREG(mode := path.lstat().st_mode):
        raise _no_file(path, mode)


def read_regular(path: Path, *, size_max_bytes: int, follow: bool = False, is_own: bool = False) -> bytes | None:
    """Return the bytes of a regular file; None when there is nothing of this name.

    ``is_own``: one that this user alone can have written and can read. Raises Refused: ``INVALID_FORMAT`` for a pipe,
    device, socket, folder, (unless ``follow``) link, or (``is_own``) what is another user's or open to others;
    ``TOO_LARGE``. Unavailable: ``STORE_UNAVAILABLE`` when it cannot be read.
    """
    cannot = as_unavailable(path, "cannot be read")
    with cannot, suppress(FileNotFoundError), open_regular(path, follow=follow) as descriptor:
        if is_own:
            _check_own(path, os.fstat(descriptor))  # of what was opened, whatever lies at the path by now
        return read_all(descriptor, path, size_max_bytes)
    return None


def _check_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {status.st_uid}): remove it"
        raise Refused("INVALID_FORMAT", message, path=str(path))
    if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        message = f"{path} has mode {mode:04o}, so others may have written it: look at it, then `chmod 600` it"
        raise Refused("INVALID_FORMAT", message, path=str(path))


def read_all(descriptor: int, path: Path, size_max_bytes: int) -> bytes:
    """Return what an open file holds from its present place on.

    Raises Refused: ``TOO_LARGE``; no more than the limit is ever held. OSError: it cannot be read.
    """
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(size_max_bytes + 1)
    if len(content) > size_max_bytes:
        message = f"{path} has more than {size_max_bytes} bytes"
        raise Refused("TOO_LARGE", message, path=str(path), limit=size_max_bytes)
    return content


def can_write(path: Path) -> bool:
    """Tell whether a file can be written, or made where there is none, with the folders that it needs.

    The kernel is asked, which knows of read-only media, other owners and immutable files, also for root.
    """
    present = next((place for place in (path, *path.parents) if place.exists()), path)
    return os.access(present, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o600, is_durable: bool = True, label: str = "", check: Callable[[], None] = lambda: None
) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of ``path`` when the block ends, and leaves no trace when the block raises.

    If we crash within, the old file stays, beside it at most a hidden one whose name begins with ``TEMPORARY``; one
    with a ``label`` (for what is large) is removed by the next that has it. What is not ``is_durable`` is not synced:
    after a power failure it may be the old one, or empty. ``check`` is called last, when all that takes long is done.
    Raises OSError: it cannot be written; then the old file stays, as when ``check`` raises.
    """
    with _temporary(path.parent, label) as file:
        temporary = path.parent / file.name
        try:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            if is_durable:
                os.fsync(file.fileno())  # Else a power failure could leave the new name with nothing in it.
            check()
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # what went wrong first is what counts
                temporary.unlink(missing_ok=True)
            raise
    if not is_durable:
        return
    # Else the old file could come back after a power failure, and would read as somebody's edit.
    sync_folder(path.parent)


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Put a file of this content in the place of ``path`` (``replacing``).

    Raises Unavailable: ``STORE_UNAVAILABLE``; then the old file stays.
    """
    with as_unavailable(path), replacing(path, mode=mode) as file:
        file.write(content)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: one process at a time, and a killed one's lock is free at once.

    Raises OSError: there is no such folder, or it cannot be locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path, taken: Unavailable, *, wait_max_s: float = 0.0) -> Iterator[None]:
    """Hold the lock that is a file, made where it is missing, or raise ``taken`` where others hold it so long.

    The lock is the kernel's, so it ends with its process, however that ends. Raises Unavailable: ``STORE_UNAVAILABLE``
    where files cannot be locked. Refused: ``INVALID_FORMAT``: something else has this name.
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
            with suppress(OSError):  # where files cannot be locked, who sweeps cannot do it either
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:  # else it was swept away before it was locked
            return file
        file.close()


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


def new_file(folder: Path, prefix: str) -> IO[bytes]:
    """Return a new file, its owner's alone, under a name that nobody can foresee. Raises OSError."""
    while True:
        path = folder / (prefix + os.urandom(_random_chars // 2).hex())
        with suppress(FileExistsError):
            return open(path, "x+b", opener=_private)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, its owner's alone; it goes at the end of the block, with the files in it. Raises OSError."""
    folder = parent / (prefix + os.urandom(_random_chars // 2).hex())
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
        folder.rmdir()


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what killed processes left half written: the lock of whoever is writing ended with them."""
    for path in folder.glob(f"{prefix}{'?' * _random_chars}"):
        with suppress(OSError, Refused), open_regular(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


@contextmanager
def create_exclusively(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file, its owner's alone, that is at ``path`` when the block ends, if nothing else is; else nothing is.

    If we crash within, there is at most a hidden file beside it, as with ``replacing``. Raises FileExistsError:
    something has this name. OSError: it cannot be written.
    """
    with new_file(path.parent, TEMPORARY) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # where a rename would replace what another process made meanwhile
        finally:
            Path(file.name).unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write to disk which names a folder holds. Raises OSError: it cannot be written."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_file(path: Path, mode: int) -> Refused:
    what = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }.get(stat.S_IFMT(mode), "something else")
    return Refused("INVALID_FORMAT", f"{path} is {what} and no regular file: remove it", path=str(path))


def find_ownership_risk(folder: Path) -> str | None:
    """Return in words why a folder (without links) may be another user's work; None when it can only be this one's.

    It is when another user owns it, when everybody may write in it, and when everybody may rename it or a folder above
    it. The sticky bit of a folder as /tmp keeps others from renaming what is ours.
    """
    for place in (folder, *folder.parents):
        try:
            status = place.stat()
        except OSError:
            continue  # it is not there, or not ours to ask about: whoever opens what lies below is told
        is_it = place is folder
        if is_it and status.st_uid != os.geteuid():
            return f"{place} belongs to another user (uid {status.st_uid})"
        if status.st_mode & stat.S_IWOTH and (is_it or not status.st_mode & stat.S_ISVTX):
            return f"every user may write in {place}"
    return None
