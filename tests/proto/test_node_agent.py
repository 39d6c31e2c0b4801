"""An agent in JavaScript, written from the wire specification alone, is understood by the ledger."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from ledger.admission.gate import Gate
from ledger.author import Draft, draft_and_sign
from ledger.envelope import decode_submission
from ledger.errors import Refused
from ledger.events.authority import AgentRegistered, LedgerCreated
from ledger.identity import Key, ledger_id
from ledger.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[[str, dict[str, Any]], dict[str, Any]]

AGENT = Path(__file__).parent / "agent.mjs"
VECTORS = Path(__file__).parent.parent.parent / "proto" / "vectors"
ROOT, NODE, CHECKPOINT = (Key(bytes([number]) * 32) for number in (1, 2, 3))
SEED = "07" * 32
LEDGER = ledger_id(ROOT.public)
NOW_MS = 1_770_888_600_000
answer_max_s = 60.0


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Ask the agent to do one thing; without Node the tests of this file are not run, and say so."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("not run: the command `node` (version 18 or later) is missing")

    def ask_node(verb: str, what: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            [node, str(AGENT), verb],
            input=json.dumps(what).encode(),
            capture_output=True,
            timeout=answer_max_s,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return ask_node


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Guard a new ledger that knows its root only."""
    (tmp_path / "log").mkdir()
    with Log(tmp_path, map_size=64 * 1024**2, create=True) as log:
        gate = Gate(log, clock_ms=lambda: NOW_MS)
        created = LedgerCreated(
            origin="ledger.example",
            root=ROOT.public.hex(),
            checkpoint_key=CHECKPOINT.public.hex(),
            node_key=NODE.public.hex(),
        )
        gate.submit(draft_and_sign([Draft(stream="ledger", data=created)], ROOT, ledger=LEDGER, author="root"))
        yield gate


def _register(gate: Gate, possessed: dict[str, Any]) -> None:
    data = AgentRegistered(name="node-js", key=possessed["public"], proof=possessed["proof"], roles=["agent"])
    gate.submit(draft_and_sign([Draft(stream="agent/node-js", data=data)], ROOT, ledger=LEDGER, author="root"))


def _body(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "ledger": LEDGER,
        "kind": kind,
        "stream": "session/node-1",
        "author": "node-js",
        "at": "2026-02-12T09:30:00.000Z",
        "causes": [],
        "data": data,
    }


def test_envelopes_written_in_javascript_are_admitted(ask: Ask, gate: Gate) -> None:
    _register(gate, ask("possess", {"seed": SEED, "ledger": LEDGER, "agent": "node-js"}))
    bodies = [
        _body("session.started", {"task": "从另一种语言写入 🚀"}),
        _body("finding.logged", {"finding": "The specification suffices.", "impact": 0.1}),
    ]
    made = ask("sign", {"seed": SEED, "events": bodies})["events"]
    submission = decode_submission(json.dumps([one["envelope"] for one in made]).encode())
    accepted = gate.submit(submission)
    assert [one.id for one in accepted] == [one["id"] for one in made]
    assert [one.index for one in accepted] == [2, 3]


def test_an_envelope_altered_after_signing_in_javascript_is_refused(ask: Ask, gate: Gate) -> None:
    _register(gate, ask("possess", {"seed": SEED, "ledger": LEDGER, "agent": "node-js"}))
    made = ask("sign", {"seed": SEED, "events": [_body("session.started", {"task": "a"})]})["events"][0]
    other = ask("sign", {"seed": SEED, "events": [_body("session.started", {"task": "b"})]})["events"][0]
    envelope = made["envelope"] | {"payload": other["envelope"]["payload"]}
    with pytest.raises(Refused) as refused:
        gate.submit(decode_submission(json.dumps(envelope).encode()))
    assert refused.value.code == "SIGNATURE_INVALID"


def test_a_key_possessed_by_another_name_is_refused(ask: Ask, gate: Gate) -> None:
    possessed = ask("possess", {"seed": SEED, "ledger": LEDGER, "agent": "somebody"})
    with pytest.raises(Refused) as refused:
        _register(gate, possessed)
    assert refused.value.code == "SIGNATURE_INVALID"


def test_javascript_makes_the_same_ids_and_signatures_as_the_vectors(ask: Ask) -> None:
    cases = [one for one in json.loads((VECTORS / "events.json").read_bytes())["cases"] if one["is_canonical"]]
    for seed in sorted({case["seed"] for case in cases}):
        wanted = [case for case in cases if case["seed"] == seed]
        made = ask("sign", {"seed": seed, "events": [case["value"] for case in wanted]})["events"]
        for case, found in zip(wanted, made, strict=True):
            same = {"body": case["body"], "pae": case["pae_hex"], "id": case["id"], "signature": case["signature"]}
            assert {name: found[name] for name in same} == same


def test_javascript_proves_entries_with_the_receipts_of_the_vectors(ask: Ask) -> None:
    case = json.loads((VECTORS / "receipts.json").read_bytes())["cases"][-1]
    asked = {name: case[name] for name in ("index", "size", "path", "root")} | {"entry": case["entry_hex"]}
    assert ask("check", asked)["proven"]
    assert not ask("check", asked | {"index": (case["index"] + 1) % case["size"]})["proven"]


def test_the_hash_written_for_the_agent_is_blake3_at_every_border(ask: Ask) -> None:
    texts = ["x" * size for size in (0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 5000)]
    assert ask("refer", {"texts": texts})["hashes"] == [blake3(text.encode()).hexdigest() for text in texts]
