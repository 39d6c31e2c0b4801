"""Takes receipts from a ledger, and checks receipts, also offline and for people who do not know the ledger.

A receipt is a C2SP tlog-proof, which any tool for that format reads. Its extra data are not signed. They have what our
own check also needs: the entry, its path in its signed batch, and the entries in which root named the checkpoint keys
or admitted nodes with such keys. So one file proves the content of an event, its author, its ledger, and that it is in
the log.

The check covers the entry's signature, the path to the checkpoint, the checkpoint's signature, and the witnesses of a
policy. The checkpoint key is one that the caller named (``Anchors``) or, *self-asserted*, one that the receipt itself
leads to. A receipt cannot prove that the author's key was valid (the log's rules decide that), that the log's key was
not replaced later, or that the log still begins with this tree. ``hold`` checks the last one against an available
ledger.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

import msgspec

from deedbook.ledger import limits
from deedbook.ledger.client.client import Client, read_batch_path
from deedbook.ledger.client.reads import Page
from deedbook.ledger.client.remote_history import Chain, active_verifiers
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import check_strict, decode_strict, encode_base64, json_decoder
from deedbook.ledger.format.envelope import decode_entry, entry_leaf, split_hashes
from deedbook.ledger.format.identity import ledger_id
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import CHECKPOINT
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointVerifier, open_note
from deedbook.ledger.proof.policy import Policy, WitnessResult
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.trust.history import ConsistencyProof, TrustedHead, history_changed, is_continued

poll_s: Final = 0.5
_TO_ROOT: Final = (("key.rotated", "agent/root"), ("checkpoint_key.rotated", "ledger"))
_OF_NODES: Final = ("agent.invited", "agent.registered", "agent.removed")


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The extra data of our receipts: the entry, its path in its batch, and root's entries with their indexes."""

    deedbook_receipt: Literal[1] = 1
    entry: bytes
    batch: bytes
    chain: list[tuple[int, bytes]]


