"""What an agent did while its ledger was away: signed submissions in a folder, sent in order when it answers again.

``spool/NAME/`` of the agent's folder holds one file for each, ``rejected/`` in it those that the ledger refused then,
beside why. Ids make it harmless to send one again, so a process may be killed anywhere: at worst its file stays, and
what is in the log already is answered with its receipt. Whatever an agent submits goes after what waits.

Only ``REPORTS`` are kept, what an author did or learned: whoever claims or approves does next what the answer says, and
an event that expects a version of its stream asks for an answer, too. Refused: to hand back a receipt that is none. So
keeping raises ``SPOOLED``, and nothing that prints an answer can show as done what is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.format.envelope import Submission, decode_submission, event_id, pae
from deedbook.ledger.system.files import as_unavailable, lock_folder, read_regular, replacing, sync_folder, write_whole
from deedbook.ledger.trust.history import log_notice

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted

FOLDER: Final = "spool"
# The kinds that may wait. One that is new waits only when it is named here.
REPORTS: Final = frozenset(
    {
        "assessment.recorded",
        "dead_end.logged",
        "dead_end.retracted",
        "finding.logged",
        "finding.retracted",
        "handoff.blocked",
        "handoff.completed",
        "handoff.criterion_checked",
        "handoff.logged",
        "handoff.task_checked",
        "reasoning.concluded",
        "reasoning.extended",
        "reasoning.started",
        "session.ended",
        "session.started",
        "tool.used",
        "unknown.logged",
        "unknown.resolved",
    }
)

# About whoever asks, not about what is sent: it waits until that is mended.
_NOT_OF_EVENTS: Final = frozenset({"BUS_DENIED", "KEY_FILE_MISSING", "KEY_FILE_MODE", "NOT_TRUSTED"})
_NO_OUTAGE: Final = frozenset({"QUOTA_EXCEEDED", "SPOOL_FULL"})

# What else lies in the folder is not ours.
_NAME: Final = re.compile(r"[0-9]{9,}-[0-9]+-[0-9a-f]{16}\.msg")

Send = Callable[[Submission], "list[Accepted]"]


class SpoolEntry(NamedTuple):
    """A submission that waits, or was refused (then with the refusal as it is published)."""

    number: int
    path: Path
    submission: Submission | None
    refusal: dict[str, Any] | None


class Outcome(NamedTuple):
    """What became of all that waited: how many submissions are recorded, and how many were refused."""

    recorded: int
    rejected: int


class Counts(NamedTuple):
    """How many submissions wait, and how many were refused."""

    waiting: int
    rejected: int


class Spool:
    """The spool of one agent; processes and threads may share it."""

    def __init__(self, home: Path, agent: str) -> None:
        self.folder = home / FOLDER / agent
        self._refused = self.folder / "rejected"

    def submit(self, submission: Submission, send: Send, *, may_keep: bool) -> list[Accepted]:
        """Submit what waits, then ``submission``; keep it where the ledger is away and that was asked for.

        Raises Unavailable: ``SPOOLED`` when it is kept, ``SPOOL_FULL``; as ``send``, which is why it is not kept.
        """
        try:
            if self.waiting():
                with self._locked():
                    self._send_waiting(send)
                    return send(submission)
            return send(submission)
        except Unavailable as away:
            if not may_keep or away.code in _NO_OUTAGE:
                if self.waiting():
                    away.message += "; what waits in the spool goes before it (`deed spool list`)"
                raise
            with self._locked():
                raise self._keep(submission, away) from away

    def send(self, send: Send) -> Outcome:
        """Submit all that waits. Raises as ``send``; what was not submitted then waits on."""
        if not self.waiting():
            return Outcome(0, 0)
        with self._locked():
            return self._send_waiting(send)

    def waiting(self) -> list[Path]:
        """Return the files of what waits, in the order in which it was done."""
        return _files(self.folder)

    def rejected(self) -> list[Path]:
        """Return the files of what was refused."""
        return _files(self._refused)

    def counts(self) -> Counts:
        """Return how many submissions wait, and how many were refused."""
        return Counts(len(self.waiting()), len(self.rejected()))

    def entries(self) -> Iterator[SpoolEntry]:
        """Yield what waits, then what was refused. Raises as ``read_regular``."""
        for path in [*self.waiting(), *self.rejected()]:
            reason = read_regular(_reason(path), size_max_bytes=limits.request_size_max_bytes)
            refusal = None if path.parent != self._refused else msgspec.json.decode(reason or b"{}")
            try:
                submission = _read(path)
            except Refused as damaged:
                submission, refusal = None, refusal or damaged.to_dict()
            yield SpoolEntry(_number(path), path, submission, refusal)

    def drop(self, number: int) -> None:
        """Give up what waits, or was refused, under a number. Raises Refused: ``NOT_FOUND``."""
        with self._locked():
            for path in [*self.waiting(), *self.rejected()]:
                if _number(path) == number:
                    with as_unavailable(path):
                        path.unlink()
                        _reason(path).unlink(missing_ok=True)
                    return
        raise Refused("NOT_FOUND", f"nothing is kept under {number}: `deed spool list` shows what is", number=number)

    def _send_waiting(self, send: Send) -> Outcome:
        recorded = rejected = 0
        try:
            for path in self.waiting():
                try:
                    send(_read(path))
                except Refused as refusal:
                    if refusal.code in _NOT_OF_EVENTS:
                        raise
                    self._reject(path, refusal)
                    rejected += 1
                else:
                    # If we crash before this, it is sent again, and answered with the receipt it has.
                    with as_unavailable(path):
                        path.unlink()
                    recorded += 1
        finally:
            if recorded + rejected:
                why = "; `deed spool list` says why" if rejected else ""
                log_notice(f"from the spool: {recorded} recorded, {rejected} refused{why}")
        return Outcome(recorded, rejected)

    def _keep(self, submission: Submission, away: Unavailable) -> Unavailable:
        """Keep a submission on disk, and return what says so."""
        heads: list[dict[str, Any]] = [msgspec.json.decode(body) for body in submission.bodies]
        kinds = {head["kind"] for head in heads} - REPORTS
        if kinds or any("expect" in head for head in heads):
            what = f"{', '.join(sorted(kinds))} is" if kinds else "what expects a version of its stream is"
            away.message += f"; {what} not spooled, because what you do next depends on the answer: do it again later"
            return away
        content = submission.encode()
        present = [*self.waiting(), *self.rejected()]
        events = sum(int(path.name.split("-")[1]) for path in present) + len(heads)
        size = sum(path.stat().st_size for path in present) + len(content)
        if events > limits.spool_events_max or size > limits.spool_size_max_bytes:
            message = (
                f"the ledger is away, and the spool in {self.folder} is full: this is neither recorded nor kept. "
                "`deed spool send` when the ledger answers, or give up what was refused: `deed spool drop --rejected`"
            )
            return Unavailable("SPOOL_FULL", message, folder=str(self.folder), events=events, size=size)
        number = 1 + max(map(_number, present), default=0)
        ids = [event_id(pae(body)) for body in submission.bodies]
        path = self.folder / f"{number:09}-{len(heads)}-{ids[0].removeprefix('blake3:')[:16]}.msg"
        lost = as_unavailable(path, "cannot be written, so this is neither recorded nor kept")
        with lost, replacing(path, label="spool-") as file:  # by its label goes what a killed process left half written
            file.write(content)
        message = (
            f"NOT recorded yet: the ledger is away ({away.code}). It is signed and stored as number {number}, after "
            f"{len(self.waiting()) - 1} others. Your next operation sends it, or `deed spool send`. Do not repeat it."
        )
        return Unavailable("SPOOLED", message, recorded=False, number=number, ids=ids, folder=str(self.folder))

    def _reject(self, path: Path, refusal: Refused) -> None:
        target = self._refused / path.name
        with as_unavailable(target):
            self._refused.mkdir(mode=0o700, exist_ok=True)
            # The reason first: if we crash after it, the submission is sent again, and refused again.
            write_whole(_reason(target), msgspec.json.encode(refusal.to_dict(), order="deterministic"))
            path.rename(target)
            sync_folder(self._refused)
            sync_folder(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            with as_unavailable(self.folder):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.folder))
            yield


def spools(home: Path) -> list[tuple[str, Spool]]:
    """Return the agents that have a spool in a folder, and their spools."""
    folder = home / FOLDER
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return [(name, Spool(home, name)) for name in names]


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []


def _read(path: Path) -> Submission:
    return decode_submission(read_regular(path, size_max_bytes=limits.request_size_max_bytes, is_own=True) or b"")


def _number(path: Path) -> int:
    return int(path.name.split("-")[0])


def _reason(path: Path) -> Path:
    return path.with_suffix(".json")
