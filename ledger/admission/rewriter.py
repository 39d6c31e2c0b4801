"""Rewrites the file of a log that still holds erased bodies, while others read and write the log.

The new file is built beside the log, page by page. It gets the log's entries, and a state that is replayed from them,
because the log's state records may hold erased texts, too. Then the write lock is taken, the entries that were appended
meanwhile are added, and the file replaces the log's file (``log.rewrite``). So a writer waits only for the last few
entries.

If another body is erased meanwhile, the new file may hold it. Then it is deleted, and the rewriting begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from deedbook.ledger.admission.gate import Transaction, first_head, records_cached_max
from deedbook.ledger.admission.replay import Replay, read_entry
from deedbook.ledger.errors import Corrupted, Unavailable
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.limits import range_events_max, range_size_max_bytes
from deedbook.ledger.log import keys
from deedbook.ledger.log.log import Appender, Log, PendingEntries
from deedbook.ledger.log.rewrite import new_tables, replace_file
from deedbook.ledger.log.state import Snapshot
from deedbook.ledger.log.tables import Tables

rounds_max: Final = 8
"""Each round copies the entries that were appended during the round before. Then the rest is copied under the lock."""
attempts_max: Final = 8
"""The number of times that a redaction may interrupt the copying."""
pause_s: Final = 0.1
"""The pause after the first interruption. It doubles after each other one, because redactions often come in a row."""


def finish_erasures(
    log: Log, progress: Callable[[int, int], None] = lambda _done, _total: None, *, waits: bool = True
) -> bool:
    """Delete erased blobs, and rewrite the file of a log that still holds an erased body; return whether it did.

    If another process does this already, wait for its end, or without ``waits`` leave the work to it. ``progress`` is
    called with the entries done and to do; if it raises, the log is as before. Raises Unavailable: ``STORE_FULL``;
    ``BUSY``: redactions kept coming. Corrupted: the log is damaged. It is then as before, and still marked.
    """
    with log.snapshot() as snapshot:
        if not snapshot.needs_rewriting():
            return False
    with log.tables.rewriting(waits=waits) as is_ours:
        if not is_ours:
            return False
        for attempt in range(attempts_max):
            with log.snapshot() as snapshot:
                mark, redactions = snapshot.rewrite_mark(), snapshot.redactions()
            if mark is None:
                return False  # the other process has done it
            if blobs := erased_blobs(redactions.values()):
                log.blobs.remove(blobs)
            with new_tables(log.tables) as built:
                copy = _Copy(log, built, mark, progress)
                if copy.is_near_the_end() and copy.finish():
                    return True
            time.sleep(pause_s * 2**attempt)
    message = "redactions kept coming, so the log's file still holds erased texts: run this again when they have ended"
    raise Unavailable("BUSY", message)


class _Copy:
    """The entries of a marked log, copied to a new file, with the state that is replayed from them."""

    def __init__(self, log: Log, built: Tables, mark: bytes, progress: Callable[[int, int], None]) -> None:
        self._log, self._built, self._mark, self._progress = log, built, mark, progress
        self._appender = Appender(built)
        self._size = 0
        self._cache: dict[bytes, Any] = {}

    def is_near_the_end(self) -> bool:
        """Copy nearly all entries, each page from a snapshot of its own; return whether no redaction came meanwhile.

        One long snapshot would let the log's file grow, because LMDB cannot reuse pages that a snapshot may read.
        """
        for _ in range(rounds_max):
            start = self._size
            with self._log.snapshot() as snapshot:
                end = snapshot.size
            while self._size < end:
                with self._log.snapshot() as snapshot:
                    if snapshot.rewrite_mark() != self._mark:
                        return False
                    page = self._read(snapshot)
                self._take(page)
                self._progress(self._size, end)
            if end - start <= range_events_max:
                break
        return True

    def finish(self) -> bool:
        """Copy the rest under the write lock, and exchange the files; return whether no redaction came meanwhile."""
        with self._log.writing() as (txn, snapshot):
            if snapshot.rewrite_mark() != self._mark or snapshot.head is None:
                return False
            while self._size < snapshot.size:
                self._take(self._read(snapshot))
            with self._built.reading() as reading:
                head = self._built.read_head(reading)
            if head is None or head.frontier != snapshot.head.frontier:
                raise Corrupted("CORRUPTED", "the entries do not match the tree: run `deed fsck`")
            replace_file(self._log.tables, txn, snapshot, self._built)
        return True

    def _read(self, snapshot: Snapshot) -> list[bytes]:
        page = snapshot.entries(self._size, limit=range_events_max, size_max_bytes=range_size_max_bytes)
        if not page:
            raise Corrupted("CORRUPTED", f"entry {self._size} is missing: run `deed fsck`", index=self._size)
        return page

    def _take(self, page: list[bytes]) -> None:
        if len(self._cache) > records_cached_max:
            self._cache = {}
        with self._built.writing() as txn:
            snapshot = Snapshot(self._built, txn)
            replay, pending = Replay(_BuiltState(snapshot, {}, glanced=self._cache)), PendingEntries(entries=page)
            for index, data in enumerate(page, snapshot.size):
                entry, candidate = read_entry(data)
                if (refused := replay.step(index, entry, candidate).refused) is not None:
                    self._check_skipped(index)
                    pending.state[keys.skipped_key(index)] = encode_packed(refused.code)
                pending.leaves.append(entry.leaf(candidate.commitment))
                pending.id_keys.append(keys.id_key(candidate.body.stream, candidate.id))
                pending.accepted_ms = entry.accepted_ms
            layer = replay.state
            pending.state |= {key: encode_packed(record) for key, record in layer.records.items()}
            pending.authority_version = layer.authority_version
            self._appender.append(txn, snapshot.head or first_head(layer.ledger), pending)
        self._cache |= layer.records
        self._size += len(page)

    def _check_skipped(self, index: int) -> None:
        """Check that a repair has marked an entry that its rule refuses."""
        with self._log.snapshot() as snapshot:
            if not snapshot.is_skipped(index):
                raise Corrupted("CORRUPTED", f"entry {index} is not valid: run `deed fsck`", index=index)


class _BuiltState(Transaction):
    """The state that this process has built. No other process writes it, so its records need not be verified."""

    def record(self, key: keys.Key[Any]) -> Any:
        """Return the record under a state key, or None."""
        return self.glance(key)
