"""``baton verify``: what a stranger can check of a ledger, over a client or from a bundle, without writing anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from consumers.auditor.bundle_check import check_log, check_stream
from consumers.auditor.replay import Replay
from consumers.auditor.report import Anchor, AuditReport, Findings
from consumers.auditor.signatures import PROCESSES, cores, pooled_events_min
from ledger.bundle import open_bundle
from ledger.errors import BatonError, Corrupted
from ledger.limits import range_events_max
from ledger.local import LocalClient

if TYPE_CHECKING:
    from ledger.client import Client, HeadView
    from ledger.config import Settings
    from projections import Difference

Step: TypeAlias = Callable[[int, int], None]


def verify_log(
    client: Client,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    views: Settings | None = None,
    progress: Step | None = None,
) -> AuditReport:
    """Return the audit of a ledger, local or remote, as it is when it begins.

    ``root`` is the fingerprint of the root key, ``trusted_checkpoint`` a note kept from earlier; with settings in
    ``views``, the views are rebuilt and compared. ``progress`` is called with entries done and to do; with views each
    is to be done twice.

    Raises:
        Refused: ``INVALID_FORMAT`` when the trusted checkpoint is no checkpoint.
        Unavailable: the ledger could not be read.
    """
    findings = Findings()
    head = client.head()
    anchor = Anchor(findings, root, trusted_checkpoint)
    replay = Replay(findings, head.size, roots_at=anchor.sizes)
    step = progress or (lambda _done, _total: None)
    comparison = None if views is None else _Comparison(client, views, head.size, step)
    try:
        _replay_all(client, head.size, replay, findings, step if comparison is None else comparison.step)
        replay.finish()
        _compare_head(head, replay, findings)
        if comparison is not None:
            comparison.finish(findings)
    finally:
        replay.stop()
        if comparison is not None:
            comparison.stop()
    return anchor.report("log", replay)


def _compare_head(head: HeadView, replay: Replay, findings: Findings) -> None:
    if replay.ledger != head.ledger:
        findings.problem(0, "WRONG_LEDGER", f"entry 0 is not of the ledger {head.ledger} that was asked for")
    frontier = replay.frontier
    if replay.size == head.size and frontier is not None and frontier.root().hex() != head.root:
        message = "the entries do not give the root of the log's head: `baton fsck` says which"
        findings.problem(None, "VERIFICATION_FAILED", message)


def verify_bundle(
    path: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Step | None = None,
) -> AuditReport:
    """Return the audit of an exported bundle; of one stream, with what it lacks.

    Raises:
        Refused: ``NOT_FOUND``, ``INVALID_FORMAT`` or ``TOO_LARGE``: the file is no bundle.
    """
    findings = Findings()
    anchor = Anchor(findings, root, trusted_checkpoint)
    try:
        with open_bundle(path) as bundle:
            if bundle.manifest.content == "stream":
                return check_stream(bundle, findings, anchor)
            return check_log(bundle, findings, anchor, progress or (lambda _done, _total: None))
    except Corrupted as error:
        findings.problem(error.details.get("index"), error.code, error.message, end=error.details.get("end"))
        return AuditReport(
            source="bundle",
            problems=findings.sorted_problems(),
            problems_total=findings.problems_total,
        )


class _Comparison:
    """Of the views with the log: beside the replay of a long one, in a process of its own, else after it."""

    def __init__(self, client: Client, settings: Settings, size: int, progress: Step) -> None:
        from projections import verify  # noqa: PLC0415 - the view store, which most audits do not need

        self._compare = partial(verify.compare, client, settings, self._fold)
        self._size, self._progress = size, progress
        self._replayed = self._folded = 0
        self._answer: list[Difference] | BatonError | None = None
        self._is_beside = size > pooled_events_min and cores() > 1 and isinstance(client, LocalClient)
        if self._is_beside:
            self._answers, answering = PROCESSES.Pipe(duplex=False)
            self._process = PROCESSES.Process(target=verify.compare_beside, args=(settings, answering), daemon=True)
            self._process.start()
            answering.close()

    def step(self, replayed: int, _size: int) -> None:
        """Tell how far the replay has come, and the views beside it."""
        self._replayed = replayed
        while self._is_waiting and self._answers.poll():
            self._receive()
        self._progress(self._replayed + self._folded, 2 * self._size)

    def finish(self, findings: Findings) -> None:
        """Report what differs."""
        while self._is_waiting:
            self._receive()
            self.step(self._replayed, self._size)
        try:
            answer = self._answer
            if answer is None:
                answer = self._compare()
            if isinstance(answer, BatonError):
                raise answer
        except Corrupted as error:
            findings.problem(None, error.code, f"the views: {error.message}")
            return
        for table in answer:
            message = f"table {table.table} of view {table.view} is not what the log gives"
            findings.problem(None, "VERIFICATION_FAILED", f"{message}: `baton project` rebuilds it")

    def stop(self) -> None:
        """Stop the process, whatever it still does."""
        if self._is_beside:
            self._process.terminate()
            self._process.join()
            self._is_beside = False

    @property
    def _is_waiting(self) -> bool:
        return self._is_beside and self._answer is None

    def _receive(self) -> None:
        try:
            message = self._answers.recv()
        except EOFError:  # it was killed, as by a lack of memory: the views are compared here
            self.stop()
            return
        if isinstance(message, int):
            self._folded = message
        else:
            self._answer = message

    def _fold(self, folded: int) -> None:
        self._folded = folded
        self.step(self._replayed, self._size)


def _replay_all(client: Client, size: int, replay: Replay, findings: Findings, progress: Step) -> None:
    while replay.size < size:
        position = replay.size
        try:
            page = client.entries(position, limit=min(range_events_max, size - position))
        except Corrupted as error:
            message = f"entries from {position} on cannot be read: {error.message}"
            findings.problem(position, error.code, message, end=size)
            return
        entries = [data for offset, (index, data) in enumerate(page.entries) if index == position + offset]
        if not entries:
            findings.problem(position, "CORRUPTED", f"entry {position} is missing", end=size)
            return
        replay.feed(entries[: size - position])
        progress(replay.size, size)
