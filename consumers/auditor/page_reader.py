"""Reads the tables of a log that may be damaged, through ``pages`` in a process of its own.

If that process dies, a galloping search and then a binary search find the end of the unreadable range. They start about
2 log2(n) processes.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from deedbook.consumers.auditor.pages import Record, TableRead, send_records
from deedbook.consumers.auditor.report import Findings
from deedbook.consumers.sdk.child import Child
from deedbook.ledger.log.environment import FILE, is_read_only, log_not_found
from deedbook.ledger.log.keys import index_key
from deedbook.ledger.log.tables import DATABASE

silence_max_s: Final = 60.0
unreadable_ranges_max: Final = 64
window_records_max: Final = 65_536
gap_entries_max: Final = 1_000_000


class UnreadableError(Exception):
    """The reading process ended before the end of the table; the message has the reason."""


class PageReader:
    """Reads the tables of the log in ``folder``."""

    def __init__(self, folder: Path) -> None:
        """Open the log of the ledger in ``folder``. Raises Unavailable: ``NO_LEDGER``."""
        self._path = folder / DATABASE
        if not self.file.is_file():
            raise log_not_found(self._path)
        self._has_lock = not is_read_only(self._path)

    @property
    def file(self) -> Path:
        """The file that holds the pages."""
        return self._path / FILE

    def records(
        self, table: str, start: bytes = b"", limit: int = 0, *, is_careful: bool = False
    ) -> Generator[Record, None, None]:
        """Yield the records of a table from the key ``start`` on; at most ``limit`` unless it is 0.

        Raises UnreadableError after the last record that could be read.
        """
        child = Child(send_records, TableRead(str(self._path), table, start, limit, is_careful, self._has_lock))
        try:
            yield from _received(child)
        finally:
            child.stop()

    def first(self, table: str, start: bytes) -> Record | None:
        """Return the first record from ``start`` on; None if there is none or it cannot be read."""
        try:
            with contextlib.closing(self.records(table, start, 1)) as records:
                return next(records, None)
        except UnreadableError:
            return None

    def entries(self, size: int, findings: Findings) -> Iterator[bytes | None]:
        """Yield the entries up to ``size``; None for each that cannot be read, which is also reported."""
        position = 0
        for _ in range(unreadable_ranges_max):
            for is_careful in (False, True):
                try:
                    for data in self._stretch(position, size, findings, is_careful=is_careful):
                        position += 1
                        yield data
                except UnreadableError as error:
                    reason = str(error)
                else:
                    return
            end = self._end_of_unreadable(position, size)
            entries = f"entry {position}" if end == position + 1 else f"entries {position} to {end - 1}"
            findings.problem(position, "CORRUPTED", f"{entries} cannot be read ({reason})", end=end)
            if end == size:
                return
            yield from (None for _ in range(position, end))
            position = end
        findings.problem(position, "CORRUPTED", "too many ranges cannot be read: the rest was not tried", end=size)

    def _stretch(self, position: int, size: int, findings: Findings, *, is_careful: bool) -> Iterator[bytes | None]:
        while True:
            before = position
            limit = min(window_records_max, size - position + 1)
            for data in self._window(position, size, limit, findings, is_careful=is_careful):
                position += 1
                yield data
            if position == before:
                return

    def _window(
        self, position: int, size: int, limit: int, findings: Findings, *, is_careful: bool
    ) -> Iterator[bytes | None]:
        records = self.records("entries", index_key(position), limit, is_careful=is_careful)
        for (key, value), following in _with_next(records):
            if key == index_key(position) and position < size:
                yield value
                position += 1
                continue
            index = int.from_bytes(key, "big") if len(key) == len(index_key(0)) else -1
            if position == size:
                findings.problem(position, "CORRUPTED", f"there is a record beyond the log's end at {size}")
                return
            if following == index_key(position + 1) or (following is None and position == size - 1):
                findings.problem(position, "CORRUPTED", f"the key of entry {position} is damaged: {key.hex()}")
                yield value
                position += 1
            elif position < index < min(size, position + gap_entries_max):
                findings.problem(position, "CORRUPTED", f"entries {position} to {index - 1} are missing", end=index)
                yield from (None for _ in range(position, index))
                yield value
                position = index + 1
            else:
                findings.problem(position, "CORRUPTED", f"a record before entry {position} has the key {key.hex()}")

    def _end_of_unreadable(self, first: int, size: int) -> int:
        """Return the index after the unreadable range that begins at ``first``, assuming that it is one range."""
        low, step = first, 1
        while (high := first + step) < size and not self._is_readable(high):
            low, step = high, step * 2
        between = range(low + 1, min(high, size))
        return between.start + bisect_left(between, True, key=self._is_readable)  # noqa: FBT003 - a key

    def _is_readable(self, index: int) -> bool:
        record = self.first("entries", index_key(index))
        return record is not None and record[0] == index_key(index)


def _with_next(records: Iterator[Record]) -> Iterator[tuple[Record, bytes | None]]:
    """Yield each record with the key after it. The last record before an unreadable page is yielded, too, with None."""
    previous: Record | None = None
    try:
        for record in records:
            if previous is not None:
                yield previous, record[0]
            previous = record
    except UnreadableError:
        if previous is not None:
            yield previous, None
        raise
    if previous is not None:
        yield previous, None


def _received(child: Child) -> Iterator[Record]:
    while child.connection.poll(silence_max_s):
        try:
            sent = child.receive()
        except (EOFError, OSError):
            raise UnreadableError(f"the reader ended with {child.wait()}") from None
        if sent is None:
            return
        if isinstance(sent, str):
            raise UnreadableError(sent)
        yield from sent
    raise UnreadableError(f"nothing was read for {silence_max_s:.0f} s")
