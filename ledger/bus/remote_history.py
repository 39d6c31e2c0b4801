"""What a remote client demands of a node before it asks it anything: the history it knows, under the ledger's own key.

The node's head comes with a checkpoint. It must be signed by the key that the ledger's root named, the head must go on
from the one remembered of this ledger (``ledger.memory``, whatever the node's address), and an epoch counts only if
root signed it. A ledger's id is the hash of its first root key, so all of that hangs on what the agent's key file says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.checkpoint import CheckpointVerifier, verify_checkpoint
from ledger.client import EntryReads, Reads, read_batch_path, read_event
from ledger.config import Settings
from ledger.envelope import decode_entry
from ledger.errors import Corrupted
from ledger.events.authority import CheckpointKeyRotated, EpochStarted, KeyRotated, LedgerCreated
from ledger.events.body import Event
from ledger.history import Epoch, Growth, Trusted, tell, trust
from ledger.identity import ledger_id
from ledger.lifecycle.authority import ROOT
from ledger.memory import Memory
from ledger.signature import is_signed


class RemoteHistory:
    """What is remembered of a ledger behind a server; threads may share it."""

    def __init__(self, ledger: str, settings: Settings) -> None:
        self._ledger = ledger
        self._only_looks = settings.only_looks
        self.memory = Memory.of_server(ledger)
        self.trusted: Trusted | None = None
        self.has_followed = False

    def greet(self, reads: Reads) -> None:
        """Compare the history that a node tells with the one remembered, and remember where it ends.

        Raises Corrupted: ``HISTORY_CHANGED``, ``VERIFICATION_FAILED``, unless the settings say that it only looks.
        Unavailable: the node does not answer.
        """
        chain = Chain(reads, self._ledger)

        def growth_since(old_size: int) -> Growth:
            return self._signed(reads.consistency(old_size), chain)

        if self.has_followed and self.trusted is not None:
            # What was read since the file was written is not in it, and the node must go on from that, too.
            self.follow(reads, reads.consistency(self.trusted.size), self.trusted)
        self.has_followed = False
        self.trusted = self.memory.keep(growth_since, chain.epoch, only_looks=self._only_looks)

    def follow(self, reads: Reads, growth: Growth, before: Trusted | None) -> None:
        """Trust the head of an answer, which must go on from the one trusted ``before`` it was asked for.

        Raises Corrupted: as ``greet``.
        """
        if before is not None and growth.head == before:
            return
        chain = Chain(reads, self._ledger)
        self._signed(growth, chain)
        if self._only_looks:
            return
        self.trusted, begun = trust(before, growth, chain.epoch, self.memory.where)
        self.has_followed = True
        for epoch in begun:
            tell(str(epoch))

    def _signed(self, growth: Growth, chain: Chain) -> Growth:
        known = self.memory.checkpoint_key
        verifier = CheckpointVerifier.from_vkey(known) if known else chain.checkpoint_verifier(known)
        try:
            checkpoint = verify_checkpoint(growth.checkpoint, verifier)
        except Corrupted:
            verifier = chain.checkpoint_verifier(known)  # it may have been replaced since it was learnt
            checkpoint = verify_checkpoint(growth.checkpoint, verifier)
        self.memory.checkpoint_key = verifier.vkey
        if (checkpoint.size, checkpoint.root.hex()) != (growth.size, growth.root):
            raise Corrupted("VERIFICATION_FAILED", "the node's checkpoint is of another head than it answers")
        return growth


class Chain:
    """The keys that a ledger's id leads to: root's, those that replaced it, and the one that signs checkpoints.

    It believes no ``reads``: they may be a node, or the entries that a receipt carries.
    """

    def __init__(self, reads: EntryReads, ledger: str) -> None:
        self._reads = reads
        self._ledger = ledger
        self._roots: list[tuple[int, str]] = []

    def checkpoint_verifier(self, known: str) -> CheckpointVerifier:
        """Return the verifier of the last checkpoint key; ``known`` (vkey, or empty) must be among those before it.

        Else a node that hides a rotation could go back to the key that was replaced, perhaps because it was stolen.
        """
        created = self._created()
        rotated = [event.data for event in self._by_root("checkpoint_key.rotated", "ledger")]
        keys = [created.checkpoint_key, *(data.key for data in rotated if isinstance(data, CheckpointKeyRotated))]
        verifiers = [CheckpointVerifier(created.origin, bytes.fromhex(key)) for key in keys]
        if known and known not in [verifier.vkey for verifier in verifiers]:
            message = "the node knows nothing of the checkpoint key that this client has seen: it hides entries"
            raise Corrupted("VERIFICATION_FAILED", message)
        return verifiers[-1]

    def epoch(self, event_id: str) -> Epoch:
        """Return the epoch with this id, which root signed."""
        for event in self._by_root("ledger.epoch_started", "ledger"):
            if event.id == event_id and isinstance(event.data, EpochStarted):
                return Epoch(event.index, event.data.abandoned_size, event.data.abandoned_root, event.data.reason)
        message = f"the node says that an epoch began with {event_id}, and has no such entry by root"
        raise Corrupted("VERIFICATION_FAILED", message, id=event_id)

    def _created(self) -> LedgerCreated:
        data = self._reads.entry(0)
        event = read_event(0, data)
        created = event.data
        if not isinstance(created, LedgerCreated) or ledger_id(bytes.fromhex(created.root)) != self._ledger:
            raise Corrupted("VERIFICATION_FAILED", f"the node's first entry is not that of the ledger {self._ledger}")
        if event.key != created.root or not self._is_signed(0, data):
            raise Corrupted("VERIFICATION_FAILED", "the root key did not sign the node's first entry", index=0)
        return created

    def _is_signed(self, index: int, data: bytes) -> bool:
        entry = decode_entry(data)
        return is_signed(entry, read_batch_path(self._reads, index, entry))

    def _root_at(self, index: int) -> str:
        """Return the root key that signs the entry at ``index``: one that was replaced signs nothing after that."""
        if not self._roots:
            roots = [(-1, self._created().root)]
            for at, data in _entries(self._reads, "key.rotated", f"agent/{ROOT}"):
                event = read_event(at, data)
                is_next = event.key == roots[-1][1] and isinstance(event.data, KeyRotated)
                if is_next and event.data.agent == ROOT and self._is_signed(at, data):
                    roots.append((at, event.data.key))
            self._roots = roots
        return next(key for since, key in reversed(self._roots) if since < index)

    def _by_root(self, kind: str, stream: str) -> Iterator[Event]:
        """Yield the events of a kind that a root key signed."""
        for index, data in _entries(self._reads, kind, stream):
            event = read_event(index, data)
            if event.key == self._root_at(index) and self._is_signed(index, data):
                yield event


def _entries(reads: EntryReads, kind: str, stream: str) -> Iterator[tuple[int, bytes]]:
    index, size = 0, 1
    while index < size:
        page = reads.entries(index, kinds=[kind], stream=stream)
        if page.next_index <= index:
            raise Corrupted("VERIFICATION_FAILED", "the node's log does not go on where it says that it does")
        yield from page.entries
        index, size = page.next_index, page.size
