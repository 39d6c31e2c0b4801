"""A cache of what an audit verified, beside the reader's trust store, so that the next audit verifies only new entries.

The next audit hashes all entries again and compares the root. The same root means the same bytes, so their signatures
and rules need no second check. The file holds the state of the replay at that point. It belongs to the auditor and is
trusted as much as the trust store. A file that is damaged, or written by another program version, is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from deedbook import ledger
from deedbook.consumers import auditor
from deedbook.consumers.auditor.report import Findings, Problem
from deedbook.ledger.admission.clock import ClockMark
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.format.codec import UNREADABLE, msgpack_decoder
from deedbook.ledger.limits import batch_events_max
from deedbook.ledger.system.files import read_regular, replacing

_HASH_BYTES: Final = 32
_INDEX_BYTES: Final = 8
store_interval_s: Final = 60.0
"""A long audit updates the cache about this often, so that an interrupted audit can resume."""


class CachedReplay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay of ``size`` entries with the tree head ``root``, in which no problem was found.

    ``version`` is the last entry's version; ``authority`` the indexes of the events that say who may sign, including
    entry 0; ``batch_at`` the first entry of a batch that was still open, else ``size``; ``records`` the state, as the
    log stores it; ``ids`` the ids of all events, 32 bytes each; ``streams`` the digests of their streams (native
    64-bit); ``signed_by`` the indexes (native 64-bit) of each key's events; ``blobs`` the blobs that entries need.
    """

    ledger: str
    size: int
    root: bytes
    version: int
    authority_version: int
    authority: list[int]
    batch_at: int
    clock: ClockMark
    kinds: dict[str, int]
    verified: int
    notes: list[Problem]
    notes_total: int
    records: dict[bytes, bytes]
    ids: bytes
    streams: bytes
    signed_by: dict[bytes, bytes]
    blobs: dict[str, int]

    def __post_init__(self) -> None:
        """Raise ValueError, which a decoder turns into its own error, if the fields contradict each other."""
        is_consistent = (
            min(self.authority, default=-1) == 0
            and max(self.authority) < self.size
            and 0 <= self.batch_at <= self.size < self.batch_at + batch_events_max
            and len(self.ids) == _HASH_BYTES * self.size
            and len(self.streams) == _INDEX_BYTES * self.size
            and all(indexes and len(indexes) % _INDEX_BYTES == 0 for indexes in self.signed_by.values())
        )
        if not is_consistent:
            raise ValueError("the fields of the cached replay contradict each other")

    def id_at(self, index: int) -> bytes:
        """Return the id of the event at an index; empty beyond the end."""
        return self.ids[_HASH_BYTES * index : _HASH_BYTES * (index + 1)]

    @property
    def reread_indexes(self) -> list[int]:
        """The indexes of the entries that a resumed replay decodes again: authority events and the open batch."""
        return sorted({*self.authority, *range(self.batch_at, self.size)})


class _CacheFile(msgspec.Struct, frozen=True):
    program: str
    replay: CachedReplay


_decoder: Final = msgpack_decoder(_CacheFile)


def read_cached_replay(path: Path, ledger: str) -> CachedReplay | None:
    """Return the replay that this program version cached for this ledger; None if no usable one exists."""
    try:
        content = memoryview(read_regular(path, size_max_bytes=path.stat().st_size, is_own=True) or b"")
        if blake3(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
            return None
        file = _decoder.decode(content[_HASH_BYTES:])
    except (DeedbookError, OSError, *UNREADABLE):
        return None
    return file.replay if (file.program, file.replay.ledger) == (_program(), ledger) else None


class AuditCache:
    """Writes the state of a replay to a file, at intervals and at the end; a failure to write is a note."""

    def __init__(self, path: Path, findings: Findings) -> None:
        """Write to ``path``, which is always replaced as a whole."""
        self._path, self._findings = path, findings
        self._next_s = time.monotonic() + store_interval_s

    def store(self, make: Callable[[], CachedReplay | None], *, is_end: bool = False) -> None:
        """Write what ``make`` returns, if the interval has passed or ``is_end``; None writes nothing."""
        begun_s = time.monotonic()
        if not is_end and begun_s < self._next_s:
            return
        if (replay := make()) is not None:
            content = msgspec.msgpack.encode(_CacheFile(_program(), replay))
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with replacing(self._path, is_durable=False, label="audit") as file:
                    file.write(blake3(content).digest())
                    file.write(content)
            except OSError as error:
                if is_end:  # earlier failures are retried; a note now would become part of the cached replay
                    message = f"{self._path} cannot be written ({error.strerror}): the next audit starts where this did"
                    self._findings.note(None, "STORE_UNAVAILABLE", message)
        # The interval grows with the cache, so writing it stays a small part of the audit's time.
        self._next_s = time.monotonic() + max(store_interval_s, 10 * (time.monotonic() - begun_s))


@cache
def _program() -> str:
    """Return what identifies the rules that verified the entries: the version, and a hash of the rules' source."""
    source = blake3()
    for package in (ledger, auditor):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            source.update(path.read_bytes())
    return f"{version('deedbook')} {source.hexdigest()}"
