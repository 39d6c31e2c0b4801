"""Checks the history of each node that a remote client connects to: it must continue the trusted history.

The node's head comes with a checkpoint. A key that root named must have signed it, or the key of a node that root
registered or invited. The head must continue the trusted head of this ledger (``ledger.trust.store``), whatever the
node's address. A history reset counts only if root signed it. All of this follows from the ledger id in the agent's key
file, because the id is the hash of the first root key.
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

_KEY_KINDS: Final = ("agent.invited", "agent.registered", "agent.removed", "checkpoint_key.rotated")


class RemoteHistory:
    """The trusted history of a ledger behind a server. Threads may share it."""

    def __init__(self, ledger: str, settings: Settings) -> None:
        self._ledger = ledger
        self._only_looks = settings.only_looks
        self.trust_store = TrustStore.of_server(ledger)
        self.trusted: TrustedHead | None = None
        self.disagreement: Corrupted | None = None
        self.has_followed = False

    def greet(self, reads: Reads) -> None:
        """Compare the history of a node with the trusted one, and store the node's head as trusted.

        With ``only_looks`` in the settings it stores nothing, and errors of the class ``Corrupted`` become the
        ``disagreement``. Raises Corrupted: ``HISTORY_CHANGED``, ``VERIFICATION_FAILED``. Unavailable: the node does not
        answer.
        """
        chain = Chain(reads, self._ledger)

        def read_consistency(old_size: int) -> ConsistencyProof:
            return self._verify_signed(reads.consistency(old_size), chain)

        if self.has_followed and self.trusted is not None:
            # The node must also continue the heads that were trusted after the file was written.
            self.follow(reads, reads.consistency(self.trusted.size), self.trusted)
        self.has_followed = False
        self.trusted, self.disagreement = self.trust_store.check_log(
            read_consistency, chain.reset, only_looks=self._only_looks
        )

    def follow(self, reads: Reads, consistency_proof: ConsistencyProof, before: TrustedHead | None) -> None:
        """Trust the head of an answer. It must continue ``before``, the trusted head when the request was sent.

        Raises Corrupted: ``VERIFICATION_FAILED``; ``HISTORY_CHANGED``, unless the settings say ``only_looks``.
        """
        if before is not None and consistency_proof.head == before:
            return
        chain = Chain(reads, self._ledger)
        self._verify_signed(consistency_proof, chain)
        if self._only_looks:
            return
        self.trusted, begun = trust(before, consistency_proof, chain.reset, self.trust_store.source)
        self.has_followed = True
        for reset in begun:
            log_notice(str(reset))

    def verifiers(self) -> list[CheckpointVerifier]:
        """Return the verifiers of the ledger's checkpoint keys that are known from verified answers."""
        return active_verifiers(self.trust_store.checkpoint_keys)

    def _verify_signed(self, consistency_proof: ConsistencyProof, chain: Chain) -> ConsistencyProof:
        known = self.trust_store.checkpoint_keys
        try:
            checkpoint = verify_checkpoint(consistency_proof.checkpoint, *active_verifiers(known))
        except Corrupted:
            known = chain.checkpoint_keys(known)  # the ledger may have named a new key since, or no key is known yet
            checkpoint = verify_checkpoint(consistency_proof.checkpoint, *active_verifiers(known))
        self.trust_store.checkpoint_keys = known
        if (checkpoint.size, checkpoint.root.hex()) != (consistency_proof.size, consistency_proof.root):
            raise Corrupted("VERIFICATION_FAILED", "the node's checkpoint has another head than the node's answer")
        return consistency_proof


def active_verifiers(known: Mapping[str, bool]) -> list[CheckpointVerifier]:
    """Return the verifiers of the known checkpoint keys (vkeys) that may still sign."""
    return [CheckpointVerifier.from_vkey(vkey) for vkey, may_sign in known.items() if may_sign]


