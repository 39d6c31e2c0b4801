"""Whoever reads, remembers: the last head that a reader trusted, kept where no restored folder takes it back.

``TrustStore`` is the file of one reader of one ledger at one *place* (a folder's real path, or the server), under
``ledger.home.location.state_folder()/LEDGER/``; why by place, and who is refused, ``ledger/README.md`` says.
Subscribers keep the same ``Trusted`` beside their position, in their own stores.

It is not synced: a power failure may leave an older head, a weaker promise and never a wrong one, or an empty file,
which counts as not there. Each process replaces it only under a lock, after comparing what stands there with its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.home.location import state_folder
from deedbook.ledger.system.files import TEMPORARY, new_file, read_regular, replacing
from deedbook.ledger.trust.history import ReadConsistency, ReadReset, Trusted, is_continued, shown, tell, trust

# The place of whoever reads over the bus: every node of a ledger tells one history, whatever its address.
SERVER: Final = "server"
memory_size_max_bytes: Final = 64 * 1024


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a memory's file; times are Unix milliseconds of the reader's own clock.

    ``begun_size`` and ``begun_ms`` say since when it remembers; ``checkpoint_keys`` (vkeys) whose word it took for it,
    and whether it still does: a key that ended once may not come back.
    """

    deedbook_memory: Literal[1] = 1
    ledger: str
    place: str
    trusted: Trusted
    seen_ms: int
    begun_size: int
    begun_ms: int
    checkpoint_keys: dict[str, bool] = {}


_decoder: Final = msgspec.json.Decoder(Remembered)


class Meeting(msgspec.Struct, frozen=True):
    """What came of comparing a log with a memory: the head to trust, and what is to be told, once."""

    trusted: Trusted
    notices: list[str]


