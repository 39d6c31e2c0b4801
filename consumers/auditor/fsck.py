"""``baton fsck``: everything that an auditor checks, and that what the log derived from its entries still fits them.

Local only. This process never opens the log: pages are read by ``pages`` in processes of their own, because a damaged
page can end whoever reads it. The ledger may be in use meanwhile: entries never change, and derived tables
are compared when the head before and after is the same; after some tries on a busy ledger it says so.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from consumers.auditor.anchor import Anchor
from consumers.auditor.derived import StreamMarks, check_blobs, check_ids, check_state, read_head, table_records
from consumers.auditor.page_reader import PageReader
from consumers.auditor.replay import Replay
from consumers.auditor.report import AuditReport, Findings
from consumers.auditor.tree_check import TreeCheck, find_changed_byte, mismatching_subtrees
from ledger.errors import Unavailable
from ledger.log.tiles import TILE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.log.tables import Head

attempts_max: Final = 5
# Where the head is lost, entries are read until the table ends.
_SIZE_UNKNOWN: Final = 2**40


def fsck(
    home: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return what is wrong with the ledger in ``home``, by index, or by range for an unreadable page (DESIGN §4).

    ``root`` and ``trusted_checkpoint`` as in ``verify_log``; ``progress`` is called with entries done and to do.

    Raises:
        Unavailable: ``NO_LEDGER``; ``STORE_IN_USE`` when the ledger is written too fast to be compared.
    """
    reader = PageReader(home)
    for _ in range(attempts_max):
        findings = Findings()
        head = read_head(reader)
        check = _Check(reader, findings, head, Anchor(findings, root, trusted_checkpoint))
        try:
            check.entries(progress or (lambda _done, _total: None))
            check.derived()
        finally:
            check.replay.stop()
        if read_head(reader) == head:
            return check.report()
    raise Unavailable("STORE_IN_USE", "the ledger is being written: stop `baton serve` and its agents, and try again")


class _Check:
    """One pass over one state of the log."""

    def __init__(self, reader: PageReader, findings: Findings, head: Head | None, anchor: Anchor) -> None:
        self._reader = reader
        self._findings = findings
        self._head = head
        self._anchor = anchor
        self._marks = StreamMarks()
        self._tree = TreeCheck(dict(table_records(reader, "tiles", findings)), findings)
        self._last: list[bytes | None] = []
        size = 0 if head is None else head.size
        self.replay = Replay(findings, size, roots_at=anchor.sizes, observe=self._marks.observe)

    def entries(self, progress: Callable[[int, int], None]) -> None:
        """Replay all entries, and name those that the tree does not hold."""
        size = _SIZE_UNKNOWN if self._head is None else self._head.size
        if self._head is None and self._reader.first("entries", b"") is not None:
            self._findings.problem(None, "CORRUPTED", "the head of the log cannot be read")
        entries = self._reader.entries(size, self._findings)
        while chunk := list(islice(entries, TILE_WIDTH)):
            is_full = len(chunk) == TILE_WIDTH
            damaged = self._tree.damaged(self.replay.size // TILE_WIDTH, chunk) if is_full else set[int]()
            self._last = [] if is_full else chunk
            self.replay.feed(chunk, damaged=damaged)
            progress(self.replay.size, max(self.replay.size, 0 if self._head is None else size))
        self.replay.finish()
        if self._head is not None and self.replay.size == size:
            self._name_changed(self._head)
        elif self._head is not None and not any(one.end == size for one in self._findings.problems):
            message = f"the entries from {self.replay.size} to {size - 1} are missing"
            self._findings.problem(self.replay.size, "CORRUPTED", message, end=size)

    def derived(self) -> None:
        """Compare tiles, state, ids and blobs."""
        self._tree.check_upper()
        check_state(self._reader, self.replay, self._findings)
        check_ids(self._reader, self.replay, self._marks, self._findings)
        check_blobs(self._reader, self._findings)

    def report(self) -> AuditReport:
        """Return what was found."""
        return self._anchor.report("fsck", self.replay)

    def _name_changed(self, head: Head) -> None:
        start = head.size - len(self._last)
        for first, end, root in mismatching_subtrees(head.size, head.frontier, self._last):
            if any(one.index is not None and first <= one.index < end for one in self._findings.problems):
                continue
            entries = [one for one in self._last[first - start : end - start] if one is not None]
            found = find_changed_byte(entries, root)
            if found is None:
                message = f"entries {first} to {end - 1}, or the head's frontier, are not those of the tree"
                self._findings.problem(first, "CORRUPTED", message, end=end)
            else:
                index = first + found[0]
                message = f"byte {found[1]} of entry {index} is not the one that the tree holds"
                self._findings.problem(index, "CORRUPTED", message)
