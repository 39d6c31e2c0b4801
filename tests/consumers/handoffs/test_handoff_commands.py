"""The command that moves an item of `deed next` on: a person can paste it, whatever characters an id has."""

from __future__ import annotations

import shlex

import pytest

from deedbook.consumers.handoffs.operations import command_of, with_commands

ITEM = {"kind": "handoff", "id": "h", "agent": "rita", "act": "approve", "arguments": {}}


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({}, "deed handoff show --as rita h"),
        ({"act": "verify"}, "deed handoff show --as rita h"),
        ({"act": "show"}, "deed handoff show --as rita h"),
        ({"act": "request_changes"}, "deed handoff show --as rita h"),
        (
            {"act": "answer", "arguments": {"question_numbers": [2]}},
            "deed answer --as rita h:2 ANSWER",
        ),
        ({"act": "settle", "arguments": {"question_numbers": [1, 2]}}, "deed settle --as rita h:1 h:2"),
        ({"kind": "question", "act": "answer"}, "deed answer --as rita h ANSWER"),
        ({"kind": "question", "act": "settle"}, "deed settle --as rita h"),
        ({"act": "check", "arguments": {"criterion_numbers": [3]}}, "deed handoff check --criterion 3 --as rita h"),
        (
            {"kind": "review", "act": "answer", "arguments": {"approve": True}},
            "deed review answer --approve --as rita h",
        ),
    ],
)
def test_an_act_is_a_command_line(more, command):
    assert command_of(ITEM | more) == command


def test_a_command_can_be_pasted_whatever_the_id_is():
    id_ = "$(reboot); 東西 'x' --json"
    words = shlex.split(command_of(ITEM | {"id": id_}, is_asked=True))
    assert words == ["deed", "handoff", "approve", "--as", "rita", id_]


def test_a_reader_sees_the_command_in_place_of_the_act():
    (item,) = with_commands({"items": [ITEM], "total": 1}, is_asked=True)["items"]
    assert item == {"kind": "handoff", "id": "h", "agent": "rita", "command": "deed handoff approve --as rita h"}


@pytest.mark.parametrize(("act", "read"), [("approve", "--version v1"), ("verify", "--result r1")])
def test_command_after_a_handoff_was_shown_names_what_was_read(act, read):
    shown = {"id": "h", "version": "v1", "result": "r1"}
    assert command_of(ITEM | {"act": act}, shown=shown) == f"deed handoff {act} {read} --as rita h"
