"""The trust store: the last head that a reader trusted, in a file outside the ledger's folder.

So a restored copy of a ledger's folder does not restore an older trusted head. ``TrustStore`` is the file of the
readers of one ledger at one location (a folder's real path, or the server), under
``ledger.home.location.state_folder()/LEDGER/``. ``ledger/README.md`` says why each location has its own file, and which
readers are refused. Subscribers store the same ``TrustedHead`` beside their position, in stores of their own.

The file is not synced. After a power failure it may hold an older head, which is weaker but never wrong. Or it may be
empty, which counts as missing. A process replaces the file only under a lock, after comparing the stored head with its
log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import UNREADABLE, json_decoder
from deedbook.ledger.home.location import state_folder
from deedbook.ledger.system.files import TEMPORARY, new_file, read_regular, replacing
from deedbook.ledger.trust.history import (
    ReadConsistency,
    ReadReset,
    TrustedHead,
    head_text,
    is_continued,
    log_notice,
    trust,
)

# The location of readers over the bus. It names no address, because every node of a ledger must show one history.
SERVER: Final = "server"
trust_store_size_max_bytes: Final = 64 * 1024


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a trust store's file. Times are Unix milliseconds of the reader's own clock.

    ``created_size`` and ``created_ms`` are the log's size and the time when the file was first written.
    ``checkpoint_keys`` are the keys (vkeys) whose checkpoints the reader accepted, and whether each is still accepted:
    a key that ended once may not return.
    """

    deedbook_memory: Literal[1] = 1
    ledger: str
    location: str = msgspec.field(name="place")
    trusted: TrustedHead
    updated_ms: int = msgspec.field(name="seen_ms")
    created_size: int = msgspec.field(name="begun_size")
    created_ms: int = msgspec.field(name="begun_ms")
    checkpoint_keys: dict[str, bool] = {}

    @property
    def is_present(self) -> bool:
        """Whether the location is a folder with a log, which a server's is not."""
        return self.location != SERVER and Path(self.location, "log").is_dir()


_decoder: Final = json_decoder(TrustRecord)


class LogComparison(msgspec.Struct, frozen=True):
    """The result of comparing a log with the trust store: the head to trust, and notices that are logged once."""

    trusted: TrustedHead
    notices: list[str]


class CheckedLog(NamedTuple):
    """The head that a reader trusts after it checked a log.

    A reader that only looks may read a log that contradicts the trust store: then ``disagreement`` is the error that
    other readers get, and ``trusted`` is None.
    """

    trusted: TrustedHead | None
    disagreement: Corrupted | None = None


