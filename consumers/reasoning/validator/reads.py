"""All looks into a tree during one validation: bounded together, each file read once, and all of them remembered.

A working folder has no name that means anything on another machine. So a report names it by the digest of its looks:
which paths were looked up, what stood there, and the hash of what was read. Equal looks give equal reports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from consumers.reasoning.validator.trees import Listing, Outcome, Parts, Tree
from ledger.events.reasoning import CheckedTree

file_size_max_bytes: Final = 8 * 1024**2
read_total_max_bytes: Final = 64 * 1024**2


class FileText:
    """A file that was read: its digest, its text (None if it is not UTF-8), and its lines."""

    def __init__(self, outcome: Outcome, data: bytes = b"", note: str = "") -> None:
        self.outcome = outcome
        self.note = note
        self.digest = hashlib.sha256(data).hexdigest() if outcome == "file" else ""
        self.text = text_of(data) if outcome == "file" else None

    @cached_property
    def lines(self) -> list[str]:
        """The lines as editors and git count them: only a line feed ends one."""
        return lines_of(self.text or "")


def text_of(data: bytes) -> str | None:
    """Return the text of UTF-8 bytes without a byte order mark, or None: what holds NUL is no text either."""
    if b"\x00" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, without their ends."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


class Reads:
    """All looks into one tree during one validation: each file once, and no more bytes in all than the limit."""

    def __init__(self, tree: Tree | None) -> None:
        """Look into ``tree``; without one, nothing is looked up and ``is_possible`` is False."""
        self.tree = tree
        self.is_possible = tree is not None
        self._files: dict[Parts, FileText] = {}
        self._listings: dict[Parts, Listing] = {}
        self._versions: list[tuple[Parts, str]] = []
        self._left = read_total_max_bytes

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

    def earlier(self, parts: Parts) -> Iterator[bytes]:
        """Yield earlier contents of a file, newest first, within the limit on all files together."""
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        for data in self.tree.earlier(parts, file_size_max_bytes):
            if len(data) > self._left:
                return
            self._left -= len(data)
            self._versions.append((parts, hashlib.sha256(data).hexdigest()))
            yield data

    def identity(self) -> CheckedTree:
        """Return what names the tree as far as it was looked at."""
        if self.tree is None:
            return CheckedTree(sort="none")
        looks: list[list[str]] = [
            ["file", "/".join(parts), file.outcome, file.digest, file.note] for parts, file in self._files.items()
        ]
        looks += [["earlier", "/".join(parts), digest] for parts, digest in self._versions]
        for parts, listing in self._listings.items():
            looks.append(["list", "/".join(parts), str(listing.complete), *map("/".join, listing.files)])
        digest = hashlib.sha256(json.dumps(sorted(looks), ensure_ascii=True).encode()).hexdigest()
        return CheckedTree(sort=self.tree.kind, commit=self.tree.commit, digest=f"sha256:{digest}")

    def _read(self, parts: Parts) -> FileText:
        assert self.tree is not None  # noqa: S101 - callers ask is_possible first
        found = self.tree.read(parts, min(file_size_max_bytes, self._left))
        if found.outcome == "too_large":
            is_alone = self._left >= file_size_max_bytes
            limit = file_size_max_bytes if is_alone else read_total_max_bytes
            return FileText("too_large", note=f"{'a file' if is_alone else 'all files'} may have {limit} bytes")
        self._left -= len(found.data)
        return FileText(found.outcome, found.data)
