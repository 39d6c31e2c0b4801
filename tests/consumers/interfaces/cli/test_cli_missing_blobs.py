"""Blobs removed from a ledger, a bundle or a backup are reported; a blob that no entry names is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from bundle_tars import repacked
from calling import Deed, Place

from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from pathlib import Path

STREAM = ("--stream", "handoff/filed")


@pytest.fixture
def filed(alone: Deed) -> tuple[Deed, str]:
    """A ledger with a handoff whose file is a blob, and the ref of that blob."""
    for name in ("a", "b"):
        alone("agent", "add", name)
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    with LocalClient(Settings(home=alone.home)) as client:
        author = Author(client, "a", lambda _: open_key(Home(alone.home).key_file("a")))
        ref = author.put_blob(b"# Handoff: as it was written")
    data = {"title": "t", "to": "b", "reviewer": "rita", "criteria": ["c"], "template": ref}
    alone("emit", "handoff.created", *STREAM, "--as", "a", "--data", json.dumps(data))
    return alone, ref


@pytest.mark.parametrize("verb", [["backup"], ["export"], ["export", *STREAM]])
def test_blob_taken_out_of_a_bundle_is_missed_by_both_verifiers(
    filed: tuple[Deed, str], verb: list[str], tmp_path: Path
) -> None:
    deed, ref = filed
    name, path, folder = f"blobs/{ref.replace(':', '/')}", tmp_path / "ledger.tar", tmp_path / "unpacked"
    deed(verb[0], path, *verb[1:])
    assert deed("verify", "--bundle", path).startswith("VALID: ")
    repacked(path, {name: None})

    report = deed.refuses_programs("VERIFICATION_FAILED", "verify", "--bundle", path)["details"]["report"]
    assert (report["outcome"], report["ok"], report["missing_files"]) == ("PARTIAL", False, [name])
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    printed = subprocess.run([sys.executable, folder / "verify.py", path], capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stdout.splitlines()[-1].partition(":")[0]) == (6, "PARTIAL"), printed
    assert f"missing {name} (entry " in printed.stdout


def test_blob_that_no_entry_names_is_refused_by_both_verifiers_and_by_restore(
    filed: tuple[Deed, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, _ = filed
    path, invented = tmp_path / "ledger.tar", b"forged evidence"
    name = f"blobs/blake3/{blake3(invented).hexdigest()}"
    for verb in (["export", path], ["export", path, *STREAM], ["backup", path]):
        path.unlink(missing_ok=True)
        deed(*verb)
        repacked(path, {name: invented})
        report = deed.refuses_programs("VERIFICATION_FAILED", "verify", "--bundle", path)["details"]["report"]
        assert report["outcome"] == "INVALID"
        assert [problem["message"] for problem in report["problems"]] == [f"no entry references {name}, and it is here"]
        with tarfile.open(path) as tar:
            tar.extract("verify.py", tmp_path, filter="data")
        command = [sys.executable, tmp_path / "verify.py", path]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (printed.returncode, printed.stdout.partition(":")[0]) == (6, "VERIFICATION_FAILED"), printed
        assert f"no entry references {name}" in printed.stdout
    elsewhere = Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))
    assert name in elsewhere.refuses("VERIFICATION_FAILED", "restore", path)["message"]
    assert not elsewhere.home.exists()


def test_ledger_without_a_blob_is_partial_wherever_it_is_checked(
    filed: tuple[Deed, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deed, ref = filed
    name, path = f"blobs/{ref.replace(':', '/')}", tmp_path / "ledger.tar"
    deed("backup", path)
    repacked(path, {name: None})
    elsewhere = Deed(capsys, Place(tmp_path / "elsewhere" / ".deedbook"))
    refusal = elsewhere.refuses("VERIFICATION_FAILED", "restore", path)
    assert refusal["details"]["missing_blobs"] == [ref]
    assert "PARTIAL" in refusal["message"]
    assert not elsewhere.home.exists()
    restored = elsewhere.data("restore", path, "--accept", "PARTIAL")
    assert restored["missing_blobs"] == [ref]
    shutil.copytree(deed.home / "keys", elsewhere.home / "keys")

    for verb in (["verify"], ["verify", "--resume"], ["verify", "--views"], ["fsck"]):
        report = elsewhere.refuses_programs("VERIFICATION_FAILED", *verb)["details"]["report"]
        assert (report["outcome"], report["missing_files"]) == ("PARTIAL", [name]), verb
        assert elsewhere.run(*verb, *(["--accept", "PARTIAL"] if verb[0] == "verify" else [])).code == (
            0 if verb[0] == "verify" else 6
        )
    (line,) = [line for line in elsewhere.run("doctor").out.splitlines() if "blobs needed" in line]
    assert line.startswith("WRONG")
    assert ref in line
    assert elsewhere.data("export", tmp_path / "again.tar")["missing_blobs"] == [ref]
    assert elsewhere.data("backup", tmp_path / "backup.tar")["missing_blobs"] == [ref]

    content = tmp_path / "file.md"
    content.write_bytes(b"# Handoff: as it was written")
    elsewhere("blob", "put", content, "--as", "a")
    for verb in (["verify"], ["verify", "--resume"], ["fsck"]):
        assert elsewhere(*verb).startswith("VALID: ")
    assert "ok    blobs needed" in elsewhere.run("doctor").out


def test_missing_blob_is_put_back_into_an_unpacked_bundle(filed: tuple[Deed, str], tmp_path: Path) -> None:
    deed, ref = filed
    name, path, folder = f"blobs/{ref.replace(':', '/')}", tmp_path / "ledger.tar", tmp_path / "unpacked"
    deed("export", path)
    repacked(path, {name: None})  # its page is still that of the complete bundle
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_bytes(b"# Handoff: as it was written")
    assert deed("verify", "--bundle", folder).startswith("VALID: ")
    printed = subprocess.run([sys.executable, folder / "verify.py"], capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stdout.splitlines()[-1].partition(":")[0]) == (0, "VALID"), printed


def test_show_names_the_lines_that_only_the_file_has(filed: tuple[Deed, str]) -> None:
    deed, ref = filed
    shown = deed("handoff", "show", "filed")
    assert f"a file that cannot be shown here: read it first (`deed blob get {ref}`)" in shown
    text = b"# Handoff: t\n\n## Meta\n- From: a\n- To: b\n- Reviewer: rita\n\n## Deployment\nDrop it.\n"
    with LocalClient(Settings(home=deed.home)) as client:
        author = Author(client, "a", lambda _: open_key(Home(deed.home).key_file("a")))
        data = {"title": "t", "to": "b", "reviewer": "rita", "template": author.put_blob(text), "proposal": "p/1.md"}
    deed("emit", "handoff.created", "--stream", "handoff/rest", "--as", "a", "--data", json.dumps(data))
    shown = deed("handoff", "show", "rest")
    assert "Only in its file, which its version includes\n  │ ## Deployment\n  │ Drop it.\n" in shown
    assert "proposal p/1.md" in shown
    assert deed.data("handoff", "show", "rest")["only_in_file"] == ["## Deployment", "Drop it."]
