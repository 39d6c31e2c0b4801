"""A bundle of one stream without one of its events: the gap is named, and no such bundle passes as complete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import inside
import pytest
from bundle_tars import members_of, packed
from event_examples import EXAMPLES
from forge import SESSION, Forge, _Client
from forged_steps import FINDING, ended, finding, rotated
from judges import alone, ours, program

from deedbook.ledger.bundle import export
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.handoff import HandoffCompleted
from deedbook.ledger.events.session import FindingRetracted
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.proof.checkpoint import (
    STREAM_HEADS_TYPE,
    CheckpointKey,
    open_stream_heads,
    sign_note,
    sign_stream_heads,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deedbook.ledger.client.client import Client


def of_stream(forge: Forge, stream: str) -> list[int]:
    """Return the indexes of a bundle of a stream."""
    wanted = [b'"stream":"%b"' % name.encode() for name in (stream, "ledger")] + [b'"stream":"agent/']
    bodies = [decode_entry(entry).body for entry in forge.entries]
    return [index for index, body in enumerate(bodies) if any(one in body for one in wanted)]


def stream_of(forge: Forge, index: int) -> str:
    """Return the stream of an entry."""
    return forge.entries[index].split(b'"stream":"')[-1].split(b'"')[0].decode()


def surveyed(forge: Forge, stream: str) -> tuple[Client, export._Survey, str]:
    """Return the arguments of the export's decision which streams are complete: client, survey and stream."""
    client: Client = _Client(forge)  # type: ignore[assignment]
    return client, export._survey(client, len(forge.entries), stream, lambda _: None), stream


def grown() -> Forge:
    """Return a log in which authority changes between the events of a stream."""
    forge = Forge()
    finding(forge)
    forge.register("eve")
    finding(forge, corr="two")
    forge.keys["alice"] = rotated(forge, "alice", "alice")
    finding(forge, corr="three")
    return forge


def waiting() -> Forge:
    """Return a log with a handoff that waited for two others, one of them verified, and other events between."""
    forge = grown()
    forge.finish("a", verify=True)
    finding(forge, corr="four")
    forge.finish("b")
    forge.register("zoe")
    forge.approve("top", forge.hand_over("top", depends_on=["a", "b"]))
    finding(forge, corr="five")
    forge.claim("top")
    forge.emit("bob", "handoff/top", HandoffCompleted())
    forge.register("last")
    finding(forge, corr="six")
    return forge


@pytest.mark.parametrize("make", [grown, waiting])
def test_whole_bundle_of_a_stream_is_valid(make: Callable[[], Forge], tmp_path: Path) -> None:
    path = make().export(tmp_path / "whole.tar", "handoff/top" if make is waiting else SESSION)
    assert (alone(path).word, ours(path).word) == ("VALID", "VALID"), (alone(path).text, ours(path).text)


@pytest.mark.parametrize("place", range(len(of_stream(grown(), SESSION))))
def test_event_taken_from_a_stream_is_missed(place: int, tmp_path: Path) -> None:
    forge = grown()
    index = of_stream(forge, SESSION)[place]
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out={index})
    for verdict in (alone(path), ours(path)):
        assert verdict.word == ("PARTIAL" if index else "INVALID"), verdict.text


@pytest.mark.parametrize("by", ["alice", "ada"])
def test_a_correction_in_a_session_whose_beginning_is_missing_is_blamed_on_nobody(by: str, tmp_path: Path) -> None:
    forge = Forge()
    logged = forge.emit("alice", SESSION, FINDING)
    forge.emit(by, SESSION, FindingRetracted(target=logged.id, reason="it does not hold"))
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out=of_stream(forge, SESSION)[-3:-1])
    assert (alone(path).word, ours(path).word) == ("PARTIAL", "PARTIAL"), alone(path).text


def test_no_event_of_a_handoff_or_of_those_it_waited_for_can_be_taken_out_unseen(tmp_path: Path) -> None:
    forge = waiting()
    _, indexes = export._select_entries(*surveyed(forge, "handoff/top"))
    streams = {stream for index in indexes if (stream := stream_of(forge, index)).startswith("handoff/")}
    assert streams == {"handoff/top", "handoff/a", "handoff/b"}
    for index in indexes:
        path = forge.export(tmp_path / "less.tar", "handoff/top", leave_out={index})
        words = (alone(path).word, ours(path).word)
        assert words == (("PARTIAL", "PARTIAL") if index else ("INVALID", "INVALID")), (index, alone(path).text)
    for stream in sorted(streams):
        left = [index for index in indexes if stream_of(forge, index) == stream]
        path = forge.export(tmp_path / "less.tar", "handoff/top", leave_out=left)
        assert (alone(path).word, ours(path).word) == ("PARTIAL", "PARTIAL")


