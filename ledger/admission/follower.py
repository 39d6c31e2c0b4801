"""The follower: entries that another copy of this log holds are appended here byte for byte, after a replay of each.

Only what needs no replay is left out (secrets). So whoever hands the entries over, the log stream or a backup, need not
be trusted: an entry that this log could not have taken at this index is refused, and nothing after it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from deedbook.ledger.admission.check import Candidate
from deedbook.ledger.admission.gate import Transaction, first_head, records_cached_max
from deedbook.ledger.admission.replay import decide_again, read_entry
from deedbook.ledger.admission.state import Layer
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import ClockSet
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import Entry, batch_pae, decode_entry, pae
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import batch_size_max_bytes
from deedbook.ledger.log.keys import id_key
from deedbook.ledger.log.log import Log, Pending
from deedbook.ledger.log.state import Snapshot


class Signed(NamedTuple):
    """An entry whose signature fits, with what rules decide on."""

    data: bytes
    entry: Entry
    candidate: Candidate


class Follower:
    """Appends to one log what another copy of it holds; used by one thread, and nobody else should write meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._cache: dict[bytes, Any] = {}
        self._cached_size = -1

    def append(self, start: int, entries: Sequence[bytes]) -> int:
        """Append the entries that belong at ``start`` and after, in one commit; return how many it took.

        Signed batches are taken whole: what is left over at the end belongs to one that is not whole yet. Raises
        Corrupted: ``VERIFICATION_FAILED``: an entry cannot be what this log took here, and nothing was appended;
        ``HISTORY_CHANGED``: somebody else has written meanwhile.
        """
        signed = self.read(start, entries)
        if signed:
            self.take(start, signed)
        return len(signed)

    def read(self, start: int, entries: Sequence[bytes]) -> list[Signed]:
        """Return the entries of all whole units among these, every signature verified. Raises as ``append``."""
        return _signed(start, entries)

    def take(self, start: int, signed: Sequence[Signed]) -> None:
        """Append what ``read`` returned for ``start``, in one commit. Raises as ``append``."""
        with self._log.writing() as (txn, snapshot):
            if snapshot.size != start:
                message = (
                    f"the log has {snapshot.size} entries, not {start}: somebody wrote to it meanwhile; begin again"
                )
                raise Corrupted("HISTORY_CHANGED", message, size=snapshot.size, expected=start)
            layer, pending = self._decide(snapshot, signed)
            self._log.appender.append(txn, snapshot.head or first_head(layer.ledger), pending)
        # If we crash before this line the log has none of them, after it all: whoever goes on asks where the log ends.
        self._cache |= layer.records
        self._cached_size = start + len(signed)

    def _decide(self, snapshot: Snapshot, signed: Sequence[Signed]) -> tuple[Layer, Pending]:
        if self._cached_size != snapshot.size or len(self._cache) > records_cached_max:
            self._cache = {}
        base = Transaction(snapshot, self._cache)
        # What does not commit leaves a cache that may hold more than the log: it is not used again.
        self._cached_size = -1
        layer = Layer(base)
        above = Layer(layer)
        pending = Pending(accepted_ms=0 if snapshot.head is None else snapshot.head.accepted_ms)
        for index, (data, entry, candidate) in enumerate(signed, snapshot.size):
            # A jump ahead is taken: a later entry, by which the root set it right, may not be among these yet.
            if entry.accepted_ms < pending.accepted_ms and not isinstance(candidate.data, ClockSet):
                raise _unfit(index, "the ledger's clock goes back before it")
            judged = decide_again(index, candidate, entry, above, entry.accepted_ms)
            if (refusal := judged.refused or judged.misplaced) is not None:
                raise _unfit(index, str(refusal)) from refusal
            pending.entries.append(data)
            pending.id_keys.append(id_key(candidate.body.stream, candidate.id))
            pending.accepted_ms = entry.accepted_ms
        pending.state = {key: encode_packed(record) for key, record in layer.records.items()}
        pending.authority_version = layer.authority_version
        return layer, pending


def _signed(start: int, entries: Sequence[bytes]) -> list[Signed]:
    """Return the entries of all whole units, each signature verified."""
    signed: list[Signed] = []
    while (position := len(signed)) < len(entries):
        unit: list[Signed] = []
        try:
            size = decode_entry(entries[position]).batch_size
            if position + size > len(entries):
                break
            unit = [Signed(data, *read_entry(data)) for data in entries[position : position + size]]
        except Refused as refusal:
            raise _unfit(start + position + len(unit), str(refusal)) from refusal
        _check_unit(start + position, unit)
        signed += unit
    return signed


def _check_unit(start: int, unit: list[Signed]) -> None:
    first = unit[0].entry
    shared = (first.key, first.sig, first.batch_size, first.accepted_ms)
    for position, (_, entry, _) in enumerate(unit):
        if (entry.key, entry.sig, entry.batch_size, entry.accepted_ms) != shared or entry.batch_index != position:
            raise _unfit(start + position, "it does not belong to the signed batch that it stands in")
    if len(unit) > 1 and sum(len(one.entry.body) for one in unit) > batch_size_max_bytes:
        raise _unfit(start, f"its batch exceeds {batch_size_max_bytes} bytes")
    bodies = [pae(one.entry.body) for one in unit]
    if not verify(first.key, batch_pae(bodies) if len(unit) > 1 else bodies[0], first.sig):
        raise _unfit(start, "its signature does not fit")


def _unfit(index: int, why: str) -> Corrupted:
    return Corrupted(
        "VERIFICATION_FAILED", f"entry {index} is not one that this log could have taken: {why}", index=index
    )
