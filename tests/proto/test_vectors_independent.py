"""The frozen vectors recomputed without the ledger: hashlib, PyNaCl, blake3 and encodings written out by hand.

A vector that only the code which made it can reproduce proves nothing; this file is the second opinion.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

VECTORS = Path(__file__).parent.parent.parent / "proto" / "vectors"
EVENT_TYPE = b"application/vnd.deedbook.event.v1+json"
BATCH_TYPE = b"application/vnd.deedbook.batch.v1"
Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    document = json.loads((VECTORS / f"{name}.json").read_bytes())
    return [pytest.param(case, id=case["name"]) for case in document["cases"]]


def pae(kind: bytes, body: bytes) -> bytes:
    return b"DSSEv1 " + str(len(kind)).encode() + b" " + kind + b" " + str(len(body)).encode() + b" " + body


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tree(leaves: list[bytes]) -> bytes:
    """RFC 6962 §2.1, by its definition."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + tree(leaves[:split]) + tree(leaves[split:]))


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962 §2.1.1, by its definition."""
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*path(index, leaves[:split]), tree(leaves[split:])]
    return [*path(index - split, leaves[split:]), tree(leaves[:split])]


def packed_bytes(data: bytes) -> bytes:
    if len(data) < 1 << 8:
        return b"\xc4" + len(data).to_bytes(1, "big") + data
    return b"\xc5" + len(data).to_bytes(2, "big") + data


def packed_integer(value: int) -> bytes:
    if value < 1 << 7:
        return value.to_bytes(1, "big")
    for code, width in ((b"\xcc", 1), (b"\xcd", 2), (b"\xce", 4)):
        if value < 1 << 8 * width:
            return code + value.to_bytes(width, "big")
    return b"\xcf" + value.to_bytes(8, "big")


def packed_entry(case: Case) -> bytes:
    key, sig = bytes.fromhex(case["key"]), bytes.fromhex(case["signature"])
    return b"".join(
        [
            b"\x9a\x01",
            packed_bytes(case["body"].encode()),
            packed_bytes(key),
            b"\x01",
            packed_bytes(sig),
            packed_integer(case["batch_index"]),
            packed_integer(case["batch_size"]),
            packed_integer(case["accepted_ms"]),
            packed_integer(case["stream_version"]),
            packed_integer(case["authority_version"]),
        ]
    )


@pytest.mark.parametrize("case", cases("keys"))
def test_keys(case: Case) -> None:
    key = SigningKey(bytes.fromhex(case["seed"]))
    public = bytes(key.verify_key)
    assert public.hex() == case["public"]
    assert case["keyid"] == f"ed25519:{public.hex()}"
    assert blake3(public).digest()[:16].hex() == case["ledger_id"]
    text = f"{case['ledger']}\n{case['agent']}\n{public.hex()}".encode()
    signed = pae(b"application/vnd.deedbook.possession.v1", text)
    assert signed.decode() == case["possession"]
    assert key.sign(signed).signature.hex() == case["proof"]


@pytest.mark.parametrize("case", cases("events"))
def test_events(case: Case) -> None:
    body = case["body"].encode()
    signed = pae(EVENT_TYPE, body)
    assert signed.hex() == case["pae_hex"]
    assert f"blake3:{blake3(signed).hexdigest()}" == case["id"]
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == case["body_sha256"]
    assert SigningKey(bytes.fromhex(case["seed"])).sign(signed).signature.hex() == case["signature"]


@pytest.mark.parametrize("case", cases("batch"))
def test_batches(case: Case) -> None:
    signed = [pae(EVENT_TYPE, body.encode()) for body in case["bodies"]]
    leaves = [sha256(b"\x00" + event) for event in signed]
    covered = pae(BATCH_TYPE, len(signed).to_bytes(8, "big") + tree(leaves))
    key = SigningKey(bytes.fromhex(case["seed"]))
    public = bytes(key.verify_key).hex()
    assert [f"blake3:{blake3(event).hexdigest()}" for event in signed] == case["ids"]
    assert [leaf.hex() for leaf in leaves] == case["leaf_hashes"]
    assert tree(leaves).hex() == case["root"]
    assert covered.hex() == case["batch_pae_hex"]
    assert key.sign(covered).signature.hex() == case["signature"]
    assert [[sibling.hex() for sibling in path(at, leaves)] for at in range(len(leaves))] == case["paths"]
    for at, body in enumerate(case["bodies"]):
        fields = {name: case[name] for name in ("accepted_ms", "authority_version")}
        fields |= {
            "batch_index": at,
            "batch_size": len(leaves),
            "key": public,
            "stream_version": case["stream_versions"][at],
        }
        entry = packed_entry(fields | {"body": body, "signature": case["signature"]})
        assert entry.hex() == case["entries_hex"][at]
        envelope = case["dsse"][at]
        assert base64.b64decode(envelope["payload"]) == body.encode()
        assert envelope["signatures"] == [
            {
                "keyid": f"ed25519:{public}",
                "sig": base64.b64encode(bytes.fromhex(case["signature"])).decode(),
            }
        ]
        assert envelope["deedbookBatch"] == {
            "index": at,
            "size": len(leaves),
            "path": [base64.b64encode(sibling).decode() for sibling in path(at, leaves)],
        }


@pytest.mark.parametrize("case", cases("entries"))
def test_entries(case: Case) -> None:
    entry = packed_entry(case)
    assert entry.hex() == case["entry_hex"]
    assert sha256(b"\x00" + entry).hex() == case["leaf_hash"]


@pytest.mark.parametrize("case", cases("receipts"))
def test_receipts(case: Case) -> None:
    entries = [bytes.fromhex(entry.values[0]["entry_hex"]) for entry in cases("entries")][: case["size"]]
    leaves = [sha256(b"\x00" + entry) for entry in entries]
    key, origin = SigningKey(bytes.fromhex(case["seed"])), case["origin"]
    public = bytes(key.verify_key)
    key_id = sha256(origin.encode() + b"\n\x01" + public)[:4]
    text = f"{origin}\n{case['size']}\n{base64.b64encode(tree(leaves)).decode()}\n"
    line = base64.b64encode(key_id + key.sign(text.encode()).signature).decode()
    note = f"{text}\n\N{EM DASH} {origin} {line}\n"
    hashes = "".join(base64.b64encode(sibling).decode() + "\n" for sibling in path(case["index"], leaves))
    assert tree(leaves).hex() == case["root"]
    encoded = base64.b64encode(b"\x01" + public).decode()
    assert case["vkey"] == f"{origin}+{key_id.hex()}+{encoded}"
    assert note == case["checkpoint"]
    assert f"c2sp.org/tlog-proof@v1\nindex {case['index']}\n{hashes}\n{note}" == case["receipt"]


@pytest.mark.parametrize("case", cases("submissions"))
def test_submissions(case: Case) -> None:
    key, bodies = bytes.fromhex(case["key"]), [body.encode() for body in case["bodies"]]
    sigs = [bytes.fromhex(sig) for sig in case["signatures"]]
    signed = [pae(EVENT_TYPE, body) for body in bodies]
    if case["form"] == "msgpack":
        parts = [b"\x94\x01", packed_bytes(key)]
        for each in (sigs, bodies):
            parts += [bytes([0x90 + len(each)]), *map(packed_bytes, each)]
        assert b"".join(parts).hex() == case["hex"]
    else:
        decoded = json.loads(case["text"])
        envelopes = decoded if isinstance(decoded, list) else [decoded]
        assert [base64.b64decode(envelope["payload"]) for envelope in envelopes] == bodies
        assert {envelope["payloadType"] for envelope in envelopes} == {EVENT_TYPE.decode()}
    if len(sigs) < len(bodies):
        leaves = [sha256(b"\x00" + event) for event in signed]
        signed = [pae(BATCH_TYPE, len(signed).to_bytes(8, "big") + tree(leaves))]
    for event, sig in zip(signed, sigs, strict=True):
        VerifyKey(key).verify(event, sig)
        with pytest.raises(BadSignatureError):
            VerifyKey(key).verify(event + b"x", sig)


@pytest.mark.parametrize("case", cases("subjects"))
def test_subjects(case: Case) -> None:
    token = base64.urlsafe_b64encode(blake3(case["stream"].encode()).digest()[:16]).decode().rstrip("=")
    assert token == case["subject_part"]
    assert case["event_subject"] == f"deedbook.{case['ledger']}.event.{case['kind']}.{token}"
    assert case["submit_subject"] == f"deedbook.{case['ledger']}.submit.{case['agent']}"


@pytest.mark.parametrize("case", cases("reasoning"))
def test_reasoning_references(case: Case) -> None:
    defaults = {
        "reasoning_type": "",
        "evidence": [],
        "premises": [],
        "alternatives_considered": [],
        "assumptions": [],
    }
    graph = case["graph"] | {"reasoning_id": ""}
    graph["steps"] = [
        defaults | step | {"confidence": float(step.get("confidence", 1.0))} for step in case["graph"]["steps"]
    ]
    graph["dependencies"] = {int(number): on for number, on in case["graph"]["dependencies"].items()}
    graph = {"reasoning_strategy": "", "confidence_in_reasoning": 1.0, "known_limitations": []} | graph
    hashed = json.dumps(graph, sort_keys=True)
    assert hashed == case["hashed"]
    assert f"sha256:{hashlib.sha256(hashed.encode()).hexdigest()}" == case["ref"]


def test_this_file_knows_nothing_of_the_ledger() -> None:
    source = Path(__file__).read_text("utf-8")
    packages = ("ledger", "projections", "consumers")
    assert not [name for name in packages if f"\nfrom {name}" in source or f"\nimport {name}" in source]
