"""The spool: signed submissions that an agent's ledger could not record, because it was away or busy.

The spool sends them in order when the ledger answers again.

``spool/NAME/`` in the agent's folder has one file for each submission. ``rejected/`` in it has those that the ledger
refused later, each with the reason. It is safe to send a submission again, because the ledger knows its ids and repeats
its first answer. So a killed process leaves at most a file that is sent again. New submissions are sent after the
waiting ones.

The spool stores only ``REPORTS``: kinds that say what an author did or learned. It does not store claims, approvals or
events that expect a version of their stream, because the next step depends on the answer. Rejected: a receipt for a
stored submission. The spool raises ``SPOOLED`` instead, so that nothing can show a stored submission as recorded.
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
from deedbook.ledger.format.envelope import Submission, commitment_to, decode_submission, event_id
from deedbook.ledger.system.files import as_unavailable, lock_folder, read_regular, replacing, sync_folder, write_whole
from deedbook.ledger.trust.history import log_notice

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted

FOLDER: Final = "spool"
# The kinds that may wait. A new kind must be added here to wait.
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
        "reasoning.assumption_settled",
        "reasoning.concluded",
        "reasoning.extended",
        "reasoning.started",
        "reasoning.step_retracted",
        "session.ended",
        "session.started",
        "tool.used",
        "unknown.logged",
        "unknown.resolved",
    }
)

# These codes refuse the agent, not the submission. The submission waits until the cause is removed.
_AGENT_CODES: Final = frozenset({"BUS_DENIED", "KEY_FILE_MISSING", "KEY_FILE_MODE", "NOT_TRUSTED"})
_NO_OUTAGE: Final = frozenset({"QUOTA_EXCEEDED"})
_AWAY_CODES: Final = frozenset({"BUS_UNAVAILABLE", "SHARED_LOG"})

# The spool ignores files with other names.
_NAME: Final = re.compile(r"[0-9]{9,}-[0-9]+-[0-9a-f]{16}\.msg")

Send = Callable[[Submission], "list[Accepted]"]


class SpoolEntry(NamedTuple):
    """A stored submission. ``refusal`` is None while it waits, else the published form of the refusal.

    ``submission`` is None when the file is damaged.
    """

    number: int
    path: Path
    submission: Submission | None
    refusal: dict[str, Any] | None


class Outcome(NamedTuple):
    """The result of sending: the numbers of submissions that were recorded and refused."""

    recorded: int
    rejected: int


class Counts(NamedTuple):
    """The numbers of submissions that wait and that were refused."""

    waiting: int
    rejected: int


class Spool:
    """The spool of one agent. Processes and threads may share it."""

    def __init__(self, home: Path, agent: str) -> None:
        self.folder = home / FOLDER / agent
        self._rejected_folder = self.folder / "rejected"

    def submit(self, submission: Submission, send: Send, *, may_store: bool) -> list[Accepted]:
        """Send the waiting submissions, then ``submission``. If the ledger is away or busy and ``may_store``, store it.

        Raises Unavailable: ``SPOOLED`` when it was stored; ``SPOOL_FULL``; ``SPOOL_UNAVAILABLE`` when the spool's own
        files cannot be read or written; as ``send`` when it was not stored.
        """
        try:
            return self._send_or_store(submission, send, may_store=may_store)
        except Unavailable as error:
            if error.code == "SPOOL_UNAVAILABLE":
                error.message += "; this is neither recorded nor stored"
            raise

    def _send_or_store(self, submission: Submission, send: Send, *, may_store: bool) -> list[Accepted]:
        try:
            if self.waiting():
                with self._locked():
                    self._send_waiting(send)
                    return send(submission)
            return send(submission)
        except Unavailable as outage:
            if outage.code == "SPOOL_UNAVAILABLE":
                raise
            if not may_store or outage.code in _NO_OUTAGE:
                if self.waiting():
                    outage.message += "; earlier submissions in the spool go first (`deed spool list`)"
                raise
            with self._locked():
                raise self._store(submission, outage) from outage

    def send(self, send: Send) -> Outcome:
        """Send all waiting submissions in order. If one cannot be sent, it and the rest stay in the spool.

        Raises Unavailable: ``SPOOL_UNAVAILABLE``; as ``send``, for example ``BUSY``.
        """
        if not self.waiting():
            return Outcome(0, 0)
        with self._locked():
            return self._send_waiting(send)

    def waiting(self) -> list[Path]:
        """Return the files of waiting submissions, oldest first."""
        return _list_files(self.folder)

    def rejected(self) -> list[Path]:
        """Return the files of refused submissions, oldest first."""
        return _list_files(self._rejected_folder)

    def counts(self) -> Counts:
        """Return the numbers of submissions that wait and that were refused."""
        return Counts(len(self.waiting()), len(self.rejected()))

    def entries(self) -> Iterator[SpoolEntry]:
        """Yield the waiting submissions, then the refused ones.

        Raises Refused: as ``read_regular``. Unavailable: ``SPOOL_UNAVAILABLE``.
        """
        for path in [*self.waiting(), *self.rejected()]:
            with _own_files(_reason(path), "cannot be read"):
                reason = read_regular(_reason(path), size_max_bytes=limits.request_size_max_bytes)
            refusal = None if path.parent != self._rejected_folder else msgspec.json.decode(reason or b"{}")
            try:
                submission = _read(path)
            except Refused as damaged:
                submission, refusal = None, refusal or damaged.to_dict()
            yield SpoolEntry(_number(path), path, submission, refusal)

    def drop(self, number: int) -> None:
        """Delete the stored submission with this number. Raises Refused: ``NOT_FOUND``."""
        with self._locked():
            for path in [*self.waiting(), *self.rejected()]:
                if _number(path) == number:
                    with _own_files(path):
                        path.unlink()
                        _reason(path).unlink(missing_ok=True)
                    return
        raise Refused("NOT_FOUND", f"the spool has no number {number}: run `deed spool list`", number=number)

    def _send_waiting(self, send: Send) -> Outcome:
        recorded = rejected = 0
        try:
            for path in self.waiting():
                try:
                    send(_read(path))
                except Refused as refusal:
                    if refusal.code in _AGENT_CODES:
                        raise
                    self._reject(path, refusal)
                    rejected += 1
                else:
                    # If we crash before this, the next sender repeats it, and the ledger repeats its first answer.
                    with _own_files(path):
                        path.unlink()
                    recorded += 1
        finally:
            if recorded + rejected:
                why = "; `deed spool list` says why" if rejected else ""
                log_notice(f"from the spool: {recorded} recorded, {rejected} refused{why}")
        return Outcome(recorded, rejected)

    def _store(self, submission: Submission, outage: Unavailable) -> Unavailable:
        """Store a submission on disk, and return the error to raise: ``SPOOLED``, or why it was not stored."""
        heads: list[dict[str, Any]] = [msgspec.json.decode(body) for body in submission.bodies]
        kinds = {head["kind"] for head in heads} - REPORTS
        if kinds or any("expect" in head for head in heads):
            excluded = f"{', '.join(sorted(kinds))} is" if kinds else "an event that expects a version of its stream is"
            outage.message += f"; {excluded} not spooled, because your next step depends on the answer: try again later"
            return outage
        content = submission.encode()
        stored = [*self.waiting(), *self.rejected()]
        events = sum(int(path.name.split("-")[1]) for path in stored) + len(heads)
        with _own_files(self.folder, "cannot be read"):
            size = sum(path.stat().st_size for path in stored) + len(content)
        if events > limits.spool_events_max or size > limits.spool_size_max_bytes:
            message = (
                f"{_state(outage)}, and the spool in {self.folder} is full: this is neither recorded nor stored. "
                "Run `deed spool send` when the ledger answers, or delete refused ones: `deed spool drop --rejected`"
            )
            return Unavailable("SPOOL_FULL", message, folder=str(self.folder), events=events, size=size)
        number = 1 + max(map(_number, stored), default=0)
        ids = [event_id(commitment_to(body)) for body in submission.bodies]
        path = self.folder / f"{number:09}-{len(heads)}-{ids[0].partition(':')[2][:16]}.msg"
        # With this label, the next writer removes the remains of a crash.
        with _own_files(path), replacing(path, label="spool-") as file:
            file.write(content)
        message = (
            f"NOT recorded yet: {_state(outage)} ({outage.code}). It is signed and stored as number {number}, after "
            f"{len(self.waiting()) - 1} others. Your next operation sends it, or `deed spool send`. Do not repeat it."
        )
        details = {"recorded": False, "reason": outage.code, "number": number, "ids": ids, "folder": str(self.folder)}
        return Unavailable("SPOOLED", message, **details)

    def _reject(self, path: Path, refusal: Refused) -> None:
        target = self._rejected_folder / path.name
        with _own_files(target):
            self._rejected_folder.mkdir(mode=0o700, exist_ok=True)
            # The reason comes first: if we crash after it, the submission is sent again and refused again.
            write_whole(_reason(target), msgspec.json.encode(refusal.to_dict(), order="deterministic"))
            path.rename(target)
            sync_folder(self._rejected_folder)
            sync_folder(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            with _own_files(self.folder):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.folder))
            yield


def spools(home: Path) -> list[tuple[str, Spool]]:
    """Return the names of the agents that have a spool in a ledger's folder, each with its spool."""
    folder = home / FOLDER
    with _own_files(folder, "cannot be read"):
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return [(name, Spool(home, name)) for name in names]


@contextmanager
def _own_files(path: Path, problem: str = "cannot be written") -> Iterator[None]:
    """Convert an error of the spool's own files to ``SPOOL_UNAVAILABLE``, because the ledger may be fine."""
    try:
        with as_unavailable(path, problem):
            yield
    except Unavailable as error:
        raise Unavailable("SPOOL_UNAVAILABLE", f"the spool cannot be used: {error.message}", path=str(path)) from error


def _state(outage: Unavailable) -> str:
    """Return the state of a ledger that raised ``outage``, for a message."""
    if outage.code == "BUSY":
        return "the ledger is busy"
    return "the ledger is away" if outage.code in _AWAY_CODES else "the ledger cannot record it now"


def _list_files(folder: Path) -> list[Path]:
    with _own_files(folder, "cannot be read"):
        try:
            return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return []


def _read(path: Path) -> Submission:
    with _own_files(path, "cannot be read"):
        content = read_regular(path, size_max_bytes=limits.request_size_max_bytes, is_own=True)
    return decode_submission(content or b"")


def _number(path: Path) -> int:
    return int(path.name.split("-")[0])


def _reason(path: Path) -> Path:
    return path.with_suffix(".json")
