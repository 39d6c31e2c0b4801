"""`deed receipt` and `emit --receipt`: a receipt proves its event offline, and a changed one is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from calling import Deed, Place, emit_finding, start_session

from deedbook.consumers.sdk.receipts import evidence_in
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import entry_leaf
from deedbook.ledger.format.identity import write_private
from deedbook.ledger.proof.checkpoint import CheckpointVerifier
from deedbook.ledger.proof.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    Fresh = Callable[[str], str]


def fingerprint_of(deed: Deed) -> str:
    return str(deed.data("verify")["root_fingerprint"])


@pytest.mark.served
def test_receipt_verifies_offline_with_the_log_s_key_alone(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    accepted = emit_finding(deed, start_session(deed, fresh("receipt")))
    created = deed.data("show", 0)["data"]
    verifier = CheckpointVerifier(created["origin"], bytes.fromhex(created["checkpoint_key"]))
    answer = deed.data("receipt", accepted["index"])
    receipt = Receipt.parse(answer["receipt"])
    evidence = evidence_in(receipt)
    assert evidence is not None
    assert read_event(accepted["index"], evidence.entry).id == accepted["id"]
    assert receipt.verify(entry_leaf(evidence.entry), verifier).size > accepted["index"]
    deed("receipt", accepted["id"], "-o", tmp_path / "r.tlog-proof")
    checked = deed.data("receipt", "verify", tmp_path / "r.tlog-proof", "--vkey", verifier.vkey)
    assert (checked["id"], checked["outcome"], checked["trust"]) == (accepted["id"], "VALID", "vkey")
    assert checked["author_verified"] is True
    assert checked["held_against"] == ["the ledger here"]


@pytest.mark.served
def test_emit_writes_the_receipt_of_its_event(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    stream = start_session(deed, fresh("receipt"))
    path = tmp_path / "emitted"
    accepted = emit_finding(deed, stream, "kept", "--receipt", path)
    text = deed("receipt", "verify", path)
    assert text.startswith(f"entry {accepted['index']} of ")
    assert ": VALID (anchored by the ledger)\n" in text
    assert "it is in the history of the ledger here" in text


def test_a_receipt_that_cannot_be_written_tells_that_the_event_is_in_the_log(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    error = alone.refuses(
        "STORE_UNAVAILABLE",
        "emit",
        "session.started",
        "--stream",
        "session/s",
        "--as",
        "a",
        "--data",
        "{}",
        "--idem",
        "once",
        "--receipt",
        tmp_path / "none" / "r",
    )
    assert "accepted as entry 2: `deed receipt 2`" in error["message"]
    assert alone.data("show", 2)["kind"] == "session.started"


@pytest.fixture
def stranger(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Deed:
    """Verbs in a folder without a ledger in it or above it."""
    monkeypatch.chdir(tmp_path_factory.mktemp("stranger"))
    return Deed(capsys, None)


@pytest.fixture
def kept(alone: Deed, tmp_path: Path) -> Path:
    """A receipt of an event of a batch of two, in a ledger for this test alone."""
    alone("agent", "add", "a")
    start_session(alone, "work")
    emit_finding(alone, "session/work", "one")
    path = tmp_path / "kept.tlog-proof"
    alone("receipt", 3, "-o", path)
    return path


def test_a_stranger_verifies_it_without_any_ledger(alone: Deed, stranger: Deed, kept: Path) -> None:
    root = fingerprint_of(alone)
    assert "self-asserted" in stranger("receipt", "verify", kept)
    shown = stranger("receipt", "verify", kept, "--root", root)
    assert "VALID (anchored by the root)" in shown
    assert re.search(r"^content +\S.*: ", shown, re.MULTILINE), shown
    assert stranger.data("receipt", "verify", kept, "--root", root[:32])["held_against"] == []
    stranger.refuses("VERIFICATION_FAILED", "receipt", "verify", kept, "--root", "0" * 64)
    other = CheckpointVerifier("ledger.example", bytes(32)).vkey
    stranger.refuses("VERIFICATION_FAILED", "receipt", "verify", kept, "--vkey", other)
    stranger.refuses("INVALID_FORMAT", "receipt", "verify", kept, "--vkey", "x")
    stranger.refuses("USAGE", "receipt", "verify", kept, "--fail-open")
    stranger.refuses("NOT_FOUND", "receipt", "verify", f"{kept}.gone")
    stranger.refuses("NO_LEDGER", "receipt", "12")


def test_a_server_that_is_away_keeps_nobody_from_checking(
    stranger: Deed, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path.cwd() / ".deedbook").mkdir()
    (Path.cwd() / ".deedbook" / "config.toml").write_text("what is this")
    assert "self-asserted" in stranger("receipt", "verify", kept)
    (Path.cwd() / ".deedbook" / "config.toml").unlink()
    monkeypatch.setenv("DEEDBOOK_SERVER", "nats://127.0.0.1:1")
    monkeypatch.setenv("DEEDBOOK_AGENT", "a")
    assert "self-asserted" in stranger("receipt", "verify", kept)
    stranger.refuses("KEY_FILE_MISSING", "receipt", "verify", kept, "--server", "nats://127.0.0.1:1")


def test_changed_character_in_its_evidence_is_damage_and_no_wrong_usage(stranger: Deed, kept: Path) -> None:
    text = kept.read_text()
    begin = text.index("extra ") + len("extra ")
    for at in range(begin, text.index("\nindex"), 61):
        kept.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
        stranger.refuses("VERIFICATION_FAILED", "receipt", "verify", kept)


def test_it_is_of_the_event_that_was_given_and_of_no_other(alone: Deed, stranger: Deed, kept: Path) -> None:
    envelope = kept.with_name("envelope")
    for index, is_right in ((3, True), (2, False)):
        envelope.write_text(json.dumps(alone.data("show", index, "--dsse")))
        if is_right:
            stranger("receipt", "verify", kept, "--event", envelope)
        else:
            stranger.refuses("VERIFICATION_FAILED", "receipt", "verify", kept, "--event", envelope)
    plain = [line for line in kept.read_text().split("\n") if not line.startswith("extra ")]
    kept.write_text("\n".join(plain))  # as another tool would write it
    vkey = alone.data("receipt", "verify", kept, "--event", entry_file(alone, 3), "--vkey", vkey_of(alone))["vkey"]
    stranger.refuses("USAGE", "receipt", "verify", kept, "--vkey", vkey)
    stranger.refuses("USAGE", "receipt", "verify", kept, "--event", entry_file(alone, 3))
    stranger.refuses("VERIFICATION_FAILED", "receipt", "verify", kept, "--vkey", vkey, "--event", entry_file(alone, 2))


def entry_file(deed: Deed, index: int) -> Path:
    evidence = evidence_in(Receipt.parse(deed.data("receipt", index)["receipt"]))
    assert evidence is not None
    path = deed.home.parent / f"{index}.entry"
    path.write_bytes(evidence.entry)
    return path


def vkey_of(deed: Deed) -> str:
    created = deed.data("show", 0)["data"]
    return CheckpointVerifier(created["origin"], bytes.fromhex(created["checkpoint_key"])).vkey


def test_a_receipt_that_the_ledger_here_no_longer_bears_out_is_refused(
    alone: Deed, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was set back to before the receipt, and continued differently: the receipt proves that."""
    copy = alone.home.with_name("copy")
    other = Deed(capsys, Place(copy))
    alone("backup", alone.home.with_name("b.tar"))
    emit_finding(alone, "session/work", "two")
    later = kept.with_name("later")
    alone("receipt", 4, "-o", later)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # compare with no other trust store
    other("restore", alone.home.with_name("b.tar"))
    (copy / "keys").mkdir(exist_ok=True)
    for name in ("checkpoint", "a"):
        write_private(copy / "keys" / f"{name}.key", (alone.home / "keys" / f"{name}.key").read_bytes())
    assert other.data("receipt", "verify", kept)["held_against"] == ["the ledger here"]
    other.refuses("HISTORY_CHANGED", "receipt", "verify", later)  # this log is shorter than the receipt's
    emit_finding(other, "session/work", "otherwise")
    emit_finding(other, "session/work", "and on")
    other.refuses("HISTORY_CHANGED", "receipt", "verify", later)  # this log is a fork of the receipt's log


