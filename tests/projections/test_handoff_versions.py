"""The versions of a handoff, and the differences between two of them, on a real ledger."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.projections.handoffs.versions import changes_of

FIRST = {"tasks": ["rotate", "tell"], "criteria": ["no downtime"], "task": "one\ntwo\nthree"}


def amend(ledger, name, **fields):
    """Let alice amend the content of a handoff."""
    data = kinds.HandoffAmended(**{"title": name, "to": "bob", "reviewer": "rita", **FIRST, **fields})
    return ledger.emit("alice", f"handoff/{name}", data)


def changed(answer):
    """Return the changes of each field: its lines, each after its mark."""
    signs = {"kept": " ", "added": "+", "removed": "-", "changed": "~"}
    return {one["field"]: [signs[line["mark"]] + line["text"] for line in one["lines"]] for one in answer["changes"]}


def test_a_handoff_that_was_never_amended_has_one_version_and_no_changes(ledger, reader):
    ledger.hand_over("a", **FIRST)
    answer = reader.answer("handoffs.versions", {"id": "a"})
    (only,) = answer["versions"]
    assert (only["number"], only["author"], only["approvals"]) == (1, "alice", [])
    assert only["version"] == reader.answer("handoffs.facts", {"id": "a"})["version"]
    assert (answer["from"], answer["to"], answer["changes"]) == (None, 1, [])
    assert answer["content"]["tasks"] == ["rotate", "tell"]


def test_what_changed_is_told_task_by_task_and_line_by_line(ledger, reader):
    ledger.hand_over("a", **FIRST)
    amend(ledger, "a", tasks=["rotate", "tell all", "wait"], criteria=[], task="one\nthree", reason="wider")
    answer = reader.answer("handoffs.versions", {"id": "a"})
    assert changed(answer) == {
        "task": [" one", "-two", " three"],
        "tasks": [" rotate", "~tell all", "+wait"],
        "criteria": ["-no downtime"],
    }
    assert [one["field"] for one in answer["changes"]] == ["task", "tasks", "criteria"]
    assert answer["changes"][1]["lines"][1]["was"] == "tell"
    assert answer["versions"][1]["text"] == "amended: wider"


def test_it_is_compared_with_the_version_that_was_approved_last(ledger, reader):
    ledger.approve("a", ledger.hand_over("a", **FIRST))
    amend(ledger, "a", tasks=["rotate"])
    amend(ledger, "a", tasks=["rotate", "tell", "wait"])
    answer = reader.answer("handoffs.versions", {"id": "a"})
    assert (answer["from"], answer["to"]) == (1, 3)
    assert changed(answer) == {"tasks": [" rotate", " tell", "+wait"]}
    assert [one["author"] for one in answer["versions"][0]["approvals"]] == ["rita"]
    between = reader.answer("handoffs.versions", {"id": "a", "from": 2, "to": 3})
    assert changed(between) == {"tasks": [" rotate", "+tell", "+wait"]}
    earlier = reader.answer("handoffs.versions", {"id": "a", "to": 2})
    assert (earlier["from"], earlier["content"]["tasks"]) == (1, ["rotate"])


def test_a_content_that_came_back_is_another_version_with_the_same_ref(ledger, reader):
    ledger.hand_over("a", **FIRST)
    amend(ledger, "a", reason="nothing")
    amend(ledger, "a", tasks=["other"])
    amend(ledger, "a", reason="back")
    versions = [one["version"] for one in reader.answer("handoffs.versions", {"id": "a"})["versions"]]
    assert len(versions) == 4
    assert versions[1] == versions[3] != versions[2]


@pytest.mark.parametrize("asked", [{"from": 2}, {"to": 2}, {"from": 9, "to": 1}])
def test_a_version_that_was_never_there_is_not_found(ledger, reader, asked):
    ledger.hand_over("a")
    with pytest.raises(Refused) as refused:
        reader.answer("handoffs.versions", {"id": "a"} | asked)
    assert refused.value.code == "NOT_FOUND"


def test_the_past_has_no_later_version(ledger, reader):
    ledger.hand_over("a", **FIRST)
    size = ledger.head()[0]
    amend(ledger, "a", tasks=["other"])
    assert reader.answer("handoffs.versions", {"id": "a"}, size - 1)["to"] == 1
    assert reader.answer("handoffs.versions", {"id": "a"})["to"] == 2


def test_notes_of_the_sender_are_compared_each_for_itself():
    content = asdict(kinds.HandoffContent(title="t"))
    old, new = (content | {"notes": {"traps": ["a"], "tried": tried}} for tried in ([], ["b"]))
    assert [one.field for one in changes_of(old, new)] == ["tried"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # If a task is added before a changed one, the first is shown as added, not as changed.
        (["rotate the key"], ["ask the owners", "rotate the old key"], ["+ask the owners", "~rotate the old key"]),
        (["rotate the key", "tell users"], ["rotate the old key"], ["~rotate the old key", "-tell users"]),
        (["one", "two"], ["drei", "vier"], ["-one", "-two", "+drei", "+vier"]),
        (["one"], ["drei"], ["~drei"]),
        (["轮换密钥", "通知用户"], ["先备份", "轮换旧密钥", "通知用户"], ["+先备份", "~轮换旧密钥", " 通知用户"]),
        (["", "x"], ["y", "", "z"], ["+y", " ", "~z"]),
    ],
)
def test_a_line_is_compared_with_the_line_that_it_resembles(old, new, expected):
    changes = [one.to_dict() for one in changes_of({"tasks": old, "notes": {}}, {"tasks": new, "notes": {}})]
    assert changed({"changes": changes}) == {"tasks": expected}


def test_a_block_of_many_lines_is_compared_line_by_line():
    old, new = ([f"{word} {number}" for number in range(100)] for word in ("old", "new"))
    (change,) = changes_of({"tasks": old, "notes": {}}, {"tasks": new, "notes": {}})
    assert change.counts == {"changed": 100}
