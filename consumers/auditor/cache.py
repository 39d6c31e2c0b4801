"""What an audit found right, kept beside the reader's memory, so that the next one verifies only what is new.

The next audit hashes all entries again and compares the root: what gives the same root is what was verified, byte for
byte, and its signatures and rules need no second look. The file says what the replay knew there; it is the auditor's
own, as the memory of heads is, and as trusted. One of another program, or that is damaged, counts as not there.
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
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.limits import batch_events_max
from deedbook.ledger.system.files import read_regular, replacing

_HASH_BYTES: Final = 32
_INDEX_BYTES: Final = 8
keep_again_s: Final = 60.0
"""A longer audit keeps about so often what it has found right: one that is interrupted is gone on with from there."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay after ``size`` entries that give ``root``, in all of which nothing was wrong.

    ``version`` is that of the last entry; ``authority`` the indexes of the events that say who may sign, entry 0 among
    them; from ``batch_at`` on, entries are of a batch that goes on after them, else it is ``size``; ``records`` the
    state, as the log stores it; ``ids`` those of all events, 32 bytes each; ``signed_by`` the indexes (native 64-bit)
    of each key's events.
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
    signed_by: dict[bytes, bytes]

    def __post_init__(self) -> None:
        """Raise ValueError, of which a decoder makes its own error, where the parts are not those of one log."""
        is_one = (
            min(self.authority, default=-1) == 0
            and max(self.authority) < self.size
            and 0 <= self.batch_at <= self.size < self.batch_at + batch_events_max
            and len(self.ids) == _HASH_BYTES * self.size
            and all(indexes and len(indexes) % _INDEX_BYTES == 0 for indexes in self.signed_by.values())
        )
        if not is_one:
            raise ValueError("these are not the parts of one log")

    def id_at(self, index: int) -> bytes:
        """Return the id of the event at an index; no bytes where there was none yet."""
        return self.ids[_HASH_BYTES * index : _HASH_BYTES * (index + 1)]

    @property
    def read_again(self) -> list[int]:
        """The indexes of what a replay reads again, in order: what says who may sign, and the batch that goes on."""
        return sorted({*self.authority, *range(self.batch_at, self.size)})


class _File(msgspec.Struct, frozen=True):
    program: str
    kept: Kept


_decoder: Final = msgspec.msgpack.Decoder(_File)


def read_kept(path: Path, ledger: str) -> Kept | None:
    """Return what was kept of this ledger by this program; None where there is nothing that can be gone on from."""
    try:
        content = memoryview(read_regular(path, size_max_bytes=path.stat().st_size, is_own=True) or b"")
        if blake3(content[_HASH_BYTES:]).digest() != content[:_HASH_BYTES]:
            return None
        file = _decoder.decode(content[_HASH_BYTES:])
    except (DeedbookError, OSError, *UNREADABLE):
        return None
    return file.kept if (file.program, file.kept.ledger) == (_program(), ledger) else None


class Keeper:
    """Keeps in a file what a replay has found right, now and then and at its end; that it cannot is a note."""

    def __init__(self, path: Path, findings: Findings) -> None:
        """Name the file; it is replaced as a whole."""
        self._path, self._findings = path, findings
        self._next_s = time.monotonic() + keep_again_s

    def keep(self, found: Callable[[], Kept | None], *, is_end: bool = False) -> None:
        """Keep what was found, if it is time and there is any."""
        begun_s = time.monotonic()
        if not is_end and begun_s < self._next_s:
            return
        if (kept := found()) is not None:
            content = msgspec.msgpack.encode(_File(_program(), kept))
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with replacing(self._path, is_durable=False, label="audit") as file:
                    file.write(blake3(content).digest())
                    file.write(content)
            except OSError as error:
                if is_end:  # else it is tried again; and what is kept then is of the log alone
                    message = f"{self._path} cannot be written ({error.strerror}): the next audit begins where this did"
                    self._findings.note(None, "STORE_UNAVAILABLE", message)
        # What this costs stays a small part of the audit, however much there is to keep.
        self._next_s = time.monotonic() + max(keep_again_s, 10 * (time.monotonic() - begun_s))


@cache
def _program() -> str:
    """Return what tells the rules that were verified by from all others: the version, and a hash of their source."""
    source = blake3()
    for package in (ledger, auditor):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            source.update(path.read_bytes())
    return f"{version('deedbook')} {source.hexdigest()}"
