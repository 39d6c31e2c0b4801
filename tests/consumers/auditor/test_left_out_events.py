"""A bundle of one stream from which an event was taken: what is missing is named, and nothing passes for whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge import SESSION, Forge
from judges import alone, program
from wrong_logs import ended, finding, rotated

from ledger.envelope import decode_entry
from ledger.events.authority import KeyCompromised

if TYPE_CHECKING:
    from pathlib import Path


def of_stream(forge: Forge, stream: str) -> list[int]:
    """Return the indexes of a bundle of a stream."""
    wanted = [b'"stream":"%b"' % name.encode() for name in (stream, "ledger")] + [b'"stream":"agent/']
    bodies = [decode_entry(entry).body for entry in forge.entries]
    return [index for index, body in enumerate(bodies) if any(one in body for one in wanted)]


def grown() -> Forge:
    """Return a log in which authority changes between the events of a stream."""
    forge = Forge()
    finding(forge)
    forge.register("eve")
    finding(forge, corr="two")
    forge.keys["alice"] = rotated(forge, "alice", "alice")
    finding(forge, corr="three")
    return forge


@pytest.mark.parametrize("place", range(len(of_stream(grown(), SESSION)) - 1))
def test_event_taken_from_a_stream_is_missed(place: int, tmp_path: Path) -> None:
    forge = grown()
    index = of_stream(forge, SESSION)[place]
    verdict = alone(forge.export(tmp_path / "less.tar", SESSION, leave_out={index}))
    assert verdict.word in ("PARTIAL", "INVALID"), verdict.text
    assert verdict.word == "PARTIAL" or index == 0


def test_missing_events_are_named_and_may_be_allowed(tmp_path: Path) -> None:
    forge = grown()
    indexes = of_stream(forge, SESSION)
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out=indexes[-3:-1])
    text = alone(path).text
    assert text.startswith("PARTIAL: 1 of ")
    assert f"1 of authority before index {indexes[-1]}" in text
    assert "what allows index" in text
    assert program().main([str(path), "--partial"]) == 0
    assert program().main([str(path)]) == 6


def test_stream_says_up_to_which_entry_it_is_shown(tmp_path: Path) -> None:
    forge = grown()
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out=of_stream(forge, SESSION)[-1:])
    assert f"stream {SESSION} up to its entry 3" in alone(path).text


def test_bundle_without_an_entry_of_its_stream_is_no_bundle_of_it(tmp_path: Path) -> None:
    forge = Forge()
    left = [index for index in of_stream(forge, SESSION) if SESSION.encode() in forge.entries[index]]
    assert alone(forge.export(tmp_path / "less.tar", SESSION, leave_out=left)).word == "INVALID"


def test_key_called_compromised_later_makes_what_it_signed_since_suspect(tmp_path: Path) -> None:
    forge = Forge()
    for text in "abc":
        finding(forge, corr=text)
    since = len(forge.entries) - 2
    data = KeyCompromised(key=forge.keys["alice"].public.hex(), since=since)
    forge.emit("ada", "agent/alice", data)
    for stream in (None, SESSION):
        verdict = alone(forge.export(tmp_path / "suspect.tar", stream))
        assert verdict.text.splitlines()[-1].startswith(f"SUSPECT_KEY at index {since}: 2 entries")


def test_revocation_alone_makes_nothing_suspect(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    ended(forge, "ada", "alice")
    assert alone(forge.export(tmp_path / "honest.tar")).word == "VALID"
