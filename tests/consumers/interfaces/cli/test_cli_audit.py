"""The verbs of an auditor: receipts, checkpoints, `deed verify` on a ledger and on a bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import inside
import pytest
from calling import Deed, Place, call, emit_finding, start_session

from deedbook.ledger.proof.checkpoint import CheckpointVerifier, verify_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    Fresh = Callable[[str], str]


@pytest.mark.served
def test_verify_says_what_was_verified(deed: Deed) -> None:
    answer = deed.data("verify")
    # The user of this folder has pinned the root.
    assert (answer["ok"], answer["trust"], answer["views"]) == (True, "anchored", False)
    assert answer["signatures"] == answer["size"]
    assert deed("verify").startswith("VALID: ")


@pytest.mark.served
def test_verify_resumes_where_the_last_one_ended_and_says_so(deed: Deed, fresh: Fresh) -> None:
    first = deed.data("verify", "--resume")
    session = start_session(deed, fresh("resumed"))
    emit_finding(deed, session, "new since")
    report = deed.data("verify", "--resume")
    assert (report["ok"], report["resumed_at"]) == (True, first["size"])
    assert report["tree_head"] == deed.data("verify")["tree_head"]
    shown = deed("verify", "--resume")
    assert f"the first {report['size']} entries were verified by an earlier audit" in shown
    deed.refuses("USAGE", "verify", "--resume", "--bundle", "any")


def test_verify_of_a_server_holds_it_against_the_root_that_is_pinned(served: Place, deed: Deed, tmp_path: Path) -> None:
    home = tmp_path / "remote"
    shutil.copytree(served.home / "keys", home / "keys")
    deed.place = Place(home, served.server)
    deed("trust", "--yes")
    assert deed.data("verify", "--as", "a")["trust"] == "self-asserted"
    root = deed.data("verify", "--as", "a")["root_fingerprint"]
    assert "none is pinned here" in deed.run("doctor", "--as", "a").out
    assert "all 64 digits" in deed.refuses("USAGE", "trust", "--yes", "--root", root[:32])["message"]
    deed("trust", "--yes", "--root", root)
    assert deed.data("verify", "--as", "a")["trust"] == "anchored"
    assert f"pinned: {root}" in deed.run("doctor", "--as", "a").out
    deed("trust", "--yes", "--root", "0" * 64)
    assert "is pinned" in deed.refuses("VERIFICATION_FAILED", "verify", "--as", "a")["message"]
    assert f"--yes --root {root} " in deed.refuses("USAGE", "trust", "--root", root)["message"]


def test_root_of_a_ledger_here_is_pinned_by_half_its_digits_and_folders_that_are_gone_are_told(
    alone: Deed, tmp_path: Path
) -> None:
    root = alone.data("verify")["root_fingerprint"]
    assert alone.data("trust", "--yes", "--root", root[:32])["root_fingerprint"] == root
    assert "do not use it" in alone.refuses("VERIFICATION_FAILED", "trust", "--yes", "--root", "0" * 32)["message"]
    other = tmp_path / "other"
    assert inside.deed("--home", other, "init", "--unprotected").code == 0
    shutil.rmtree(other)
    shown = alone.data("trust", "--show")
    assert (str(alone.home) in shown["homes"], shown["gone"]) == (True, [str(other)])
    assert f"gone     {other}" in alone("trust", "--show")


def test_verify_holds_the_log_against_an_earlier_checkpoint(alone: Deed, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text(alone("checkpoint"))
    alone("agent", "add", "a")
    assert alone.data("verify", "--checkpoint", note)["trust"] == "anchored"
    assert alone.data("verify", "--views")["views"] is True
    assert alone.data("fsck")["ok"] is True
    alone.refuses("NOT_FOUND", "verify", "--checkpoint", tmp_path / "nothing")


def test_a_bundle_without_the_newest_entries_is_found_by_a_checkpoint_in_a_file_or_an_argument(
    alone: Deed, tmp_path: Path
) -> None:
    old, note = tmp_path / "old.tar", tmp_path / "note"
    alone("export", old)
    alone("agent", "add", "a")
    note.write_text(alone("checkpoint"))
    for checkpoint in (note, note.read_text(), note.read_text().strip()):
        arguments = ("verify", "--bundle", old, "--checkpoint", checkpoint)
        report = alone.refuses_verification(*arguments, verdict="PARTIAL")
        assert f"the last 1 of {alone.size()} entries missing" in report["verdict"]
    alone.refuses("INVALID_FORMAT", "verify", "--bundle", old, "--checkpoint", old)


def test_checkpoint_of_another_ledger_fails_verification(alone: Deed, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert inside.deed("--home", other, "init", "--unprotected").code == 0
    note = tmp_path / "note"
    note.write_text(inside.deed("--home", other, "checkpoint").out)
    report = alone.refuses_verification("verify", "--checkpoint", note)
    assert report["problems_total"] >= 1


@pytest.mark.served
def test_checkpoint_is_a_signed_note(deed: Deed) -> None:
    created = deed.data("show", 0)["data"]
    verifier = CheckpointVerifier(created["origin"], bytes.fromhex(created["checkpoint_key"]))
    note = deed("checkpoint")
    assert verify_checkpoint(note, verifier).size == deed.size()


@pytest.mark.served
def test_exported_bundle_verifies_and_a_changed_one_does_not(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    emit_finding(deed, start_session(deed, fresh("bundle")), "a finding to be changed")
    file = tmp_path / "bundle.tar"
    exported = deed.data("export", file)
    report = deed.data("verify", "--bundle", file)
    assert (report["ok"], report["size"], report["tree_head"]) == (True, exported["size"], exported["tree_head"])
    content = file.read_bytes()
    changed = tmp_path / "changed.tar"
    changed.write_bytes(content.replace(b"a finding to be changed", b"a finding to be chanGed"))
    assert deed.refuses_verification("verify", "--bundle", changed)["problems_total"] >= 1
    deed.refuses("USAGE", "verify", "--bundle", file, "--views")


def test_bundle_verifies_where_there_is_no_ledger(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    alone("export", tmp_path / "bundle.tar")
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    said = call("verify", "--bundle", tmp_path / "bundle.tar", "--json", cwd=empty)
    assert json.loads(said.out)["data"]["size"] == 2
