"""Reads the log's state within one short transaction: streams, agents, keys and invitations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.lifecycle.authority import AgentRecord, InvitationRecord, KeyRecord
from deedbook.ledger.lifecycle.redaction import RedactionRecord
from deedbook.ledger.log import keys
from deedbook.ledger.log.blob_table import BlobTable
from deedbook.ledger.log.read import EntrySnapshot
from deedbook.ledger.log.record_codec import decode_record

R = TypeVar("R")


class Snapshot(EntrySnapshot):
    """The log's entries and state as one open transaction sees them."""

    @property
    def blobs(self) -> BlobTable:
        """The table of blobs, in this transaction."""
        return BlobTable(self._tables, self._txn)

    def is_skipped(self, index: int) -> bool:
        """Return whether a repair has marked the entry as refused by its rule."""
        return self._get(self._tables.state, keys.skipped_key(index)) is not None

    def needs_rewriting(self) -> bool:
        """Return whether the file of the log still holds an erased body."""
        return self.rewrite_mark() is not None

    def rewrite_mark(self) -> bytes | None:
        """Return the mark of a log whose file still holds erased bodies: each redaction changes it. None: no mark."""
        return self._get(self._tables.state, keys.REWRITE_KEY)

    def not_replayed(self, letters: frozenset[bytes]) -> dict[bytes, bytes]:
        """Return the records that do not follow from entries, by their first letters, and the head."""
        return {key: data for letter in (*letters, keys.HEAD_KEY) for key, data in self._records(letter)}

    def redactions(self) -> dict[int, RedactionRecord]:
        """Return the redactions of entries, proposed or done, by the index of the entry."""
        return {int.from_bytes(key[1:], "big"): decode_record(key, data) for key, data in self._records(b"r")}

    def record(self, key: keys.Key[R]) -> R | None:
        """Return the record under a state key (see ``log.keys``), or None."""
        data = self._get(self._tables.state, key)
        return None if data is None else cast("R", decode_record(key, data))

    def agent(self, name: str) -> AgentRecord | None:
        """Return the record of an agent, or None."""
        return self.record(keys.agent_key(name))

    def agents(self) -> list[AgentRecord]:
        """Return all agents, by name."""
        return [decode_record(key, data) for key, data in self._records(b"a")]

    def key(self, public_key: str) -> KeyRecord | None:
        """Return the record of a signing key (hex), or None."""
        return self.record(keys.key_key(public_key))

    def checkpoint_keys(self) -> tuple[str, ...]:
        """Return the keys (hex) that may sign a checkpoint of this log. Raises Corrupted: their record is missing."""
        record = self.record(keys.CHECKPOINT_KEYS_KEY)
        if record is None:
            raise Corrupted("CORRUPTED", "the log has lost the keys that sign its checkpoints: run `deed fsck`")
        return record.at(self.size)

    def invitations(self) -> list[InvitationRecord]:
        """Return the latest invitation for each name."""
        return [decode_record(key, data) for key, data in self._records(b"v")]

    def keys(self) -> list[tuple[str, KeyRecord]]:
        """Return all signing keys (hex) with their records."""
        return [(key[1:].hex(), decode_record(key, data)) for key, data in self._records(b"k")]

    def _records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._tables.items(self._txn, self._tables.state, prefix)