class TrustStore:
    """The trusted head of the readers of one ledger at one location.

    ``problem`` says why the file cannot be read or written, None if it can. ``checkpoint_keys`` (vkeys, and whether
    they may still sign) are set by readers over the bus and stored with the head.
    """

    def __init__(self, ledger: str, location: str, *, folder: Path | None = None) -> None:
        """Name the file; nothing is read. ``folder`` holds the files of all ledgers (default: ``state_folder``)."""
        self.ledger = ledger
        self.location = location
        self.problem: str | None = None
        self.checkpoint_keys: dict[str, bool] = {}
        self._no_home_reason = ""
        digest = hashlib.sha256(location.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self.path = (folder or state_folder()) / ledger / f"{digest}.json"
        except Unavailable as error:  # no HOME, and no account with this user id, as in some containers
            self.path = Path("/nonexistent") / ledger / f"{digest}.json"
            self._no_home_reason = error.message

    @classmethod
    def of_folder(cls, ledger: str, home: Path) -> TrustStore:
        """Return the trust store for reading the ledger in this folder; links to the folder share it."""
        return cls(ledger, os.path.realpath(home))

    @classmethod
    def of_server(cls, ledger: str) -> TrustStore:
        """Return the trust store for reading the ledger over the bus."""
        return cls(ledger, SERVER)

    @property
    def authority_file(self) -> Path:
        """The file beside it in which ``ledger.client.stream_reader`` caches the authority that it checked."""
        return self.path.with_suffix(".authority")

    @property
    def audit_file(self) -> Path:
        """The file beside it in which an audit stores what it verified, so that the next audit can continue."""
        return self.path.with_suffix(".audit")

    @property
    def source(self) -> str:
        """The name of the store in errors."""
        return f"the trust store {self.path}"

    def load(self) -> TrustRecord | None:
        """Return the stored record; None if there is none, or if it cannot be read (``problem`` then says why).

        Raises Corrupted: the file is no trust store of this ledger and location. Somebody wrote it, or a disk failed.
        """
        content = self._read(self.path)
        if not content:
            return None
        record = self._decode(self.path, content)
        if (record.ledger, record.location) != (self.ledger, self.location):
            raise _damaged(self.path, f"it is of the ledger {record.ledger} at {record.location}")
        self.checkpoint_keys = self.checkpoint_keys or record.checkpoint_keys
        return record

    def others(self) -> list[TrustRecord]:
        """Return the trust records that this machine stores for the same ledger at other locations."""
        return [record for record in self.records() if record.location != self.location]

    def records(self) -> list[TrustRecord]:
        """Return the trust records that this machine stores for the same ledger, of this location and of others."""
        records = []
        with contextlib.suppress(OSError):
            for path in sorted(self.path.parent.glob("*.json")):
                if content := self._read(path):
                    with contextlib.suppress(Corrupted):  # the readers at that location get this error themselves
                        records.append(self._decode(path, content))
        return [record for record in records if record.ledger == self.ledger]

    def copies(self) -> list[TrustRecord]:
        """Return the records of other folders that hold this ledger; not of this folder under another name."""
        copies = []
        for other in self.others():
            with contextlib.suppress(OSError):
                if other.is_present and not Path(other.location, "log").samefile(Path(self.location, "log")):
                    copies.append(other)
        return copies

    def rivals(self, read_consistency: ReadConsistency) -> list[str]:
        """Return a notice for each other folder with this ledger, if a write here would split its history in two.

        That folder has entries that the log here lacks, or this one is a copy that nobody has written to yet. Both may
        be honest copies, but after writes to both their histories differ for ever. No rival: an older copy, a folder
        that no longer exists (it was moved), or this folder under another name.
        """
        notices, own = [], self.load()
        for other in self.copies():
            size, consistency_proof = other.trusted.size, read_consistency(other.trusted.size)
            if size > consistency_proof.size:
                difference = f"{consistency_proof.size} entries here, {size} there"
            elif not is_continued(other.trusted, consistency_proof):
                difference = "another history"
            elif own is None or (own.created_ms > other.created_ms and own.created_size == consistency_proof.size):
                difference = "nothing was written here yet"
            else:
                continue
            notices.append(
                f"{self.location} and {other.location} hold the same ledger ({difference}). Write to only one of them: "
                "events in both make two histories, which nothing can join. See 'Two copies' in the runbook"
            )
        return notices

    def update(self, read_consistency: ReadConsistency, read_reset: ReadReset) -> LogComparison:
        """Compare the log with the trusted head, and store the log's present head.

        The file is written only if the log has grown, after it was read again under the lock. Raises Corrupted:
        ``HISTORY_CHANGED``; as ``load``.
        """
        record = self.load()
        while True:
            comparison = self.compare(record, read_consistency, read_reset)
            if record is not None and comparison.trusted == record.trusted:
                return comparison
            with self._locked() as is_locked:
                present = self.load() if is_locked else record
                if present == record:
                    if is_locked:
                        self._write(comparison.trusted, record)
                    return comparison
            record = present  # another process stored a newer head meanwhile: our log must continue that one, too

    def compare(
        self, record: TrustRecord | None, read_consistency: ReadConsistency, read_reset: ReadReset
    ) -> LogComparison:
        """Compare the log with a record, and store nothing. Raises Corrupted: ``HISTORY_CHANGED``."""
        if record is None:
            return self._compare_first(read_consistency, read_reset)
        trusted, new_resets = trust(record.trusted, read_consistency(record.trusted.size), read_reset, self.source)
        return LogComparison(trusted, [str(reset) for reset in new_resets])

    def check_log(self, read_consistency: ReadConsistency, read_reset: ReadReset, *, only_looks: bool) -> CheckedLog:
        """Do what ``update`` does, and log the notices.

        A reader that ``only_looks`` stores nothing. If the history changed, it gets a notice and the ``disagreement``
        instead of an error. Raises Corrupted: as ``update``, unless ``only_looks``.
        """
        try:
            if only_looks:
                comparison = self.compare(self.load(), read_consistency, read_reset)
            else:
                comparison = self.update(read_consistency, read_reset)
        except Corrupted as error:
            if not only_looks:
                raise
            log_notice(f"{error.code}: {error.message}")
            return CheckedLog(None, error)
        for notice in comparison.notices:
            log_notice(notice)
        return CheckedLog(comparison.trusted)

    def probe(self) -> None:
        """Try to write a file where the store would be, and delete it; on failure ``problem`` says why."""
        try:
            folder = next(parent for parent in self.path.parents if parent.is_dir())
            with new_file(folder, TEMPORARY) as file:
                try:
                    file.write(bytes(trust_store_size_max_bytes))
                    file.flush()
                finally:
                    Path(file.name).unlink(missing_ok=True)
        except OSError as error:
            self._set_problem(error)

    def forget(self) -> None:
        """Delete the store and its caches, for a ledger that was deleted."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.authority_file.unlink(missing_ok=True)
            self.audit_file.unlink(missing_ok=True)
            self.path.with_suffix(".lock").unlink(missing_ok=True)
            self.path.parent.rmdir()  # fails while there are stores of other locations

    def _compare_first(self, read_consistency: ReadConsistency, read_reset: ReadReset) -> LogComparison:
        """Compare a log that is new at this location with the records of other locations."""
        notices = []
        for other in self.others():
            consistency_proof = read_consistency(other.trusted.size)
            if consistency_proof.size < other.trusted.size and not consistency_proof.resets:
                head = head_text(other.trusted.size, other.trusted.root)
                notices.append(
                    f"this copy of the ledger has {consistency_proof.size} entries, and the one at {other.location} "
                    f"had {head}: if that one is still in use, write nothing to this copy"
                )
                continue
            source = f"the trust store of {other.location}"
            _, new_resets = trust(other.trusted, consistency_proof, read_reset, source)
            notices += [str(reset) for reset in new_resets]
        return LogComparison(read_consistency(0).head, list(dict.fromkeys(notices)))

    def _read(self, path: Path) -> bytes:
        try:
            return read_regular(path, size_max_bytes=trust_store_size_max_bytes, follow=True) or b""
        except Unavailable as error:
            self.problem = error.message
            return b""
        except Refused as error:
            raise _damaged(path, error.message) from error

    def _decode(self, path: Path, content: bytes) -> TrustRecord:
        try:
            return _decoder.decode(content)
        except UNREADABLE as error:
            raise _damaged(path, str(error)) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock beside the file. Yield False if there can be no lock; the caller then writes nothing."""
        with contextlib.ExitStack() as opened:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            is_locked = False
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self.path.with_suffix(".lock"), flags, 0o600)
                opened.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
                is_locked = True
            except OSError as error:
                self._set_problem(error)
            yield is_locked

    def _write(self, trusted: TrustedHead, before: TrustRecord | None) -> None:
        now_ms = time.time_ns() // 1_000_000
        record = TrustRecord(
            ledger=self.ledger,
            location=self.location,
            trusted=trusted,
            updated_ms=now_ms,
            created_size=trusted.size if before is None else before.created_size,
            created_ms=now_ms if before is None else before.created_ms,
            checkpoint_keys=self.checkpoint_keys,
        )
        try:
            with replacing(self.path, is_durable=False) as file:
                file.write(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            self._set_problem(error)

    def _set_problem(self, error: OSError) -> None:
        # A store that cannot be written loses no event and stops no work, so only `deed doctor` reports it.
        problem = f"{self.path.parent} cannot be written: {error.strerror or error}"
        self.problem = self._no_home_reason or f"{problem} (XDG_STATE_HOME or HOME leads there)"


def _damaged(path: Path, reason: str) -> DeedbookError:
    message = (
        f"{path} is no valid trust store ({reason}): if you know the cause, delete it; the next read begins a new one"
    )
    return Corrupted("CORRUPTED", message, path=str(path))
