"""The folder of an unpacked bundle gets the same verdict as its tar; both verifiers name the files it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from blake3 import blake3
from bundle_tars import members_of, packed
from bundles import run_alone, unpacked
from forge import SESSION, Forge
from forged_steps import finding
from judges import alone, ours
from wrong_redactions import redaction

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.consumers.auditor.bundle_ledger import BundleLedger
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path


TEMPLATE: Final = b"a template"
STRANGER: Final = f"blake3:{blake3(b'a stranger').hexdigest()}"


@pytest.fixture(params=["whole", "partial"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A bundle of a log, and one of a stream, unpacked."""
    return unpacked(request.getfixturevalue(request.param), tmp_path / "unpacked")


def verdicts(folder: Path) -> list[str]:
    """Return the words of both verifiers."""
    return [alone(folder).word, ours(folder).word]


def test_folder_gets_the_verdict_of_its_tar(folder: Path) -> None:
    assert verdicts(folder) == ["VALID", "VALID"]
    assert verify_bundle(folder).missing_files == []


def test_newer_format_gets_no_verdict_but_the_advice_to_take_newer_programs(folder: Path) -> None:
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"deedbook-bundle-1", b"deedbook-bundle-2"))
    with pytest.raises(
        Refused, match=r"UNSUPPORTED_VERSION: the bundle file has version 2, .* install a newer Deedbook"
    ):
        verify_bundle(folder)
    answer = run_alone(folder)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("UNSUPPORTED_VERSION: its format is 'deedbook-bundle-2', and this program reads ")


@pytest.mark.parametrize("name", ["verify.py", "keys/root.vkey", "checkpoint"])
def test_changed_file_is_found(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-2] + b"?\n")
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_lost_blob_is_named(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    blob = next(path for path in folder.glob("blobs/*/*"))
    blob.unlink()
    report = verify_bundle(folder)
    assert report.outcome == "PARTIAL"
    assert report.missing_files == [blob.relative_to(folder).as_posix()]
    assert verdicts(folder) == ["PARTIAL", "PARTIAL"]
    assert blob.name in alone(folder).text
    assert blob.name in report.verdict


@pytest.mark.parametrize("suffix", ["entry", "tlog-proof"])
def test_lost_entry_is_named(partial: Path, tmp_path: Path, suffix: str) -> None:
    folder = unpacked(partial, tmp_path / "unpacked")
    entry = max(folder.glob(f"entries/*.{suffix}"))
    entry.unlink()
    assert verdicts(folder) == ["PARTIAL", "PARTIAL"]
    assert entry.name in alone(folder).text
    assert entry.name in verify_bundle(folder).verdict


@pytest.mark.parametrize("name", ["notes.txt", "blobs/blake3/" + "0" * 64, "entries/x"])
def test_file_that_belongs_to_no_bundle_is_refused(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    assert verdicts(folder) == ["INVALID", "INVALID"]


@pytest.fixture
def lacking() -> tuple[Forge, str]:
    """A log with a handoff whose template is missing, and the blob of the template."""
    forge = Forge()
    ref = f"blake3:{blake3(TEMPLATE).hexdigest()}"
    forge.hand_over("filed", criteria=["it is checked"], template=ref)
    return forge, ref


def add_blob(folder: Path, ref: str, content: bytes = TEMPLATE) -> None:
    """Put a blob into an unpacked bundle."""
    path = folder / "blobs" / ref.replace(":", "/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("stream", [None, "handoff/filed"])
def test_blob_that_was_missing_at_the_export_can_be_put_back(
    lacking: tuple[Forge, str], stream: str | None, tmp_path: Path
) -> None:
    forge, ref = lacking
    folder = unpacked(forge.export(tmp_path / "lacking.tar", stream), tmp_path / "unpacked")
    assert verdicts(folder) == ["PARTIAL", "PARTIAL"]
    add_blob(folder, ref)
    assert verdicts(folder) == ["VALID", "VALID"]
    assert "index.html not checked" not in alone(folder).text
    with BundleLedger(folder) as ledger:
        assert ledger.get_blob(ref) == TEMPLATE
    add_blob(folder, ref, b"another template")
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_blob_that_no_entry_references_cannot_be_added(folder: Path) -> None:
    add_blob(folder, STRANGER, b"a stranger")
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_missing_entry_does_not_explain_an_added_blob(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    bundle = forge.export(tmp_path / "part.tar", SESSION, leave_out={len(forge.entries) - 1})
    folder = unpacked(bundle, tmp_path / "unpacked")
    assert verdicts(folder) == ["PARTIAL", "PARTIAL"]
    add_blob(folder, STRANGER, b"a stranger")
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_erased_blob_cannot_be_put_back(lacking: tuple[Forge, str], tmp_path: Path) -> None:
    forge, ref = lacking
    forge.emit("root", "ledger", redaction(forge, blobs=[ref]))
    folder = unpacked(forge.export(tmp_path / "lacking.tar"), tmp_path / "unpacked")
    assert verdicts(folder) == ["VALID", "VALID"]
    add_blob(folder, ref)
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_tar_has_only_the_blobs_of_its_manifest(lacking: tuple[Forge, str], tmp_path: Path) -> None:
    forge, ref = lacking
    path = forge.export(tmp_path / "lacking.tar")
    members = dict(members_of(path)) | {f"blobs/{ref.replace(':', '/')}": TEMPLATE}
    path.write_bytes(packed(sorted(members.items())))
    assert verdicts(path) == ["INVALID", "INVALID"]


def test_link_is_not_followed(folder: Path) -> None:
    content = (folder / "checkpoint").read_bytes()
    (folder.parent / "elsewhere").write_bytes(content)
    (folder / "checkpoint").unlink()
    (folder / "checkpoint").symlink_to(folder.parent / "elsewhere")
    assert verdicts(folder) == ["INVALID", "INVALID"]


def test_other_folder_is_no_bundle(tmp_path: Path) -> None:
    assert ours(tmp_path).codes == {None: {"INVALID_FORMAT"}}
    assert alone(tmp_path).word == "INVALID"
