"""Recomputes the frozen vectors without the ledger's code: with hashlib, PyNaCl, blake3 and encodings written here.

A vector proves something only if other code than the code that made it can reproduce it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from nacl import bindings
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

PROTO = Path(__file__).parent.parent.parent / "proto"
VECTORS = PROTO / "vectors"
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
    """Return the root of leaves by the definition of RFC 6962 §2.1."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + tree(leaves[:split]) + tree(leaves[split:]))


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    """Return the path of a leaf by the definition of RFC 6962 §2.1.1."""
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


def packed_entry(case: Case, body: bytes | None = None) -> bytes:
    key, sig = bytes.fromhex(case["key"]), bytes.fromhex(case["signature"])
    return b"".join(
        [
            b"\x9a\x01",
            packed_bytes(case["body"].encode() if body is None else body),
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


def commitment_to(body: str) -> bytes:
    return sha256(b"\x00" + pae(EVENT_TYPE, body.encode()))


def bare_form(case: Case) -> bytes:
    return packed_entry(case, commitment_to(case["body"]))


def signed_bytes(bodies: list[str]) -> bytes:
    return pae(BATCH_TYPE, len(bodies).to_bytes(8, "big") + tree([commitment_to(body) for body in bodies]))


def envelope(bodies: list[str], public: bytes, sig: bytes) -> Case:
    signed = len(bodies).to_bytes(8, "big") + tree([commitment_to(body) for body in bodies])
    return {
        "payloadType": BATCH_TYPE.decode(),
        "payload": base64.b64encode(signed).decode(),
        "signatures": [{"keyid": f"ed25519:{public.hex()}", "sig": base64.b64encode(sig).decode()}],
        "bodies": [base64.b64encode(body.encode()).decode() for body in bodies],
    }


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
    covered = signed_bytes([case["body"]])
    assert pae(EVENT_TYPE, body).hex() == case["pae_hex"]
    assert f"event:{commitment_to(case['body']).hex()}" == case["id"]
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == case["body_sha256"]
    assert covered.hex() == case["signed_hex"]
    assert SigningKey(bytes.fromhex(case["seed"])).sign(covered).signature.hex() == case["signature"]


class Number(str):
    """A number in the digits in which its author wrote it."""

    __slots__ = ()


def written(value: Any) -> str:
    """Return a value as JSON in the form of remnants: keys sorted by code points, numbers unchanged."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def marked(value: Any, mark: str, how: str) -> Any:
    if isinstance(value, dict):
        return {} if how == "empty" else {key: marked(item, mark, how) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item, mark, how) for item in value]
    return mark if isinstance(value, str) and value and not isinstance(value, Number) else value


def erased(value: Any, form: dict[str, Any], definitions: dict[str, Any], mark: str) -> Any:
    """Return a value with the marks of erasure in place of the texts that ``erasure.json`` names for its schema."""
    texts: dict[str, str] = {}
    while "$ref" in form or "anyOf" in form:
        if "anyOf" in form:
            form = next(some for some in form["anyOf"] if some.get("type") != "null")
        else:
            name = form["$ref"].removeprefix("#/$defs/")
            texts, form = json.loads((PROTO / "erasure.json").read_bytes())["texts"].get(name, {}), definitions[name]
    if isinstance(value, list):
        return [erased(item, form["items"], definitions, mark) for item in value]
    if not isinstance(value, dict):
        return value
    known, other = form.get("properties", {}), form.get("additionalProperties", {})
    return {
        key: marked(item, mark, texts[key]) if key in texts else erased(item, known.get(key, other), definitions, mark)
        for key, item in value.items()
    }


@pytest.mark.parametrize("case", cases("remnants"))
def test_remnants(case: Case) -> None:
    body = json.loads(case["body"], parse_int=Number, parse_float=Number)
    schema = json.loads((PROTO / "schemas" / f"{body['kind']}.json").read_bytes())
    definitions, data = schema["$defs"], body["data"]
    rest = erased(data, schema["properties"]["data"], definitions, case["mark"])
    if body["kind"] == "record.imported" and data.get("mapped_kind"):
        forms = next(
            form["then"]["properties"]
            for form in definitions["RecordImported"]["allOf"]
            if form["if"]["properties"]["mapped_kind"].get("const") == data["mapped_kind"]
        )
        rest |= {name: erased(data[name], forms[name], definitions, case["mark"]) for name in forms if name in data}
    version = "" if case["version"] is None else f'"version":"{case["version"]}",'
    text = written(body | {"salt": "A" * 22, "data": rest})
    remnant = f'{{"redacted":"event:{commitment_to(case["body"]).hex()}",{version}"body":{text}}}'
    assert remnant == case["remnant"]
    assert f"sha256:{hashlib.sha256(remnant.encode()).hexdigest()}" == case["digest"]
    assert len(remnant.encode()) <= len(case["body"].encode()) + 192 or case["mark"] != "*"


@pytest.mark.parametrize("case", cases("batch"))
def test_batches(case: Case) -> None:
    bodies, sig = case["bodies"], bytes.fromhex(case["signature"])
    commitments = [commitment_to(body) for body in bodies]
    key = SigningKey(bytes.fromhex(case["seed"]))
    public = bytes(key.verify_key)
    assert [f"event:{commitment.hex()}" for commitment in commitments] == case["ids"]
    assert tree(commitments).hex() == case["root"]
    assert signed_bytes(bodies).hex() == case["signed_hex"]
    assert key.sign(signed_bytes(bodies)).signature == sig
    assert [[sibling.hex() for sibling in path(at, commitments)] for at in range(len(bodies))] == case["paths"]
    for at, body in enumerate(bodies):
        fields = {name: case[name] for name in ("accepted_ms", "authority_version", "signature")}
        fields |= {"batch_index": at, "batch_size": len(bodies), "key": public.hex()}
        entry = packed_entry(fields | {"stream_version": case["stream_versions"][at], "body": body})
        assert entry.hex() == case["entries_hex"][at]
        siblings = [base64.b64encode(sibling).decode() for sibling in path(at, commitments)]
        whole = envelope(bodies, public, sig)
        assert case["dsse"][at] == whole | {"bodies": [whole["bodies"][at]], "index": at, "path": siblings}


@pytest.mark.parametrize("case", cases("entries"))
def test_entries(case: Case) -> None:
    assert packed_entry(case).hex() == case["entry_hex"]
    assert bare_form(case).hex() == case["bare_hex"]
    assert sha256(b"\x00" + bare_form(case)).hex() == case["leaf_hash"]


@pytest.mark.parametrize("case", cases("receipts"))
def test_receipts(case: Case) -> None:
    leaves = [sha256(b"\x00" + bare_form(entry.values[0])) for entry in cases("entries")][: case["size"]]
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
    key, sig, bodies = bytes.fromhex(case["key"]), bytes.fromhex(case["signature"]), case["bodies"]
    if case["form"] == "msgpack":
        items = [packed_bytes(body.encode()) for body in bodies]
        whole = [b"\x94\x01", packed_bytes(key), packed_bytes(sig), bytes([0x90 + len(items)]), *items]
        assert b"".join(whole).hex() == case["hex"]
    else:
        assert json.loads(case["text"]) == envelope(bodies, key, sig)
    VerifyKey(key).verify(signed_bytes(bodies), sig)
    with pytest.raises(BadSignatureError):
        VerifyKey(key).verify(signed_bytes([*bodies, "{}"]), sig)


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


@pytest.mark.parametrize("case", [case for case in cases("sealed_blobs") if "content" in case.values[0]])
def test_sealed_blobs_open_as_the_specification_says(case: Case) -> None:
    """Only libsodium is used: to unwrap the data key from the header, and to open the content."""
    blob, key = bytes.fromhex(case["blob"]), bytes.fromhex(case["key"])
    assert blob[:9] == b"DEEDSEAL\x01"
    fields, at = [], 9
    for length_bytes in (1, 1, 2):
        size = int.from_bytes(blob[at : at + length_bytes], "big")
        at += length_bytes + size
        fields.append(blob[at - size : at])
    subject, key_id, wrapped = fields
    assert subject.decode() == case["subject"]
    assert key_id.decode() == blake3(key, derive_key_context="deedbook 2026 id of a subject key").hexdigest(length=8)
    ad = b"deedbook-seal-1\n%b\n%b\n%b" % (case["ledger"].encode(), subject, key_id)
    data_key = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped[24:], ad, wrapped[:24], key)
    state = bindings.crypto_secretstream_xchacha20poly1305_state()
    bindings.crypto_secretstream_xchacha20poly1305_init_pull(state, blob[at : at + 24], data_key)
    content, tag = bindings.crypto_secretstream_xchacha20poly1305_pull(state, blob[at + 24 :], blob[:at])
    assert (content.hex(), tag) == (case["content"], 3)
