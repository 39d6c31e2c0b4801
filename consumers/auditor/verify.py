"""``deed verify``: verifies every signature, rule and tree hash of a ledger, through a client, without writing to it.

With the cache of an earlier audit (``consumers.auditor.cache``) only new entries are verified.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deedbook.consumers.auditor.cache import AuditCache, CachedReplay, read_cached_replay
from deedbook.consumers.auditor.replay import LogReplay
from deedbook.consumers.auditor.report import Anchor, AuditReport, Findings
from deedbook.consumers.auditor.signatures import cores, pooled_signatures_min
from deedbook.consumers.auditor.trusted_heads import compare_log, report_disagreement, trusted_elsewhere
from deedbook.consumers.sdk.child import Child
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.limits import range_events_max
from deedbook.ledger.trust.history import ResetPoint, TrustedHead
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.comparison import compare_beside, verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.home.config import Settings
    from deedbook.projections.views.comparison import Difference


def verify_log(
    client: Client,
    *,
    root: str | None = None,
    trusted_checkpoint: str | None = None,
    views: Settings | None = None,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return the audit of a ledger, local or remote, at its size when the audit begins.

    ``root`` is the fingerprint of the root key, ``trusted_checkpoint`` a checkpoint saved earlier. With settings in
    ``views``, the views are rebuilt and compared. The file ``cache`` holds what the last audit verified: these entries
    are only hashed again, and the audit verifies what follows. A log with a problem is not cached. A log that does not
    begin with the cached entries is wrong, unless a later history reset abandons them. ``progress`` is called with
    entries done and to do; with views each entry counts twice (replayed, compared). A client that only looks may read a
    log that contradicts the trust store: then the verdict is HISTORY_CHANGED. The verdict is the same if the log
    contradicts the head that this user trusted in another folder, or over the bus. Raises Refused: ``INVALID_FORMAT``
    if the trusted checkpoint is no checkpoint. Unavailable: the ledger cannot be read. Corrupted: the trust store is
    damaged, or no key of the ledger signed the node's head.
    """
    findings = Findings()
    report_disagreement(client.disagreement, findings)
    last = None if cache is None else read_cached_replay(cache, client.ledger)
    head = client.head()  # read after the cache: another audit may just have cached more than an older head has
    anchor = Anchor(findings, root, trusted_checkpoint)
    elsewhere = trusted_elsewhere(client.trust_store)
    roots_at = anchor.sizes | {record.trusted.size for record in elsewhere}
    with ExitStack() as stack:
        is_long = head.size > pooled_signatures_min and cores() > 1 and isinstance(client, LocalClient)
        beside = _begin_comparison(views, stack) if views is not None and is_long else None
        report_progress = progress or (lambda _done, _total: None)
        total = head.size if views is None else 2 * head.size  # entries are replayed, and compared with the views
        replay, lost = LogReplay(findings, head.size - (last.size if last else 0), roots_at=roots_at), None
        if last is not None and not _rehash(client, head.size, replay, last, lambda done: report_progress(done, total)):
            replay, lost = LogReplay(findings, head.size, roots_at=roots_at), last
        last, resumed_at = None, replay.size  # the replay has taken this state over: free it here
        stack.callback(replay.stop)
        audit_cache = None if cache is None else AuditCache(cache, findings)

        def verified(done: int) -> None:
            report_progress(done, total)
            if audit_cache is not None:
                is_end = done == head.size
                audit_cache.store(
                    lambda: replay.to_cache() if lost is None or _abandons(replay, lost) else None, is_end=is_end
                )

        _replay_all(client, head.size, replay, findings, verified)
        replay.finish()
        if lost is not None:
            _report_lost(replay, lost, findings)
        _check_blobs(client, replay.needed_blobs(), findings)
        if views is not None:

            def compared(done: int, to_do: int) -> None:
                report_progress(head.size + head.size * done // max(to_do, 1), total)

            _check_views(client, views, beside, findings, compared)
    if replay.ledger != head.ledger:
        findings.problem(
            0, "WRONG_LEDGER", f"entry 0 belongs to another ledger than {head.ledger}, which you asked for"
        )
    frontier = replay.frontier
    if replay.size == head.size and frontier is not None and frontier.root().hex() != head.root:
        message = "the root hash of the entries differs from the log's head: `deed fsck` shows which entries"
        findings.problem(None, "VERIFICATION_FAILED", message)
    compare_log(replay.outcome, elsewhere, findings)
    return anchor.report("log", replay.outcome, resumed_at=resumed_at)


def _check_blobs(client: Client, needed: Mapping[str, int], findings: Findings) -> None:
    """Report each blob that an entry needs and that the ledger lacks or has only in part."""
    for ref, index in needed.items():
        try:
            blob = client.stat_blob(ref)
        except Refused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
            findings.missing_blob(ref, index)
            continue
        if blob.received < blob.size:
            findings.missing_blob(ref, index)


def _begin_comparison(settings: Settings, stack: ExitStack) -> Child:
    """Compare the views in a second process during the replay; return that process."""
    child = Child(compare_beside, settings)
    stack.callback(child.stop)  # an interrupted audit does not wait for the views
    return child


def _check_views(
    client: Client,
    settings: Settings,
    beside: Child | None,
    findings: Findings,
    progress: Callable[[int, int], None],
) -> None:
    answer: list[Difference] | DeedbookError | None = None
    with suppress(EOFError):  # the process was killed, for example out of memory: compare here
        while beside is not None and isinstance(answer := beside.receive(), tuple):
            progress(*answer)
            answer = None
    try:
        if isinstance(answer, DeedbookError):
            raise answer
        if answer is None:
            with Reader(client, settings) as reader:
                answer = verify_views(client, reader.store, VIEWS, progress=progress)
        for table in answer:
            message = f"table {table.table} of view {table.view} contradicts the log"
            findings.problem(None, "VERIFICATION_FAILED", f"{message}: `deed project` rebuilds it")
    except Corrupted as error:
        if error.code == "HISTORY_CHANGED":
            findings.contradiction(None, f"the views: {error.message}")
        else:
            findings.problem(None, error.code, f"the views: {error.message}")


def _rehash(
    client: Client, size: int, replay: LogReplay, cached: CachedReplay, progress: Callable[[int], None]
) -> bool:
    """Resume a replay from the cache; return whether the log still begins with the cached entries."""
    if size < cached.size:
        return False
    wanted, reread = cached.reread_indexes, dict[int, bytes]()
    with suppress(Corrupted):  # the full replay will meet the unreadable entry again, and report it
        while replay.size < cached.size and (entries := _read(client, replay.size, cached.size)):
            start = replay.size
            replay.rehash(entries)
            first, end = (bisect_left(wanted, size) for size in (start, replay.size))
            reread |= {index: entries[index - start] for index in wanted[first:end]}
            progress(replay.size)
    frontier = replay.frontier
    if frontier is None or (frontier.size, frontier.root()) != (cached.size, cached.root):
        return False
    replay.resume(cached, reread)
    return True


def _abandons(replay: LogReplay, lost: CachedReplay) -> ResetPoint | None:
    """Return the history reset since the last audit that abandons the cached entries; None if there is none yet."""
    cached = TrustedHead(lost.size, lost.root.hex())
    for index, _, data in replay.authority:
        if isinstance(data, HistoryReset) and replay.memory.indexes.get(lost.id_at(index)) != index:
            reset = ResetPoint(index, data.abandoned_size, data.abandoned_root, data.reason)
            if reset.covers(cached):
                return reset
    return None


def _report_lost(replay: LogReplay, lost: CachedReplay, findings: Findings) -> None:
    """Report the history reset that abandons the cached entries; if there is none, report that the log lost them."""
    if (reset := _abandons(replay, lost)) is not None:
        findings.note(reset.index, "HISTORY_CHANGED", str(reset))
        return
    message = (
        f"the log no longer begins with the {lost.size} entries of the last audit, so all entries were verified again"
    )
    findings.problem(0, "HISTORY_CHANGED", message, end=lost.size)


def _read(client: Client, start: int, size: int) -> list[bytes]:
    """Return the next entries; an empty list if the next one is missing. Raises Corrupted."""
    page = client.entries(start, limit=min(range_events_max, size - start))
    entries = [data for offset, (index, data) in enumerate(page.entries) if index == start + offset]
    return entries[: size - start]


def _replay_all(
    client: Client, size: int, replay: LogReplay, findings: Findings, progress: Callable[[int], None]
) -> None:
    while replay.size < size:
        position = replay.size
        try:
            entries = _read(client, position, size)
        except Corrupted as error:
            message = f"the entries from {position} on cannot be read: {error.message}"
            findings.problem(position, error.code, message, end=size)
            return
        if not entries:
            findings.problem(position, "CORRUPTED", f"entry {position} is missing", end=size)
            return
        replay.feed(entries)
        progress(replay.size)
