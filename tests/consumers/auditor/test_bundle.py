"""Bundles: anybody can check an export, and a check finds and names a flipped byte anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from bundles import members
from tampering import SESSION, entries_of, flipped, named, samples

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.bundle import Bundle, export_bundle
from deedbook.ledger.bundle.layout import entry_range, levels_of, tile_name, tiles_of
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.home.trust import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.consumers.auditor.report import AuditReport

FLIPS_EACH_MEMBER = 1
FLIPS_ANYWHERE = 8


def test_honest_bundle_passes(whole: Path, source: Ledger) -> None:
    report = verify_bundle(whole)
    assert report.ok, report.problems
    assert report.size == report.signatures == source.head()[0]
    assert report.tree_head == source.head()[1].hex()
    assert (report.trust, report.outcome) == ("self-asserted", "VALID")
    assert verify_bundle(whole, root=fingerprint(source.keys["root"].public)).trust == "anchored"
    verdict = verify_bundle(whole, root="0" * 64).verdict
    assert verdict.startswith("INVALID at entry 0: 1 problem:")
    assert verdict.endswith("(root key does not match)")


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


@pytest.mark.parametrize("bundle", ["whole", "partial"])
def test_flipped_byte_of_each_member_is_found(bundle: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(bundle)
    for name, (start, size) in members(path).items():
        if bundle == "partial" and re.match(r"entries/0{17}(0[2-9]|1[2-9])", name):
            continue  # one of many similar members
        for chance in samples(name, FLIPS_EACH_MEMBER):
            with flipped(path, [start + chance.randrange(size)], chance.choice((1, 32, 128))):
                report = verify_bundle(path)
            assert not report.ok, name
            place = entry_range(name)
            if place:
                assert is_found(report, place["index"], place.get("end", place["index"] + 1)), (name, report.problems)
    assert verify_bundle(path).ok


def test_flipped_byte_of_an_entry_in_a_bundle_is_named_by_its_index(whole: Path, source: Ledger) -> None:
    entries = entries_of(source)
    content = whole.read_bytes()
    for chance in samples("bundled", 15):
        index = chance.randrange(len(entries))
        entry = decode_entry(entries[index])
        part = chance.choice((entry.bare_form(), entry.body))
        place = content.index(len(part).to_bytes(2, "big") + part)
        # The two bytes of length before an entry or body belong to the entry.
        byte = chance.choice((0, 1, 2 + chance.randrange(len(part))))
        with flipped(whole, [place + byte], chance.choice((1, 16, 255))):
            report = verify_bundle(whole)
        assert index in named(report), (index, byte, report.problems)
        assert len(named(report)) <= 3 + 80, report.problems


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
    assert (report.outcome, report.stream, report.missing) == ("VALID", SESSION, [])
    assert f"VALID: {SESSION} and authority as of head {source.head()[0]}, " in report.verdict
    assert report.signatures == report.kinds["finding.logged"] + 1 + 4
    assert report.checkpoint_size == source.head()[0]
    (note,) = report.notes
    assert (note.code, "that takes the whole log" in note.message) == ("NOT_FOUND", True)
    with source.log.snapshot() as snapshot:
        assert report.tree_head == snapshot.root().hex()


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


def test_bundle_is_read_member_by_member(whole: Path) -> None:
    with Bundle(whole) as bundle:
        assert bundle.read("checkpoint").decode().startswith(bundle.manifest.origin + "\n")
        with pytest.raises(Corrupted):
            bundle.read("none")
