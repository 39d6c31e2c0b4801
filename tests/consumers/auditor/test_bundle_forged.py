"""Bundles that a dishonest maker forged, shortened or emptied: each is refused, or its fault is named."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import run_alone, unpacked
from tampering import SESSION, append_behind_the_gate, codes_at, fill, finding, forged

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.bundle import Bundle, export_bundle
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_canonical

if TYPE_CHECKING:
    from pathlib import Path


def forged_bundle(ledger: Ledger, folder: Path, *forgeries: bytes) -> Path:
    """Return the bundle that a dishonest operator would make: forged events under a good tree and checkpoint."""
    append_behind_the_gate(ledger, *forgeries)
    with ledger.client() as client:
        export_bundle(client, folder / "forged.tar")
    return folder / "forged.tar"


def test_forgeries_under_a_good_checkpoint_are_named(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    first = ledger.head()[0]
    wrong_key = forged(ledger, "alice", SESSION, finding(1), key="bob")
    unlawful = forged(ledger, "bob", SESSION, finding(2))
    path = forged_bundle(ledger, tmp_path, wrong_key, unlawful)
    report = verify_bundle(path)
    assert codes_at(report, first) == {"AUTHOR_MISMATCH"}
    assert codes_at(report, first + 1) == {"NOT_AUTHORIZED"}
    answer = run_alone(unpacked(path, tmp_path / "unpacked"))
    assert answer.returncode == 6
    named = f"entry {first}: AUTHOR_MISMATCH: finding.logged by alice on {SESSION}: the key is bob's, not alice's"
    assert named in answer.stdout


def repacked(
    path: Path, target: Path, change: dict[str, bytes | None], *, more: tuple[str, bytes] | None = None
) -> Path:
    """Write a bundle anew in its one form, with members replaced, left out or added at the end."""
    with tarfile.open(path) as tar, tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as out:
        for one in tar:
            content = change.get(one.name, tar.extractfile(one).read())  # type: ignore[union-attr]
            if content is not None:
                add(out, one.name, content)
        if more is not None:
            add(out, *more)
    return target


def add(out: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a member as a bundle has it."""
    made = tarfile.TarInfo(name)
    made.size = len(content)
    out.addfile(made, io.BytesIO(content))


def test_bundle_written_anew_in_the_same_form_is_the_same(whole: Path, tmp_path: Path) -> None:
    assert repacked(whole, tmp_path / "same.tar", {}).read_bytes() == whole.read_bytes()


def test_missing_member_is_named(whole: Path, tmp_path: Path) -> None:
    report = verify_bundle(repacked(whole, tmp_path / "less.tar", {"tile/entries/000": None}))
    assert report.problems[0].index == 0
    assert "tile/entries/000" in report.problems[0].message


@pytest.mark.parametrize(("field", "value"), [("origin", "example.org/other"), ("root", "00" * 32)])
def test_manifest_that_contradicts_the_checkpoint_is_named(whole: Path, tmp_path: Path, field: str, value: str) -> None:
    with Bundle(whole) as bundle:
        manifest = json.loads(bundle.read("manifest.json")) | {field: value}
    path = repacked(whole, tmp_path / "other.tar", {"manifest.json": encode_canonical(manifest) + b"\n"})
    named = [problem.message for problem in verify_bundle(path).problems]
    assert "manifest.json contradicts the checkpoint or entry 0" in named
    assert run_alone(unpacked(path, tmp_path / "unpacked")).returncode == 6


def test_surplus_member_is_named(whole: Path, tmp_path: Path) -> None:
    report = verify_bundle(repacked(whole, tmp_path / "more.tar", {}, more=("tile/0/999", bytes(32))))
    assert "tile/0/999" in report.problems[0].message


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "tile/../../evil", "keys/../verify.py", "evil", "tile/0/000/"]
)
def test_member_of_another_name_is_refused(whole: Path, tmp_path: Path, name: str) -> None:
    path = repacked(whole, tmp_path / "evil.tar", {}, more=(name, b"evil"))
    with pytest.raises(Refused) as caught:
        verify_bundle(path)
    assert caught.value.code == "INVALID_FORMAT"


def test_member_that_is_no_file_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "link.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        link = tarfile.TarInfo("checkpoint")
        link.type, link.linkname = tarfile.SYMTYPE, str(whole)
        out.addfile(link)
    with pytest.raises(Refused) as caught:
        verify_bundle(path)
    assert caught.value.code == "INVALID_FORMAT"


def test_member_twice_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        verify_bundle(repacked(whole, tmp_path / "twice.tar", {}, more=("checkpoint", b"x")))
    assert caught.value.code == "INVALID_FORMAT"


def test_huge_member_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.tar"
    member = tarfile.TarInfo("checkpoint")
    member.size = 8 * 1024**3 - 1
    with path.open("wb") as file:
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        file.truncate(9 * 1024**3)
    with pytest.raises(Refused) as caught:
        verify_bundle(path)
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"x" * 4096])
def test_file_that_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(Refused) as caught:
        verify_bundle(tmp_path / "text")
    assert caught.value.code == "INVALID_FORMAT"


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        verify_bundle(tmp_path / "none.tar")
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("part", [0.2, 0.5, 0.99])
def test_bundle_cut_off_is_found(whole: Path, tmp_path: Path, part: float) -> None:
    content = whole.read_bytes()
    (tmp_path / "cut.tar").write_bytes(content[: int(len(content) * part)])
    assert not verify_bundle(tmp_path / "cut.tar").ok
