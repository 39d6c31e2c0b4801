"""Bundles changed at random: both verifiers report the same, and neither misses a flipped bit.

Some changes are signed again with the checkpoint key; then only the entries themselves show the change.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from bundle_mutations import (
    changed_blobs,
    changed_entries,
    changed_members,
    changed_text,
    filled,
    with_blobs,
)
from bundle_tars import Members, members_of, packed, with_these_blobs
from bundles import members
from faults import chances, is_long_run, made, metrics, times
from forge import SESSION
from judges import alone, ours, program
from tampering import flipped

from deedbook.consumers.auditor import signatures
from deedbook.ledger.bundle import Bundle
from deedbook.ledger.client.author import sign
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCreated
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, ToolUsed
from deedbook.ledger.format.envelope import decode_entry, event_id

if TYPE_CHECKING:
    from pathlib import Path

EACH_BYTE_PARTS = 8


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache the check of each signature, and of each event in the program: a flipped bit changes only one of many.

    The checks are functions of the bytes alone, and every table of kinds is the same, or refused.
    """
    alone_program, events = program(), dict[tuple[int, bytes], Any]()
    read = alone_program.Kinds.read

    def read_once(kinds: Any, index: int, data: bytes) -> Any:
        if (index, data) not in events:
            events[index, data] = read(kinds, index, data)
        return events[index, data]

    monkeypatch.setattr(alone_program.Kinds, "read", read_once)
    monkeypatch.setattr(alone_program, "is_signed", cache(alone_program.is_signed))
    monkeypatch.setattr(signatures, "verify", cache(signatures.verify))


def agreement(path: Path) -> str:
    """Let both verifiers judge a bundle; return their common verdict, or fail."""
    mine, other = ours(path), alone(path)
    assert mine.word == other.word, f"{mine.text}\n{other.text}"
    return f"both say {mine.word}"


def is_same(changed: Members, honest: Members) -> bool:
    """Return whether members have the same content: a note may repeat a signature (C2SP signed-note)."""
    same, other = dict(changed), dict(honest)
    lines, wanted = (one.pop("checkpoint", b"").split(b"\n") for one in (same, other))
    return len(changed) == len(honest) and same == other and set(lines) == set(wanted)


@pytest.mark.parametrize("stream", [None, SESSION])
def test_changed_members_are_judged_alike(stream: str | None, tmp_path: Path) -> None:
    path = tmp_path / "changed.tar"
    honest, others = (members_of(forge.export(path, stream)) for forge in (filled(16), filled(17)))
    for chance in chances(f"members/{stream}", times(12, 30)):
        change = chance.choice((changed_members, changed_members, changed_text))
        changed = change(honest, others, chance)
        path.write_bytes(packed(changed))
        said = agreement(path)
        assert is_same(changed, honest) or said == "both say INVALID", (said, ours(path).text)
        metrics(f"members changed ({stream or 'log'}): {said}")


@pytest.mark.parametrize("stream", [None, SESSION, "handoff/filed-0", "handoff/open", "record/x"])
def test_changed_blobs_are_judged_alike(stream: str | None, tmp_path: Path) -> None:
    """A missing blob that an entry needs is reported, one that no entry names is refused; others may be absent."""
    path, forge = tmp_path / "changed.tar", with_blobs()
    honest = members_of(forge.export(path, stream))
    assert agreement(path) == "both say VALID"
    named = {name for name, _ in honest if name.startswith("blobs/")}
    needed = [HandoffCreated, HandoffAmended]
    with Bundle(path) as bundle:
        entries = bundle.manifest.indexes or range(bundle.manifest.size)
    data = [read_event(index, forge.entries[index]).data for index in entries]
    refs = [content.template for content in data if type(content) in needed and content.template]
    refs += [used.purpose.removeprefix("kept: ") for used in data if isinstance(used, ToolUsed)]
    refs += [record.original for record in data if isinstance(record, RecordImported) and not record.only_digest]
    wanted = {f"blobs/{ref.replace(':', '/')}" for ref in refs}
    for chance in chances(f"blobs/{stream}", times(15, 60)):
        changed = changed_blobs(honest, honest, chance)
        path.write_bytes(packed(changed))
        blobs = {name: data for name, data in changed if name.startswith("blobs/")}
        is_true = all(digest_of(name, data) == name for name, data in blobs.items())
        expected = "INVALID" if blobs.keys() - named or not is_true else "PARTIAL" if wanted - blobs.keys() else "VALID"
        assert agreement(path) == f"both say {expected}", ours(path).text
        metrics(f"blobs changed ({stream or 'log'}): both say {expected}")


