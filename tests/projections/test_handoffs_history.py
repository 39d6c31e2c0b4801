"""Imported handoffs that claim to be over: *given the status in the file, expect the handoff in these lists*."""

from __future__ import annotations

import pytest

from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.imported import RecordImported
from deedbook.projections.handoffs.claims import OVER, OVER_IF_MARKED, claims_over

OVER_WORDS = """
    done | Done ✅ | **DONE** | completed (2026-02-12) | Completed: all phases | implemented (abc1234) | IMPLEMENTED
    merged | verified | closed-on-github | Closed, see #12 | absorbed | superseded by: other.md | rejected — too slow
    abandoned | won't fix | wontfix | Won’t do | cancelled | canceled | archived | obsolete | approved → implemented
    review -> done (yesterday) | done 02/14 | done 100% | withdrawn | shipped in 1.2
    完成 | 已完成 | 已完成（02-14） | 全部完成 | 完成了 | 實作完成 | 已實作 | 已实现 | 已合并 | 已合併 | 被取代 | 已取消
    取消 | 已經關閉 | 已废弃 | 廢棄 | 已放弃 | 已拒绝 | 驳回 | 已归档 | 已驗證 | 已验证 | 已上線：正式環境
"""
OPEN_WORDS = """
    pending | approved | approved (phase 1 implemented) | in_progress | In Progress | blocked | draft | needs-review
    Draft — done soon | review-approved | not done | almost done | done? | done, but not tested
    completed except the docs | done 80% | done 3 of 5 | phase 1 done | deferred | on hold | implementation
    to be merged | ready to merge | implemented → reopened | proposed | new
    未完成 | 待验证 | 部分完成 | 进行中 | 實作 | 部署 | 验证 | 尚未實作 | 等待合并
    草稿 | 已批准 | 核准 | partially implemented
"""


def words(text):
    """Return the statuses of a table."""
    return [status.strip() for line in text.strip().splitlines() for status in line.split("|")]


@pytest.mark.parametrize("status", words(OVER_WORDS))
def test_these_statuses_claim_to_be_over(status):
    assert claims_over(status)


@pytest.mark.parametrize("status", ["", None, "?", "✅", *words(OPEN_WORDS)])
def test_these_statuses_leave_work_open(status):
    assert not claims_over(status)


def test_each_word_of_the_lists_counts_alone_or_with_its_mark():
    assert all(claims_over(word) for word in OVER)
    assert [word for word in OVER_IF_MARKED if claims_over(word) or not claims_over(f"已{word}")] == []


def imported(status, **mapped):
    """Return the record of a file with this status."""
    return RecordImported(
        original="blake3:" + "7" * 64,
        source="old/h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": "t", "to": "bob", "reviewer": "rita"} | mapped,
        claims={} if status is None else {"status": status},
    )


def listed(reader, **arguments):
    """Return the ids in the list of handoffs, and the number that it left out as history."""
    answer = reader.answer("handoffs.list", arguments)
    return [row["id"] for row in answer["items"]], answer["history"]


def waiting(reader):
    """Return each wait: the handoff, the agent that it waits for, and the action."""
    items = reader.answer("handoffs.next", {"limit": 500})["items"]
    return {(item["id"], item["agent"], item["action"]) for item in items}


@pytest.fixture
def history(ledger):
    """Import a handoff that claims to be over, and one that does not."""
    ledger.emit("alice", "handoff/old", imported("已完成（02-14）"))
    ledger.emit("alice", "handoff/open", imported("approved"))
    return ledger


def test_history_is_in_no_queue_and_in_lists_only_if_asked_for(history, reader):
    assert waiting(reader) == {("open", "rita", "approve")}
    assert listed(reader) == (["open"], 1)
    assert listed(reader, to="bob", status="pending") == (["open"], 1)
    assert listed(reader, status="verified") == ([], 0)
    assert listed(reader, history="only") == (["old"], 0)
    assert listed(reader, history="shown") == (["open", "old"], 0)
    assert reader.answer("handoffs.files", {})["items"] == ["open"]
    assert reader.answer("handoffs.files", {"all": True})["items"] == ["old", "open"]
    assert reader.answer("handoffs.graph", {})["totals"]["nodes"] == 1


