"""The program in a bundle needs none of our packages, and finds the same as our own check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import members, run_alone, unpacked
from faults import FAULTS
from judges import alone, program
from tampering import flipped, samples

from deedbook.ledger import limits
from deedbook.ledger.admission.rules import AUTHORITY_KINDS
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.bundle.layout import entry_range
from deedbook.ledger.bundle.program import schemas, verify_program
from deedbook.ledger.bundle.standalone import audit, form
from deedbook.ledger.bundle.standalone.authority import AUTHORITY
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.session import FindingLogged, FindingRetracted, SessionStarted
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import is_delegable as gate_delegates

if TYPE_CHECKING:
    from pathlib import Path

# These tests run the program in a bundle, and coverage does not measure code there.
pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_program_in_the_bundle_agrees(
    bundle: str, request: pytest.FixtureRequest, source: Ledger, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(bundle)
    folder = unpacked(path, tmp_path / "unpacked")
    answer = run_alone(folder)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1].startswith("VALID: ")
    assert "self-asserted" in answer.stdout
    mine = fingerprint(source.keys["root"].public)
    assert run_alone(folder, "--root", mine, str(path)).returncode == 0
    wrong = run_alone(folder, "--root", "0" * 64)
    assert (wrong.returncode, "not " + "0" * 64 in wrong.stdout) == (6, True)
    assert re.search(r"INVALID at entry 0: 1 problem in .*\(root key does not match --root\)\n\Z", wrong.stdout)
    assert "signatures are right" not in wrong.stdout


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_program_finds_a_flipped_byte_in_an_unpacked_bundle(
    bundle: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(bundle)
    folder = unpacked(path, tmp_path / "unpacked")
    for name in members(path):
        if re.match(r"entries/0{17}(0[2-9]|1[2-9]|2)", name):
            continue  # one of many similar files
        for chance in samples(f"alone/{name}", max(1, FAULTS // 5)):
            file = folder / name
            with flipped(file, [chance.randrange(file.stat().st_size)], chance.choice((1, 32, 128))):
                verdict = alone(folder)
            assert verdict.word == "INVALID", (name, verdict.text)
            assert not entry_range(name) or verdict.index is not None, (name, verdict.text)


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_program_names_a_file_that_an_unpacked_bundle_has_lost(
    bundle: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(bundle)
    folder = unpacked(path, tmp_path / "unpacked")
    words = set()
    for name in members(path):
        if re.match(r"entries/0{17}(0[2-9]|1[2-9]|2)", name):
            continue  # one of many similar files
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        verdict = alone(folder)
        (folder / name).write_bytes(content)
        is_needed = not name.startswith(("blobs/", "entries/")) or name.startswith(f"entries/{0:020d}.")
        assert verdict.word == ("INVALID" if is_needed else "PARTIAL"), (name, verdict.text)
        assert name in verdict.text or name.startswith(f"entries/{0:020d}."), (name, verdict.text)
        words.add(verdict.word)
    assert words == {"INVALID", "PARTIAL"}
    assert alone(folder).word == "VALID"


def test_program_in_the_bundle_says_with_its_exit_code_what_it_found(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    with flipped(folder / "tile/entries/000", [1000], 1):
        answer = run_alone(folder)
    assert (answer.returncode, answer.stderr) == (6, "")
    assert answer.stdout.splitlines()[-1].startswith("INVALID at entry ")


def test_program_in_the_bundle_knows_the_same_authority_events_and_limits() -> None:
    assert set(AUTHORITY) == AUTHORITY_KINDS
    assert (
        limits.entry_size_max_bytes,
        limits.body_size_max_bytes,
        limits.batch_events_max,
        limits.batch_size_max_bytes,
        limits.stream_name_max_bytes,
        limits.json_depth_max,
        limits.json_integer_max,
    ) == (
        form.ENTRY_MAX,
        form.BODY_MAX,
        form.BATCH_MAX,
        form.BATCH_BYTES_MAX,
        form.STREAM_MAX,
        form.DEPTH_MAX,
        form.INTEGER_MAX,
    )
    assert (limits.clock_max_ms, limits.clock_forward_max_ms) == (form.CLOCK_MAX_MS, audit.FORWARD_MAX_MS)


def test_program_in_the_bundle_delegates_what_the_gate_does() -> None:
    rules = program().Rules(program().Kinds(schemas()), program().Authority())
    for kind, data in [(kind, data) for kind in KINDS for data in ({}, {"reviewer": "rita"}, {"hands_over": True})]:
        event = SimpleNamespace(kind=kind, stream=f"{KINDS[kind].stream}/x", data=data)
        row = rules.row_of(event)
        is_held = kind in AUTHORITY or bool(row and row.get("identity_key"))
        assert is_held != gate_delegates(kind, event.stream, data), (kind, data)


def test_program_in_the_bundle_is_one_file_of_strangers_only() -> None:
    tree = ast.parse(verify_program())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    strangers = {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert strangers == {"nacl", "blake3"}
    assert ast.get_docstring(tree)
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert sorted(defined) == sorted(set(defined))


def test_program_in_the_bundle_finds_files_that_do_not_belong(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (folder / "tile" / "more").write_text("x")
    answer = run_alone(folder)
    assert (answer.returncode, "tile/more" in answer.stdout) == (6, True)


def test_program_in_the_bundle_says_what_to_install_where_its_packages_are_missing(whole: Path, tmp_path: Path) -> None:
    program = unpacked(whole, tmp_path / "unpacked") / "verify.py"
    command = [sys.executable, "-I", "-S", str(program)]  # -S: no installed packages
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "pip install blake3 pynacl" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_program_in_the_bundle_refuses_what_is_no_bundle(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (tmp_path / "text").write_text("no tar")
    assert run_alone(folder, str(tmp_path / "text")).returncode == 2


def test_an_admins_correction_of_anothers_session_is_no_fault(ledger: Ledger, tmp_path: Path) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    finding = ledger.emit("alice", "session/s", FindingLogged(finding="f")).id
    ledger.emit("root", "session/s", FindingRetracted(target=finding, reason="r"))
    ledger.emit("alice", "session/s", FindingRetracted(target=finding, reason="mine"))
    with ledger.client() as client:
        export_bundle(client, tmp_path / "log.tar", stream="session/s")
    answer = run_alone(unpacked(tmp_path / "log.tar", tmp_path / "unpacked"))
    assert (answer.returncode, answer.stderr) == (0, "")
