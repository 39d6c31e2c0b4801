"""A check of every invariant of a whole log, for tests to call after each step."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from deedbook.ledger.admission.replay import Replay, read_entry
from deedbook.ledger.admission.state import MemoryState
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import decode_entry, entry_leaf, event_id, signed_bytes
from deedbook.ledger.format.identity import verify
from deedbook.ledger.format.merkle import root_of, verify_inclusion
from deedbook.ledger.limits import clock_forward_max_ms
from deedbook.ledger.log.keys import HEAD_KEY, NOT_REPLAYED

if TYPE_CHECKING:
    from deedbook.ledger.format.envelope import Entry
    from deedbook.ledger.log.log import Log


def replayed(entries: list[bytes]) -> Replay:
    """Replay entries, each at its own time, and return the replay. Raises Refused if an entry is invalid."""
    replay = Replay(MemoryState())
    for index, data in enumerate(entries):
        step = replay.step(index, *read_entry(data))
        if (refusal := step.refused or step.misplaced) is not None:
            raise refusal
    return replay


def packed(replay: Replay) -> dict[bytes, bytes]:
    """Return the records of a replay in their stored form."""
    return {key: encode_packed(record) for key, record in replay.state.records.items()}


def stored_state(log: Log) -> dict[bytes, bytes]:
    """Return all state records in their stored form, without the head and the records that no replay rebuilds."""
    with log.tables.reading() as txn:
        state = dict(log.tables.items(txn, log.tables.state, b""))
    del state[HEAD_KEY]
    return {key: record for key, record in state.items() if key[:1] not in NOT_REPLAYED}


def stored_entries(log: Log) -> list[bytes]:
    """Return the bytes of every entry."""
    with log.snapshot() as snapshot:
        return [snapshot.entry(index) for index in range(snapshot.size)]


def check_log(log: Log) -> list[str]:
    """Check entries, tree, signatures, clock, duplicate check and state against each other; return all event ids.

    No other process may write meanwhile.
    """
    data = stored_entries(log)
    entries = [decode_entry(one) for one in data]
    leaves = [entry_leaf(one) for one in data]
    with log.snapshot() as snapshot:
        root = snapshot.root()
        assert root == root_of(leaves)
        assert not snapshot.has_entry_beyond_end()
        for index in {0, len(data) // 2, len(data) - 1}:
            assert verify_inclusion(leaves[index], index, len(data), snapshot.inclusion_proof(index), root)
        ids = [event_id(entry.commitment) for entry in entries]
        for index, (entry, identity) in enumerate(zip(entries, ids, strict=True)):
            assert snapshot.index_of(read_stored(entry.body).body.stream, identity) == index
    with log.tables.reading() as txn:
        assert txn.stat(log.tables.ids)["entries"] == txn.stat(log.tables.entries)["entries"] == len(data)
    for before, after in itertools.pairwise(entries):
        is_set = read_stored(after.body).body.kind in {"ledger.clock_set", "ledger.history_reset"}
        assert is_set or 0 <= after.accepted_ms - before.accepted_ms <= clock_forward_max_ms
    _check_signatures(entries)
    assert packed(replayed(data)) == stored_state(log)
    return ids


def _check_signatures(entries: list[Entry]) -> None:
    index = 0
    while index < len(entries):
        size = entries[index].batch_size
        batch = entries[index : index + size]
        assert [entry.batch_index for entry in batch] == list(range(size))
        assert len({(entry.key, entry.sig, entry.accepted_ms) for entry in batch}) == 1
        assert verify(batch[0].key, signed_bytes([entry.commitment for entry in batch]), batch[0].sig)
        index += size
