"""Validly signed, wrong logs: both verifiers name the same entry and the same code."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import pytest
from bundle_tars import members_of, packed
from event_examples import EXAMPLES
from forge import SESSION, Forge
from forged_steps import WrongLog, example
from invitations import checkpoint_key_of, invite, join
from judges import alone, ours
from test_left_out_events import stream_of
from wrong_logs import WRONG_LOGS

from deedbook.ledger.events.authority import AgentRemoved

if TYPE_CHECKING:
    from pathlib import Path


NO_ENTRY = {"INVALID_FORMAT", "UNSUPPORTED_VERSION", "a batch is kept whole"}
SHOWN_BY_ALL = {  # only the whole log shows these
    "the clock does not jump ahead": "VALID",
    "a batch has at most so many bytes": "VALID",
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


@pytest.mark.parametrize("case", WRONG_LOGS, ids=lambda case: case.rule.replace(" ", "-"))
def test_wrong_log_is_found_by_both(case: WrongLog, tmp_path: Path) -> None:
    forge = Forge(is_begun=case.is_begun)
    case.make(forge)
    index = None if case.index is None else case.index % len(forge.entries)
    path = forge.export(tmp_path / "wrong.tar")
    mine, other = ours(path), alone(path)
    assert (mine.word, mine.index) == ("INVALID", index), mine.text
    assert case.code in mine.codes[index], mine.text
    assert (other.word, other.index) == ("INVALID", index), other.text
    assert case.code in other.codes[index], other.text


def test_family_whose_rules_are_not_replayed_is_named(tmp_path: Path) -> None:
    forge, stream = Forge(), f"tot/{EXAMPLES['tot.decompose_task']['task_id']}"
    example(forge, "alice", stream, "tot.decompose_task")  # a search that did not begin
    mine, other = (judge(forge.export(tmp_path / "tot.tar")) for judge in (ours, alone))
    assert (mine.word, other.word) == ("INVALID", "PARTIAL")
    assert "PARTIAL: fields and rules not checked, of the families tot: " in other.text
    assert alone(forge.export(tmp_path / "tot.tar"), "--accept", "PARTIAL").word == "PARTIAL"
    assert alone(forge.export(tmp_path / "other.tar", SESSION)).word == "VALID"


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


# Bytes that are no entry cannot be exported as part of a stream. The bundle of a stream cannot show a fault that
# belongs to no entry. A verifier checks an entry of a stream as it checks one of the whole log, so one case of each
# code is enough.
SHOWN_BY_STREAMS = [one for one in WRONG_LOGS if one.index is not None and NO_ENTRY.isdisjoint((one.code, one.rule))]
OF_STREAMS = [*{one.code if one.rule not in SHOWN_BY_ALL else one.rule: one for one in SHOWN_BY_STREAMS}.values()]


@pytest.mark.parametrize("case", OF_STREAMS, ids=lambda case: case.rule.replace(" ", "-"))
def test_wrong_entry_is_found_in_a_bundle_of_its_stream(case: WrongLog, tmp_path: Path) -> None:
    forge = Forge(is_begun=case.is_begun)
    case.make(forge)
    path = forge.export(tmp_path / "wrong.tar", stream_of(forge, (case.index or 0) % len(forge.entries)))
    mine, other = ours(path), alone(path)
    assert mine.word == SHOWN_BY_ALL.get(case.rule, "INVALID"), mine.text
    assert (other.word, other.index) == (mine.word, mine.index), other.text
    assert other.codes.get(other.index) == mine.codes.get(mine.index), (mine.text, other.text)
