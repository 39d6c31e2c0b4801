"""Bundles: what is exported can be checked by anybody, and a flipped byte anywhere is found and named."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from tampering import (
    FAULTS,
    SESSION,
    append_behind_the_gate,
    codes_at,
    entries_of,
    fill,
    finding,
    flipped,
    forged,
    named,
    rebuilt,
    samples,
)

from consumers.auditor import verify_bundle
from ledger.admission.rules import AUTHORITY_KINDS
from ledger.author import Draft
from ledger.bundle import export_bundle, open_bundle, standalone
from ledger.bundle.layout import entry_range, fingerprint, levels_of, tile_name, tiles_of
from ledger.checkpoint import Checkpoint, sign_checkpoint
from ledger.errors import Corrupted, Refused, Unavailable
from ledger.events.session import SessionStarted

if TYPE_CHECKING:
    from pathlib import Path

    from consumers.auditor.report import AuditReport

FLIPS_EACH_MEMBER = 3
FLIPS_ANYWHERE = 25


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger of more than one tile."""
    with Ledger(tmp_path_factory.mktemp("exported") / ".baton") as ledger:
        fill(ledger)
        ledger.emit("bob", "session/many", SessionStarted(task="fill a tile"))
        for start in range(0, 240, 80):
            drafts = [Draft(stream="session/many", data=finding(start + number)) for number in range(80)]
            ledger.submit(ledger.sign("bob", *drafts))
        yield ledger


