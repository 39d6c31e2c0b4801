"""Whoever reads, remembers: the last head that a reader trusted, kept where no restored folder takes it back.

A ledger's signatures say that its history is honest, not that it is the history that was there yesterday: a copy put
back, a fork or an exchanged file verifies as well. So every reader that acts keeps the size and root of the log it
trusted, and demands proof (RFC 6962 §2.1.2) that the log it meets begins with it, before it reads on. What does not is
``HISTORY_CHANGED``. There is one way on: an entry ``ledger.epoch_started``, signed by root, that was not in the history
which the reader knew and names a head at or beyond the one it remembers; that is told once, and then followed.

``Memory`` is the file of one reader of one ledger at one *place* (a folder's real path, or the server), under
``ledger.config.state_folder()/LEDGER/``. Two folders may hold one ledger, a copy that lags among them, so each place is
held to its own past. At a place that is new, what other places remember is compared: a fork of it is refused, a
shorter copy is told. Subscribers keep the same ``Trusted`` beside their position, in their own stores.

If we crash before the file is replaced, the older head counts, which is a weaker promise and never a wrong one. It is
not synced: a power failure may cost it, and leave it empty, which counts as not there. Two processes never move it
back: each replaces it only under a lock, and only after it compared what stands there with its own log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ledger.config import state_folder
from ledger.errors import BatonError, Corrupted
from ledger.files import replacing
from ledger.merkle import verify_consistency

SERVER: Final = "server"
"""The place of whoever reads over the bus: every node of a ledger tells one history, whatever its address."""

memory_size_max_bytes: Final = 64 * 1024
root_digits_shown: Final = 16
heads_kept: Final = 64
heads_stretch: Final = 1024


class Growth(msgspec.Struct, frozen=True):
    """Where a log ends, and what proves that it begins with a smaller one: a consistency path.

    ``root`` is hex. ``epochs`` are the ids of its ``ledger.epoch_started``, in order. The path is empty when the log
    is no larger than the one that was asked about. Over the bus ``checkpoint`` is the signed note of the same head.
    """

    size: int
    root: str
    path: list[bytes] = []
    epochs: list[str] = []
    checkpoint: str = ""

    @property
    def head(self) -> Trusted:
        """What whoever trusts this log remembers of it."""
        return Trusted(self.size, self.root, self.epochs)


class Trusted(msgspec.Struct, frozen=True):
    """A head that a reader trusted: size, root (hex), and the epochs that its history held."""

    size: int
    root: str
    epochs: list[str] = []


class Epoch(msgspec.Struct, frozen=True):
    """An entry ``ledger.epoch_started``: its index, the head it abandons (root in hex), and why."""

    index: int
    abandoned_size: int
    abandoned_root: str
    reason: str

    def covers(self, trusted: Trusted) -> bool:
        """Whether it gives up what ``trusted`` remembers: that very head, or a smaller one."""
        if trusted.size == self.abandoned_size:
            return trusted.root == self.abandoned_root
        return trusted.size < self.abandoned_size

    def __str__(self) -> str:
        head = shown(self.abandoned_size, self.abandoned_root)
        return (
            f"the ledger goes on without entries it had accepted: entry {self.index} abandons {head}: {self.reason!r}"
        )


GrowthSince = Callable[[int], Growth]
"""Returns where the log ends, with the path from the log of so many entries."""
ReadEpoch = Callable[[str], Epoch]
"""Returns an epoch of the log by the id of its event, once its signature was checked as far as the reader must."""


def shown(size: int, root: str) -> str:
    """Return a head as messages name it."""
    return f"{size} entries with root {root[:root_digits_shown]}"


def is_continued(trusted: Trusted, growth: Growth) -> bool:
    """Whether the log begins with what was trusted; never raises, whatever the server sent."""
    try:
        old, new = bytes.fromhex(trusted.root), bytes.fromhex(growth.root)
    except ValueError:
        return False
    return verify_consistency(trusted.size, old, growth.size, new, growth.path)


def trust(trusted: Trusted | None, growth: Growth, read_epoch: ReadEpoch, where: str) -> tuple[Trusted, list[Epoch]]:
    """Return the head to trust from now on, and the epochs that began since, which are to be told once.

    Raises:
        Corrupted: ``HISTORY_CHANGED``; ``where`` says, as a clause, where the reader keeps what it remembers.
    """
    if trusted is None:
        return growth.head, []
    begun = [read_epoch(id_) for id_ in growth.epochs if id_ not in trusted.epochs]
    if not is_continued(trusted, growth) and not any(epoch.covers(trusted) for epoch in begun):
        raise changed(trusted, growth, where)
    return growth.head, begun


def changed(trusted: Trusted, growth: Growth, where: str) -> Corrupted:
    """Return the error for a log that is not the one which was read before: shorter, or of another past."""
    if growth.size < trusted.size:
        what = f"this log is shorter than it was: {growth.size} entries"
    else:
        what = f"this log has another past: {shown(growth.size, growth.root)}"
    message = f"""{what}, and {where} {shown(trusted.size, trusted.root)}. Nothing was read on. If entries were lost \
