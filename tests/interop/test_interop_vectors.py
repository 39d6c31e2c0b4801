"""An agent in TypeScript, written from the specification alone, encodes and decodes the published vectors exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.format.envelope import Entry
from deedbook.ledger.proof.checkpoint import CheckpointKey
from deedbook.ledger.proof.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., Any]

VECTORS = Path(__file__).parents[2] / "proto" / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_bytes())["cases"]
    return found


def test_it_makes_the_same_bodies_ids_and_signatures(ask: Ask) -> None:
    signed = [case for case in cases("events") if case["is_canonical"]]
    for seed in sorted({case["seed"] for case in signed}):
        wanted = [case for case in signed if case["seed"] == seed]
        for case in wanted:
            made = ask("sign", seed=seed, events=[case["value"]])
            assert (made["bodies"], made["ids"], made["signature"]) == ([case["body"]], [case["id"]], case["signature"])


def test_it_writes_the_canonical_form(ask: Ask) -> None:
    texts = ask("canonical", values=[case["value"] for case in cases("canonical")])["texts"]
    assert [text.encode().hex() for text in texts] == [case["canonical_hex"] for case in cases("canonical")]


def test_it_proves_that_it_holds_a_key(ask: Ask) -> None:
    given = [{name: case[name] for name in ("seed", "ledger", "agent")} for case in cases("keys")]
    wanted = [{"public": case["public"], "proof": case["proof"]} for case in cases("keys")]
    assert ask("possess", keys=given)["keys"] == wanted


def test_it_signs_several_events_at_once(ask: Ask) -> None:
    (case,) = cases("batch")
    made = ask("sign", seed=case["seed"], events=[json.loads(body) for body in case["bodies"]])
    assert (made["bodies"], made["ids"], made["signature"]) == (case["bodies"], case["ids"], case["signature"])
    (wanted,) = [case for case in cases("submissions") if case["name"] == "three events as DSSE JSON"]
    assert made["envelope"] == json.loads(wanted["text"])


def test_it_reads_every_entry_and_refuses_every_one_that_is_none(ask: Ask) -> None:
    good = cases("entries")
    read = ask("decode", entries=[case["entry_hex"] for case in good])["entries"]
    for case, given in zip(good, read, strict=True):
        entry = given["answer"]
        assert entry["body"] == case["body"]
        assert entry["leaf"] == case["leaf_hash"]
        assert (entry["key"], entry["signature"]) == (case["key"], case["signature"])
        assert (entry["batchIndex"], entry["batchSize"]) == (case["batch_index"], case["batch_size"])
        assert entry["acceptedMs"] == case["accepted_ms"]
        versions = (case["stream_version"], case["authority_version"])
        assert (entry["streamVersion"], entry["authorityVersion"]) == versions
    bad = ask("decode", entries=[case["hex"] for case in cases("invalid_entries")])["entries"]
    assert [case["name"] for case, given in zip(cases("invalid_entries"), bad, strict=True) if "answer" in given] == []


def test_it_reads_what_is_left_of_erased_bodies(ask: Ask) -> None:
    entries = [Entry(1, case["body"].encode(), bytes(32), 1, bytes(64), 0, 1, 0, 1, 1) for case in cases("remnants")]
    left = [
        replace(entry, body=case["remnant"].encode()) for case, entry in zip(cases("remnants"), entries, strict=True)
    ]
    read = ask("decode", entries=[entry.encode().hex() for entry in left])["entries"]
    for entry, given in zip(entries, read, strict=True):
        assert (given["answer"]["commitment"], given["answer"]["leaf"]) == (entry.commitment.hex(), entry.leaf().hex())
    spelt = replace(left[0], body=left[0].body.replace(b'"body":{', b'"body": {')).encode()
    (refused,) = ask("decode", entries=[spelt.hex()])["entries"]
    assert "one encoding" in refused["refused"]


def test_it_takes_every_receipt_and_none_that_was_altered(ask: Ask) -> None:
    given = [
        {"receipt": case["receipt"], "entry": case["entry_hex"], "vkey": case["vkey"]} for case in cases("receipts")
    ]
    proven = ask("receipts", cases=given)["receipts"]
    for case, proof in zip(cases("receipts"), proven, strict=True):
        wanted = {name: case[name] for name in ("index", "origin", "size", "root")}
        assert proof["answer"] == wanted
    last = given[-1]
    receipt = Receipt.parse(last["receipt"])
    stranger = CheckpointKey(cases("receipts")[-1]["origin"], b"\x09" * 32).verifier.vkey
    altered = [
        last | {"entry": last["entry"][:-2] + "00"},
        last | {"receipt": last["receipt"].replace(f"index {receipt.index}", f"index {receipt.index - 1}")},
        last | {"receipt": last["receipt"].replace("\n6\n", "\n7\n")},
        last | {"vkey": stranger},
    ]
    assert all("refused" in proof for proof in ask("receipts", cases=altered)["receipts"])


def test_it_hashes_with_blake3(ask: Ask) -> None:
    texts = ["x" * size for size in (0, 1, 64, 65, 1024, 1025, 5000)]
    assert ask("hash", texts=texts)["hashes"] == [blake3(text.encode()).hexdigest() for text in texts]
