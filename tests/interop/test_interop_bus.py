"""An agent in TypeScript uses a real node over NATS, and checks every answer before it relies on it."""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import bundles
import inside
import pytest
from blake3 import blake3
from building import Ledger, body_fields
from served import bus_seed, public_key, write_bus_key
from serving import ServeProcess

from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deedbook.ledger.home.config import Settings

    Ask = Callable[..., Any]

AGENT = "node-js"
SEED = "07" * 32
STREAM = "session/node-1"
BATCH = "session/batch"


class Worked(NamedTuple):
    """The agent's answers, and the ledger that it used."""

    settings: Settings
    answer: dict[str, Any]
    vkey: str
    fingerprint: str
    batch_end: int


def deed(*words: object) -> None:
    """Call a verb, which must succeed."""
    said = inside.deed(*words)
    assert said.code == 0, said.err


def body(ledger: str, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the body of an event whose author is the agent."""
    return body_fields(kind, STREAM, data, ledger=ledger, author=AGENT)


@pytest.fixture(scope="module")
def worked(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """A ledger that the agent has used through a node, which ran in a process of its own."""
    with Ledger(tmp_path_factory.mktemp("interop") / ".deedbook") as ledger:
        (possessed,) = ask("possess", keys=[{"seed": SEED, "ledger": ledger.id, "agent": AGENT}])["keys"]
        key, proof = possessed["public"], possessed["proof"]
        data = AgentRegistered(name=AGENT, key=key, proof=proof, roles=["agent"], nkey=public_key(AGENT))
        ledger.emit(ROOT, f"agent/{AGENT}", data)
        findings = [Draft(stream=BATCH, data=FindingLogged(finding=text)) for text in ("one", "two", "three")]
        batch = ledger.submit(ledger.sign("alice", Draft(stream=BATCH, data=SessionStarted()), *findings))
        ledger.write_keys()
        write_bus_key(ledger.home, NODE)
        settings, vkey = ledger.settings(), ledger.checkpoint_key.verifier.vkey
        bodies = [
            body(ledger.id, "session.started", {"task": "从另一种语言写入 🚀"}),
            body(ledger.id, "finding.logged", {"finding": "The specification suffices.", "impact": 0.1}),
        ]
        identity, root = ledger.id, ledger.keys[ROOT].public
    node = ServeProcess(settings)
    try:
        answer = ask("work", url=node.url, nkey=bus_seed(AGENT), seed=SEED, ledger=identity, agent=AGENT, bodies=bodies)
    finally:
        node.stop()
    for replaced in (("--as", "root", "--unprotected"), ("--checkpoint",)):
        deed("--home", settings.home, "key", "rotate", *replaced)
    return Worked(settings, answer, vkey, blake3(root).hexdigest(), batch[-1].index)


def unpacked(worked: Worked, stream: str | None, folder: Path) -> Path:
    """Return an exported bundle, unpacked."""
    with LocalClient(worked.settings) as client:
        export_bundle(client, folder / "bundle.tar", stream=stream)
    return bundles.unpacked(folder / "bundle.tar", folder / "bundle")


def test_what_it_submits_is_in_the_log_once(worked: Worked) -> None:
    accepted = worked.answer["submitted"]["accepted"]
    assert [one["id"] for one in accepted] == worked.answer["ids"]
    assert [one["is_repeat"] for one in accepted] == [False, False]
    assert worked.answer["repeated"]["accepted"] == [one | {"is_repeat": True} for one in accepted]
    with LocalClient(worked.settings) as client:
        assert [client.index_of(STREAM, one["id"]) for one in accepted] == [one["index"] for one in accepted]
        assert worked.answer["head"]["ledger"] == client.ledger


def test_it_proves_what_it_submitted_with_the_receipts_of_the_node(ask: Ask, worked: Worked) -> None:
    proofs = worked.answer["proofs"]
    given = [proof | {"vkey": worked.vkey} for proof in proofs]
    proven = ask("receipts", cases=given)["receipts"]
    wanted = [one["index"] for one in worked.answer["submitted"]["accepted"]]
    assert [one["answer"]["index"] for one in proven] == wanted
    exchanged = [given[0] | {"entry": proofs[1]["entry"]}, given[1] | {"entry": proofs[0]["entry"]}]
    assert all("refused" in one for one in ask("receipts", cases=exchanged)["receipts"])


@pytest.mark.parametrize("stream", [None, STREAM, BATCH], ids=["log", "stream", "stream of a batch"])
def test_it_verifies_an_exported_bundle_and_refuses_it_with_one_bit_flipped_in_any_file_it_reads(
    ask: Ask, worked: Worked, stream: str | None, tmp_path: Path
) -> None:
    bundle = unpacked(worked, stream, tmp_path)
    read = [bundle / "checkpoint", bundle / "keys" / "checkpoint.vkey"]
    read += sorted(file for name in ("tile", "entries") for file in (bundle / name).rglob("*") if file.is_file())
    folders = [bundle]
    for number, file in enumerate(read):
        folders.append(shutil.copytree(bundle, tmp_path / str(number)))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        (folders[-1] / file.relative_to(bundle)).write_bytes(content)
    whole, *flipped = ask("bundles", folders=[str(folder) for folder in folders])["bundles"]
    verdict = whole["answer"]
    assert verdict["fingerprint"] == worked.fingerprint
    assert 0 < verdict["entries"] == verdict["ids"] <= verdict["size"]
    assert [str(file) for file, one in zip(read, flipped, strict=True) if "refused" not in one] == []


def test_it_sees_that_an_event_was_left_out_of_the_bundle_of_a_stream_unless_it_was_the_last_of_its_kind(
    ask: Ask, worked: Worked, tmp_path: Path
) -> None:
    bundle = unpacked(worked, BATCH, tmp_path)
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    last = {manifest["indexes"][-1], worked.batch_end}  # no stored entry comes after these
    folders = []
    for index in set(manifest["indexes"]) - last:
        folders.append(shutil.copytree(bundle, tmp_path / str(index)))
        left = [one for one in manifest["indexes"] if one != index]
        (folders[-1] / "manifest.json").write_text(json.dumps(manifest | {"indexes": left}))
    verdicts = ask("bundles", folders=[str(folder) for folder in folders])["bundles"]
    assert len(verdicts) > 3
    assert all("refused" in verdict for verdict in verdicts)


def test_it_checks_a_receipt_that_was_handed_on_by_the_fingerprint_of_root_alone(
    ask: Ask, worked: Worked, tmp_path: Path
) -> None:
    single, batched = worked.answer["submitted"]["accepted"][1]["index"], worked.batch_end - 1
    given = []
    for index in (single, batched):
        deed("--home", worked.settings.home, "receipt", index, "-o", tmp_path / str(index))
        given.append((tmp_path / str(index)).read_text("utf-8"))
    line = given[0].split("\n")[1]
    evidence = json.loads(base64.b64decode(line.removeprefix("extra ")))
    # Without the first or the last entry of the chain, the receipt lacks a key that it needs.
    for chain in (evidence["chain"][1:], evidence["chain"][:-1]):
        shorter = base64.b64encode(json.dumps(evidence | {"chain": chain}).encode()).decode()
        given.append(given[0].replace(line, f"extra {shorter}"))
    given.append(given[0].replace(line, given[1].split("\n")[1]))
    cases = [*((receipt, worked.fingerprint) for receipt in given), (given[0], "0" * 64)]
    first, second, *refused = ask("handedOn", cases=cases)["receipts"]
    assert [one["answer"]["index"] for one in (first, second)] == [single, batched]
    assert first["answer"]["data"]["finding"] == "The specification suffices."
    assert [one for one in refused if "refused" not in one] == []