or a copy was put back, run `baton recover --from-stream`, or `baton recover --accept-loss` to go on without them"""
    details = {"trusted_size": trusted.size, "trusted_root": trusted.root, "size": growth.size, "root": growth.root}
    return Corrupted("HISTORY_CHANGED", message, **details)


Question = int | str
"""What is asked of a log while a past is compared: the growth from so many entries, or the epoch of this id."""


class Past:
    """The heads that one subscription trusted, by size: so that after an epoch it knows how far its past still holds.

    ``led_back_to`` is the position that an epoch led back to last, else None.
    """

    def __init__(self, heads: Iterable[Trusted] = (), where: str = "what this subscription has seen is") -> None:
        self.heads = list(heads)
        self.led_back_to: int | None = None
        self._where = where

    @property
    def size(self) -> int:
        """The size of the log when it was last trusted; 0 at the beginning."""
        return self.heads[-1].size if self.heads else 0

    def meet(self, growth: Growth | None, position: int) -> Generator[Question, Any, int]:
        """Trust what a page said of its log, and return the position to go on at, which only an epoch moves.

        Then it is the size of the largest log that this subscription and the present one share, as far as it remembers
        (else the epoch's own index): entries of the new branch are not passed over, and some may come a second time.

        Raises:
            Corrupted: ``HISTORY_CHANGED``; ``VERIFICATION_FAILED`` for a page that says nothing.
        """
        if growth is None:
            raise Corrupted("VERIFICATION_FAILED", "the ledger's answer does not say how its log has grown")
        last = self.heads[-1] if self.heads else None
        if growth.head == last:
            return position
        epochs: dict[str, Epoch] = {}
        for id_ in [] if last is None else growth.epochs:
            if last is not None and id_ not in last.epochs:
                epochs[id_] = yield id_
        trusted, begun = trust(last, growth, epochs.__getitem__, self._where)
        for epoch in begun:
            tell(str(epoch))
        if last is not None and not is_continued(last, growth):
            kept = yield from self._still_held()
            place = kept or begun[0].index
            self.led_back_to = position = min(position, place)
            tell(f"what was read from index {position} on is given up: reading goes on there, events may come again")
        self.heads.append(trusted)
        self._thin()
        return position

    def _still_held(self) -> Generator[Question, Any, int]:
        """Drop the heads that the log does not begin with; return the size of the last one left, else 0."""
        low, high = 0, len(self.heads)
        while low < high:
            middle = (low + high) // 2
            if is_continued(self.heads[middle], (yield self.heads[middle].size)):
                low = middle + 1
            else:
                high = middle
        del self.heads[low:]
        return self.size

    def _thin(self) -> None:
        """Keep the newest heads, and of the older ones the first in each stretch of the log."""
        if len(self.heads) > 2 * heads_kept:
            older = {head.size // heads_stretch: head for head in reversed(self.heads[:-heads_kept])}
            self.heads[:-heads_kept] = sorted(older.values(), key=lambda head: head.size)


def answered(questions: Generator[Question, Any, int], growth_since: GrowthSince, read_epoch: ReadEpoch) -> int:
    """Return what comes of the questions when they are answered by these two."""
    answer: Growth | Epoch | None = None
    while True:
        try:
            question = questions.send(answer)
        except StopIteration as end:
            return int(end.value)
        answer = growth_since(question) if isinstance(question, int) else read_epoch(question)


def tell(notice: str) -> None:
    """Say, once, what a reader has to know: on standard error, unless the program logs elsewhere."""
    import logging  # noqa: PLC0415 - hardly ever needed, and every command starts here

    logging.getLogger("baton.memory").warning("%s", notice)


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a memory's file; times are Unix milliseconds of the reader's own clock.

    ``begun_size`` and ``begun_ms`` say since when it remembers; ``checkpoint_key`` (vkey) whose word it takes for it.
    """

    baton_memory: Literal[1] = 1
    ledger: str
    place: str
    trusted: Trusted
    seen_ms: int
    begun_size: int
    begun_ms: int
    checkpoint_key: str = ""


_decoder: Final = msgspec.json.Decoder(Remembered)


class Meeting(NamedTuple):
    """What came of comparing a log with a memory: the head to trust, and what is to be told, once."""

    trusted: Trusted
    notices: list[str]


class Memory:
    """What readers of one ledger remember at one place; ``problem`` says why it cannot be kept, else None.

    ``checkpoint_key`` (vkey) is remembered along, by who reads over the bus.
    """

    def __init__(self, ledger: str, place: str, *, folder: Path | None = None) -> None:
        """Name the memory; nothing is read. ``folder`` is where memories lie (default: ``state_folder``)."""
        self.ledger = ledger
        self.place = place
        self.problem: str | None = None
        self.checkpoint_key = ""
        digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self.path = (folder or state_folder()) / ledger / f"{digest}.json"
        except RuntimeError:  # no HOME and no account of this number, as in some containers
            self.path = Path("/nonexistent") / ledger / f"{digest}.json"

    @classmethod
    def of_folder(cls, ledger: str, home: Path) -> Memory:
        """Return the memory of whoever reads the ledger in this folder, whatever links lead to it."""
        return cls(ledger, os.path.realpath(home))

    @classmethod
    def of_server(cls, ledger: str) -> Memory:
        """Return the memory of whoever reads the ledger over the bus."""
        return cls(ledger, SERVER)

    @property
    def where(self) -> str:
        """The clause that an error names it with."""
        return f"what {self.path} remembers is"

    def load(self) -> Remembered | None:
        """Return what is remembered; None when nothing is, or when it cannot be read (then ``problem`` says why).

        Raises:
            Corrupted: the file is no memory of this ledger and place: somebody wrote it, or a disk failed.
        """
        content = self._read(self.path)
        if not content:
            return None
        remembered = self._decode(self.path, content)
        if (remembered.ledger, remembered.place) != (self.ledger, self.place):
            raise _garbage(self.path, f"it is of the ledger {remembered.ledger} at {remembered.place}")
        self.checkpoint_key = self.checkpoint_key or remembered.checkpoint_key
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

    def meet(self, growth_since: GrowthSince, read_epoch: ReadEpoch) -> Meeting:
        """Compare the log with what is remembered, and remember where it ends now.

        The file is written only when the log has grown, and read again under the lock before that.

        Raises:
            Corrupted: ``HISTORY_CHANGED``; as ``load``.
        """
        remembered = self.load()
        while True:
            meeting = self.compare(remembered, growth_since, read_epoch)
            if remembered is not None and meeting.trusted == remembered.trusted:
                return meeting
            with self._locked() as is_locked:
                present = self.load() if is_locked else remembered
                if present == remembered:
                    if is_locked:
                        self._write(meeting.trusted, remembered)
                    return meeting
            remembered = present  # another process remembered something since: our log must go on from that, too

    def compare(self, remembered: Remembered | None, growth_since: GrowthSince, read_epoch: ReadEpoch) -> Meeting:
        """Compare the log with what is remembered, and remember nothing.

        Raises:
            Corrupted: ``HISTORY_CHANGED``.
        """
        if remembered is None:
            return self._first_meeting(growth_since, read_epoch)
        held = remembered.trusted
        growth = growth_since(held.size)
        trusted, begun = trust(held, growth, read_epoch, self.where)
        return Meeting(trusted, [str(epoch) for epoch in begun])

    def keep(self, growth_since: GrowthSince, read_epoch: ReadEpoch, *, only_looks: bool) -> Trusted | None:
        """Do what ``meet`` does and tell what is to be told; return the head that is trusted now.

        Whoever ``only_looks`` remembers nothing, and is told of a changed history instead of being refused.

        Raises:
            Corrupted: as ``meet``, unless it only looks.
        """
        try:
            if only_looks:
                meeting = self.compare(self.load(), growth_since, read_epoch)
            else:
                meeting = self.meet(growth_since, read_epoch)
        except Corrupted as error:
            if not only_looks:
                raise
            tell(f"{error.code}: {error.message}")
            return None
        for notice in meeting.notices:
            tell(notice)
        return meeting.trusted

    def accept(self, growth: Growth) -> None:
        """Remember this head, whatever was remembered before: for whoever has said so in words of their own."""
        with self._locked() as is_locked:
            if is_locked:
                self._write(growth.head, None)

    def forget(self) -> None:
        """Remember nothing, as of a ledger that is thrown away."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".lock").unlink(missing_ok=True)
            self.path.parent.rmdir()  # not while other places are remembered

    def _first_meeting(self, growth_since: GrowthSince, read_epoch: ReadEpoch) -> Meeting:
        notices = []
        for other in self.others():
            growth = growth_since(other.trusted.size)
            if growth.size < other.trusted.size and not growth.epochs:
                head = shown(other.trusted.size, other.trusted.root)
                notices.append(
                    f"this copy of the ledger has {growth.size} entries, and {other.place} had {head}: "
                    "if that one lives on, write nothing to this one"
                )
                continue
            _, begun = trust(other.trusted, growth, read_epoch, f"what was read at {other.place} is")
            notices += [str(epoch) for epoch in begun]
        return Meeting(growth_since(0).head, list(dict.fromkeys(notices)))

    def _read(self, path: Path) -> bytes:
        try:
            # Not blocking: whoever put a pipe there shall not hold up every verb.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.problem = f"{path} cannot be read: {error.strerror}"
            return b""
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _garbage(path, "it is no file")
            try:
                return file.read(memory_size_max_bytes)
            except OSError as error:
                self.problem = f"{path} cannot be read: {error.strerror}"
                return b""

    def _decode(self, path: Path, content: bytes) -> Remembered:
        try:
            return _decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _garbage(path, str(error)) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock beside the file; false where that cannot be, and then nothing is remembered."""
        lock = None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            self._cannot_be_kept(error)
            if lock is not None:
                os.close(lock)
                lock = None
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)

    def _write(self, trusted: Trusted, before: Remembered | None) -> None:
        now_ms = time.time_ns() // 1_000_000
        remembered = Remembered(
            ledger=self.ledger,
            place=self.place,
            trusted=trusted,
            seen_ms=now_ms,
            begun_size=trusted.size if before is None else before.begun_size,
            begun_ms=now_ms if before is None else before.begun_ms,
            checkpoint_key=self.checkpoint_key,
        )
        try:
            with replacing(self.path, is_durable=False) as file:
                file.write(msgspec.json.encode(remembered) + b"\n")
        except OSError as error:
            self._cannot_be_kept(error)

    def _cannot_be_kept(self, error: OSError) -> None:
        # An event is never lost over this, and nobody is kept from working: `baton doctor` says it.
        self.problem = f"{self.path.parent} cannot be written: {error.strerror or error}"


def _garbage(path: Path, reason: str) -> BatonError:
    message = f"{path} is not what a reader remembers ({reason}): if you know why, delete it, and reading begins afresh"
    return Corrupted("CORRUPTED", message, path=str(path))
