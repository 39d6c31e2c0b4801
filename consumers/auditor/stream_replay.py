"""What can be checked of entries that are not the whole log: form, id, signature, key and inclusion, each by itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ledger.admission.rules import AUTHORITY_KINDS
from ledger.client import read_event
from ledger.envelope import BATCH_TYPE, decode_entry, pae
from ledger.errors import Refused
from ledger.events.authority import AgentRegistered, KeyDelegated, KeyRevoked, LedgerCreated
from ledger.identity import verify
from ledger.lifecycle.authority import NODE, ROOT
from ledger.merkle import Frontier, leaf_hash, node_hash, verify_inclusion

if TYPE_CHECKING:
    from consumers.auditor.report import Findings
    from ledger.envelope import Entry
    from ledger.events import EventData
    from ledger.events.body import Event
    from ledger.receipt import Receipt


class StreamReplay:
    """The checks of a bundle of one stream, entry by entry; offers what a report is made of."""

    def __init__(self, findings: Findings, size: int, root: bytes) -> None:
        """Check inclusion in the tree of ``size`` entries with this ``root``."""
        self.size = size
        self.roots = {size: root}
        self.frontier: Frontier | None = None
        self.kinds: Counter[str] = Counter()
        self.created: LedgerCreated | None = None
        self.ledger: str | None = None
        self.authority: list[tuple[str, EventData]] = []
        self.lost_from: int | None = None
        self.verified = 0
        self._findings = findings
        self._owners: dict[str, str] = {}
        self._revoked: set[str] = set()
        self._clock_ms = 0

    def feed(self, index: int, data: bytes, receipt: Receipt, stream: str | None) -> None:
        """Check the next entry."""
        try:
            if not verify_inclusion(leaf_hash(data), index, self.size, receipt.path, self.roots[self.size]):
                raise Refused("VERIFICATION_FAILED", "it is not in the tree of the checkpoint")  # noqa: TRY301
            entry = decode_entry(data)
            event = read_event(index, data)
            self._check(entry, event, stream)
            if not _is_signed(entry, receipt.extra):
                raise Refused("SIGNATURE_INVALID", "its signature does not fit")  # noqa: TRY301
        except Refused as refusal:
            self._findings.problem(index, refusal.code, f"entry {index}: {refusal.message}")
            self.lost_from = index if self.lost_from is None else self.lost_from
            return
        self.verified += 1
        self.kinds[event.kind] += 1

    def _check(self, entry: Entry, event: Event, stream: str | None) -> None:
        is_authority = event.kind in AUTHORITY_KINDS
        if event.stream != stream and not is_authority:
            raise Refused("INVALID_FIELD", f"it is of the stream {event.stream}, which is not that of the bundle")
        if entry.accepted_ms < self._clock_ms:
            raise Refused("VERIFICATION_FAILED", "the ledger's clock goes back before it")
        self._clock_ms = entry.accepted_ms
        if event.index == 0 and isinstance(event.data, LedgerCreated):
            self.created, self.ledger = event.data, event.ledger
            self._owners |= {event.data.root: ROOT, event.data.node_key: NODE}
        if event.ledger != self.ledger:
            raise Refused("WRONG_LEDGER", f"it is for ledger {event.ledger}")
        if self._owners.get(event.key) != event.author:
            raise Refused("KEY_UNKNOWN", f"it is signed with a key that is not {event.author}'s")
        if event.key in self._revoked:
            raise Refused("KEY_REVOKED", f"the key of {event.author} was revoked before it")
        if is_authority:
            self.authority.append((event.author, event.data))
            self._learn(event)

    def _learn(self, event: Event) -> None:
        match event.data:
            case AgentRegistered() as data:
                self._owners[data.key] = data.name
            case KeyDelegated() as data:
                self._owners[data.key] = event.author
            case KeyRevoked() as data:
                self._revoked.add(data.key)
            case _:
                return  # changes no key


def _is_signed(entry: Entry, batch_path: bytes | None) -> bool:
    signed = pae(entry.body)
    if entry.batch_size == 1:
        return batch_path is None and verify(entry.key, signed, entry.sig)
    path = batch_path or b""
    hashes = [path[start : start + 32] for start in range(0, len(path), 32)]
    root = _root_of_path(leaf_hash(signed), entry.batch_index, entry.batch_size, hashes)
    body = entry.batch_size.to_bytes(8, "big") + (root or b"")
    prefix = f"DSSEv1 {len(BATCH_TYPE)} {BATCH_TYPE} {len(body)} ".encode()
    return root is not None and verify(entry.key, prefix + body, entry.sig)


def _root_of_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    """Return the root that a path leads to (RFC 9162 §2.1.3.2), None when its length is not that of the tree."""
    rest = iter(path)
    last, node = size - 1, leaf
    while last > 0:
        if index & 1 or index < last:
            sibling = next(rest, None)
            if sibling is None:
                return None
            node = node_hash(sibling, node) if index & 1 else node_hash(node, sibling)
        index >>= 1
        last >>= 1
    return None if next(rest, None) is not None else node
