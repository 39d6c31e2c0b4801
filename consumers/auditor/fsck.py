"""``deed fsck``: audits the ledger, and compares the tables that the log derived from its entries with the entries.

The ledger may be in use meanwhile. Entries never change, and a pass counts only if the head was the same before and
after it.

Entries are compared with the stored hashes, 256 at a time: a full tile identifies the damaged entry. For the last,
unfinished tile only the frontier is stored: a few roots over up to 128 entries each. There, a signature identifies
damage in the bytes that it covers. Damage in other bytes (the ledger's clock, the batch numbers) is found by trying
which single byte, when changed, gives the stored root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from deedbook.consumers.auditor.derived import (
    StreamMarks,
    check_blobs,
    check_ids,
    check_state,
    read_head,
    table_records,
)
from deedbook.consumers.auditor.page_reader import PageReader
from deedbook.consumers.auditor.replay import LogReplay
from deedbook.consumers.auditor.report import Anchor, AuditReport, Findings, ReplayOutcome
from deedbook.consumers.auditor.trusted_heads import compare_log, report_disagreement, trusted_elsewhere
from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.envelope import decode_entry, entry_leaf
from deedbook.ledger.format.merkle import Frontier, inclusion_path, root_of, root_of_path
from deedbook.ledger.home.config import Settings, read_config
from deedbook.ledger.log.data_file import check_data_file
from deedbook.ledger.log.tables import Head
from deedbook.ledger.log.tiles import HASH_SIZE, TILE_WIDTH, tile_key

attempts_max: Final = 5
# If the head is lost, entries are read until the table ends.
_SIZE_UNKNOWN: Final = 2**40
# The search for one changed byte hashes at most this many bytes, which takes some seconds.
search_hashed_max_bytes: Final = 4 * 1024**3


def fsck(
    home: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the problems of the ledger in ``home``, by index, or by range for an unreadable page.

    ``root`` and ``trusted_checkpoint`` as in ``verify_log``; ``progress`` is called with entries done and to do. Raises
    Unavailable: ``NO_LEDGER``; ``STORE_IN_USE`` when the ledger is written too fast to be compared. Corrupted: the
    trust store is damaged.
    """
    reader = PageReader(home)
    for _ in range(attempts_max):
        findings = Findings()
        try:
            check_data_file(reader.file)
        except Corrupted as error:  # continue with the rest of the file
            findings.problem(None, error.code, error.message)
        head = read_head(reader)
        check = _Check(home, reader, findings, head, Anchor(findings, root, trusted_checkpoint))
        try:
            check.entries(progress or (lambda _done, _total: None))
            check.derived()
        finally:
            check.replay.stop()
        if read_head(reader) == head:
            _compare_with_trusted(home, check.replay.outcome, findings)
            return check.anchor.report("fsck", check.replay.outcome)
    raise Unavailable("STORE_IN_USE", "the ledger is being written to: stop `deed serve` and its agents, and try again")


def _compare_with_trusted(home: Path, outcome: ReplayOutcome, findings: Findings) -> None:
    try:
        with LocalReader(Settings(home=home, config=read_config(home), only_looks=True)) as reader:
            disagreement, elsewhere = reader.disagreement, trusted_elsewhere(reader.trust_store)
            sizes = {record.trusted.size for record in elsewhere if record.trusted.size <= outcome.size}
            roots = {size: bytes.fromhex(reader.consistency(0, size).root) for size in sizes}
    except DeedbookError as error:
        message = f"the log was not compared with the trust store, because it cannot be opened: {error.message}"
        findings.note(None, error.code, message)
        return
    compare_log(outcome._replace(roots=outcome.roots | roots), elsewhere, findings)
    try:
        report_disagreement(disagreement, findings)
    except Corrupted as error:
        if "path" in error.details:  # the trust store's path: it is damaged
            raise
        message = f"the log was not compared with the trust store, because it cannot be read: {error.message}"
        findings.problem(None, error.code, message)


class _Check:
    def __init__(self, home: Path, reader: PageReader, findings: Findings, head: Head | None, anchor: Anchor) -> None:
        self._home = home
        self._reader = reader
        self._findings = findings
        self._head = head
        self.anchor = anchor
        self._marks = StreamMarks()
        self._tree = TreeCheck(dict(table_records(reader, "tiles", findings)), findings)
        self._last: list[bytes | None] = []
        size = 0 if head is None else head.size
        self.replay = LogReplay(findings, size, roots_at=anchor.sizes, observe=self._marks.observe)

    def entries(self, progress: Callable[[int, int], None]) -> None:
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
        elif self._head is not None and not any(problem.end == size for problem in self._findings.problems):
            message = f"the entries from {self.replay.size} to {size - 1} are missing"
            self._findings.problem(self.replay.size, "CORRUPTED", message, end=size)

    def derived(self) -> None:
        self._tree.check_upper()
        check_state(self._reader, self.replay, self._findings)
        check_ids(self._reader, self.replay, self._marks, self._findings)
        check_blobs(self._home, self._reader, self.replay.needed_blobs(), self._findings)

    def _name_changed(self, head: Head) -> None:
        start = head.size - len(self._last)
        for first, end, root in mismatching_subtrees(head.size, head.frontier, self._last):
            if any(problem.index is not None and first <= problem.index < end for problem in self._findings.problems):
                continue
            entries = [entry for entry in self._last[first - start : end - start] if entry is not None]
            changed = find_changed_byte(entries, root)
            if changed is None:
                message = f"entries {first} to {end - 1}, or the head's frontier, do not match the tree"
                self._findings.problem(first, "CORRUPTED", message, end=end)
            else:
                index = first + changed[0]
                message = f"byte {changed[1]} of entry {index} does not match the tree"
                self._findings.problem(index, "CORRUPTED", message)


