"""Receipts from a dishonest ledger, and what receipts prove about replaced keys."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from building import Ledger, key_named
from faults import times
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invitations import checkpoint_key_of, invite, join

from deedbook.consumers.sdk.receipts import Anchors, Checked, evidence_in, take
from deedbook.consumers.sdk.receipts import check as check_with_ours
from deedbook.ledger.bundle.standalone import audit
from deedbook.ledger.bundle.standalone import receipt as standalone
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.events.authority import CheckpointKeyRotated, KeyRotated
from deedbook.ledger.events.remnant import ERASED
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.codec import encode_sorted
from deedbook.ledger.format.envelope import Remnant, decode_entry, entry_leaf, event_id, to_dsse
from deedbook.ledger.format.identity import write_key
from deedbook.ledger.format.merkle import inclusion_path, leaf_hash, root_of
from deedbook.ledger.lifecycle.authority import CHECKPOINT, ROOT
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, sign_checkpoint
from deedbook.ledger.proof.receipt import Receipt
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def check(receipt: Receipt, anchors: Anchors, *, known: dict[str, bool] | None = None) -> Checked:
    """Check a receipt with both verifiers, Deedbook's and the standalone one, which must agree."""
    lines = []
    with suppress(*audit.FAULTS):
        lines = standalone.check_receipt(receipt.to_text(), anchors.root)
    try:
        checked = check_with_ours(receipt, anchors, known=known)
    except (Corrupted, Refused):
        assert lines == [] or known
        raise
    event, size = checked.event, checked.checkpoint.size
    assert lines[0].startswith(f"{event.kind} by {event.author} on {event.stream}, accepted 20")
    assert [lines[1]] == [f"finding: {event.data.finding}"] or event.kind != "finding.logged"
    assert lines[-1].startswith(f"VALID: entry {event.index} of {size} in the log {checked.checkpoint.origin} (")
    assert ("self-asserted" in lines[-1]) == (checked.trust == "self-asserted")
    return checked


class Node:
    """A client whose answers a test changes."""

    def __init__(self, client: LocalClient, **lies: Callable[..., Any]) -> None:
        self._client, self._lies = client, lies

    def __getattr__(self, name: str) -> Any:
        return self._lies.get(name, getattr(self._client, name))


@pytest.fixture
def filled(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger.emit("alice", "session/s", SessionStarted())
    for number in range(5):
        ledger.emit("alice", "session/s", FindingLogged(finding=f"finding {number}"))
    return ledger


@pytest.fixture
def client(filled: Ledger) -> Iterator[LocalClient]:
    filled.write_keys()
    with LocalClient(filled.settings(), log=filled.log, views=Reader) as made:
        yield made


def signed(client: LocalClient, key: CheckpointKey, size: int, root: bytes, index: int) -> Receipt:
    receipt = client.prove(index)
    return msgspec.structs.replace(receipt, checkpoint_text=sign_checkpoint(Checkpoint(key.origin, size, root), key))


def test_a_node_that_lies_about_a_receipt_is_refused(filled: Ledger, client: LocalClient, tmp_path: Path) -> None:
    size, root = filled.head()
    key, other = filled.checkpoint_key, CheckpointKey(filled.checkpoint_key.origin, bytes(32))
    with Ledger(tmp_path / "other", root="another root") as stranger:
        stranger.write_keys()
        with LocalClient(stranger.settings(), log=stranger.log, views=Reader) as elsewhere:
            theirs = take(elsewhere, 3)
            with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):  # a valid receipt, but of another ledger
                take(Node(elsewhere, ledger=client.ledger, trust_store=client.trust_store), 3)  # type: ignore[arg-type]
    evidence = evidence_in(theirs)
    assert evidence is not None
    lies: list[dict[str, Callable[..., Any]]] = [
        {"prove": lambda index: client.prove(index - 1)},
        {"prove": lambda index: signed(client, other, size, root, index)},
        {"prove": lambda index: signed(client, key, size, leaf_hash(b"x"), index)},
        {"prove": lambda index: signed(client, key, size + 1, root, index)},
        {"prove": lambda _: theirs},
        {"prove": lambda _: theirs, "entry": lambda index: dict(evidence.chain)[index]},
        {"entry": lambda index: client.entry(index - 1 if index else 0)},
    ]
    for lie in lies:
        with pytest.raises((Corrupted, KeyError)) as refused:
            take(Node(client, **lie), 8)  # type: ignore[arg-type] # Node has the needed methods only
        assert not isinstance(refused.value, Corrupted) or refused.value.code == "VERIFICATION_FAILED"
    assert take(client, 8).index == 8


