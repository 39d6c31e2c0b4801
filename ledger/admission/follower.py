"""The follower: appends the entries of another copy of this log byte for byte, after it has replayed each of them.

It runs all checks but the scan for secrets, which is not replayable. So the source of the entries, the log stream or
a backup, need not be trusted: the follower refuses an entry that the gate would not have admitted at this index, and
everything after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from deedbook.ledger.admission.candidate import Candidate
from deedbook.ledger.admission.erasure import erase_as_named
from deedbook.ledger.admission.gate import Transaction, first_head, records_cached_max
from deedbook.ledger.admission.replay import Replay, read_entry
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import ClockSet, EntryRedacted
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import LACKS_FAMILY
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, bodies_size, decode_entry, is_remnant, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import batch_size_max_bytes
from deedbook.ledger.log.keys import id_key
from deedbook.ledger.log.log import Log, PendingEntries
from deedbook.ledger.log.state import Snapshot


class SignedEntry(NamedTuple):
    """An entry with a valid signature, its bytes, and the candidate that the rules decide."""

    data: bytes
    entry: Entry
    candidate: Candidate


class LogFollower:
    """Appends the entries of another copy to one log.

    One thread uses it, and no other program should write meanwhile.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._cache: dict[bytes, Any] = {}
        self._cached_size = -1

    def append(self, start: int, entries: Sequence[bytes]) -> int:
        """Append the entries from index ``start`` on, in one commit; return how many it appended.

        Signed batches are appended whole: entries left over at the end belong to an incomplete batch. Raises Corrupted:
        ``VERIFICATION_FAILED``: this log cannot have admitted an entry here, and nothing was appended;
        ``HISTORY_CHANGED``: somebody else has written meanwhile. Refused: ``FAMILY_MISSING`` or ``FAMILY_UNUSABLE``: a
        package must be installed here first.
        """
        signed = self.read(start, entries)
        if signed:
            self.take(start, signed)
        return len(signed)

    @staticmethod
    def read(start: int, entries: Sequence[bytes]) -> list[SignedEntry]:
        """Return the entries of all complete units, with every signature verified. Raises as ``append``."""
        signed: list[SignedEntry] = []
        while (position := len(signed)) < len(entries):
            unit: list[SignedEntry] = []
            try:
                size = decode_entry(entries[position]).batch_size
                if position + size > len(entries):
                    break
                unit = [SignedEntry(data, *read_entry(data)) for data in entries[position : position + size]]
            except Refused as refusal:
                if refusal.code in LACKS_FAMILY:
                    raise
                raise _unfit(start + position + len(unit), str(refusal)) from refusal
            _check_unit(start + position, unit)
            signed += unit
        return signed

    def take(self, start: int, signed: Sequence[SignedEntry]) -> None:
        """Append the result of ``read`` for ``start``, with a separate commit for each redaction.

        Raises as ``append``.
        """
        alone = [at for at, (_, _, candidate) in enumerate(signed) if isinstance(candidate.data, EntryRedacted)]
        ends = sorted({*alone, *(at + 1 for at in alone), len(signed)} - {0})
        for first, end in pairwise([0, *ends]):
            self._take(start + first, signed[first:end])

    def _take(self, start: int, signed: Sequence[SignedEntry]) -> None:
        with self._log.writing() as (txn, snapshot):
            if snapshot.size != start:
                message = (
                    f"the log now has {snapshot.size} entries instead of {start}, because another process wrote to it"
                )
                raise Corrupted("HISTORY_CHANGED", message, size=snapshot.size, expected=start)
            layer, pending = self._decide(snapshot, signed)
            self._log.appender.append(txn, snapshot.head or first_head(layer.ledger), pending)
        # If we crash before this line, the log has none of them; after it, all of them. A restart reads the log's size.
        if not pending.erased:  # else the records may hold erased texts
            self._cache |= layer.records
            self._cached_size = start + len(signed)

    def _decide(self, snapshot: Snapshot, signed: Sequence[SignedEntry]) -> tuple[Layer, PendingEntries]:
        if self._cached_size != snapshot.size or len(self._cache) > records_cached_max:
            self._cache = {}
        # After a failed commit the cache may hold more than the log, so it is not used again.
        self._cached_size = -1
        replay = Replay(Transaction(snapshot, self._cache))
        pending = PendingEntries(accepted_ms=0 if snapshot.head is None else snapshot.head.accepted_ms)
        for index, (data, entry, candidate) in enumerate(signed, snapshot.size):
            # A jump ahead is accepted: the later entry in which root corrected it may not be among these yet.
            if entry.accepted_ms < pending.accepted_ms and not isinstance(candidate.data, ClockSet):
                raise _unfit(index, "its time is before the time of the entry before it")
            replayed = replay.step(index, entry, candidate)
            if (refusal := replayed.refused or replayed.misplaced) is not None:
                if refusal.code in LACKS_FAMILY:  # the rules of its package failed, which is not the fault of the entry
                    raise refusal
                raise _unfit(index, str(refusal)) from refusal
            pending.entries.append(data)
            pending.leaves.append(entry.leaf(candidate.commitment))
            pending.id_keys.append(id_key(candidate.body.stream, candidate.id))
            pending.accepted_ms = entry.accepted_ms
            if isinstance(candidate.data, EntryRedacted):
                pending.erased = _erased(snapshot, read_event(index, entry))
        layer = replay.state
        pending.state = {key: encode_packed(record) for key, record in layer.records.items()}
        pending.authority_version = layer.authority_version
        return layer, pending


def _erased(snapshot: Snapshot, event: Event[EntryRedacted]) -> dict[int, bytes]:
    index = event.data.entry
    if index < snapshot.size and is_remnant(decode_entry(snapshot.entry(index)).body):
        return {}  # the other copy sent this entry without its body
    try:
        return {index: erase_as_named(snapshot, event).entry.encode()}
    except Refused as refusal:
        raise _unfit(event.index, str(refusal)) from refusal


def _check_unit(start: int, unit: list[SignedEntry]) -> None:
    first = unit[0].entry
    shared = (first.key, first.sig, first.batch_size, first.accepted_ms)
    for position, (_, entry, _) in enumerate(unit):
        if (entry.key, entry.sig, entry.batch_size, entry.accepted_ms) != shared or entry.batch_index != position:
            raise _unfit(start + position, "it does not belong to the signed batch around it")
    if len(unit) > 1 and bodies_size(signed.entry for signed in unit) > batch_size_max_bytes:
        raise _unfit(start, f"its batch exceeds {batch_size_max_bytes} bytes")
    commitments = [signed.candidate.commitment for signed in unit]
    if not verify(first.key, signed_bytes(commitments), first.sig):
        raise _unfit(start, "its signature is not valid")


def _unfit(index: int, why: str) -> Corrupted:
    return Corrupted("VERIFICATION_FAILED", f"this log cannot have admitted entry {index}: {why}", index=index)
