"""The trees that evidence is looked up in, and the one bounded way to read them.

A reference is written by somebody else, so looking it up must not be usable against the one who looks:

- a path stays inside the tree: absolute paths and ``..`` are refused, and every symlink is, wherever it leads: what it
  points at can change between two looks, and a commit and a working folder would disagree about it;
- each component is opened relative to the folder before it, without following links, and the file is examined by its
  descriptor, so exchanging a file for a link while we look gains nothing;
- files that usually hold credentials (``is_private``) are not looked at, because the answer "this text stands there"
  would publish them bit by bit;
- what is read is bounded in bytes, never in time: the same tree gives the same answer on any machine (``reads``).
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from errno import EACCES, ELOOP, ENOTDIR, EPERM
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from ledger.errors import Refused
from ledger.events.validation import TreeSort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

Parts: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = Literal[
    "file", "gone", "unreadable", "outside", "private", "symlink", "directory", "not_a_file", "too_large", "malformed"
]

files_listed_max: Final = 10_000
path_max_chars: Final = 1000

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_FIRST_PRINTABLE: Final = " "
_C1: Final = ("\x7f", "\x9f")
_PRIVATE: Final = (
    *(".git", ".baton", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".htpasswd"),
    *(".git-credentials", ".env", ".env.*", "id_rsa*", "id_ed25519*", "id_ecdsa*", "*.pem", "*.key", "*.p12", "*.pfx"),
)
_SHOWN_TO_ALL: Final = (".env.example", ".env.sample", ".env.template", "*.pub")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe that was put in the file's place would wait for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Found(NamedTuple):
    """What stands at a path; ``data`` only of a file."""

    outcome: Outcome
    data: bytes = b""


class Listing(NamedTuple):
    """The files below a folder, sorted; not ``complete`` when some could not be listed or are links."""

    files: list[Parts]
    complete: bool


class Tree(Protocol):
    """Something that holds files: a folder, or a commit."""

    sort: TreeSort
    commit: str

    def read(self, parts: Parts, size_max: int) -> Found:
        """Return what stands at a path; a file larger than ``size_max`` bytes is ``too_large``."""
        ...

    def files(self, parts: Parts) -> Listing:
        """Return the files below a folder of the tree."""
        ...

    def earlier(self, parts: Parts, size_max: int) -> Iterator[bytes]:
        """Yield earlier contents of a file, newest first, as far as the tree knows any."""
        ...

    def close(self) -> None:
        """Release what the tree holds open."""
        ...


def parts_of(path: str) -> tuple[Parts, Outcome]:
    """Return the components of a path with ``file``, or without any the reason why it is not looked up."""
    if not path or len(path) > path_max_chars or "\\" in path or "://" in path or any(map(_is_hidden, path)):
        return (), "malformed"
    try:
        path.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return (), "malformed"
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if path.startswith("/") or ".." in parts:
        return (), "outside"
    if any(is_private(part) for part in parts):
        return (), "private"
    return (parts, "file") if parts else ((), "directory")


def is_private(name: str) -> bool:
    """Tell whether a file or folder of this name usually holds credentials."""
    name = name.casefold()
    if any(fnmatchcase(name, pattern) for pattern in _SHOWN_TO_ALL):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _PRIVATE)


def _is_hidden(character: str) -> bool:
    return character < _FIRST_PRINTABLE or _C1[0] <= character <= _C1[1] or character in _BIDI


class FolderTree:
    """A working folder. ``history``, asked only when a file has changed, finds the tree that knows what it held."""

    sort: TreeSort = "folder"
    commit: str = ""

    def __init__(self, folder: Path, *, history: Callable[[], Tree | None] | None = None) -> None:
        """Open the folder (which may itself be a link: whoever names it has chosen it).

        Raises:
            Refused: ``NOT_FOUND``.
        """
        try:
            self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused("NOT_FOUND", f"the folder cannot be opened: {error.strerror}", path=str(folder)) from error
        self._history = history

    def __enter__(self) -> Self:
        """Return the tree itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the tree."""
        self.close()

    def close(self) -> None:
        """Close the folder."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def read(self, parts: Parts, size_max: int) -> Found:
        """Return what stands at a path."""
        with self._folder_of(parts[:-1]) as (folder, outcome):
            return Found(outcome) if folder is None else _read_file(folder, parts[-1], size_max)

    def files(self, parts: Parts) -> Listing:
        """Return the files below a folder, without links and private files."""
        found: list[Parts] = []
        complete = True
        with self._folder_of(parts) as (folder, outcome):
            if folder is None:
                return Listing([], complete=outcome == "gone")
            for root, folders, names, descriptor in os.fwalk(".", dir_fd=folder):
                below = (*parts, *(part for part in root.split("/") if part not in ("", ".")))
                folders[:] = sorted(name for name in folders if not is_private(name))
                for name in sorted(name for name in (*names, *folders) if not is_private(name)):
                    mode = _mode(name, descriptor)
                    if stat.S_ISREG(mode):
                        found.append((*below, name))
                    complete = complete and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
                if len(found) > files_listed_max:
                    return Listing(sorted(found)[:files_listed_max], complete=False)
        return Listing(sorted(found), complete)

    def earlier(self, parts: Parts, size_max: int) -> Iterator[bytes]:
        """Yield what the file held in the repository's history."""
        history = None if self._history is None else self._history()
        if history is not None:
            yield from history.earlier(parts, size_max)

    @contextmanager
    def _folder_of(self, parts: Parts) -> Iterator[tuple[int | None, Outcome]]:
        """Open a folder of the tree, one component after the other; None with the reason when there is none."""
        folder = os.dup(self._root)
        try:
            for part in parts:
                try:
                    inner = os.open(part, _FOLDER, dir_fd=folder)
                except OSError as error:
                    yield None, _outcome(error, part, folder)
                    return
                os.close(folder)
                folder = inner
            yield folder, "directory"
        finally:
            os.close(folder)


def _read_file(folder: int, name: str, size_max: int) -> Found:
    try:
        by_name = _outcome_of_mode(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if by_name != "file":
            return Found(by_name)
        with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                return Found(_outcome_of_mode(opened.st_mode))
            if opened.st_size > size_max:
                return Found("too_large")
            data = file.read(size_max + 1)
    except OSError as error:
        return Found(_outcome(error, name, folder))
    return Found("file", data) if len(data) <= size_max else Found("too_large")


def _outcome(error: OSError, name: str, folder: int) -> Outcome:
    if error.errno in (EACCES, EPERM):
        return "unreadable"
    if error.errno in (ELOOP, ENOTDIR) and stat.S_ISLNK(_mode(name, folder)):
        return "symlink"
    return "gone"


def _outcome_of_mode(mode: int) -> Outcome:
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "not_a_file"


def _mode(name: str, folder: int) -> int:
    with suppress(OSError):  # gone since it was listed: neither a file nor a folder
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return 0