def test_missing_events_are_named_and_may_be_allowed(tmp_path: Path) -> None:
    forge = grown()
    indexes = of_stream(forge, SESSION)
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out=indexes[-3:-1])
    text = alone(path).text
    assert text.splitlines()[-1].startswith("PARTIAL: missing 1 of ")
    assert f"1 of authority before entry {indexes[-1]}" in text
    assert "the entry that allows entry" in text
    assert program().main([str(path), "--accept", "PARTIAL"]) == 0
    assert program().main([str(path)]) == 6


def test_the_ledgers_word_on_where_streams_end_is_of_this_tree_stream_and_form(tmp_path: Path) -> None:
    forge = grown()
    path = forge.export(tmp_path / "whole.tar", SESSION)
    members = dict(members_of(path))
    finding(forge, corr="later")
    size, key = len(forge.entries), CheckpointKey(forge.checkpoint_key.origin, forge.keys["alice"].seed)
    other = open_stream_heads(members["ends"].decode(), forge.checkpoint_key.verifier)
    ends = [
        forge.ends(size, [SESSION]),
        forge.ends(size - 1, ["session/more"]),
        sign_stream_heads(other, key),
        sign_note(other.text().replace('{"authority"', '{ "authority"'), forge.checkpoint_key),
        sign_note(other.text().replace(STREAM_HEADS_TYPE, forge.checkpoint_key.origin), forge.checkpoint_key),
        members["checkpoint"].decode(),
    ]
    for note in ends:
        path.write_bytes(packed([*(members | {"ends": note.encode()}).items()]))
        assert (alone(path).word, ours(path).word) == ("INVALID", "INVALID"), note


def test_key_called_compromised_later_makes_what_it_signed_since_compromised(tmp_path: Path) -> None:
    forge = Forge()
    for text in "abc":
        finding(forge, corr=text)
    since = len(forge.entries) - 2
    data = KeyCompromised(key=forge.keys["alice"].public.hex(), since=since)
    forge.emit("ada", "agent/alice", data)
    for stream in (None, SESSION):
        path = forge.export(tmp_path / "compromised.tar", stream)
        for verdict in (alone(path).text, ours(path).text):
            assert f"SUSPECT_KEY at entry {since}: 2 entries signed with stolen keys of alice" in verdict
        assert [program().main([str(path), *more]) for more in ((), ("--accept", "SUSPECT_KEY"))] == [6, 0]
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out={since - 1})
    for options, code in ((["PARTIAL"], 6), (["SUSPECT_KEY"], 6), (["PARTIAL", "SUSPECT_KEY"], 0)):
        accepted = [word for option in options for word in ("--accept", option)]
        assert program().main([str(path), *accepted]) == code
        assert inside.deed("verify", "--bundle", path, *accepted).code == code


def test_revocation_alone_compromises_nothing(tmp_path: Path) -> None:
    forge = Forge()
    finding(forge)
    ended(forge, "ada", "alice")
    assert alone(forge.export(tmp_path / "honest.tar")).word == "VALID"


def test_command_names_what_is_missing_and_passes_only_when_told(tmp_path: Path) -> None:
    forge = grown()
    index = of_stream(forge, SESSION)[-1]
    path = forge.export(tmp_path / "less.tar", SESSION, leave_out={index})
    said = inside.deed("verify", "--bundle", path)
    assert said.code == 6
    assert f"PARTIAL: entry 4 of {SESSION} missing: {SESSION} and authority as of head {len(forge.entries)}" in said.err
    allowed = json.loads(inside.deed("--json", "verify", "--bundle", path, "--accept", "PARTIAL").out)["data"]
    missing = {"stream": SESSION, "first": 4, "last": 4, "shown_by": len(forge.entries), "since": index - 1}
    assert (allowed["outcome"], allowed["ok"], allowed["missing"]) == ("PARTIAL", False, [missing])


def test_names_that_strangers_gave_move_no_character_on_the_page(tmp_path: Path) -> None:
    forge, stream = Forge(), "record/\u202elive"
    forge.submit(forge.sign("alice", Draft(stream=stream, kind="record.imported", data=EXAMPLES["record.imported"])))
    for leave_out in ([], [len(forge.entries) - 1]):
        said = inside.deed("verify", "--bundle", forge.export(tmp_path / "odd.tar", stream, leave_out=leave_out))
        assert "live" in said.out + said.err
        assert "\u202e" not in said.out + said.err
