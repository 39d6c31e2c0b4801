"""A git commit as a tree: looked up with git's plumbing alone, which runs no hook, filter, pager or transport.

The repository belongs to somebody else, and its configuration may name programs. So only commands are used that read
objects as they are (``rev-parse``, ``ls-tree``, ``rev-list``, ``cat-file``), in the profile of a stranger's repository.

The commit's files are listed once; a path is then looked up in that list, so what a report says of a commit can be
repeated by anybody who has it. A link or submodule in the commit is named as such and never followed. In a subfolder
of a repository, paths begin at that subfolder, as they do in the working folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from consumers.reasoning.validator.trees import FolderTree, Found, Listing, Parts, files_listed_max, is_private
from consumers.sdk.git import Git
from ledger.errors import Refused, Unavailable
from ledger.events.validation import TreeSort

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

git_time_max_s: Final = 30.0
listing_size_max_bytes: Final = 32 * 1024**2
versions_max: Final = 50

_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REVISION: Final = re.compile(r"[^-\s:\x00-\x1f\x7f][^\s:\x00-\x1f\x7f]{0,199}")
_LINK: Final = b"120000"


class _Entry(NamedTuple):
    mode: bytes
    object_id: str
    size: int


class CommitTree:
    """The files of one commit."""

    sort: TreeSort = "commit"

    def __init__(self, repository: Path, revision: str = "HEAD") -> None:
        """Find the commit that ``revision`` names now.

        Raises:
            Refused: ``NOT_FOUND`` for no such commit, ``INVALID_FIELD`` for what cannot name one.
            Unavailable: ``STORE_UNAVAILABLE`` when there is no git program.
        """
        self._git = Git(repository, is_own=False)
        if _REVISION.fullmatch(revision) is None:
            raise Refused("INVALID_FIELD", f"{revision[:80]!r} cannot name a commit", path="$.commit")
        answer = self._ask(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"), 200)
        if answer is None or _ID.fullmatch(answer.strip()) is None:
            raise Refused("NOT_FOUND", f"there is no commit {revision} in this repository", commit=revision)
        self.commit: str = answer.strip().decode("ascii")
        self._entries: dict[Parts, _Entry] | None = None
        self._folders: set[Parts] = set()

    def __enter__(self) -> Self:
        """Return the tree itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the tree."""
        self.close()

    def close(self) -> None:
        """Do nothing: a commit holds nothing open."""

    def read(self, parts: Parts, size_max: int) -> Found:
        """Return what the commit has at a path."""
        entries = self._listed()
        if parts in self._folders:
            return Found("directory")
        entry = entries.get(parts)
        if entry is None:
            ancestors = (entries.get(parts[:depth]) for depth in range(1, len(parts)))
            is_behind_link = any(above is not None and above.mode == _LINK for above in ancestors)
            return Found("symlink" if is_behind_link else "gone")
        if not entry.mode.startswith(b"100"):
            return Found("symlink" if entry.mode == _LINK else "not_a_file")
        if entry.size > size_max:
            return Found("too_large")
        data = self._ask(("cat-file", "blob", entry.object_id), size_max)
        return Found("unreadable") if data is None else Found("file", data)

    def files(self, parts: Parts) -> Listing:
        """Return the commit's files below a folder, without links and private files."""
        found: list[Parts] = []
        complete = True
        for path, entry in self._listed().items():
            if path[: len(parts)] != parts or path == parts or any(map(is_private, path)):
                continue
            if entry.mode.startswith(b"100"):
                found.append(path)
            else:
                complete = False
        return Listing(sorted(found)[:files_listed_max], complete and len(found) <= files_listed_max)

    def earlier(self, parts: Parts, size_max: int) -> Iterator[bytes]:
        """Yield what the file held in this commit and those before it, each content once, newest first."""
        path = "/".join(parts)
        listed = self._ask(
            ("rev-list", f"--max-count={versions_max}", self.commit, "--", path), versions_max * len(self.commit) * 2
        )
        seen: set[bytes] = set()
        for commit in (listed or b"").split():
            found = self._ask(("rev-parse", "--verify", "--quiet", f"{commit.decode('ascii')}:./{path}"), 200)
            blob = (found or b"").strip()
            if blob in seen or _ID.fullmatch(blob) is None:
                continue
            seen.add(blob)
            data = self._ask(("cat-file", "blob", blob.decode("ascii")), size_max)
            if data is not None:
                yield data

    def _listed(self) -> dict[Parts, _Entry]:
        if self._entries is None:
            answer = self._ask(("ls-tree", "-r", "-z", "--long", self.commit), listing_size_max_bytes)
            if answer is None:
                raise Refused(
                    "TOO_LARGE", f"commit {self.commit} cannot be listed within {listing_size_max_bytes} bytes"
                )
            self._entries = dict(_entry(line) for line in answer.split(b"\0") if line)
            self._folders = {path[:depth] for path in self._entries for depth in range(1, len(path))}
        return self._entries

    def _ask(self, arguments: tuple[str, ...], size_max: int) -> bytes | None:
        """Return what git prints; None when it fails, prints more than ``size_max`` bytes, or does not end."""
        try:
            answer = self._git.call(*arguments, time_max_s=git_time_max_s, size_max=size_max)
        except (Refused, Unavailable):
            return None
        return None if answer.code else answer.out


def open_tree(folder: Path, commit: str | None = None) -> FolderTree | CommitTree:
    """Return the tree of a commit in the repository at ``folder``, or of the folder as it is now.

    Raises:
        Refused: ``NOT_FOUND``, ``INVALID_FIELD``.
        Unavailable: ``STORE_UNAVAILABLE`` when a commit is asked for and there is no git program.
    """
    if commit is not None:
        return CommitTree(folder, commit)
    return FolderTree(folder, history=lambda: _history_of(folder))


def _history_of(folder: Path) -> CommitTree | None:
    """Return HEAD of the repository that holds ``folder``; None where there is none: history only adds detail."""
    try:
        return CommitTree(folder)
    except (Refused, Unavailable):
        return None


def _entry(line: bytes) -> tuple[Parts, _Entry]:
    """Return one line of ``git ls-tree --long``: mode, type, id and size, a tab, the path."""
    head, _, path = line.partition(b"\t")
    mode, _, object_id, size = head.split()
    parts = tuple(path.decode("utf-8", "surrogateescape").split("/"))
    return parts, _Entry(mode, object_id.decode("ascii"), int(size) if size.isdigit() else 0)