class Anchors(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the checker of a receipt trusts: a vkey, a root key, a policy, the expected event.

    ``root`` is the beginning of the root key or its fingerprint, ``event`` an entry or a DSSE JSON envelope.
    """

    vkey: str | None = None
    root: str | None = None
    policy: Policy | None = None
    event: bytes | None = None


class Checked(msgspec.Struct, frozen=True):
    """The result of checking a receipt: ``trust`` is the origin of the log's key, ``witnessed`` the policy's result.

    ``is_signed``: the author's signature was checked. For an entry of a batch, this check needs the entry's path.
    """

    event: Event
    is_signed: bool
    vkey: str
    checkpoint: Checkpoint
    ledger: str
    trust: Literal["vkey", "policy", "root", "ledger", "self-asserted"]
    witnessed: WitnessResult | None


# Damaged evidence, for example with one changed character, still contains one of these.
_NAMES: Final = (b"deedbook_receipt", b'"chain":')
_decoder: Final = json_decoder(Evidence)


def take(
    client: Client, index: int, *, policy: Policy | None = None, wait_max_s: float = limits.receipt_wait_max_s
) -> Receipt:
    """Request the receipt of an entry, add its evidence, check both, and return the receipt with the evidence.

    The check proves, too, that the receipt's checkpoint and the trusted head belong to one history. If a policy or the
    node requires witnesses, wait for them up to ``wait_max_s``. Raises Refused: ``NOT_FOUND``, or the codes of a key
    file if the checkpoint key is not here. Corrupted: ``VERIFICATION_FAILED``: the ledger's proof is wrong;
    ``HISTORY_CHANGED``; ``NOT_WITNESSED``: request the receipt again later.
    """
    deadline = time.monotonic() + wait_max_s
    evidence = _evidence(client, index)
    while True:
        try:
            receipt = msgspec.structs.replace(client.prove(index), extra=msgspec.json.encode(evidence))
            checked = check(receipt, Anchors(), known=client.trust_store.checkpoint_keys)
            check(receipt, Anchors(policy=policy))
            break
        except Corrupted as error:
            if error.code != "NOT_WITNESSED" or time.monotonic() > deadline:
                raise
            time.sleep(poll_s)
    if receipt.index != index or checked.ledger != client.ledger:
        raise Corrupted(
            "VERIFICATION_FAILED", f"entry {index} was requested, and the ledger returned the receipt of another"
        )
    hold(checked.checkpoint, client)
    return receipt


def check(
    receipt: Receipt, anchors: Anchors, *, fail_open: bool = False, known: Mapping[str, bool] | None = None
) -> Checked:
    """Return what a receipt proves, from its bytes, the anchors and ``known`` alone.

    With ``fail_open``, missing cosignatures of the policy's witnesses are accepted. ``known`` are the checkpoint keys
    of the trust store, none of which the receipt's evidence may leave out. Raises Refused: ``USAGE`` if the entry or
    a key is missing; the receipt is malformed. Corrupted: ``VERIFICATION_FAILED``, ``NOT_WITNESSED``.
    """
    evidence = evidence_in(receipt)
    data, batch = _entry(receipt, evidence, anchors.event)
    with _damage(is_possible=evidence is not None):
        event, entry = read_event(receipt.index, data), decode_entry(data)
    is_checkable = entry.batch_size == 1 or batch is not None
    if is_checkable and not is_signed(entry, split_hashes(batch or b"")):
        raise Corrupted("VERIFICATION_FAILED", "the signature of the receipt's entry is invalid")
    verifiers, ledger, by = _verifiers(receipt, evidence, anchors, known or {})
    if ledger and event.ledger != ledger:
        raise Corrupted("VERIFICATION_FAILED", f"the entry is of the ledger {event.ledger}, not of {ledger}")
    checkpoint = receipt.verify(entry_leaf(data), *verifiers)
    note, policy = receipt.checkpoint_text, anchors.policy
    _, signer = open_note(note, *verifiers)
    witnessed = None if policy is None else policy.demand(note, time.time(), fail_open=fail_open)
    return Checked(event, is_checkable, signer.vkey, checkpoint, ledger, by, witnessed)


def hold(checkpoint: Checkpoint, client: Client) -> None:
    """Check that a checkpoint, the trusted head and the ledger have one history. Raises Corrupted."""
    remembered = client.trust_store.load()
    if remembered is None:
        head = TrustedHead(checkpoint.size, checkpoint.root.hex())
        consistency_proof = client.consistency(checkpoint.size)
        if not is_continued(head, consistency_proof):
            raise history_changed(head, consistency_proof, "the checkpoint")
        return
    receipt, trusted = TrustedHead(checkpoint.size, checkpoint.root.hex()), remembered.trusted
    # Compare the two heads directly, not each with a third head: a node could show a different branch each time.
    small, large = sorted((receipt, trusted), key=lambda head: head.size)
    consistency_proof = ConsistencyProof(large.size, large.root, client.consistency(small.size, large.size).path)
    if not is_continued(small, consistency_proof):
        raise history_changed(trusted, ConsistencyProof(receipt.size, receipt.root), client.trust_store.source)


def evidence_in(receipt: Receipt) -> Evidence | None:
    """Return the evidence in a receipt's extra data; None if another tool made the receipt."""
    with suppress(DeedbookError):
        return decode_strict(receipt.extra or b"", _decoder)
    return None


@contextmanager
def _damage(*, is_possible: bool = True) -> Iterator[None]:
    """Report a malformed entry in the receipt's evidence as damage: the receipt proves nothing."""
    try:
        yield
    except Refused as refusal:
        if not is_possible or refusal.code not in ("INVALID_FORMAT", "INVALID_FIELD"):
            raise
        message = f"the receipt is damaged: {refusal.message}"
        raise Corrupted("VERIFICATION_FAILED", message, **refusal.details) from refusal


def _entry(receipt: Receipt, evidence: Evidence | None, given: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the bytes of the receipt's entry, and its path in its batch if known; ``given`` must be the same event."""
    if given is not None and given[:1] != b"{":
        if evidence is not None and evidence.entry != given:
            raise Corrupted("VERIFICATION_FAILED", "the receipt is of another entry than the named one")
        return (
            given,
            receipt.extra if evidence is None else evidence.batch,
        )  # the extra data of a bundle's receipts are only the path
    if evidence is None and any(name in (receipt.extra or b"") for name in _NAMES):
        raise Corrupted("VERIFICATION_FAILED", "the receipt is damaged: its extra data cannot be read")
    if evidence is None:
        raise Refused("USAGE", "the receipt does not contain its entry: give the entry's exact bytes with --event FILE")
    if given is not None:
        envelope: Any = check_strict(given)
        if envelope.get("bodies") != [encode_base64(decode_entry(evidence.entry).body)]:
            raise Corrupted("VERIFICATION_FAILED", "the receipt is of another event than the named one")
    return evidence.entry, evidence.batch


def _verifiers(
    receipt: Receipt, evidence: Evidence | None, anchors: Anchors, known: Mapping[str, bool]
) -> tuple[list[CheckpointVerifier], str, Literal["vkey", "policy", "root", "self-asserted"]]:
    """Return the accepted checkpoint keys, the ledger if it is known, and the origin of the trust."""
    with _damage():
        chained = None if evidence is None else _chained(evidence, known)
    if anchors.root is not None and (chained is None or not any(key.startswith(anchors.root) for key in chained[2:])):
        raise Corrupted("VERIFICATION_FAILED", "the receipt does not lead to the root key that you named")
    ledger = "" if chained is None else chained[1]
    if anchors.vkey is not None:
        return [CheckpointVerifier.from_vkey(anchors.vkey)], ledger, "vkey"
    if anchors.policy is not None and anchors.policy.logs:
        return [anchors.policy.verify_log(receipt.checkpoint_text)], ledger, "policy"
    if chained is None:
        raise Refused("USAGE", "the log is not known: give --vkey, or a --policy that names the log")
    return chained[0], ledger, "self-asserted" if anchors.root is None else "root"


def _chained(evidence: Evidence, known: Mapping[str, bool]) -> tuple[list[CheckpointVerifier], str, str, str]:
    """Return the checkpoint keys that root's entries lead to, the ledger, its first root key and its fingerprint."""
    chain = _Held(dict(evidence.chain))
    created = read_event(0, chain.entry(0)).data
    if not isinstance(created, LedgerCreated):
        raise Corrupted("VERIFICATION_FAILED", "the receipt's first entry does not create a ledger")
    root = bytes.fromhex(created.root)
    ledger = ledger_id(root)
    return active_verifiers(Chain(chain, ledger).checkpoint_keys(known)), ledger, created.root, fingerprint(root)


class _Held:
    """The entries in a receipt, to be read like a client's (``client.EntryReads``); they are not trusted."""

    def __init__(self, entries: dict[int, bytes]) -> None:
        self._entries = dict(sorted(entries.items()))

    def entry(self, index: int) -> bytes:
        if index not in self._entries:
            raise Corrupted("VERIFICATION_FAILED", f"the receipt lacks the entry {index}")
        return self._entries[index]

    def entries(
        self,
        start: int,
        *,
        limit: int = limits.range_events_max,
        kinds: Collection[str] = (),
        stream: str | None = None,
    ) -> Page:
        matching = []
        for index, data in self._entries.items():
            event = read_event(index, data)
            if index >= start and (not kinds or event.kind in kinds) and stream in {None, event.stream}:
                matching.append((index, data))
        return Page(matching[:limit], max(self._entries) + 1, max(self._entries) + 1)


def _evidence(client: Client, index: int) -> Evidence:
    """Return the evidence for an entry. Views name the entries of root; these are signed, so they need no trust."""
    data = client.entry(index)
    keys = client.view("agents.keys", {})["items"]
    nodes = {key["agent"] for key in keys if key["type"] == CHECKPOINT and key["agent"] != CHECKPOINT}
    rows = [
        row["event_index"]
        for kind, stream in [*_TO_ROOT, *((kind, f"agent/{node}") for node in nodes for kind in _OF_NODES)]
        for row in client.view("catalog.find", {"kind": kind, "stream": stream, "limit": 500})["items"]
    ]
    chain = sorted({companion for row in [0, *rows] for companion in _batch_of(row, client.entry(row))})
    batch = b"".join(read_batch_path(client, index, decode_entry(data)))
    return Evidence(entry=data, batch=batch, chain=[(row, client.entry(row)) for row in chain])


def _batch_of(index: int, data: bytes) -> range:
    entry = decode_entry(data)
    start = index - entry.batch_index
    return range(start, start + entry.batch_size)
