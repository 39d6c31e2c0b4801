"""What a remote client demands of a node before it asks it anything: the history it knows, under the ledger's own key.

The node's head comes with a checkpoint. It must be signed by a key that the ledger's root named, or by that of a node
which root let in; the head must go on from the one remembered of this ledger (``ledger.trust.store``, whatever the
node's address), and a history reset counts only if root signed it. A ledger's id is the hash of its first root key, so
all of that hangs on what the agent's key file says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.client.reads import EntryReads, Reads
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import (
    AgentInvited,
    AgentRegistered,
    AgentRemoved,
    CheckpointKeyRotated,
    HistoryReset,
    KeyRotated,
    LedgerCreated,
)
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.identity import joining, ledger_id, verify
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.authority import ROOT, CheckpointKeys
from deedbook.ledger.proof.checkpoint import CheckpointVerifier, verifiers_of, verify_checkpoint
from deedbook.ledger.trust.history import ConsistencyProof, ResetPoint, TrustedHead, log_notice, trust
from deedbook.ledger.trust.store import TrustStore

_NAMING: Final = ("agent.invited", "agent.registered", "agent.removed", "checkpoint_key.rotated")


class RemoteHistory:
    """What is remembered of a ledger behind a server; threads may share it."""

    def __init__(self, ledger: str, settings: Settings) -> None:
        self._ledger = ledger
        self._only_looks = settings.only_looks
        self.trust_store = TrustStore.of_server(ledger)
        self.trusted: TrustedHead | None = None
        self.has_followed = False

    def greet(self, reads: Reads) -> None:
        """Compare the history that a node tells with the one remembered, and remember where it ends.

        Raises Corrupted: ``HISTORY_CHANGED``, ``VERIFICATION_FAILED``, unless the settings say that it only looks.
        Unavailable: the node does not answer.
        """
        chain = Chain(reads, self._ledger)

        def read_consistency(old_size: int) -> ConsistencyProof:
            return self._signed(reads.consistency(old_size), chain)

        if self.has_followed and self.trusted is not None:
            # What was read since the file was written is not in it, and the node must go on from that, too.
            self.follow(reads, reads.consistency(self.trusted.size), self.trusted)
        self.has_followed = False
        self.trusted = self.trust_store.check_log(read_consistency, chain.reset, only_looks=self._only_looks)

    def follow(self, reads: Reads, consistency_proof: ConsistencyProof, before: TrustedHead | None) -> None:
        """Trust the head of an answer, which must go on from the one trusted ``before`` it was asked for.

        Raises Corrupted: as ``greet``.
        """
        if before is not None and consistency_proof.head == before:
            return
        chain = Chain(reads, self._ledger)
        self._signed(consistency_proof, chain)
        if self._only_looks:
            return
        self.trusted, begun = trust(before, consistency_proof, chain.reset, self.trust_store.source)
        self.has_followed = True
        for reset in begun:
            log_notice(str(reset))

    def _signed(self, consistency_proof: ConsistencyProof, chain: Chain) -> ConsistencyProof:
        known = self.trust_store.checkpoint_keys
        try:
            checkpoint = verify_checkpoint(consistency_proof.checkpoint, *signing(known))
        except Corrupted:
            known = chain.checkpoint_keys(known)  # another may have been named since these were learnt, or none was yet
            checkpoint = verify_checkpoint(consistency_proof.checkpoint, *signing(known))
        self.trust_store.checkpoint_keys = known
        if (checkpoint.size, checkpoint.root.hex()) != (consistency_proof.size, consistency_proof.root):
            raise Corrupted("VERIFICATION_FAILED", "the node's checkpoint is of another head than it answers")
        return consistency_proof


def signing(known: Mapping[str, bool]) -> list[CheckpointVerifier]:
    """Return those of the known checkpoint keys (vkeys) that may still sign."""
    return [CheckpointVerifier.from_vkey(vkey) for vkey, may_sign in known.items() if may_sign]


class Chain:
    """The keys that a ledger's id leads to: root's, those that replaced it, and those that sign checkpoints.

    It believes no ``reads``: they may be a node, or the entries that a receipt carries. A node's key counts because
    root registered the node, or invited it: root signed for the token, the token for the node's key, and that one for
    the key of its checkpoints.
    """

    def __init__(self, reads: EntryReads, ledger: str) -> None:
        self._reads = reads
        self._ledger = ledger
        self._roots: list[tuple[int, str]] = []

    def checkpoint_keys(self, known: Mapping[str, bool]) -> dict[str, bool]:
        """Return every checkpoint key (vkey), and whether it may still sign; those ``known`` must be among them.

        Else a node that hides a rotation could go back to the key that was replaced, perhaps because it was stolen.
        """
        created = self._created()
        keys, invited = CheckpointKeys().after(0, created), dict[str, bytes]()
        for event in self._signed(_NAMING):
            match event.data:
                case AgentInvited(roles=["node"]) if self._is_by_root(event):
                    invited[event.name] = bytes.fromhex(event.data.token_key)
                case AgentRegistered() if self._is_by_root(event) or _is_invited(event, invited.get(event.name)):
                    keys = keys.after(event.index, event.data)
                case CheckpointKeyRotated() if self._is_by_root(event):
                    keys = keys.after(event.index, event.data)
                case AgentRemoved():  # whoever signed it: trust that is taken away in vain costs an answer alone
                    keys = keys.after(event.index, event.data)
                case _:  # of somebody who may name no key
                    continue
        named = {
            verifier.vkey: one.until is None
            for one, verifier in zip(
                keys.keys, verifiers_of(created.origin, (one.key for one in keys.keys)), strict=True
            )
        }
        if any(vkey not in named or (named[vkey] and not may_sign) for vkey, may_sign in known.items()):
            message = "the node does not tell of the checkpoint keys that this client has seen: it hides entries"
            raise Corrupted("VERIFICATION_FAILED", message)
        return named

    def reset(self, event_id: str) -> ResetPoint:
        """Return the reset with this id, which root signed."""
        for event in self._signed(["ledger.history_reset"], "ledger"):
            if event.id == event_id and isinstance(event.data, HistoryReset) and self._is_by_root(event):
                return ResetPoint(event.index, event.data.abandoned_size, event.data.abandoned_root, event.data.reason)
        message = f"the node says that a history reset began with {event_id}, and has no such entry by root"
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
            for at, data in _entries(self._reads, ["key.rotated"], f"agent/{ROOT}"):
                event = read_event(at, data)
                is_next = event.key == roots[-1][1] and isinstance(event.data, KeyRotated)
                if is_next and event.data.agent == ROOT and self._is_signed(at, data):
                    roots.append((at, event.data.key))
            self._roots = roots
        return next(key for since, key in reversed(self._roots) if since < index)

    def _is_by_root(self, event: Event) -> bool:
        return event.key == self._root_at(event.index)

    def _signed(self, kinds: Collection[str], stream: str | None = None) -> Iterator[Event]:
        """Yield the events of some kinds whose signature fits, by whomever."""
        for index, data in _entries(self._reads, kinds, stream):
            event = read_event(index, data)
            names_none = isinstance(event.data, AgentRegistered) and event.data.checkpoint_key is None
            if not names_none and self._is_signed(index, data):
                yield event


def _is_invited(event: Event, token_key: bytes | None) -> bool:
    """Return whether who was invited registers itself: the token signed for the key that signed the event."""
    data = event.data
    if not isinstance(data, AgentRegistered) or event.key != data.key or token_key is None:
        return False
    signed = joining(event.ledger, data.name, bytes.fromhex(data.key))
    return verify(token_key, signed, bytes.fromhex(data.token_proof or ""))


def _entries(reads: EntryReads, kinds: Collection[str], stream: str | None) -> Iterator[tuple[int, bytes]]:
    index, size = 0, 1
    while index < size:
        page = reads.entries(index, kinds=kinds, stream=stream)
        if page.next_index <= index:
            raise Corrupted("VERIFICATION_FAILED", "the node's log does not go on where it says that it does")
        yield from page.entries
        index, size = page.next_index, page.size
