"""``deedbook.audit``: a program that has only a bundle gets a typed verdict."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import unpacked
from forge import Forge
from tampering import fill

from deedbook import Refused, audit
from deedbook.audit import verify_bundle
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.home.trust import fingerprint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A small ledger with a blob."""
    with Ledger(tmp_path_factory.mktemp("ledger") / ".deedbook") as ledger:
        fill(ledger)
        yield ledger


@pytest.fixture(scope="module")
def bundle(source: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that ledger."""
    path = tmp_path_factory.mktemp("bundle") / "audit.tar"
    with source.client() as client:
        export_bundle(client, path)
    return path


def test_a_valid_bundle_names_its_state_and_its_agents(source: Ledger, bundle: Path) -> None:
    verdict = verify_bundle(str(bundle), root=fingerprint(source.keys["root"].public))
    size, root = source.head()
    assert (verdict.word, verdict.is_valid, verdict.is_anchored) == ("VALID", True, True)
    assert (verdict.size, verdict.root, verdict.ledger) == (size, root.hex(), source.id)
    assert (verdict.problems, verdict.missing, verdict.missing_blobs, verdict.compromised) == ([], [], [], [])
    agents = {agent.name: agent for agent in verdict.agents}
    assert verdict.agents[0].name == "root"
    assert agents["alice"].key == source.keys["alice"].public.hex()
    assert "agent" in agents["alice"].roles
    assert agents["alice"].removed_index is None
    assert verdict.sentence.startswith("VALID: ")


def test_without_an_anchor_the_bundle_only_agrees_with_itself(bundle: Path) -> None:
    assert not verify_bundle(bundle).is_anchored


def test_a_missing_blob_is_named_by_its_ref(bundle: Path, tmp_path: Path) -> None:
    folder = unpacked(bundle, tmp_path / "unpacked")
    blob = next(folder.glob("blobs/blake3/*"))
    blob.unlink()
    verdict = verify_bundle(folder)
    assert (verdict.word, verdict.is_valid) == ("PARTIAL", False)
    assert verdict.missing_blobs == [f"blake3:{blob.name}"]


def test_a_compromised_signature_is_named(tmp_path: Path) -> None:
    forge = Forge()
    data = KeyCompromised(key=forge.keys["alice"].public.hex(), since=0, reason="stolen")
    forge.emit("root", "agent/alice", data)
    verdict = verify_bundle(forge.export(tmp_path / "suspect.tar"))
    assert verdict.word == "SUSPECT_KEY"
    assert verdict.compromised
    assert verdict.compromised_total >= len(verdict.compromised)


def test_a_wrong_bundle_names_its_problems(bundle: Path, tmp_path: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[content.index(b"checkpoint\0") + 600] ^= 1
    (tmp_path / "wrong.tar").write_bytes(content)
    verdict = verify_bundle(tmp_path / "wrong.tar")
    assert verdict.word == "INVALID"
    assert verdict.problems[0].code == "VERIFICATION_FAILED"


def test_arguments_are_refused_in_the_words_of_python(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="root= takes the fingerprint"):
        verify_bundle(bundle, root="abc")
    with pytest.raises(Refused) as refused:
        verify_bundle(tmp_path / "none")
    assert refused.value.code == "NOT_FOUND"
    with pytest.raises(AttributeError, match="did you mean word"):
        _ = verify_bundle(bundle).wrod  # type: ignore[attr-defined]


def test_a_strict_type_checker_knows_the_verdict(tmp_path: Path) -> None:
    assert audit.__all__ == sorted(audit.__all__)
    program = tmp_path / "program.py"
    program.write_text(
        "from deedbook.audit import verify_bundle\n"
        "verdict = verify_bundle('audit.tar')\n"
        "reveal_type(verdict.agents[0].roles)\n"
        "reveal_type(verdict.problems[0].index)\n"
        "verdict.wrod\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert 'Revealed type is "builtins.list[builtins.str]"' in checked or 'Revealed type is "list[str]"' in checked
    assert "int | None" in checked
    assert checked.count("error:") == 1
    assert 'has no attribute "wrod"' in checked
