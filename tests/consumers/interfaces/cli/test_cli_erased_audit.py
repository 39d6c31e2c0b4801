"""Verdicts on a ledger with an erased entry, and on its copies: bundles, backups, receipts, signed files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from bundles import run_alone, unpacked
from calling import Deed, Place, emit_finding, start_session
from erasing import files_with
from forge import Forge
from wrong_redactions import TARGET, all_of, secret
from wrong_redactions import erased as erased_at

from deedbook.ledger.bundle import signed_file_of
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "correct-horse-battery-staple"
REASON = "it held a password"


@pytest.fixture
def erased(alone: Deed) -> tuple[Deed, int]:
    """A ledger with an erased finding, and the index of the finding. An earlier bundle is beside its folder."""
    alone("agent", "add", "a")
    stream = start_session(alone, "s")
    emit_finding(alone, stream, f"the password is {SECRET}")
    index = alone.data("verify")["size"] - 1
    alone("receipt", str(index), "--output", alone.home.parent / "before.tlog-proof")
    alone("backup", alone.home.parent / "before.tar")
    alone.data("redact", str(index), "--reason", REASON, "--as", "root", "--yes")
    return alone, index


def assert_erased(report: dict[str, Any], index: int) -> None:
    """Assert that a report names the erased entry, and finds nothing wrong."""
    assert (report["ok"], report["outcome"], report["problems"]) == (True, "VALID_WITH_ERASURES", [])
    (row,) = report["erased"]
    assert (row["entry"], row["by"], row["reason"], report["erased_total"]) == (index, "root", REASON, 1)
    assert row["at"].startswith("20")
    assert row["at"].endswith("Z")


def test_verify_fsck_and_a_bundle_name_the_erased_entry(erased: tuple[Deed, int], tmp_path: Path) -> None:
    deed, index = erased
    deed("export", tmp_path / "log.tar")
    for verb in (("verify",), ("verify", "--views"), ("fsck",), ("verify", "--bundle", tmp_path / "log.tar")):
        assert_erased(deed.data(*verb), index)
        shown = deed(*verb)
        assert shown.startswith(f"VALID_WITH_ERASURES: the bodies of 1 entry were erased ({index} by root): ")
        assert f"entry {index}: redacted by root on 20" in shown
        assert f"Z: {REASON}" in shown
    assert SECRET.encode() not in (tmp_path / "log.tar").read_bytes()
    answer = run_alone(unpacked(tmp_path / "log.tar", tmp_path / "unpacked"))
    assert (answer.returncode, answer.stdout.splitlines()[-1].partition(":")[0]) == (0, "VALID_WITH_ERASURES")
    assert f"UTC with entry {index + 1}: {REASON}" in answer.stdout


def test_receipt_of_before_and_of_after_prove_the_same_event(erased: tuple[Deed, int]) -> None:
    deed, index = erased
    before = deed.data("receipt", "verify", deed.home.parent / "before.tlog-proof")
    deed("receipt", str(index), "--output", deed.home.parent / "after.tlog-proof")
    after = deed.data("receipt", "verify", deed.home.parent / "after.tlog-proof")
    assert (before["id"], before["outcome"]) == (after["id"], "VALID")
    assert after["outcome"] == "VALID_WITH_ERASURES"
    # Anybody can put the remnant of another event into a receipt. So the receipt proves no author, kind or stream.
    assert before["author_verified"]
    assert not after["author_verified"]
    assert [after[name] for name in ("kind", "stream", "author")] == [None, None, None]
    assert before["kind"] not in deed("receipt", "verify", deed.home.parent / "after.tlog-proof")
    assert "note: the body of the event was erased" in deed("receipt", "verify", deed.home.parent / "after.tlog-proof")


def test_backup_of_a_redacted_ledger_is_restored(
    erased: tuple[Deed, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, index = erased
    deed("backup", tmp_path / "ledger.tar")
    elsewhere = Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))
    elsewhere.data("restore", tmp_path / "ledger.tar")
    assert_erased(elsewhere.data("verify"), index)
    assert not [path for path in elsewhere.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_backup_of_before_brings_the_text_back_and_restore_says_so(erased: tuple[Deed, int]) -> None:
    deed, index = erased
    before = deed.home.parent / "before.tar"
    answer = deed.data("restore", before, "--replace")
    assert answer["returned"] == [index]
    command = f"`deed redact {index}`"
    assert f"this log has the texts of 1 entry again that were erased: {command} erases them anew" in answer["notes"]
    (gone,) = [note for note in answer["notes"] if "not in this one" in note]
    assert "so these have no effect here: " in gone
    assert "entry.redacted (1)" in gone
    deed.refuses("ERASED_BODY_SERVED", "show", index)
    deed.refuses("ERASED_BODY_SERVED", "show", index, "--dsse")
    for words in (("log",), ("log", "--json")):
        assert SECRET not in deed(*words)
        assert "[erased in the longer history that this machine knows]" in deed(*words)
    deed.refuses("HISTORY_CHANGED", "log", "--follow")
    replaced = deed.data("restore", before, "--replace")["replaced"]  # the replaced log still has the text
    redact = ("redact", index, "--reason", REASON, "--as", "root", "--yes")
    deed.refuses("HISTORY_CHANGED", *redact)  # a reader here trusts the longer log
    deed("recover", "--accept-loss", "--yes", "--as", "root")
    (left,) = [copy for copy in deed.data(*redact)["copies"] if copy["done"] == "left"]
    assert left["place"] == f"{replaced}/log/data.mdb"
    assert left["reason"] == "the log that was here before a restore: delete its folder"
    shutil.rmtree(replaced)
    assert files_with(deed.home) == []


def test_restore_into_another_folder_names_texts_that_this_machine_erased(
    erased: tuple[Deed, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, index = erased
    deed("log")  # a reader here trusts the log with the redaction
    elsewhere = Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))
    answer = elsewhere.data("restore", deed.home.parent / "before.tar")
    assert answer["returned"] == [index]
    assert any(f"`deed redact {index}` erases them anew" in note for note in answer["notes"])


def test_signed_file_has_the_rest_of_an_erased_entry(erased: tuple[Deed, int], tmp_path: Path) -> None:
    deed, index = erased
    with LocalClient(Settings(home=deed.home)) as client:
        (tmp_path / "signed.json").write_bytes(signed_file_of(client, "session/s"))
    assert SECRET.encode() not in (tmp_path / "signed.json").read_bytes()
    assert_erased(deed.data("verify", "--bundle", tmp_path / "signed.json"), index)


def test_backup_that_ends_before_the_redaction_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge = Forge()
    all_of(secret, erased_at())(forge)
    path = forge.export(tmp_path / "cut.tar")
    elsewhere = Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))
    message = elsewhere.refuses("VERIFICATION_FAILED", "restore", path)["message"]
    assert f"the body of entry {TARGET} is missing, and no later entry.redacted names its remnant" in message
    assert not (elsewhere.home / "log").exists()
