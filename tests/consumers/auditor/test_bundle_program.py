"""The program in a bundle needs nothing of ours, and finds what our own check finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import members, run_alone, unpacked
from tampering import FAULTS, flipped, samples

from ledger.admission.rules import AUTHORITY_KINDS
from ledger.bundle import standalone
from ledger.bundle.layout import entry_range
from ledger.limits import entry_size_max_bytes
from ledger.trust import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

# What these tests run lies in a bundle, where nobody measures it.
pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_program_in_the_bundle_agrees(
    bundle: str, request: pytest.FixtureRequest, source: Ledger, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(bundle)
    folder = unpacked(path, tmp_path / "unpacked")
    answer = run_alone(folder)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("OK: ")
    assert "self-asserted" in answer.stdout
    mine = fingerprint(source.keys["root"].public)
    assert run_alone(folder, "--root", mine, str(path)).returncode == 0
    wrong = run_alone(folder, "--root", "0" * 64)
    assert (wrong.returncode, "not " + "0" * 64 in wrong.stdout) == (6, True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_program_in_the_bundle_finds_a_flipped_byte(
    bundle: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(bundle)
    folder = unpacked(path, tmp_path / "unpacked")
    names = [name for name in members(path) if not re.match(r"entries/0{17}(0[1-9]|1[2-9])", name)]
    for name in names:
        if name == "verify.py":
            continue  # a program that was changed cannot be trusted to say so
        for chance in samples(f"alone/{name}", max(1, FAULTS // 5)):
            file = folder / name
            with flipped(file, [chance.randrange(file.stat().st_size)], chance.choice((1, 32, 128))):
                answer = run_alone(folder)
            assert answer.returncode == 6, (name, answer.stdout, answer.stderr)
            place = entry_range(name)
            if place:
                indexes = [int(one) for one in re.findall(r"index (\d+):", answer.stdout)]
                assert indexes, (name, answer.stdout)


def test_program_in_the_bundle_knows_the_same_authority_events_and_limit() -> None:
    assert standalone.AUTHORITY == AUTHORITY_KINDS
    assert entry_size_max_bytes == standalone.ENTRY_MAX


def test_program_in_the_bundle_finds_files_that_do_not_belong(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (folder / "tile" / "more").write_text("x")
    answer = run_alone(folder)
    assert (answer.returncode, "tile/more" in answer.stdout) == (6, True)


def test_program_in_the_bundle_refuses_what_is_no_bundle(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (tmp_path / "text").write_text("no tar")
    assert run_alone(folder, str(tmp_path / "text")).returncode == 2