class TrustStore:
    """What readers of one ledger remember at one place; ``problem`` says why it cannot be kept, else None.

    ``checkpoint_keys`` (vkeys, and whether they may still sign) are remembered along, by who reads over the bus.
    """

    def __init__(self, ledger: str, place: str, *, folder: Path | None = None) -> None:
        """Name the memory; nothing is read. ``folder`` is where memories lie (default: ``state_folder``)."""
        self.ledger = ledger
        self.place = place
        self.problem: str | None = None
        self.checkpoint_keys: dict[str, bool] = {}
        self._nowhere = ""
        digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self.path = (folder or state_folder()) / ledger / f"{digest}.json"
        except Unavailable as error:  # no HOME and no account of this number, as in some containers
            self.path = Path("/nonexistent") / ledger / f"{digest}.json"
            self._nowhere = error.message

    @classmethod
    def of_folder(cls, ledger: str, home: Path) -> TrustStore:
        """Return the memory of whoever reads the ledger in this folder, whatever links lead to it."""
        return cls(ledger, os.path.realpath(home))

    @classmethod
    def of_server(cls, ledger: str) -> TrustStore:
        """Return the memory of whoever reads the ledger over the bus."""
        return cls(ledger, SERVER)

    @property
    def authority_file(self) -> Path:
        """The file beside it in which ``ledger.client.stream_reader`` keeps what it has checked."""
        return self.path.with_suffix(".authority")

    @property
    def audit_file(self) -> Path:
        """The file beside it in which an audit keeps what it has found right, for the next one."""
        return self.path.with_suffix(".audit")

    @property
    def where(self) -> str:
        """The clause that an error names it with."""
        return f"what {self.path} remembers is"

    def load(self) -> Remembered | None:
        """Return what is remembered; None when nothing is, or when it cannot be read (then ``problem`` says why).

        Raises Corrupted: the file is no memory of this ledger and place: somebody wrote it, or a disk failed.
        """
        content = self._read(self.path)
        if not content:
            return None
        remembered = self._decode(self.path, content)
        if (remembered.ledger, remembered.place) != (self.ledger, self.place):
            raise _garbage(self.path, f"it is of the ledger {remembered.ledger} at {remembered.place}")
        self.checkpoint_keys = self.checkpoint_keys or remembered.checkpoint_keys
        return remembered

    def others(self) -> list[Remembered]:
        """Return what is remembered of this ledger at other places."""
        others = []
        with contextlib.suppress(OSError):
            for path in sorted(self.path.parent.glob("*.json")):
                if path != self.path and (content := self._read(path)):
                    with contextlib.suppress(Corrupted):  # the readers of that place are told
                        others.append(self._decode(path, content))
        return [other for other in others if other.ledger == self.ledger]

    def rivals(self, read_consistency: ReadConsistency) -> list[str]:
        """Return in words which other folders hold this ledger and have entries that the log here lacks.

        Both may be honest copies; but what is written to two parts them for ever. One that lags is none, nor is a
        folder that is gone, as after a move, or that is this one by another name.
        """
        rivals = []
        for other in self.others():
            place = Path(other.place, "log")
            with contextlib.suppress(OSError):
                if other.place == SERVER or not place.is_dir() or place.samefile(Path(self.place, "log")):
                    continue
                size, consistency_proof = other.trusted.size, read_consistency(other.trusted.size)
                if not is_continued(other.trusted, consistency_proof):
                    has = (
                        f"{size} entries, this one {consistency_proof.size}"
                        if size > consistency_proof.size
                        else "another past"
                    )
                    rivals.append(f"{other.place} holds this ledger too, with {has}: use one, and remove the other")
        return rivals

    def meet(self, read_consistency: ReadConsistency, read_reset: ReadReset) -> Meeting:
        """Compare the log with what is remembered, and remember where it ends now.

        The file is written only when the log has grown, and read again under the lock before that. Raises Corrupted:
        ``HISTORY_CHANGED``; as ``load``.
        """
        remembered = self.load()
        while True:
            meeting = self.compare(remembered, read_consistency, read_reset)
            if remembered is not None and meeting.trusted == remembered.trusted:
                return meeting
            with self._locked() as is_locked:
                present = self.load() if is_locked else remembered
                if present == remembered:
                    if is_locked:
                        self._write(meeting.trusted, remembered)
                    return meeting
            remembered = present  # another process remembered something since: our log must go on from that, too

    def compare(
        self, remembered: Remembered | None, read_consistency: ReadConsistency, read_reset: ReadReset
    ) -> Meeting:
        """Compare the log with what is remembered, and remember nothing. Raises Corrupted: ``HISTORY_CHANGED``."""
        if remembered is None:
            return self._first_meeting(read_consistency, read_reset)
        held = remembered.trusted
        trusted, begun = trust(held, read_consistency(held.size), read_reset, self.where)
        return Meeting(trusted, [str(reset) for reset in begun])

    def keep(self, read_consistency: ReadConsistency, read_reset: ReadReset, *, only_looks: bool) -> Trusted | None:
        """Do what ``meet`` does and tell what is to be told; return the head that is trusted now.

        Whoever ``only_looks`` remembers nothing, and is told of a changed history instead of being refused. Raises
        Corrupted: as ``meet``, unless it only looks.
        """
        try:
            if only_looks:
                meeting = self.compare(self.load(), read_consistency, read_reset)
            else:
                meeting = self.meet(read_consistency, read_reset)
        except Corrupted as error:
            if not only_looks:
                raise
            tell(f"{error.code}: {error.message}")
            return None
        for notice in meeting.notices:
            tell(notice)
        return meeting.trusted

    def probe(self) -> None:
        """Find out whether anything can be remembered now, and leave nothing behind; ``problem`` says why not."""
        try:
            folder = next(one for one in self.path.parents if one.is_dir())
            with new_file(folder, TEMPORARY) as file:
                try:
                    file.write(bytes(memory_size_max_bytes))
                    file.flush()
                finally:
                    Path(file.name).unlink(missing_ok=True)
        except OSError as error:
            self._cannot_be_kept(error)

    def forget(self) -> None:
        """Remember nothing, as of a ledger that is thrown away."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.authority_file.unlink(missing_ok=True)
            self.audit_file.unlink(missing_ok=True)
            self.path.with_suffix(".lock").unlink(missing_ok=True)
            self.path.parent.rmdir()  # not while other places are remembered

    def _first_meeting(self, read_consistency: ReadConsistency, read_reset: ReadReset) -> Meeting:
        notices = []
        for other in self.others():
            consistency_proof = read_consistency(other.trusted.size)
            if consistency_proof.size < other.trusted.size and not consistency_proof.resets:
                head = shown(other.trusted.size, other.trusted.root)
                notices.append(
                    f"this copy of the ledger has {consistency_proof.size} entries, and {other.place} had {head}: "
                    "if that one lives on, write nothing to this one"
                )
                continue
            _, begun = trust(other.trusted, consistency_proof, read_reset, f"what was read at {other.place} is")
            notices += [str(reset) for reset in begun]
        return Meeting(read_consistency(0).head, list(dict.fromkeys(notices)))

    def _read(self, path: Path) -> bytes:
        try:
            return read_regular(path, size_max_bytes=memory_size_max_bytes, follow=True) or b""
        except Unavailable as error:
            self.problem = error.message
            return b""
        except Refused as error:
            raise _garbage(path, error.message) from error

    def _decode(self, path: Path, content: bytes) -> Remembered:
        try:
            return _decoder.decode(content)
        except UNREADABLE as error:
            raise _garbage(path, str(error)) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock beside the file; false where that cannot be, and then nothing is remembered."""
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
                self._cannot_be_kept(error)
            yield is_locked

    def _write(self, trusted: Trusted, before: Remembered | None) -> None:
        now_ms = time.time_ns() // 1_000_000
        remembered = Remembered(
            ledger=self.ledger,
            place=self.place,
            trusted=trusted,
            seen_ms=now_ms,
            begun_size=trusted.size if before is None else before.begun_size,
            begun_ms=now_ms if before is None else before.begun_ms,
            checkpoint_keys=self.checkpoint_keys,
        )
        try:
            with replacing(self.path, is_durable=False) as file:
                file.write(msgspec.json.encode(remembered) + b"\n")
        except OSError as error:
            self._cannot_be_kept(error)

    def _cannot_be_kept(self, error: OSError) -> None:
        # An event is never lost over this, and nobody is kept from working: `deed doctor` says it.
        problem = f"{self.path.parent} cannot be written: {error.strerror or error}"
        self.problem = self._nowhere or f"{problem} (XDG_STATE_HOME or HOME leads there)"


def _garbage(path: Path, reason: str) -> DeedbookError:
    message = f"{path} is not what a reader remembers ({reason}): if you know why, delete it, and reading begins afresh"
    return Corrupted("CORRUPTED", message, path=str(path))
