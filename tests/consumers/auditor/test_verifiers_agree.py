"""Logs that are validly signed and wrong: both verifiers say so, and differ only where one says what it leaves out."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import pytest
from bundle_mutations import members_of, packed
from forge import SESSION, Forge
from forged_steps import WrongLog
from invitations import checkpoint_key_of, invite, join
from judges import alone, ours
from test_left_out_events import stream_of
from wrong_logs import WRONG_LOGS

from deedbook.ledger.events.authority import AgentRemoved
from deedbook.ledger.format.envelope import decode_entry

if TYPE_CHECKING:
    from pathlib import Path


NO_ENTRY = {"INVALID_FORMAT", "UNSUPPORTED_VERSION", "a batch is kept whole"}
SHOWN_BY_ALL = {  # what only the whole log shows
    "the clock does not jump ahead": "VALID",
    "a handoff gives its place to one that is there": "PARTIAL",
}


def test_log_that_the_cases_begin_with_is_valid_for_both(tmp_path: Path) -> None:
    forge = Forge()
    for stream in (None, SESSION, "handoff/open"):
        path = forge.export(tmp_path / "honest.tar", stream)
        assert (ours(path).word, alone(path).word) == ("VALID", "VALID"), (ours(path).text, alone(path).text)


def test_checkpoint_counts_under_the_key_of_any_node_that_is_one(tmp_path: Path) -> None:
    forge = Forge()
    join(forge, invite(forge, "n2", "node"))
    join(forge, invite(forge, "n3", "node"))
    forge.checkpoint_with = checkpoint_key_of("n2")
    for stream in (None, SESSION, "agent/n2"):
        path = forge.export(tmp_path / "node.tar", stream)
        assert (ours(path).word, alone(path).word) == ("VALID", "VALID"), (ours(path).text, alone(path).text)
    forge.emit("ada", "agent/n2", AgentRemoved(agent="n2"))
    forge.checkpoint_with = checkpoint_key_of("n3")
    assert len(dict(members_of(forge.export(tmp_path / "left.tar")))["keys/checkpoint.vkey"].splitlines()) == 2
    forge.checkpoint_with = checkpoint_key_of("n2")
    for stream in (None, SESSION):
        path = forge.export(tmp_path / "removed.tar", stream)
        assert (ours(path).word, alone(path).word) == ("INVALID", "INVALID")


def test_each_rule_is_broken_once() -> None:
    rules = [case.rule for case in WRONG_LOGS]
    assert len(set(rules)) == len(rules) >= 60
    assert sum(case.replayed for case in WRONG_LOGS) >= 60


@pytest.mark.parametrize("case", WRONG_LOGS, ids=lambda case: case.rule.replace(" ", "-"))
def test_wrong_log_is_found_by_both(case: WrongLog, tmp_path: Path) -> None:
    forge = Forge(is_begun=case.is_begun)
    case.make(forge)
    index = None if case.index is None else case.index % len(forge.entries)
    path = forge.export(tmp_path / "wrong.tar")
    mine, other = ours(path), alone(path)
    assert (mine.word, mine.index) == ("INVALID", index), mine.text
    assert f"{index} {case.code} " in mine.text
    if case.replayed:
        assert (other.word, other.index) == ("INVALID", index), other.text
    else:
        assert index is not None
        family = decode_entry(forge.entries[index]).body.split(b'"stream":"')[1].split(b"/")[0].decode()
        assert other.word == "VALID"
        assert family in other.text.partition("rules not replayed: ")[2].partition(";")[0]


@pytest.mark.parametrize("name", ["checkpoint", "schemas.json", "verify.py"])
def test_member_that_somebody_else_made_fits_no_bundle(name: str, tmp_path: Path) -> None:
    path = Forge().export(tmp_path / "other.tar")
    members = dict(members_of(path))
    note, _, line = members["checkpoint"].rpartition(b" ")
    others = {
        "checkpoint": note + b" " + b64encode(b64decode(line)[:4] + bytes(64)) + b"\n",  # the key's id, no signature
        "schemas.json": members["schemas.json"].replace(
            b'"additionalProperties":false', b'"additionalProperties":true'
        ),
        "verify.py": members["verify.py"].replace(b"if not condition:", b"if False:"),
    }
    path.write_bytes(packed([(one, others[one] if one == name else data) for one, data in members.items()]))
    assert (ours(path).word, alone(path).word) == ("INVALID", "INVALID")


# What is no entry cannot be exported as one of a stream; what is of no entry, no stream shows.
OF_STREAMS = [one for one in WRONG_LOGS if one.index is not None and NO_ENTRY.isdisjoint((one.code, one.rule))]


@pytest.mark.parametrize("case", OF_STREAMS, ids=lambda case: case.rule.replace(" ", "-"))
def test_wrong_entry_is_found_in_a_bundle_of_its_stream(case: WrongLog, tmp_path: Path) -> None:
    forge = Forge(is_begun=case.is_begun)
    case.make(forge)
    path = forge.export(tmp_path / "wrong.tar", stream_of(forge, (case.index or 0) % len(forge.entries)))
    mine, other = ours(path), alone(path)
    assert mine.word == SHOWN_BY_ALL.get(case.rule, "INVALID"), mine.text
    assert other.index == (mine.index if case.replayed else None)
    assert other.word == (mine.word if case.replayed or mine.word == "PARTIAL" else "VALID"), other.text
