"""``deed fsck --repair``: rebuilds the tables that the log derived from its entries.

The repair is one write transaction: nobody can append meanwhile. A stopped repair has changed nothing, and can be
started again. A repair never changes entries or the tree. An entry that a rule refuses stays in the log and is
*skipped*: no reader counts it any more, and every audit still reports it.

If entries do not match the tree or their signatures are wrong, the repair refuses to run: it would make the damage
valid. Restore a backup instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from deedbook.consumers.auditor.replay import LogReplay
from deedbook.consumers.auditor.report import Findings, Problem
from deedbook.ledger.admission.candidate import Candidate
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.remnant import LACKS_FAMILY
from deedbook.ledger.limits import range_events_max, range_size_max_bytes
from deedbook.ledger.log.keys import HEAD_KEY, NOT_REPLAYED, id_key, index_key, skipped_key
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.tables import Head
from deedbook.ledger.packages import family_missing

if TYPE_CHECKING:
    import lmdb

    from deedbook.ledger.log.state import Snapshot

# Codes that no rule gives. They mean that the log itself is damaged, not only the derived tables.
_OF_THE_LOG: Final = frozenset({"SIGNATURE_INVALID", "INVALID_FORMAT", "UNSUPPORTED_VERSION", "TOO_LARGE", "CORRUPTED"})


class FsckRepair(msgspec.Struct, frozen=True):
    """The result of a repair: how many records and ids it wrote and removed, and the entries that are now skipped."""

    size: int
    written: int
    removed: int
    skipped: list[Problem]


def repair(home: Path, *, map_size: int, progress: Callable[[int, int], None] | None = None) -> FsckRepair:
    """Rebuild the derived tables of the ledger in ``home``; ``progress`` is called with entries done and to do.

    Raises Unavailable: ``NO_LEDGER``, ``STORE_UNAVAILABLE``, ``STORE_FULL``: nothing was changed. Corrupted: the log
    itself is damaged, and nothing was changed. Refused: ``FAMILY_MISSING`` or ``FAMILY_UNUSABLE``: it needs a package.
    """
    findings = Findings()
    with Log(home, map_size=map_size) as log, log.writing() as (txn, snapshot):
        head = snapshot.head
        if head is None:
            return FsckRepair(0, 0, 0, [])
        ids: dict[bytes, bytes] = {}

        def observe(index: int, candidate: Candidate) -> None:
            ids.setdefault(id_key(candidate.body.stream, candidate.id), index_key(index))

        replay = LogReplay(findings, head.size, observe=observe)
        try:
            _replay_all(snapshot, head.size, replay, progress or (lambda _done, _total: None))
            replay.finish()
        finally:
            replay.stop()
        _require_whole(replay, head, findings)
        state = _state(txn, log.tables.state, replay.memory.packed | {HEAD_KEY: _head(head, replay)})
        # If we crash here, or before the commit, LMDB drops the transaction, and the tables are as before.
        changes = [_rewrite(txn, log.tables.state, state), _rewrite(txn, log.tables.ids, ids)]
    written, removed = (sum(counts) for counts in zip(*changes, strict=True))
    skipped = [problem for problem in findings.sorted_problems() if skipped_key(problem.index or 0) in state]
    return FsckRepair(head.size, written, removed, skipped)


def _replay_all(snapshot: Snapshot, size: int, replay: LogReplay, progress: Callable[[int, int], None]) -> None:
    while replay.size < size:
        limit = min(range_events_max, size - replay.size)
        entries = snapshot.entries(replay.size, limit=limit, size_max_bytes=range_size_max_bytes)
        if not entries:
            raise Corrupted("CORRUPTED", f"entry {replay.size} is missing: restore a backup", index=replay.size)
        replay.feed(entries)
        progress(replay.size, size)


def _require_whole(replay: LogReplay, head: Head, findings: Findings) -> None:
    if replay.unread:
        raise family_missing(next(iter(replay.unread)))  # else its streams would lose their states
    frontier, problems = replay.frontier, findings.sorted_problems()
    if unusable := [problem for problem in problems if problem.code in LACKS_FAMILY]:
        message = f"{unusable[0].message}: nothing was changed"
        raise Refused("FAMILY_UNUSABLE", message, index=unusable[0].index)
    damage = [problem for problem in problems if problem.code in _OF_THE_LOG]
    if damage or replay.lost_from is not None:
        index = damage[0].index if damage else replay.lost_from
        message = f"entry {index} itself is damaged, and nothing was changed: restore a backup (`deed fsck` shows more)"
        raise Corrupted("CORRUPTED", message, index=index)
    if frontier is None or frontier.to_bytes() != head.frontier:
        message = (
            "the entries do not match the tree, and nothing was changed: restore a backup (`deed fsck` shows more)"
        )
        raise Corrupted("CORRUPTED", message)


def _head(head: Head, replay: LogReplay) -> bytes:
    versions = {"authority_version": replay.memory.authority_version}
    return msgspec.msgpack.encode(msgspec.structs.replace(head, accepted_ms=replay.clock_ms, **versions))


def _rewrite(txn: lmdb.Transaction, table: lmdb._Database, wanted: dict[bytes, bytes]) -> tuple[int, int]:
    stored = _records(txn, table)
    extra = stored.keys() - wanted.keys()
    for key in extra:
        txn.delete(key, db=table)
    wrong = [(key, value) for key, value in sorted(wanted.items()) if stored.get(key) != value]
    for key, value in wrong:
        txn.put(key, value, db=table)
    return len(wrong), len(extra)


def _state(txn: lmdb.Transaction, table: lmdb._Database, wanted: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the target state: ``wanted``, plus the stored records of those types that no replay produces."""
    return wanted | {key: value for key, value in _records(txn, table).items() if key[:1] in NOT_REPLAYED}


def _records(txn: lmdb.Transaction, table: lmdb._Database) -> dict[bytes, bytes]:
    return {bytes(key): bytes(value) for key, value in txn.cursor(db=table)}
