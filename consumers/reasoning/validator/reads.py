"""Records all reads of a tree during one validation: with one common limit, each file read once.

The path of a working folder means nothing on another machine. So a report names the folder by the digest of its reads:
the paths, the results, and the hashes of the files. Equal reads give equal reports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Final

from deedbook.consumers.reasoning.validator.trees import CommitTree, Listing, Outcome, Parts, Tree
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.reasoning import CheckedTree, EvidenceStatus

file_size_max_bytes: Final = 8 * 1024**2
read_total_max_bytes: Final = 64 * 1024**2
cited_digest_digits: Final = 16
revisions_max: Final = 100
searches_max: Final = 500
"""Searches of a file for text that moved from its line: up to 60 ms each."""


class FileText:
    """A file that was read: its digest, its text (None if it is not UTF-8), and its lines."""

    def __init__(self, outcome: Outcome, data: bytes = b"", note: str = "") -> None:
        self.outcome = outcome
        self.note = note
        self.digest = hashlib.sha256(data).hexdigest() if outcome == "file" else ""
        self.text = text_of(data) if outcome == "file" else None

    def cited(self, first: int, last: int) -> str | None:
        """Return the text from one line to another; None if the file does not have both."""
        return "\n".join(self.lines[first - 1 : last]) if last <= len(self.lines) else None

    @cached_property
    def lines(self) -> list[str]:
        """The lines as editors and git count them: only a line feed ends a line."""
        lines = [line.removesuffix("\r") for line in (self.text or "").split("\n")]
        return lines if lines[-1] else lines[:-1]


def text_of(data: bytes) -> str | None:
    """Return the text of UTF-8 bytes without a byte order mark; None for other bytes, or with NUL."""
    if b"\x00" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def digest_of(text: str) -> str:
    """Return the digest of cited text, as events store it."""
    return hashlib.sha256(text.encode()).hexdigest()[:cited_digest_digits]


class Reads:
    """All reads of one tree during one validation. Each file is read once, within one limit for all bytes."""

    def __init__(
        self, tree: Tree | None, knows: Callable[[str], bool] | None = None, *, within: Reads | None = None
    ) -> None:
        """Read ``tree``; without a tree, nothing is looked up and ``is_possible`` is False.

        ``knows`` returns whether a ref names something in the ledger; reads count towards the limit of ``within``.
        """
        self.tree = tree
        self._knows = knows
        self._revisions: dict[str, Reads | None] = {}
        self.is_possible = tree is not None
        self._files: dict[Parts, FileText] = {}
        self._listings: dict[Parts, Listing] = {}
        self.bytes_left = read_total_max_bytes
        self.searches_left = searches_max
        self.search_chars_left = searches_max * file_size_max_bytes
        self.whole = within or self

    def can_search(self, chars: int) -> bool:
        """Return whether one more search over this number of characters is within the limits, and count it."""
        whole = self.whole
        if not whole.searches_left or chars > whole.search_chars_left:
            return False
        whole.searches_left, whole.search_chars_left = whole.searches_left - 1, whole.search_chars_left - chars
        return True

    def at(self, revision: str) -> Reads | None:
        """Return the reads of another commit of the same repository ("": this tree); None if it does not exist."""
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        if revision and revision not in self._revisions:
            reads = None
            with suppress(Refused, Unavailable):  # no such commit, or no git
                if len(self._revisions) < revisions_max:
                    reads = Reads(CommitTree(self.tree.folder, revision), within=self.whole)
            self._revisions[revision] = reads
        return self._revisions[revision] if revision else self

    def look_up(self, ref: str) -> tuple[EvidenceStatus, str]:
        """Return whether a ref names something in the ledger, which never forgets anything."""
        if self._knows is None:
            return "not_checked", "There was no ledger to look it up in"
        return ("ok", "") if self._knows(ref) else ("gone", "This ledger does not have it")

    def file(self, parts: Parts) -> FileText:
        """Return the file at a path; ``too_large`` if it exceeds its own limit or the limit on all files together."""
        if parts not in self._files:
            self._files[parts] = self._read(parts)
        return self._files[parts]

    def listing(self, parts: Parts) -> Listing:
        """Return the files below a folder."""
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        if parts not in self._listings:
            self._listings[parts] = self.tree.files(parts)
        return self._listings[parts]

    def identity(self) -> CheckedTree:
        """Return the identity of the tree, made of the reads so far."""
        if self.tree is None:
            return CheckedTree(type="none")
        reads_made: list[list[str]] = [
            ["file", "/".join(parts), file.outcome, file.digest, file.note] for parts, file in self._files.items()
        ]
        for parts, listing in self._listings.items():
            reads_made.append(["list", "/".join(parts), str(listing.complete), *map("/".join, listing.files)])
        for revision, reads in self._revisions.items():
            reads_made.append(["revision", revision, str(reads and reads.identity())])
        digest = hashlib.sha256(json.dumps(sorted(reads_made), ensure_ascii=True).encode()).hexdigest()
        return CheckedTree(type=self.tree.kind, commit=self.tree.commit, digest=f"sha256:{digest}")

    def _read(self, parts: Parts) -> FileText:
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        content = self.tree.read(parts, min(file_size_max_bytes, self.whole.bytes_left))
        if content.outcome == "too_large":
            is_alone = self.whole.bytes_left >= file_size_max_bytes
            limit = file_size_max_bytes if is_alone else read_total_max_bytes
            return FileText(
                "too_large", note=f"{'a file' if is_alone else 'all files together'} may have {limit} bytes"
            )
        self.whole.bytes_left -= len(content.data)
        return FileText(content.outcome, content.data)
