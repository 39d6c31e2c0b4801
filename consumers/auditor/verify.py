"""``deed verify``: every signature, rule and tree hash of a ledger, over a client, without writing to it.

With a file of what the last audit found right (``consumers.auditor.cache``) only what is new is verified.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deedbook.consumers.auditor.cache import Keeper, Kept, read_kept
from deedbook.consumers.auditor.replay import Replay
from deedbook.consumers.auditor.report import Anchor, AuditReport, Findings
from deedbook.consumers.auditor.signatures import PROCESSES, apart, cores, pooled_events_min
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, DeedbookError
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.limits import range_events_max
from deedbook.ledger.trust.history import ResetPoint, Trusted
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.comparison import compare_beside, verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from deedbook.ledger.client.client import Client
    from deedbook.ledger.home.config import Settings
    from deedbook.projections.views.comparison import Difference


def verify_log(
    client: Client,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    views: Settings | None = None,
    kept: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a ledger, local or remote, as it is when it begins.

    ``root`` is the fingerprint of the root key, ``trusted_checkpoint`` a note kept from earlier; with settings in
    ``views``, the views are rebuilt and compared. In the file ``kept`` lies what the last audit with it found right:
    that is hashed again, and only what follows it is verified; nothing is kept of a log in which a problem was found.
    A log that does not begin with it is wrong, unless a history reset that began since abandons it.
    ``progress`` is called with entries done and to do: with views each counts twice, as it is replayed and compared.
    Raises Refused: ``INVALID_FORMAT`` when the trusted checkpoint is no checkpoint. Unavailable: the ledger could not
    be read.
    """
    findings = Findings()
    last = None if kept is None else read_kept(kept, client.ledger)
    head = client.head()  # after that: what another audit keeps at this moment may end behind an older head
    anchor = Anchor(findings, root, trusted_checkpoint)
    with ExitStack() as stack:
        is_long = head.size > pooled_events_min and cores() > 1 and isinstance(client, LocalClient)
        beside = _begin_comparison(views, stack) if views is not None and is_long else None
        tell = progress or (lambda _done, _total: None)
        whole = head.size if views is None else 2 * head.size  # they are replayed, and compared with the views
        replay, lost = Replay(findings, head.size - (last.size if last else 0), roots_at=anchor.sizes), None
        if last is not None and not _hash_again(client, head.size, replay, last, lambda done: tell(done, whole)):
            replay, lost = Replay(findings, head.size, roots_at=anchor.sizes), last
        last, resumed_at = None, replay.size  # what the replay took over is not held twice
        stack.callback(replay.stop)
        keeper = None if kept is None else Keeper(kept, findings)

        def verified(done: int) -> None:
            tell(done, whole)
            if keeper is not None:
                is_end = done == head.size
                keeper.keep(lambda: replay.keep() if lost is None or _abandons(replay, lost) else None, is_end=is_end)

        _replay_all(client, head.size, replay, findings, verified)
        replay.finish()
        if lost is not None:
            _tell_lost(replay, lost, findings)
        if views is not None:

            def tell_compared(done: int, total: int) -> None:
                tell(head.size + head.size * done // max(total, 1), whole)

            _check_views(client, views, beside, findings, tell_compared)
    if replay.ledger != head.ledger:
        findings.problem(0, "WRONG_LEDGER", f"entry 0 is not of the ledger {head.ledger} that was asked for")
    frontier = replay.frontier
    if replay.size == head.size and frontier is not None and frontier.root().hex() != head.root:
        message = "the entries do not give the root of the log's head: `deed fsck` says which"
        findings.problem(None, "VERIFICATION_FAILED", message)
    return anchor.report("log", replay.outcome, resumed_at=resumed_at)


def _begin_comparison(settings: Settings, stack: ExitStack) -> Connection:
    """Have the views compared in a process of its own, beside the replay; return where the answer comes."""
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
    answer: list[Difference] | DeedbookError | None = None
    with suppress(EOFError):  # it was killed, as by a lack of memory: they are compared here
        while beside is not None and isinstance(answer := beside.recv(), tuple):
            progress(*answer)
            answer = None
    try:
        if isinstance(answer, DeedbookError):
            raise answer
        if answer is None:
            with Reader(client, settings) as reader:
                answer = verify_views(client, reader.store, VIEWS, progress=progress)
        for table in answer:
            message = f"table {table.table} of view {table.view} is not what the log gives"
            findings.problem(None, "VERIFICATION_FAILED", f"{message}: `deed project` rebuilds it")
    except Corrupted as error:
        findings.problem(None, error.code, f"the views: {error.message}")


def _hash_again(client: Client, size: int, replay: Replay, kept: Kept, progress: Callable[[int], None]) -> bool:
    """Let a replay go on from what the last audit kept; return whether the log still begins with what that verified."""
    if size < kept.size:
        return False
    wanted, again = kept.read_again, dict[int, bytes]()
    with suppress(Corrupted):  # what cannot be read is found again, and named, by the replay of the whole
        while replay.size < kept.size and (entries := _read(client, replay.size, kept.size)):
            start = replay.size
            replay.hash_again(entries)
            first, end = (bisect_left(wanted, size) for size in (start, replay.size))
            again |= {index: entries[index - start] for index in wanted[first:end]}
            progress(replay.size)
    frontier = replay.frontier
    if frontier is None or (frontier.size, frontier.root()) != (kept.size, kept.root):
        return False
    replay.go_on(kept, again)
    return True


def _abandons(replay: Replay, lost: Kept) -> ResetPoint | None:
    """Return the reset, begun since, that abandons what the last audit found right; None where there is none yet."""
    held = Trusted(lost.size, lost.root.hex())
    for index, _, data in replay.authority:
        if isinstance(data, HistoryReset) and replay.state.indexes.get(lost.id_at(index)) != index:
            reset = ResetPoint(index, data.abandoned_size, data.abandoned_root, data.reason)
            if reset.covers(held):
                return reset
    return None


def _tell_lost(replay: Replay, lost: Kept, findings: Findings) -> None:
    """Say, once, that a history reset abandons what the last audit found right; else that the log has lost it."""
    if (reset := _abandons(replay, lost)) is not None:
        findings.note(reset.index, "HISTORY_CHANGED", str(reset))
        return
    message = f"the log does not begin with the {lost.size} that the last audit found right: all are verified anew"
    findings.problem(0, "HISTORY_CHANGED", message, end=lost.size)


def _read(client: Client, start: int, size: int) -> list[bytes]:
    """Return the next entries; none where one is missing. Raises Corrupted."""
    page = client.entries(start, limit=min(range_events_max, size - start))
    entries = [data for offset, (index, data) in enumerate(page.entries) if index == start + offset]
    return entries[: size - start]


def _replay_all(client: Client, size: int, replay: Replay, findings: Findings, progress: Callable[[int], None]) -> None:
    while replay.size < size:
        position = replay.size
        try:
            entries = _read(client, position, size)
        except Corrupted as error:
            message = f"entries from {position} on cannot be read: {error.message}"
            findings.problem(position, error.code, message, end=size)
            return
        if not entries:
            findings.problem(position, "CORRUPTED", f"entry {position} is missing", end=size)
            return
        replay.feed(entries)
        progress(replay.size)
