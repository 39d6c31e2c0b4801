"""All looks into a tree during one validation: bounded together, each file read once, and all of them remembered.

A working folder has no name that means anything on another machine. So a report names it by the digest of its looks:
which paths were looked up, what stood there, and the hash of what was read. Equal looks give equal reports.
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
"""Of a file, for text that moved from its line: up to 60 ms each."""


class FileText:
    """A file that was read: its digest, its text (None if it is not UTF-8), and its lines."""

    def __init__(self, outcome: Outcome, data: bytes = b"", note: str = "") -> None:
        self.outcome = outcome
        self.note = note
        self.digest = hashlib.sha256(data).hexdigest() if outcome == "file" else ""
        self.text = text_of(data) if outcome == "file" else None

    def cited(self, first: int, last: int) -> str | None:
        """Return the text from one line to another; None where the file does not have both."""
        return "\n".join(self.lines[first - 1 : last]) if last <= len(self.lines) else None

    @cached_property
    def lines(self) -> list[str]:
        """The lines as editors and git count them: only a line feed ends one."""
        lines = [line.removesuffix("\r") for line in (self.text or "").split("\n")]
        return lines if lines[-1] else lines[:-1]


def text_of(data: bytes) -> str | None:
    """Return the text of UTF-8 bytes without a byte order mark, or None: what holds NUL is no text either."""
    if b"\x00" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def digest_of(text: str) -> str:
    """Return the digest of cited text, as events hold it."""
    return hashlib.sha256(text.encode()).hexdigest()[:cited_digest_digits]


class Reads:
    """All looks into one tree during one validation: each file once, and no more bytes in all than the limit."""

    def __init__(
        self, tree: Tree | None, knows: Callable[[str], bool] | None = None, *, within: Reads | None = None
    ) -> None:
        """Look into ``tree``; without one, nothing is looked up and ``is_possible`` is False.

        ``knows`` tells whether a ref names something of the ledger; what is looked at counts ``within`` others' limit.
        """
        self.tree = tree
        self._knows = knows
        self._revisions: dict[str, Reads | None] = {}
        self.is_possible = tree is not None
        self._files: dict[Parts, FileText] = {}
        self._listings: dict[Parts, Listing] = {}
        self.bytes_left = read_total_max_bytes
        self.searches_left = searches_max
        self.whole = within or self

    def at(self, revision: str) -> Reads | None:
        """Return the looks into another commit of the same repository ("": this tree); None where there is none."""
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        if revision and revision not in self._revisions:
            there = None
            with suppress(Refused, Unavailable):  # no such commit, or no git
                if len(self._revisions) < revisions_max:
                    there = Reads(CommitTree(self.tree.folder, revision), within=self.whole)
            self._revisions[revision] = there
        return self._revisions[revision] if revision else self

    def look_up(self, ref: str) -> tuple[EvidenceStatus, str]:
        """Return whether a ref names something of the ledger; nothing ever leaves one."""
        if self._knows is None:
            return "not_checked", "There was no ledger to look it up in"
        return ("ok", "") if self._knows(ref) else ("gone", "There is no such thing in this ledger")

    def file(self, parts: Parts) -> FileText:
        """Return what stands at a path; ``too_large`` also when the limit on all files together is reached."""
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
        """Return what names the tree as far as it was looked at."""
        if self.tree is None:
            return CheckedTree(sort="none")
        looks: list[list[str]] = [
            ["file", "/".join(parts), file.outcome, file.digest, file.note] for parts, file in self._files.items()
        ]
        for parts, listing in self._listings.items():
            looks.append(["list", "/".join(parts), str(listing.complete), *map("/".join, listing.files)])
        for revision, reads in self._revisions.items():
            looks.append(["revision", revision, str(reads and reads.identity())])
        digest = hashlib.sha256(json.dumps(sorted(looks), ensure_ascii=True).encode()).hexdigest()
        return CheckedTree(sort=self.tree.kind, commit=self.tree.commit, digest=f"sha256:{digest}")

    def _read(self, parts: Parts) -> FileText:
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        found = self.tree.read(parts, min(file_size_max_bytes, self.whole.bytes_left))
        if found.outcome == "too_large":
            is_alone = self.whole.bytes_left >= file_size_max_bytes
            limit = file_size_max_bytes if is_alone else read_total_max_bytes
            return FileText("too_large", note=f"{'a file' if is_alone else 'all files'} may have {limit} bytes")
        self.whole.bytes_left -= len(found.data)
        return FileText(found.outcome, found.data)
