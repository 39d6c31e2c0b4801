"""The trees in which evidence is looked up, a folder or a git commit, and the one bounded way to read them.

A stranger may have written a reference, so looking it up must not harm the reader:

- A path stays inside the tree: absolute paths, ``..`` and all symlinks are refused. The target of a link can change
  between two reads, and a commit and a working folder would disagree about it.
- Each component is opened relative to the folder before it, without following links, and the file is examined by its
  descriptor, so replacing a file by a link during the read gains nothing.
- Files that usually hold credentials (``is_private``) are not read, because the answer "the line has this text" would
  publish them bit by bit.
- Reads are limited in bytes, never in time: the same tree gives the same answer on any machine (``reads``).

A commit's repository may be a stranger's, and its configuration may name programs. So only git commands that read plain
objects are used (``rev-parse``, ``ls-tree``, ``rev-list``, ``cat-file``): they run no hook, filter, pager or transport.
Links and submodules of a commit are named and never followed. In a subfolder of a repository, paths begin at that
subfolder, as in the working folder.
"""

from __future__ import annotations

import os
import re
import stat
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from errno import EACCES, ELOOP, ENOTDIR, EPERM
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from deedbook.consumers.sdk.git import Git, Objects
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.reasoning import TreeType
from deedbook.ledger.system.resource import Resource

Parts: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = Literal[
    "file", "gone", "unreadable", "outside", "private", "symlink", "directory", "not_a_file", "too_large", "malformed"
]

files_listed_max: Final = 10_000
path_max_chars: Final = 1000
git_time_max_s: Final = 30.0
listing_size_max_bytes: Final = 32 * 1024**2
commits_searched_max: Final = 20
history_time_max_s: Final = 2.0

# Control characters, and those that change the direction of text.
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PRIVATE: Final = (
    *(".git", ".deedbook", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".htpasswd"),
    *(".git-credentials", ".env", ".env.*", "id_rsa*", "id_ed25519*", "id_ecdsa*", "*.pem", "*.key", "*.p12", "*.pfx"),
    *(".pgpass", "id_dsa*", "*.jks", "*.kdbx", "*.tfstate"),
)
_SHOWN_TO_ALL: Final = (".env.example", ".env.sample", ".env.template", "*.pub")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe that was put in the file's place would wait for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Braces are refused: they would select the clone's own reflog and history, which mean nothing to others.
REVISION: Final = re.compile(r"(?!-)[^\s:{\x00-\x1f\x7f]{1,200}")
_LINK: Final = b"120000"


class PathContent(NamedTuple):
    """The result of reading a path; only a file has ``data``."""

    outcome: Outcome
    data: bytes = b""


class Listing(NamedTuple):
    """The files below a folder, sorted; not ``complete`` if some could not be listed or are links."""

    files: list[Parts]
    complete: bool


class Tree(Resource):
    """A folder or commit with files; close it by a ``with`` block or by ``close``."""

    kind: TreeType
    commit: str
    folder: Path

    @abstractmethod
    def read(self, parts: Parts, size_max: int) -> PathContent:
        """Read a path; a file larger than ``size_max`` bytes is ``too_large``."""

    @abstractmethod
    def files(self, parts: Parts) -> Listing:
        """Return the files below a folder of the tree, without links and private files."""

    def close(self) -> None:
        """Close the tree's open folder, if it has one."""


def parts_of(path: str) -> tuple[Parts, Outcome]:
    """Return the components of a path and ``file``, or no components and the reason why the path is not read."""
    if not path or len(path) > path_max_chars or "\\" in path or "://" in path or _HIDDEN.search(path):
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
    """Return whether a file or folder of this name usually holds credentials."""
    name = name.casefold()
    if any(fnmatchcase(name, pattern) for pattern in _SHOWN_TO_ALL):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _PRIVATE)