class TreeCheck:
    """Compares the entries, chunk by chunk, with their stored tiles."""

    def __init__(self, tiles: dict[bytes, bytes], findings: Findings) -> None:
        self.tiles = tiles
        self._findings = findings
        self._roots: list[bytes | None] = []

    def damaged(self, number: int, entries: Sequence[bytes | None]) -> set[int]:
        """Report and return the indexes of the entries of a full chunk that do not match the tree."""
        stored = self.tiles.get(tile_key(0, number), b"")
        above = self.tiles.get(tile_key(1, number // TILE_WIDTH), b"")
        at = number % TILE_WIDTH * HASH_SIZE
        wanted_root = above[at : at + HASH_SIZE]
        leaves = [None if entry is None else entry_leaf(entry) for entry in entries]
        known = [leaf for leaf in leaves if leaf is not None]
        if len(known) == len(entries) and root_of(known) == wanted_root:
            self._roots.append(wanted_root)
            if b"".join(known) != stored:
                self._bad_tile(0, number)
            return set()
        start = number * TILE_WIDTH
        hashes = [stored[at : at + HASH_SIZE] for at in range(0, len(stored), HASH_SIZE)]
        if len(stored) != TILE_WIDTH * HASH_SIZE:
            self._bad_tile(0, number)
            self._roots.append(root_of(known) if len(known) == len(entries) else None)
            return set()
        self._roots.append(root_of(hashes) if root_of(hashes) == wanted_root or None in leaves else root_of(known))
        damaged = {start + at for at, leaf in enumerate(leaves) if leaf not in (None, hashes[at])}
        for index in sorted(damaged):
            self._findings.problem(index, "CORRUPTED", "it does not match the hash in the tree")
        return damaged

    def check_upper(self) -> None:
        """Compare the tiles above level 0, after the last full chunk, and report tiles that are not of this log."""
        expected = {tile_key(0, number) for number in range(len(self._roots))}
        level, hashes = 1, self._roots
        while hashes:
            for number, start in enumerate(range(0, len(hashes), TILE_WIDTH)):
                wanted = [hash_ for hash_ in hashes[start : start + TILE_WIDTH] if hash_ is not None]
                key = tile_key(level, number)
                expected.add(key)
                is_known = None not in hashes[start : start + TILE_WIDTH]
                if is_known and self.tiles.get(key) != b"".join(wanted):
                    self._bad_tile(level, number)
            groups = [hashes[at : at + TILE_WIDTH] for at in range(0, len(hashes) - TILE_WIDTH + 1, TILE_WIDTH)]
            hashes = [None if None in group else root_of([hash_ for hash_ in group if hash_]) for group in groups]
            level += 1
        for key in sorted(self.tiles.keys() - expected):
            self._findings.problem(None, "CORRUPTED", f"the tile {key.hex()} does not belong to this log")

    def _bad_tile(self, level: int, number: int) -> None:
        width = TILE_WIDTH ** (level + 1)
        start = number * width
        message = f"tile {number} of level {level} does not match entries {start} to {start + width - 1}"
        self._findings.problem(start, "CORRUPTED", message, end=start + width)


def mismatching_subtrees(
    size: int, frontier: bytes, entries: Sequence[bytes | None]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (start, end, stored root) of the unfinished tile's subtrees that do not match the last ``entries``."""
    rest = len(entries)
    roots = Frontier.from_bytes(size, frontier).roots
    start = 0
    for root in roots[len(roots) - rest.bit_count() :]:
        width = 1 << ((rest - start).bit_length() - 1)
        leaves = [entry_leaf(entry) for entry in entries[start : start + width] if entry is not None]
        if len(leaves) == width and root_of(leaves) != root:
            yield size - rest + start, size - rest + start + width, root
        start += width


def find_changed_byte(entries: Sequence[bytes], root: bytes) -> tuple[int, int] | None:
    """Return the (entry, byte) whose change gives the root, or None. Bytes of body, key and signature are not tried."""
    if 256 * sum(len(entry) * len(_unsigned_bytes(entry)) for entry in entries) > search_hashed_max_bytes:
        return None  # the caller reports the whole range: less precise, but fast
    leaves = [entry_leaf(entry) for entry in entries]
    for position, entry in enumerate(entries):
        path = inclusion_path(leaves, position)
        for byte in _unsigned_bytes(entry):
            for value in range(256):
                changed = entry[:byte] + bytes((value,)) + entry[byte + 1 :]
                if root_of_path(entry_leaf(changed), position, len(leaves), path) == root:
                    return position, byte
    return None


def _unsigned_bytes(data: bytes) -> list[int]:
    try:
        entry = decode_entry(data)
    except Refused:
        return []  # reported already
    body = data.index(entry.body)
    key = data.index(entry.key, body + len(entry.body))
    sig = data.index(entry.sig, key + len(entry.key))
    covered = (range(body, body + len(entry.body)), range(key, key + len(entry.key)), range(sig, sig + len(entry.sig)))
    return [at for at in range(len(data)) if not any(at in part for part in covered)]
