"""Compares the audited log or bundle with the heads that this reader trusted before: the verdict HISTORY_CHANGED.

When a client opens a log, it compares the log with the head that was trusted at the same location. An audit also
compares with the heads that this user's trust stores hold for other locations of the ledger, because a copied folder
may have a history of its own. A log or bundle may be older than the trusted head, and a bundle may contain only one
stream. Then the log at that location, if it still exists, decides whether the tree is one of its own earlier trees.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.ledger.errors import Corrupted, DeedbookError
from deedbook.ledger.events.authority import HistoryReset
from deedbook.ledger.home.config import read_config
from deedbook.ledger.log.reader import LogReader
from deedbook.ledger.trust.history import ResetPoint, head_text
from deedbook.ledger.trust.store import SERVER, TrustStore

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import Findings, ReplayOutcome
    from deedbook.ledger.bundle import Manifest
    from deedbook.ledger.trust.history import TrustedHead
    from deedbook.ledger.trust.store import TrustRecord


_LEDGER: Final = re.compile("[0-9a-f]{32}")


def report_disagreement(disagreement: Corrupted | None, findings: Findings) -> None:
    """Record how the log contradicts the trust store. Raises Corrupted: the two could not be compared."""
    if disagreement is not None:
        if disagreement.code != "HISTORY_CHANGED":
            raise disagreement
        findings.contradiction(None, disagreement.message)


def trusted_records(ledger: str) -> list[TrustRecord]:
    """Return the heads of a ledger that this user trusted.

    Heads of deleted folders count only if there are no others.
    """
    if _LEDGER.fullmatch(ledger) is None:  # the manifest contains this name, and nobody signs the manifest
        return []
    records = TrustStore.of_server(ledger).records()
    return [record for record in records if _is_used(record)] or records


def trusted_elsewhere(store: TrustStore) -> list[TrustRecord]:
    """Return the heads of the same ledger that this user trusted at other locations whose folders still exist."""
    return [record for record in store.others() if _is_used(record)]


def _is_used(record: TrustRecord) -> bool:
    return record.location == SERVER or record.is_present


def compare_bundle(manifest: Manifest, outcome: ReplayOutcome, records: list[TrustRecord], findings: Findings) -> None:
    """Compare a replayed bundle with the trusted heads, and record each contradiction."""
    if not _compare("bundle", outcome, records, findings, size=manifest.size, root=manifest.root):
        sizes = ", ".join(f"{record.trusted.size} of {record.location}" for record in records)
        message = f"the bundle was not compared with the heads that you trusted before, of other sizes: {sizes}"
        findings.note(None, "NOT_FOUND", message)


def compare_log(outcome: ReplayOutcome, records: list[TrustRecord], findings: Findings) -> None:
    """Compare a replayed log with the heads that were trusted at other locations, and record each contradiction."""
    if outcome.root is not None:
        _compare("log", outcome, records, findings, size=outcome.size, root=outcome.root.hex())


def _compare(
    what: str, outcome: ReplayOutcome, records: list[TrustRecord], findings: Findings, *, size: int, root: str
) -> bool:
    """Record each contradiction between a tree and the trusted heads; return whether any head could be compared."""
    is_compared = not records
    for record in records:
        trusted = record.trusted
        if trusted.size in outcome.roots:
            is_same, reset = outcome.roots[trusted.size].hex() == trusted.root, _new_reset(outcome, trusted)
            if not is_same and reset is not None:
                findings.note(reset.index, "HISTORY_CHANGED", str(reset))
                continue
        elif (known := _root_of_log(record, size)) is not None:
            is_same = root == known
        else:
            continue
        is_compared = True
        if not is_same:
            had = f"trusts {head_text(trusted.size, trusted.root)}"
            message = f"this {what} is of another history than the one at {record.location}: its trust store {had}"
            findings.contradiction(None, message)
    return is_compared


def _new_reset(outcome: ReplayOutcome, trusted: TrustedHead) -> ResetPoint | None:
    """Return the bundle's history reset that abandons the trusted head and is new to the reader; else None."""
    replay = outcome.replay
    known = {replay.state.index_of("ledger", id_) for id_ in trusted.resets}
    for index, _, data in replay.authority:
        if isinstance(data, HistoryReset) and index not in known:
            reset = ResetPoint(index, data.abandoned_size, data.abandoned_root, data.reason)
            if reset.covers(trusted):
                return reset
    return None


def _root_of_log(record: TrustRecord, size: int) -> str | None:
    """Return the root of the first ``size`` entries of the log at a location; None if it is unknown.

    A log that is deleted, too short, or no longer the trusted one cannot tell it.
    """
    if not record.is_present:
        return None
    home, trusted = Path(record.location), record.trusted
    try:
        with LogReader(home, map_size=read_config(home).map_size_bytes) as log, log.snapshot() as snapshot:
            if snapshot.size < max(size, trusted.size):
                return None
            if snapshot.frontier(trusted.size).root().hex() != trusted.root:
                return None
            return snapshot.frontier(size).root().hex()
    except DeedbookError:
        return None