def test_history_is_no_card_on_the_board(history, reader):
    board = reader.answer("handoffs.board", {"all": True})
    assert {column["status"]: column["total"] for column in board["columns"] if column["total"]} == {"pending": 1}
    assert board["history"] == 1
    (column,) = (it for it in reader.answer("handoffs.board", {"history": "shown"})["columns"] if it["total"])
    assert (column["total"], [card["id"] for card in column["handoffs"]]) == (2, ["open", "old"])


def test_the_import_of_history_is_no_news_and_later_events_are(history, reader):
    def unread():
        return [line["id"] for line in reader.answer("handoffs.unread", {"agent": "bob"})["items"]]

    assert unread() == ["open"]
    history.emit("alice", "handoff/old", kinds.HandoffLogged(text="see the archive"))
    assert unread() == ["open", "old"]


def test_why_tells_how_the_claim_can_be_made_to_count(history, reader):
    said = "it was imported as '已完成（02-14）' and waits for nobody; to make that count here, rita can verify it"
    answer = reader.answer("handoffs.why", {"id": "old"})
    assert (answer["sentence"], answer["waits"]) == (f"old is not ready: {said}.", [])
    history.verify("rita", "old")
    assert listed(reader) == (["open", "old"], 0)
    assert reader.answer("handoffs.why", {"id": "old"})["status"] == "verified"


def test_history_that_the_importer_amends_is_open_work(history, reader):
    history.emit("alice", "handoff/old", kinds.HandoffAmended(title="again", to="bob", reviewer="rita"))
    assert ("old", "rita", "approve") in waiting(reader)
    assert listed(reader) == (["open", "old"], 0)


def test_history_waits_for_nobody_even_if_its_people_are_removed_or_may_not_act(ledger, reader):
    ledger.register("ruth", "reviewer")
    ledger.emit("ruth", "handoff/own", imported("merged", reviewer="ruth"))
    assert waiting(reader) == set()


def test_open_work_that_needs_history_waits_for_its_sender_until_it_is_verified(history, reader):
    history.approve("live", history.hand_over("live", depends_on=["old"]))
    assert waiting(reader) == {("open", "rita", "approve"), ("live", "alice", "amend")}
    (item,) = (it for it in reader.answer("handoffs.next", {})["items"] if it["id"] == "live")
    claim = "was imported as '已完成（02-14）' and not verified here (its reviewer can verify it)"
    assert item["why"] == f"it waits for old, which {claim}: amend its dependencies"
    assert "old, which is imported as" in reader.answer("handoffs.why", {"id": "live"})["sentence"]
    history.verify("rita", "old")
    assert waiting(reader) == {("open", "rita", "approve"), ("live", "bob", "claim")}


def test_work_that_was_handed_over_before_its_dependency_was_imported_waits_alike(ledger, reader):
    ledger.approve("live", ledger.hand_over("live", depends_on=["old"]))
    reader.answer("handoffs.list")
    ledger.emit("alice", "handoff/old", imported("done"))
    (item,) = reader.answer("handoffs.next", {})["items"]
    assert (item["id"], item["action"], "imported as 'done'" in item["why"]) == ("live", "amend", True)


def test_an_imported_handoff_waits_once_with_a_remark_about_its_dependencies(history, reader):
    history.emit("alice", "handoff/next", imported("draft", depends_on=["old"]))
    assert waiting(reader) == {("open", "rita", "approve"), ("next", "rita", "approve")}
    (item,) = (it for it in reader.answer("handoffs.next", {})["items"] if it["id"] == "next")
    assert "it waits for old, which was imported as" in item["why"]
