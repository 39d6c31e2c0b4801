"""A signed file has the same members and verdict as the tar of its stream; no change of it is valid."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from tampering import SESSION

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger import limits
from deedbook.ledger.bundle import Bundle, export_bundle, layout, signed_file_of
from deedbook.ledger.bundle.signed_file import read_signed_entries, unsigned_entries
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.handoff import HandoffLogged
from deedbook.ledger.format.codec import encode_sorted

if TYPE_CHECKING:
    from pathlib import Path

    from building import Ledger

HANDOFF = "handoff/first"
"""Its events are signed one by one; those of ``SESSION`` partly as a batch."""


@pytest.fixture(params=[HANDOFF, SESSION])
def stream(request: pytest.FixtureRequest) -> str:
    """A stream."""
    return str(request.param)


@pytest.fixture
def file(source: Ledger, stream: str, tmp_path: Path) -> Path:
    """The signed file of the stream."""
    path = tmp_path / "signed.json"
    with source.client() as client:
        path.write_bytes(signed_file_of(client, stream))
    return path


def test_it_has_the_members_of_the_tar(source: Ledger, stream: str, file: Path, tmp_path: Path) -> None:
    with source.client() as client:
        export_bundle(client, tmp_path / "part.tar", stream=stream)
    with Bundle(tmp_path / "part.tar") as tar, Bundle(file) as signed:
        assert signed.manifest == tar.manifest
        for name in layout.member_names(tar.manifest):
            if name not in ("checkpoint", "ends") and not name.endswith(".tlog-proof"):  # these contain a time
                assert signed.read(name) == tar.read(name), name
    assert file.stat().st_size * 10 < (tmp_path / "part.tar").stat().st_size


def test_it_is_valid(file: Path, stream: str) -> None:
    report = verify_bundle(file)
    assert (report.outcome, report.stream, report.missing_names) == ("VALID", stream, [])
    assert unsigned_entries(file.read_bytes()) == []


def test_each_entry_is_one_line_with_its_body(file: Path) -> None:
    lines = file.read_text().splitlines()
    entries = read_signed_entries(file.read_bytes())
    bodies = [json.loads(line.lstrip(","))["body"] for line in lines if line.lstrip(",").startswith('{"index"')]
    assert len(bodies) == len(entries.entries)
    assert bodies[0]["kind"] == "ledger.created"
    assert entries.last_index == max(entries.entries)


def test_another_event_adds_a_line_and_changes_no_entry(ledger: Ledger) -> None:
    def lines() -> list[bytes]:
        with ledger.client() as client:
            return signed_file_of(client, "handoff/a").split(b"\n")

    ledger.finish("a")
    before = lines()
    ledger.emit("bob", "handoff/a", HandoffLogged(text="one more"))
    added = [line for line in lines() if line not in before]
    assert [line[:9] for line in added] == [b'"checkpoi', b'"ends":["', b',{"index"']


def test_other_line_endings_change_nothing(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert verify_bundle(file).outcome == "VALID"


def test_no_change_of_a_character_is_valid(file: Path, stream: str) -> None:
    content = file.read_bytes()
    chance = random.Random(stream)
    for _ in range(60):
        at = chance.randrange(len(content))
        changed = content[:at] + bytes([content[at] ^ (1 << chance.randrange(7))]) + content[at + 1 :]
        file.write_bytes(changed)
        try:
            report = verify_bundle(file)
        except Refused:
            continue
        if report.outcome == "VALID":  # the change is in white space, or in the spelling of a text
            assert json.loads(changed) == json.loads(content)


def test_newer_format_is_refused_with_the_advice_to_install_a_newer_deedbook(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"deedbook-signed-1", b"deedbook-signed-12"))
    with pytest.raises(
        Refused, match=r"UNSUPPORTED_VERSION: the signed file has version 12, .* install a newer Deedbook"
    ):
        verify_bundle(file)


def test_changed_order_and_lost_entries_are_found(file: Path) -> None:
    document = json.loads(file.read_bytes())
    for entries in (document["entries"][::-1], document["entries"][:-1], document["entries"][1:], []):
        others = {name: value for name, value in document.items() if name != "format"} | {"entries": entries}
        file.write_bytes(b'{"format":"deedbook-signed-1",' + encode_sorted(others)[1:])
        assert verify_bundle(file).outcome == "INVALID"


def test_a_changed_entry_is_named_with_its_line(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    number = max(number for number, line in enumerate(lines) if line.startswith(b',{"index"'))
    lines[number] = lines[number].replace(b'"author":"', b'"author":"x')
    index = json.loads(lines[number].lstrip(b","))["index"]
    assert unsigned_entries(b"".join(lines)) == [(index, number + 1)]


@pytest.mark.parametrize("events_max", [1, 3, 500])
def test_it_has_the_streams_that_the_rules_read_and_the_templates(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events_max: int
) -> None:
    template = ledger.put_blob("alice", b"# Handoff: a\n")
    ledger.finish("a", verify=True, template=template)
    ledger.finish("b", depends_on=["a"])
    ledger.finish("other")
    monkeypatch.setattr(limits, "range_events_max", events_max)  # the client reads entries page by page
    with ledger.client() as client:
        (tmp_path / "b.json").write_bytes(signed_file_of(client, "handoff/b"))
        export_bundle(client, tmp_path / "b.tar", stream="handoff/b")
        with pytest.raises(Refused, match="no stream handoff/none"):
            signed_file_of(client, "handoff/none")
    with Bundle(tmp_path / "b.tar") as tar, Bundle(tmp_path / "b.json") as signed:
        assert signed.manifest == tar.manifest
        assert signed.read(layout.blob_name(template)) == b"# Handoff: a\n"
    assert verify_bundle(tmp_path / "b.json").outcome == "VALID"


@pytest.mark.parametrize("content", [b'{"format":"deedbook-signed-1"}', b'{"format":"deedbook-signed-1",', b"{}", b"x"])
def test_no_signed_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DeedbookError):
        verify_bundle(tmp_path / "x.json")
