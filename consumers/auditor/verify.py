"""``baton verify``: what a stranger can check of a ledger, over a client or from a bundle, without writing anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from consumers.auditor.bundle_check import check_log, check_stream
from consumers.auditor.replay import Replay
from consumers.auditor.report import Anchor, AuditReport, Findings
from consumers.auditor.signatures import PROCESSES, apart, cores, pooled_events_min
from ledger.bundle import open_bundle
from ledger.errors import BatonError, Corrupted
from ledger.limits import range_events_max
from ledger.local import LocalClient

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ledger.client import Client
    from ledger.config import Settings
    from projections import Difference


def verify_log(
    client: Client,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    views: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a ledger, local or remote, as it is when it begins.

    ``root`` is the fingerprint of the root key, ``trusted_checkpoint`` a note kept from earlier; with settings in
    ``views``, the views are rebuilt and compared. ``progress`` is called with entries done and to do: with views each
    counts twice, as it is replayed and compared. Raises Refused: ``INVALID_FORMAT`` when the trusted checkpoint is no
    checkpoint. Unavailable: the ledger could not be read.
    """
    findings = Findings()
    head = client.head()
    anchor = Anchor(findings, root, trusted_checkpoint)
    replay = Replay(findings, head.size, roots_at=anchor.sizes)
    with ExitStack() as stack:
        stack.callback(replay.stop)
        is_long = head.size > pooled_events_min and cores() > 1 and isinstance(client, LocalClient)
        beside = _begin_comparison(views, stack) if views is not None and is_long else None
        tell = progress or (lambda _done, _total: None)
        whole = head.size if views is None else 2 * head.size  # they are replayed, and compared with the views
        _replay_all(client, head.size, replay, findings, lambda done, _total: tell(done, whole))
        replay.finish()
        if views is not None:

            def tell_compared(done: int, total: int) -> None:
                tell(head.size + head.size * done // max(total, 1), whole)

            _check_views(client, views, beside, findings, tell_compared)
    if replay.ledger != head.ledger:
        findings.problem(0, "WRONG_LEDGER", f"entry 0 is not of the ledger {head.ledger} that was asked for")
    frontier = replay.frontier
    if replay.size == head.size and frontier is not None and frontier.root().hex() != head.root:
        message = "the entries do not give the root of the log's head: `baton fsck` says which"
        findings.problem(None, "VERIFICATION_FAILED", message)
    return anchor.report("log", replay)


def verify_bundle(
    path: Path,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of an exported bundle; of one stream, with what it lacks.

    Raises Refused: ``NOT_FOUND``, ``INVALID_FORMAT`` or ``TOO_LARGE``: the file is no bundle.
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
        return AuditReport(source="bundle", problems=findings.sorted_problems(), problems_total=findings.problems_total)


def _begin_comparison(settings: Settings, stack: ExitStack) -> Connection:
    """Have the views compared in a process of its own, beside the replay; return where the answer comes."""
    from projections.verify import compare_beside  # noqa: PLC0415 - the view store, which most audits do not need

    answers, answering = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=compare_beside, args=(settings, answering), daemon=True)
    with apart():
        process.start()
    answering.close()
    stack.callback(process.join)
    stack.callback(process.terminate)  # before: whoever interrupts the audit does not wait for the views
    return answers


def _check_views(
    client: Client,
    settings: Settings,
    beside: Connection | None,
    findings: Findings,
    progress: Callable[[int, int], None],
) -> None:
    from projections import VIEWS, Reader, verify_views  # noqa: PLC0415 - as above

    answer: list[Difference] | BatonError | None = None
    with suppress(EOFError):  # it was killed, as by a lack of memory: they are compared here
        while beside is not None and isinstance(answer := beside.recv(), tuple):
            progress(*answer)
            answer = None
    try:
        if isinstance(answer, BatonError):
            raise answer
        if answer is None:
            with Reader(client, settings) as reader:
                answer = verify_views(client, reader.store, VIEWS, progress=progress)
        for table in answer:
            message = f"table {table.table} of view {table.view} is not what the log gives"
            findings.problem(None, "VERIFICATION_FAILED", f"{message}: `baton project` rebuilds it")
    except Corrupted as error:
        findings.problem(None, error.code, f"the views: {error.message}")


def _replay_all(
    client: Client, size: int, replay: Replay, findings: Findings, progress: Callable[[int, int], None]
) -> None:
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