def test_no_changed_character_of_a_receipt_passes(stranger: Deed, kept: Path, alone: Deed) -> None:
    text, root = kept.read_text(), fingerprint_of(alone)
    good: dict[str, Any] = stranger.data("receipt", "verify", kept, "--root", root)
    for place in range(0, len(text), 61):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        kept.write_text(changed)
        said = stranger.run("receipt", "verify", kept, "--root", root, "--json")
        if said.code == 0:  # a change in spelling may pass, but the proven content must be the same
            assert json.loads(said.out)["data"] == good, place
        else:
            assert json.loads(said.out)["error"]["code"] != "UNEXPECTED", place


def test_an_exported_folder_is_whole_or_not_there(alone: Deed, stranger: Deed, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert "python3 verify.py in it" in alone("export", f"{site}/")
    alone.refuses("FILE_EXISTS", "export", f"{site}/")  # published files are not mixed with later ones
    assert stranger("verify", "--bundle", site).startswith("VALID: ")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".") and path.name != ".deedbook"] == []
    told = subprocess.run([sys.executable, site / "verify.py"], cwd=site, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_receipt_replaces_a_file_only_with_force(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    start_session(alone, "work")
    path = tmp_path / "notes.md"
    path.write_text("precious")
    error = alone.refuses("FILE_EXISTS", "receipt", 1, "-o", path)
    assert error["message"] == f"{path} exists: name another file, or replace it with --force"
    size = alone.size()
    draft = ("emit", "finding.logged", "--stream", "session/work", "--as", "a", "--data", '{"finding": "x"}')
    alone.refuses("FILE_EXISTS", *draft, "--receipt", path)
    assert alone.size() == size, "nothing was signed"
    assert path.read_text() == "precious"
    alone("receipt", 1, "-o", path, "--force")
    assert "entry 1 of " in alone("receipt", "verify", path)
    alone(*draft, "--receipt", path, "--force")
    assert f"entry {size} of " in alone("receipt", "verify", path)
    (tmp_path / "link").symlink_to(path)
    alone.refuses("INVALID_FORMAT", "receipt", 1, "-o", tmp_path / "link", "--force")
    assert not list(tmp_path.glob(".deedbook-*")), "no temporary file is left"