@pytest.fixture(scope="module")
def whole(source: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the whole log."""
    path = tmp_path_factory.mktemp("bundles") / "whole.tar"
    with source.client() as client:
        export_bundle(client, path)
    return path


@pytest.fixture(scope="module")
def partial(source: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one stream."""
    path = tmp_path_factory.mktemp("bundles") / "partial.tar"
    with source.client() as client:
        export_bundle(client, path, stream=SESSION)
    return path


def members(path: Path) -> dict[str, tuple[int, int]]:
    """Return where the content of each member begins and how long it is."""
    with tarfile.open(path) as tar:
        return {one.name: (one.offset_data, one.size) for one in tar}


def unpacked(path: Path, folder: Path) -> Path:
    """Unpack a bundle as a stranger would."""
    folder.mkdir()
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    return folder


def run_alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's own program by a fresh interpreter that sees nothing of ours but installed packages."""
    command = [sys.executable, "-I", str(folder / "verify.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_honest_bundle_passes(whole: Path, source: Ledger) -> None:
    report = verify_bundle(whole)
    assert report.ok, report.problems
    assert report.size == report.signatures == source.head()[0]
    assert report.root == source.head()[1].hex()
    assert (report.trust, report.rules_replayed) == ("self-asserted", True)
    assert verify_bundle(whole, root=fingerprint(source.keys["root"].public)).trust == "anchored"


def test_equal_logs_give_equal_files(whole: Path, source: Ledger, tmp_path: Path) -> None:
    with source.client() as client:
        export_bundle(client, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == whole.read_bytes()


def test_bundle_holds_what_c2sp_names(whole: Path, source: Ledger) -> None:
    size = source.head()[0]
    found = set(members(whole))
    rest = size - 256
    assert {"tile/0/000", f"tile/0/001.p/{rest}", "tile/1/000.p/1", "tile/entries/000"} < found
    assert {"checkpoint", "keys/checkpoint.vkey", "manifest.json", "verify.py"} < found
    assert any(name.startswith("blobs/blake3/") for name in found)


@pytest.mark.parametrize(
    ("level", "number", "width", "name"),
    [(0, 0, 256, "tile/0/000"), (1, 1234067, 256, "tile/1/x001/x234/067"), ("entries", 5, 7, "tile/entries/005.p/7")],
)
def test_tile_names_are_those_of_the_specification(level: int | str, number: int, width: int, name: str) -> None:
    assert tile_name(level, number, width) == name


def test_tiles_of_a_tree_of_70000_are_those_of_the_specification() -> None:
    assert list(levels_of(70_000)) == [0, 1, 2]
    assert list(tiles_of(70_000, 0))[-2:] == [(272, 256), (273, 112)]
    assert list(tiles_of(70_000, 1)) == [(0, 256), (1, 17)]
    assert list(tiles_of(70_000, 2)) == [(0, 1)]
    assert list(tiles_of(256, 1)) == [(0, 1)]
    assert list(levels_of(0)) == []


def test_entry_range_of_a_tile_is_what_it_covers() -> None:
    assert entry_range("tile/entries/002.p/5") == {"index": 512, "end": 768}
    assert entry_range("tile/1/x001/000") == {"index": 1000 * 65536, "end": 1001 * 65536}
    assert entry_range("checkpoint") == {}


def is_found(report: AuditReport, start: int, end: int) -> bool:
    """Whether a report fails and names an index, or a range that overlaps, of the entries from start to end."""
    return any(
        one.index is not None and one.index < end and (one.end or one.index + 1) > start for one in report.problems
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_flipped_byte_of_each_member_is_found(bundle: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(bundle)
    for name, (start, size) in members(path).items():
        if bundle == "partial" and re.match(r"entries/0{17}(0[2-9]|1[2-9])", name):
            continue  # many alike
        for chance in samples(name, FLIPS_EACH_MEMBER):
            with flipped(path, [start + chance.randrange(size)], chance.choice((1, 32, 128))):
                report = verify_bundle(path)
            assert not report.ok, name
            place = entry_range(name)
            if place:
                assert is_found(report, place["index"], place.get("end", place["index"] + 1)), (name, report.problems)
    assert verify_bundle(path).ok


@pytest.mark.timeout(600)
def test_flipped_byte_of_an_entry_in_a_bundle_is_named_by_its_index(whole: Path, source: Ledger) -> None:
    entries = entries_of(source)
    content = whole.read_bytes()
    for chance in samples("bundled", 15):
        index = chance.randrange(len(entries))
        place = content.index(len(entries[index]).to_bytes(2, "big") + entries[index])
        # The two bytes of the length in front of an entry count as the entry's.
        byte = chance.choice((0, 1, 2 + chance.randrange(len(entries[index]))))
        with flipped(whole, [place + byte], chance.choice((1, 16, 255))):
            report = verify_bundle(whole)
        assert index in named(report), (index, byte, report.problems)
        assert len(named(report)) <= 3 + 80, report.problems


@pytest.mark.timeout(600)
def test_flipped_byte_anywhere_in_the_file_is_found(whole: Path) -> None:
    size = whole.stat().st_size
    ends = [0, 100, 257, 511, size - 1, size - 10_000, size - 2000]
    places = ends + [chance.randrange(size) for chance in samples("anywhere", FLIPS_ANYWHERE)]
    for place in places:
        with flipped(whole, [place], 4):
            assert not verify_bundle(whole).ok, place


def test_stream_bundle_proves_inclusion_and_says_what_it_cannot(partial: Path, source: Ledger) -> None:
    report = verify_bundle(partial)
    assert report.ok, report.problems
    assert report.rules_replayed is False
    assert "rules not replayed" in report.verdict
    assert report.signatures == report.kinds["finding.logged"] + 1 + 4
    assert report.checkpoint_size == source.head()[0]
    assert any("rules were not replayed" in one.message for one in report.notes)


def test_stream_that_does_not_exist_is_refused(source: Ledger, tmp_path: Path) -> None:
    with source.client() as client, pytest.raises(Refused) as caught:
        export_bundle(client, tmp_path / "none.tar", stream="session/none")
    assert caught.value.code == "NOT_FOUND"
    assert list(tmp_path.iterdir()) == []


def test_export_to_a_folder_that_is_not_there_is_unavailable(source: Ledger, tmp_path: Path) -> None:
    with source.client() as client, pytest.raises(Unavailable):
        export_bundle(client, tmp_path / "no" / "audit.tar")


def test_export_tells_its_progress(source: Ledger, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with source.client() as client:
        export_bundle(client, tmp_path / "audit.tar", progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (2 * source.head()[0], 2 * source.head()[0])


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


def test_program_in_the_bundle_knows_the_same_authority_events() -> None:
    assert standalone.AUTHORITY == AUTHORITY_KINDS


def test_program_in_the_bundle_finds_files_that_do_not_belong(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (folder / "tile" / "more").write_text("x")
    answer = run_alone(folder)
    assert (answer.returncode, "tile/more" in answer.stdout) == (6, True)


def test_program_in_the_bundle_refuses_what_is_no_bundle(whole: Path, tmp_path: Path) -> None:
    folder = unpacked(whole, tmp_path / "unpacked")
    (tmp_path / "text").write_text("no tar")
    assert run_alone(folder, str(tmp_path / "text")).returncode == 2


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
    assert f"index {first}: the key is not one of alice" in answer.stdout


def test_bundle_of_a_shorter_log_fails_against_a_kept_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    size, root = ledger.head()
    kept = sign_checkpoint(Checkpoint(ledger.checkpoint_key.origin, size, root), ledger.checkpoint_key)
    with rebuilt(ledger, tmp_path / "old", entries_of(ledger)[:20]) as other, other.client() as client:
        export_bundle(client, tmp_path / "old.tar")
    assert verify_bundle(tmp_path / "old.tar").ok
    assert not verify_bundle(tmp_path / "old.tar", trusted_checkpoint=kept).ok


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


def test_bundle_is_read_member_by_member(whole: Path) -> None:
    with open_bundle(whole) as bundle:
        assert bundle.read("checkpoint").decode().startswith(bundle.manifest.origin + "\n")
        with pytest.raises(Corrupted):
            bundle.read("none")