class FolderTree(Tree):
    """A working folder."""

    kind: TreeType = "folder"
    commit: str = ""

    def __init__(self, folder: Path) -> None:
        """Open the folder; it may be a link, because the caller chose it. Raises Refused: ``NOT_FOUND``."""
        try:
            self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused("NOT_FOUND", f"the folder cannot be opened: {error.strerror}", path=str(folder)) from error
        self.folder = folder

    def close(self) -> None:
        """Close the folder."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def read(self, parts: Parts, size_max: int) -> PathContent:
        """Read a path."""
        with self._folder_of(parts[:-1]) as (folder, outcome):
            return PathContent(outcome) if folder is None else _read_file(folder, parts[-1], size_max)

    def files(self, parts: Parts) -> Listing:
        """Return the files below a folder, without links and private files."""
        files: list[Parts] = []
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
                        files.append((*below, name))
                    complete = complete and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
                if len(files) > files_listed_max:
                    return Listing(sorted(files)[:files_listed_max], complete=False)
        return Listing(sorted(files), complete)

    @contextmanager
    def _folder_of(self, parts: Parts) -> Iterator[tuple[int | None, Outcome]]:
        """Open a folder of the tree, one component after the other; None and the reason if that fails."""
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


class _Entry(NamedTuple):
    mode: bytes
    object_id: str
    size: int


class CommitTree(Tree):
    """The files of one commit."""

    kind: TreeType = "commit"

    def __init__(self, repository: Path, revision: str = "HEAD") -> None:
        """Find the commit that ``revision`` names now.

        Raises Refused: ``NOT_FOUND`` for no such commit, ``INVALID_FIELD`` if the revision is malformed. Unavailable:
        ``STORE_UNAVAILABLE`` if there is no git program.
        """
        self._git, self.folder = Git(repository, is_own=False), repository
        if REVISION.fullmatch(revision) is None:
            raise Refused("INVALID_FIELD", f"{revision[:80]!r} is not a valid name of a commit", path="$.commit")
        answer = self._ask(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"), 200)
        if answer is None or _ID.fullmatch(answer.strip()) is None:
            raise Refused("NOT_FOUND", f"this repository has no commit {revision}", commit=revision)
        self.commit: str = answer.strip().decode("ascii")
        self._entries: dict[Parts, _Entry] | None = None
        self._folders: set[Parts] = set()

    def read(self, parts: Parts, size_max: int) -> PathContent:
        """Read a path of the commit."""
        entries = self._listed()
        if parts in self._folders:
            return PathContent("directory")
        entry = entries.get(parts)
        if entry is None:
            ancestors = (entries.get(parts[:depth]) for depth in range(1, len(parts)))
            is_behind_link = any(above is not None and above.mode == _LINK for above in ancestors)
            return PathContent("symlink" if is_behind_link else "gone")
        if not entry.mode.startswith(b"100"):
            return PathContent("symlink" if entry.mode == _LINK else "not_a_file")
        if entry.size > size_max:
            return PathContent("too_large")
        data = self._ask(("cat-file", "blob", entry.object_id), size_max)
        return PathContent("unreadable") if data is None else PathContent("file", data)

    def files(self, parts: Parts) -> Listing:
        """Return the commit's files below a folder, without links and private files."""
        below = [
            (path, entry.mode.startswith(b"100"))
            for path, entry in self._listed().items()
            if path[: len(parts)] == parts != path and not any(map(is_private, path))
        ]
        files = sorted(path for path, is_file in below if is_file)
        return Listing(files[:files_listed_max], len(files) == len(below) <= files_listed_max)

    def _listed(self) -> dict[Parts, _Entry]:
        if self._entries is None:
            answer = self._ask(("ls-tree", "-r", "-z", "--long", self.commit), listing_size_max_bytes)
            if answer is None:
                message = f"commit {self.commit} cannot be listed within {listing_size_max_bytes} bytes"
                raise Refused("TOO_LARGE", message)
            self._entries = dict(_entry(line) for line in answer.split(b"\0") if line)
            self._folders = {path[:depth] for path in self._entries for depth in range(1, len(path))}
        return self._entries

    def _ask(self, arguments: tuple[str, ...], size_max: int) -> bytes | None:
        """Return the output of git; None if it fails, prints more than ``size_max`` bytes, or does not end."""
        try:
            answer = self._git.call(*arguments, time_max_s=git_time_max_s, size_max=size_max)
        except (Refused, Unavailable):
            return None
        return None if answer.code else answer.out


def committed_contents(repository: Path, parts: Parts, size_max: int) -> Iterator[bytes]:
    """Yield the contents of a file in the last commits that changed it, newest first; none if git finds none in time.

    A content of more than ``size_max`` bytes is left out.
    """
    path = "/".join(parts)
    newest = ("rev-list", f"--max-count={commits_searched_max}", "HEAD", "--", path)
    with suppress(Refused, Unavailable):
        git = Git(repository, is_own=False)
        answer = git.call(*newest, time_max_s=history_time_max_s)
        with Objects(git) as objects:
            for commit in [] if answer.code else answer.out.decode("ascii").split():
                found = objects.get(f"{commit}:./{path}", size_max)
                if found is not None and found.type == "blob" and found.content is not None:
                    yield found.content


def open_tree(folder: Path, commit: str | None = None) -> FolderTree | CommitTree:
    """Return the tree of a commit in the repository at ``folder``, or of the folder as it is now."""
    return FolderTree(folder) if commit is None else CommitTree(folder, commit)


def tree_of(folder: Path | None, commit: str | None = None) -> AbstractContextManager[Tree | None]:
    """Return the tree of ``folder``, to be used in a ``with`` statement; None if there is no folder to look into."""
    return nullcontext() if folder is None else open_tree(folder, commit)


def work_tree(folder: Path) -> Path | None:
    """Return the root of the git work tree that contains ``folder``; None if there is none.

    The repository may name any folder as its work tree (``core.worktree``): only one that contains ``folder`` counts.
    """
    try:
        answer = Git(folder, is_own=False).call("rev-parse", "--show-toplevel", time_max_s=git_time_max_s)
    except (Refused, Unavailable):
        return None
    root, folder = Path(os.fsdecode(answer.out.removesuffix(b"\n"))), folder.resolve()
    around = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    return root if not answer.code and root == around else None


def _read_file(folder: int, name: str, size_max: int) -> PathContent:
    try:
        by_name = _outcome_of_mode(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if by_name != "file":
            return PathContent(by_name)
        with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                return PathContent(_outcome_of_mode(opened.st_mode))
            if opened.st_size > size_max:
                return PathContent("too_large")
            data = file.read(size_max + 1)
    except OSError as error:
        return PathContent(_outcome(error, name, folder))
    return PathContent("file", data) if len(data) <= size_max else PathContent("too_large")


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
    with suppress(OSError):  # deleted since it was listed: neither a file nor a folder
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return 0


def _entry(line: bytes) -> tuple[Parts, _Entry]:
    """Return one line of ``git ls-tree --long``: mode, type, id and size, a tab, the path."""
    head, _, path = line.partition(b"\t")
    mode, _, object_id, size = head.split()
    parts = tuple(path.decode("utf-8", "surrogateescape").split("/"))
    return parts, _Entry(mode, object_id.decode("ascii"), int(size) if size.isdigit() else 0)
