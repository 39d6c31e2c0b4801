"""Reads the files of a folder on the base of a pull request from git, without running any program of the repository.

Two commits count. The *base* is the branch that the pull request goes to: its signed files and its file ``ROOT`` are
trusted. The *fork* is the commit where the branches separated: a file that is equal there and here was not changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deedbook.consumers.sdk.git import Git, Objects, failure
from deedbook.ledger.bundle.signed_file import signed_file_size_max_bytes
from deedbook.ledger.errors import Refused
from deedbook.ledger.system.resource import Resource

_REGULAR: Final = frozenset({"100644", "100755"})


class BaseFiles(Resource):
    """The regular files of one folder on the base and at the fork."""

    def __init__(self, folder: Path, base: str) -> None:
        """List the files. Raises Refused: ``NOT_FOUND`` for an unknown base or outside a repository. Unavailable."""
        self.base = base
        self._git = Git(Path.cwd(), is_own=False)
        top = Path(self._git.ask("rev-parse", "--show-toplevel")).resolve()
        try:
            path = folder.resolve().relative_to(top).as_posix()
        except ValueError:
            raise Refused("INVALID_FIELD", f"{folder} is not in the repository {top}: name a folder of it") from None
        commit = self._commit(base)
        forked = self._git.call("merge-base", commit, "HEAD")
        # A shallow clone may lack the common commit. Then every difference from the base counts.
        fork = forked.out.decode().strip() if forked.code == 0 else commit
        self._tip, self._fork = self._list(commit, path), self._list(fork, path)
        self._objects = Objects(self._git)

    def names(self) -> set[str]:
        """Return the names of the files on the base."""
        return {*self._tip}

    def fork_names(self) -> set[str]:
        """Return the names of the files at the fork."""
        return {*self._fork}

    def read(self, name: str) -> bytes | None:
        """Return a file of the base; None if the base lacks it, or if it is too large."""
        return self._content(self._tip.get(name))

    def is_changed(self, name: str, content: bytes | None) -> bool:
        """Return whether a file here (``content``; None: it is not here) differs from the one at the fork."""
        return (name in self._fork) != (content is not None) or self._content(self._fork.get(name)) != content

    def close(self) -> None:
        """End git."""
        self._objects.close()

    def _commit(self, base: str) -> str:
        answer = self._git.call("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
        if answer.code:
            message = f"this clone has no commit {base}: fetch it first (GitHub: actions/checkout with fetch-depth: 0)"
            raise Refused("NOT_FOUND", message, base=base)
        return answer.out.decode().strip()

    def _list(self, commit: str, path: str) -> dict[str, str]:
        arguments = ("--", f"{path}/") if path != "." else ()
        answer = self._git.call("ls-tree", "-z", "--full-tree", commit, *arguments)
        if answer.code:
            raise failure(answer, "git ls-tree", self._git.folder)
        files: dict[str, str] = {}
        for row in answer.out.decode("utf-8", "surrogateescape").split("\0"):
            head, _, name = row.partition("\t")
            if head and head.split(" ")[0] in _REGULAR:
                files[name.rpartition("/")[2]] = head.split(" ")[2]
        return files

    def _content(self, id_: str | None) -> bytes | None:
        found = None if id_ is None else self._objects.get(id_, signed_file_size_max_bytes)
        return None if found is None else found.content