def test_a_manifest_cannot_list_an_event_as_a_blob(tmp_path: Path) -> None:
    """In a folder a blob may be absent: a listed event would make a whole bundle PARTIAL."""
    forge = filled(12)
    ref = event_id(decode_entry(forge.entries[3]).commitment)
    forge.emit("alice", SESSION, FindingLogged(finding="see the event", evidence=[ref]))
    for name, data in with_these_blobs(
        members_of(forge.export(tmp_path / "honest.tar", None)), {f"blobs/{ref.replace(':', '/')}": b""}
    ):
        if not name.startswith("blobs/"):
            (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "folder" / name).write_bytes(data)
    assert agreement(tmp_path / "folder") == "both say INVALID"


def digest_of(name: str, data: bytes) -> str:
    """Return the digest of a blob's content, with the algorithm that its name uses."""
    digest = blake3(data).hexdigest() if "blake3" in name else sha256(data).hexdigest()
    return f"{name[: -len(digest)]}{digest}"


def test_blob_of_an_entry_that_is_missing_is_no_stranger(tmp_path: Path) -> None:
    """Somebody passed on a part of the stream: its blobs are not refused, and both verifiers say what is missing."""
    path, forge = tmp_path / "part.tar", with_blobs()
    amended = len(forge.entries) - 4
    members = members_of(forge.export(path, "handoff/filed-0", leave_out={amended}))
    blob = (f"blobs/blake3/{blake3(b'file 0').hexdigest()}", b"file 0")
    blobs = dict([*(member for member in members if member[0].startswith("blobs/")), blob])
    path.write_bytes(packed(with_these_blobs(members, blobs)))
    assert agreement(path) == "both say PARTIAL"


@pytest.mark.parametrize("stream", [None, SESSION])
def test_ref_counts_wherever_and_however_it_is_spelled(stream: str | None, tmp_path: Path) -> None:
    """A ref also counts within a text, as in the text about a kept artifact; both verifiers find it."""
    forge = filled(4)
    ref, other = forge.put_blob(b"file 0"), forge.put_blob(b"file 1")
    escaped = "\\u0062" + ref[1:]
    finding = FindingLogged(finding=f"see report.txt (kept: {other})", evidence=[ref])
    text = forge.body("alice", SESSION, finding).replace(ref.encode(), escaped.encode())
    forge.submit(sign([text], forge.keys["alice"]))
    path = forge.export(tmp_path / "escaped.tar", stream)
    blobs = {name for name, _ in members_of(path) if name.startswith("blobs/")}
    assert blobs == {f"blobs/{one.replace(':', '/')}" for one in (ref, other)}
    assert agreement(path) == "both say VALID"


def test_changed_entries_under_a_good_checkpoint_are_judged_alike(tmp_path: Path) -> None:
    verdicts: list[str] = []
    for chance in chances("entries", times(15, 20)):
        forge = filled(16)
        changed_entries(forge, chance)
        try:
            path = forge.export(tmp_path / "changed.tar")
        except (Corrupted, Refused):
            continue  # not even a dishonest keeper builds such a bundle
        verdicts.append(agreement(path))
        metrics(f"entries changed, signed over again: {verdicts[-1]}")
    assert "both say INVALID" in verdicts


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("stream", [None, SESSION])
def test_flipped_bit_anywhere_is_found_by_both(stream: str | None, tmp_path: Path) -> None:
    path = filled(100).export(tmp_path / "flipped.tar", stream)
    size = path.stat().st_size
    for chance in chances(f"flips/{stream}", times(10, 400)):
        check_flip(path, chance.randrange(size), 1 << chance.randrange(8))
        metrics(f"bits flipped ({stream or 'log'}): both say INVALID")


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("part", range(EACH_BYTE_PARTS if is_long_run else 1))
def test_flipped_bit_at_each_byte_of_each_file_is_found_by_both(part: int, tmp_path: Path) -> None:
    path = filled(16).export(tmp_path / "flipped.tar")
    before = ours(path), alone(path)
    for name, (start, size) in members(path).items():
        (chance,) = chances(f"each/{name}/{part}", 1)
        end = start + size
        for at in range(start + part, end, EACH_BYTE_PARTS) if is_long_run else [chance.randrange(start, end)]:
            check_flip(path, at, 1 << chance.randrange(8))
            metrics("each byte of each file: both say INVALID", made(1))
    assert before == (ours(path), alone(path))
    assert before[0].is_good


def check_flip(path: Path, at: int, mask: int) -> None:
    """Check that both find the flip of a bundle's byte."""
    with flipped(path, [at], mask):
        assert (ours(path).word, alone(path).word) == ("INVALID", "INVALID"), (at, mask)