def test_a_node_that_shows_another_branch_to_the_receipt_than_to_the_memory_is_refused(
    filled: Ledger, client: LocalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's own key signs both branches, as only its operator can do."""
    client.remember()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # else the fork is noticed at once
    with Ledger(tmp_path / "fork") as fork:
        fork.emit("alice", "session/s", SessionStarted())
        while fork.head()[0] < filled.head()[0] + 2:
            fork.emit("alice", "session/s", FindingLogged(finding=f"otherwise {fork.head()[0]}"))
        fork.write_keys()
        with LocalClient(fork.settings(), log=fork.log, views=Reader) as branch:
            taken = take(branch, 8)
            with pytest.raises(Corrupted, match="HISTORY_CHANGED"):
                take(Node(branch, trust_store=client.trust_store), 8)  # type: ignore[arg-type]
            # Even if the node proves the trusted head by the old branch.
            lie = Node(branch, trust_store=client.trust_store, consistency=client.consistency)
            with pytest.raises(DeedbookError):
                take(lie, 8)  # type: ignore[arg-type]
    assert check(taken, Anchors()).event.index == 8


def test_an_entry_in_the_tree_whose_author_did_not_sign_it_is_refused(filled: Ledger, client: LocalClient) -> None:
    """Only the log's operator can make such a receipt: path and checkpoint are right."""
    receipt = take(client, 8)
    evidence = evidence_in(receipt)
    assert evidence is not None
    entry = decode_entry(evidence.entry)
    forged = msgspec.structs.replace(entry, sig=bytes(64)).encode()
    leaves = [*(entry_leaf(client.entry(index)) for index in range(8)), entry_leaf(forged)]
    key = filled.checkpoint_key
    made = Receipt(
        8,
        tuple(inclusion_path(leaves, 8)),
        sign_checkpoint(Checkpoint(key.origin, 9, root_of(leaves)), key),
        msgspec.json.encode(msgspec.structs.replace(evidence, entry=forged)),
    )
    with pytest.raises(Corrupted, match="the signature of the receipt's entry is invalid"):
        check(made, Anchors())


def rotate(ledger: Ledger, key_name: str) -> CheckpointKey:
    """Replace the key of checkpoints, and put the new one in place."""
    new = key_named(key_name)
    proof = new.prove_possession(ledger.id, CHECKPOINT)
    ledger.emit(ROOT, "ledger", CheckpointKeyRotated(key=new.public.hex(), proof=proof))
    path = ledger.home.key_file(CHECKPOINT)
    path.unlink()
    write_key(path, new, ledger=ledger.id, name=CHECKPOINT)
    return CheckpointKey(ledger.checkpoint_key.origin, new.seed)


def test_a_receipt_by_a_further_node_leads_from_root_to_its_key(filled: Ledger, client: LocalClient) -> None:
    join(filled, invite(filled, "n2", "node"))
    path, theirs = filled.home.key_file(CHECKPOINT), checkpoint_key_of("n2")
    path.unlink()
    write_key(path, theirs, ledger=filled.id, name=CHECKPOINT)  # as it is in that node's folder
    receipt = take(client, 8)
    checked = check(receipt, Anchors(root=filled.root_fingerprint()))
    assert checked.vkey == CheckpointKey(filled.checkpoint_key.origin, theirs.seed).verifier.vkey
    evidence = evidence_in(receipt)
    assert evidence is not None
    for left_out in (-1, -2):  # the evidence that the node joined, and that root invited it
        chain = [one for one in evidence.chain if one != evidence.chain[left_out]]
        less = msgspec.json.encode(msgspec.structs.replace(evidence, chain=chain))
        with pytest.raises(Corrupted):
            check(msgspec.structs.replace(receipt, extra=less), Anchors(root=filled.root_fingerprint()))


def test_a_receipt_leads_from_root_to_the_key_that_took_the_place_of_others(
    filled: Ledger, client: LocalClient
) -> None:
    fingerprint = filled.root_fingerprint()
    before = take(client, 8)
    root = key_named("root anew")
    filled.emit(
        ROOT, "agent/root", KeyRotated(agent=ROOT, key=root.public.hex(), proof=root.prove_possession(filled.id, ROOT))
    )
    filled.keys[ROOT] = root
    new = rotate(filled, "checkpoint anew")
    receipt = take(client, 8)
    checked = check(receipt, Anchors(root=fingerprint))
    assert (checked.vkey, checked.trust) == (new.verifier.vkey, "root")
    assert check(before, Anchors(root=fingerprint)).vkey == filled.checkpoint_key.verifier.vkey
    evidence = evidence_in(receipt)
    assert evidence is not None
    for left_out in range(len(evidence.chain)):
        chain = [one for place, one in enumerate(evidence.chain) if place != left_out]
        less = msgspec.json.encode(msgspec.structs.replace(evidence, chain=chain))
        with pytest.raises(Corrupted):
            check(msgspec.structs.replace(receipt, extra=less), Anchors(root=fingerprint))
    # A stolen key, whose replacement is left out of the chain.
    old = msgspec.structs.replace(evidence, chain=evidence.chain[:-1])
    with pytest.raises(Corrupted, match="hides entries"):
        check(
            msgspec.structs.replace(before, extra=msgspec.json.encode(old)), Anchors(), known={new.verifier.vkey: True}
        )


def test_a_receipt_of_one_event_of_a_batch_has_its_path_to_what_the_author_signed(
    filled: Ledger, client: LocalClient
) -> None:
    drafts = [Draft(stream="session/s", data=FindingLogged(finding=f"together {number}")) for number in range(5)]
    for accepted in filled.submit(filled.sign("alice", *drafts)):
        receipt = take(client, accepted.index)
        assert check(receipt, Anchors()).is_signed
        evidence = evidence_in(receipt)
        assert evidence is not None
        changed = msgspec.structs.replace(evidence, batch=bytes(len(evidence.batch)))
        with pytest.raises(Corrupted):
            check(msgspec.structs.replace(receipt, extra=msgspec.json.encode(changed)), Anchors())


@pytest.mark.parametrize(
    "change",
    [{"x": 1}, {"deedbook_receipt": True}, {"deedbook_receipt": 1.0}, {"batch": None}, {"chain": [[False, ""]]}],
)
def test_evidence_with_other_fields_or_types_is_refused_by_both(client: LocalClient, change: dict[str, Any]) -> None:
    receipt = take(client, 8)
    evidence = msgspec.json.decode(receipt.extra or b"")
    if chain := change.get("chain"):  # entry 0 under an index that equals 0 only in Python
        chain[0][1] = evidence["chain"][0][1]
        chain += evidence["chain"][1:]
    with pytest.raises(Corrupted):
        check(msgspec.structs.replace(receipt, extra=msgspec.json.encode(evidence | change)), Anchors())


@pytest.mark.parametrize("bodies", [5, None, [], [5], ["bm8="]])
def test_an_envelope_without_the_body_of_the_receipt_is_refused(client: LocalClient, bodies: object) -> None:
    receipt = take(client, 8)
    envelope = to_dsse(decode_entry(client.entry(8)), [])
    assert check_with_ours(receipt, Anchors(event=msgspec.json.encode(envelope))).event.index == 8
    with pytest.raises(Corrupted):
        check_with_ours(receipt, Anchors(event=msgspec.json.encode(envelope | {"bodies": bodies})))


def test_the_receipt_of_an_erased_entry_proves_its_id_and_says_that_its_text_is_gone(
    filled: Ledger, client: LocalClient
) -> None:
    before = take(client, 8)
    filled.redact(8)
    receipt = take(client, 8)
    checked, lines = check_with_ours(receipt, Anchors()), standalone.check_receipt(receipt.to_text(), None)
    assert checked.event.id == check(before, Anchors()).event.id
    assert checked.event.erased is not None
    assert checked.is_signed
    assert lines[0].startswith("an event whose body was erased")
    assert checked.event.kind not in lines[0]
    assert lines[-1].startswith("VALID_WITH_ERASURES: entry 8 of ")
    with pytest.raises(Refused):
        to_dsse(decode_entry(client.entry(8)), [])


@pytest.mark.parametrize("kind", ["checkpoint_key.rotated", "key.rotated"])
def test_a_receipt_with_what_is_left_of_an_event_that_names_a_key_is_refused(client: LocalClient, kind: str) -> None:
    """Root signed some event. The forger claims a remnant of it that names their key, and signs with that key."""
    forger = CheckpointKey("forger", bytes(32))
    receipt = take(client, 8)
    evidence = evidence_in(receipt)
    assert evidence is not None
    chain = dict(evidence.chain)
    signed_by_root = decode_entry(client.entry(1))
    data = {"key": forger.verifier.public_key.hex(), "proof": "0" * 128, "reason": ERASED}
    data |= {"agent": "root"} if kind == "key.rotated" else {}
    body = json.loads(signed_by_root.body) | {"kind": kind, "data": data, "salt": "A" * 22}
    body["stream"] = "agent/root" if kind == "key.rotated" else "ledger"
    left = Remnant(event_id(signed_by_root.commitment), None, encode_sorted(body))
    chain[1] = msgspec.structs.replace(signed_by_root, body=left.encode()).encode()
    extra = msgspec.structs.replace(evidence, chain=sorted(chain.items()))
    forged = msgspec.structs.replace(receipt, extra=msgspec.json.encode(extra))
    with pytest.raises((Refused, Corrupted)):
        check_with_ours(forged, Anchors())
    with pytest.raises(audit.FAULTS, match="its body is missing"):
        standalone.check_receipt(forged.to_text(), None)


@settings(max_examples=times(30, 20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_evidence_that_was_changed_is_refused_or_says_the_same(client: LocalClient, data: st.DataObject) -> None:
    receipt = take(client, 8)
    root, lines = check(receipt, Anchors()), standalone.check_receipt(receipt.to_text(), None)
    extra = bytearray(receipt.extra or b"")
    place = data.draw(st.integers(0, len(extra) - 1))
    extra[place] ^= 1 << data.draw(st.integers(0, 7))
    changed = msgspec.structs.replace(receipt, extra=bytes(extra))
    with suppress(*audit.FAULTS):
        assert standalone.check_receipt(changed.to_text(), None) == lines
    try:
        checked = check_with_ours(changed, Anchors())
    except (Corrupted, Refused):
        return
    assert (checked.event, checked.checkpoint, checked.vkey) == (root.event, root.checkpoint, root.vkey)