class Chain:
    """Finds a ledger's root keys and the keys that sign checkpoints, and trusts nothing but the ledger's id.

    ``reads`` returns entries from a node or from a receipt; each is verified. The checkpoint key of a node is valid if
    root registered the node. It is also valid if root invited the node: then root signed the key of the invitation's
    token, the token's key signed the node's key, and the node's key signed the node's checkpoint key.
    """

    def __init__(self, reads: EntryReads, ledger: str) -> None:
        self._reads = reads
        self._ledger = ledger
        self._roots: list[tuple[int, str]] = []

    def checkpoint_keys(self, known: Mapping[str, bool]) -> dict[str, bool]:
        """Return every checkpoint key (vkey) of the ledger, and whether it may still sign.

        The result must include each of ``known``, and a known key that may no longer sign must not sign again.
        Otherwise a node could hide a rotation and use a stolen key. Raises Corrupted: ``VERIFICATION_FAILED``.
        """
        created = self._created()
        keys, invited = CheckpointKeys().after(0, created), dict[str, bytes]()
        for event in self._verified_events(_KEY_KINDS):
            match event.data:
                case AgentInvited(roles=["node"]) if self._is_by_root(event):
                    invited[event.name] = bytes.fromhex(event.data.token_key)
                case AgentRegistered() if self._is_by_root(event) or _is_invited(event, invited.get(event.name)):
                    keys = keys.after(event.index, event.data)
                case CheckpointKeyRotated() if self._is_by_root(event):
                    keys = keys.after(event.index, event.data)
                case AgentRemoved():  # by any signer: to distrust a good key only costs an answer
                    keys = keys.after(event.index, event.data)
                case _:  # this kind, or its signer, may not change keys
                    continue
        named = {
            verifier.vkey: key.until is None
            for key, verifier in zip(
                keys.keys, verifiers_of(created.origin, (key.key for key in keys.keys)), strict=True
            )
        }
        if any(vkey not in named or (named[vkey] and not may_sign) for vkey, may_sign in known.items()):
            message = "the node does not name all checkpoint keys that this client knows: it hides entries"
            raise Corrupted("VERIFICATION_FAILED", message)
        return named

    def reset(self, event_id: str) -> ResetPoint:
        """Return the history reset whose event has this id. Raises Corrupted: root signed no such event."""
        for event in self._verified_events(["ledger.history_reset"], "ledger"):
            if event.id == event_id and isinstance(event.data, HistoryReset) and self._is_by_root(event):
                return ResetPoint(event.index, event.data.abandoned_size, event.data.abandoned_root, event.data.reason)
        message = f"the node names the history reset {event_id}, but has no such entry by root"
        raise Corrupted("VERIFICATION_FAILED", message, id=event_id)

    def _created(self) -> LedgerCreated:
        data = self._reads.entry(0)
        event = read_event(0, data)
        created = event.data
        if not isinstance(created, LedgerCreated) or ledger_id(bytes.fromhex(created.root)) != self._ledger:
            raise Corrupted(
                "VERIFICATION_FAILED", f"the node's first entry is not the first entry of the ledger {self._ledger}"
            )
        if event.key != created.root or not self._is_signed(0, data):
            raise Corrupted("VERIFICATION_FAILED", "the root key did not sign the node's first entry", index=0)
        return created

    def _is_signed(self, index: int, data: bytes) -> bool:
        entry = decode_entry(data)
        return is_signed(entry, read_batch_path(self._reads, index, entry))

    def _root_at(self, index: int) -> str:
        """Return the root key that may sign the entry at ``index``. A replaced key signs nothing later."""
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

    def _verified_events(self, kinds: Collection[str], stream: str | None = None) -> Iterator[Event]:
        """Yield the events of some kinds whose signature is valid, by any signer."""
        for index, data in _entries(self._reads, kinds, stream):
            event = read_event(index, data)
            names_no_key = isinstance(event.data, AgentRegistered) and event.data.checkpoint_key is None
            if not names_no_key and self._is_signed(index, data):
                yield event


def _is_invited(event: Event, token_key: bytes | None) -> bool:
    """Whether an invited agent registers itself: the token signed the key that signed the event."""
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
            raise Corrupted(
                "VERIFICATION_FAILED",
                "the node answered with a page that does not lead to the next one, although its log has more entries",
            )
        yield from page.entries
        index, size = page.next_index, page.size
