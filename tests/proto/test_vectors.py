"""The ledger's own code recomputes the frozen vectors, valid and invalid ones, from their inputs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from deedbook.ledger.admission.check import check
from deedbook.ledger.bus.subjects import event_subject, stream_token, submit_subject
from deedbook.ledger.client.author import sign
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.events.declared import check_schema, check_value
from deedbook.ledger.events.remnant import ERASED, digest_of, read_stored, remnant_of
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.envelope import (
    Entry,
    commitment_to,
    decode_entry,
    decode_submission,
    entry_leaf,
    event_id,
    pae,
    read_remnant,
    signed_bytes,
    to_dsse,
)
from deedbook.ledger.format.identity import Key, ledger_id, possession
from deedbook.ledger.format.merkle import inclusion_proof, leaf_hash, root_of, subtrees_of
from deedbook.ledger.format.signatures import is_signed
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, CheckpointVerifier, sign_checkpoint
from deedbook.ledger.proof.receipt import Receipt
from deedbook.ledger.seal.key_files import KeyFiles
from deedbook.ledger.seal.sealed_blob import unseal
from deedbook.projections.reasoning.memory import canonical_json, compute_reasoning_ref, memory_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parent.parent.parent / "proto" / "vectors"
Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    document = json.loads((VECTORS / f"{name}.json").read_bytes())
    assert list(document) == ["description", "source", "cases"]
    return [pytest.param(case, id=case["name"]) for case in document["cases"]]


def entry_of(case: Case) -> Entry:
    return Entry(
        version=1,
        body=case["body"].encode(),
        key=bytes.fromhex(case["key"]),
        alg=1,
        sig=bytes.fromhex(case["signature"]),
        batch_index=case["batch_index"],
        batch_size=case["batch_size"],
        accepted_ms=case["accepted_ms"],
        stream_version=case["stream_version"],
        authority_version=case["authority_version"],
    )


def test_every_vector_file_is_read_here() -> None:
    assert {path.name for path in VECTORS.iterdir()} == {
        "batch.json",
        "canonical.json",
        "declared_kinds.json",
        "entries.json",
        "events.json",
        "invalid_bodies.json",
        "invalid_entries.json",
        "invalid_remnants.json",
        "invalid_submissions.json",
        "keys.json",
        "reasoning.json",
        "receipts.json",
        "remnants.json",
        "sealed_blobs.json",
        "subjects.json",
        "submissions.json",
    }


DECLARED: dict[str, Any] = json.loads((VECTORS / "declared_kinds.json").read_bytes())


def refused_as(check: Callable[..., None], *arguments: Any) -> str:
    try:
        check(*arguments)
    except Refused as refusal:
        return refusal.code
    return "ok"


@pytest.mark.parametrize("case", DECLARED["schemas"], ids=lambda case: case["name"])
def test_schemas_of_declared_kinds(case: Case) -> None:
    assert refused_as(check_schema, case["schema"]) == case["code"]


@pytest.mark.parametrize("case", DECLARED["values"], ids=lambda case: case["name"])
def test_data_of_a_declared_kind(case: Case) -> None:
    assert refused_as(check_value, case["data"], DECLARED["schemas"][0]["schema"]) == case["code"]


@pytest.mark.parametrize("case", cases("keys"))
def test_keys(case: Case) -> None:
    key = Key(bytes.fromhex(case["seed"]))
    assert key.public.hex() == case["public"]
    assert "ed25519:" + key.public.hex() == case["keyid"]
    assert ledger_id(key.public) == case["ledger_id"]
    assert possession(case["ledger"], case["agent"], key.public).decode() == case["possession"]
    assert key.prove_possession(case["ledger"], case["agent"]) == case["proof"]


@pytest.mark.parametrize("case", cases("canonical"))
def test_canonical_form(case: Case) -> None:
    assert encode_canonical(case["value"]).hex() == case["canonical_hex"]


@pytest.mark.parametrize("case", cases("events"))
def test_events(case: Case) -> None:
    body, key = case["body"].encode(), Key(bytes.fromhex(case["seed"]))
    decode_body(body)
    assert (encode_canonical(case["value"]) == body) is case["is_canonical"]
    assert json.loads(body) == case["value"]
    assert pae(body).hex() == case["pae_hex"]
    assert event_id(commitment_to(body)) == case["id"]
    assert signed_bytes([commitment_to(body)]).hex() == case["signed_hex"]
    submission = sign([body], key)
    assert submission.sig.hex() == case["signature"]
    check(submission)


@pytest.mark.parametrize("case", cases("batch"))
def test_batches(case: Case) -> None:
    bodies, key = [body.encode() for body in case["bodies"]], Key(bytes.fromhex(case["seed"]))
    commitments = [commitment_to(body) for body in bodies]
    read, size = subtrees_of(commitments), len(bodies)
    paths = [inclusion_proof(position, size, read) for position in range(size)]
    assert [event_id(commitment) for commitment in commitments] == case["ids"]
    assert root_of(commitments).hex() == case["root"]
    assert signed_bytes(commitments).hex() == case["signed_hex"]
    assert [[sibling.hex() for sibling in path] for path in paths] == case["paths"]
    submission = sign(bodies, key)
    assert submission.sig.hex() == case["signature"]
    check(submission)
    added_by_ledger = [(case["accepted_ms"], version, case["authority_version"]) for version in case["stream_versions"]]
    entries = [
        Entry(1, body, key.public, 1, submission.sig, at, size, *added)
        for at, (body, added) in enumerate(zip(bodies, added_by_ledger, strict=True))
    ]
    assert [entry.encode().hex() for entry in entries] == case["entries_hex"]
    assert [to_dsse(entry, path) for entry, path in zip(entries, paths, strict=True)] == case["dsse"]
    assert all(is_signed(entry, path) for entry, path in zip(entries, paths, strict=True))


@pytest.mark.parametrize("case", cases("entries"))
def test_entries(case: Case) -> None:
    data = bytes.fromhex(case["entry_hex"])
    assert entry_of(case).encode() == data
    assert decode_entry(data) == entry_of(case)
    assert decode_entry(data).bare_form().hex() == case["bare_hex"]
    assert entry_leaf(data).hex() == leaf_hash(bytes.fromhex(case["bare_hex"])).hex() == case["leaf_hash"]


@pytest.mark.parametrize("case", cases("remnants"))
def test_remnants(case: Case) -> None:
    remnant = case["remnant"].encode()
    entry = Entry(1, case["body"].encode(), bytes(32), 1, bytes(64), 0, 1, 0, 1, 1)
    erased = msgspec.structs.replace(entry, body=remnant)
    assert read_stored(remnant).remnant == read_remnant(remnant)
    assert (erased.commitment, erased.bare_form()) == (entry.commitment, entry.bare_form())
    assert digest_of(remnant) == case["digest"]
    if case["mark"] == ERASED:
        assert remnant_of(entry, case["version"]) == remnant


@pytest.mark.parametrize("case", cases("invalid_remnants"))
def test_invalid_remnants_are_refused(case: Case) -> None:
    with pytest.raises(Refused) as raised:
        read_stored(case["remnant"].encode())
    assert raised.value.code == case["code"]


@pytest.mark.parametrize("case", cases("receipts"))
def test_receipts(case: Case) -> None:
    key = CheckpointKey(case["origin"], bytes.fromhex(case["seed"]))
    checkpoint = Checkpoint(case["origin"], case["size"], bytes.fromhex(case["root"]))
    assert key.verifier.vkey == case["vkey"]
    assert sign_checkpoint(checkpoint, key) == case["checkpoint"]
    path = tuple(bytes.fromhex(sibling) for sibling in case["path"])
    receipt = Receipt(case["index"], path, case["checkpoint"])
    assert receipt.to_text() == case["receipt"]
    verifier = CheckpointVerifier.from_vkey(case["vkey"])
    leaf = entry_leaf(bytes.fromhex(case["entry_hex"]))
    assert Receipt.parse(case["receipt"]).verify(leaf, verifier) == checkpoint


def test_the_entries_of_receipts_stand_in_the_published_order() -> None:
    entries = [case.values[0]["entry_hex"] for case in cases("entries")]
    for case in cases("receipts"):
        assert entries[case.values[0]["index"]] == case.values[0]["entry_hex"]


@pytest.mark.parametrize("case", cases("submissions"))
def test_submissions(case: Case) -> None:
    raw = bytes.fromhex(case["hex"]) if case["form"] == "msgpack" else case["text"].encode()
    submission = decode_submission(raw)
    assert submission.key.hex() == case["key"]
    assert submission.sig.hex() == case["signature"]
    assert [body.decode() for body in submission.bodies] == case["bodies"]
    assert [candidate.id for candidate in check(submission).candidates] == case["ids"]
    if case["form"] == "msgpack":
        assert submission.encode() == raw


@pytest.mark.parametrize("case", cases("subjects"))
def test_subjects(case: Case) -> None:
    assert stream_token(case["stream"]) == case["subject_part"]
    assert event_subject(case["ledger"], case["kind"], case["stream"]) == case["event_subject"]
    assert submit_subject(case["ledger"], case["agent"]) == case["submit_subject"]


@pytest.mark.parametrize("case", cases("reasoning"))
def test_reasoning_references(case: Case) -> None:
    memory, aside = memory_from_dict(case["graph"])
    assert aside == {}
    assert canonical_json(memory).decode() == case["hashed"]
    assert compute_reasoning_ref(memory) == case["ref"]


def refused(decode: Callable[[bytes], Any], case: Case) -> None:
    with pytest.raises(Refused) as raised:
        decode(bytes.fromhex(case["hex"]))
    assert raised.value.code == case["code"]


@pytest.mark.parametrize("case", cases("invalid_bodies"))
def test_invalid_bodies_are_refused(case: Case) -> None:
    refused(decode_body, case)


@pytest.mark.parametrize("case", cases("invalid_entries"))
def test_invalid_entries_are_refused(case: Case) -> None:
    refused(decode_entry, case)


@pytest.mark.parametrize("case", cases("invalid_submissions"))
def test_invalid_submissions_are_refused(case: Case) -> None:
    refused(lambda raw: check(decode_submission(raw)), case)


@pytest.mark.parametrize("case", cases("sealed_blobs"))
def test_sealed_blobs_open_or_are_refused(case: Case, tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path, case["ledger"])
    keys.insert(case["subject"], bytes.fromhex(case["key"]))
    source = io.BytesIO(bytes.fromhex(case["blob"]))
    if "content" in case:
        assert b"".join(unseal(source, keys)).hex() == case["content"]
        return
    with pytest.raises(DeedbookError) as error:
        list(unseal(source, keys))
    assert error.value.code == case["code"]
