from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from deedbook.consumers.interfaces.dashboard.pages.home import cards_max, items_max
from deedbook.ledger.events.decision import DecisionMade
from deedbook.ledger.events.handoff import HandoffQuestionAsked, ReceiverNotes
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.question import QuestionAsked
from deedbook.ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from looking import Viewer


def test_what_waits_stands_first_the_oldest_above(viewer: Viewer) -> None:
    for name in ("one", "two"):
        viewer.ledger.clock.advance(60)
        data = viewer.ledger.hand_over(name, title="a title")
    shown = viewer.data("/")
    assert [(item["id"], item["action"]) for item in shown["items"]] == [("one", "approve"), ("two", "approve")]
    assert shown["items"][0]["version"] == compute_version("alice", data)
    page = viewer.page("/")
    assert page.index('id="q-one:approve"') < page.index('id="q-two:approve"')


def test_an_address_names_the_handoff_and_the_action_and_a_stale_one_says_what_became_of_it(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    viewer.ledger.emit("bob", "handoff/x", HandoffQuestionAsked(to="rita", question="Which port?"))
    shown = viewer.data("/", open="x:approve")
    assert [item["key"] for item in shown["items"]] == ["x:answer", "x:approve"]
    assert (shown["opened"], shown["missed"]) == ("x:approve", None)
    assert viewer.data("/", open="x")["opened"] == "x:answer"
    stale = viewer.page("/", open="x:settle")
    assert 'Nothing about <a href="/h/x">x</a> waits for you here: ' in stale
    assert viewer.data("/", open="y:approve")["missed"] is None


def test_a_time_before_the_ledger_leads_to_its_first_entry(viewer: Viewer) -> None:
    answer = viewer.get("/events", as_of="2001-01-01")
    assert answer.status_code == 404
    assert '<a href="/events?as_of=0">' in answer.text
    assert "?as_of=0" not in viewer.get("/events", as_of=999999).text


def test_questions_to_a_person_come_first_with_what_is_new_for_them(viewer: Viewer) -> None:
    for name in ("one", "two"):
        viewer.ledger.hand_over(name)
    viewer.ledger.emit("bob", "handoff/two", HandoffQuestionAsked(to="rita", question="Which <b>port</b>?"))
    shown = viewer.data("/")
    first = shown["items"][0]
    assert (first["id"], first["action"]) == ("two", "answer")
    assert shown["unread"]["total"] == 3
    page = viewer.page("/")
    assert "3 unread: what others did that concerns you. <code>deed unread --as rita</code>" in page
    assert "alice → bob" in page
    assert "asks rita: Which &lt;b&gt;port&lt;/b&gt;?" in page
    assert viewer.data("/", as_of=str(viewer.ledger.head()[0] - 1))["unread"] is None


def test_question_about_no_handoff_opens_its_form(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "question/q", QuestionAsked(to="rita", question="Which port?", place="src/a.py:3"))
    page = viewer.page("/", open="q")
    assert "deed answer --as rita q ANSWER" in page  # her key has no passphrase, so the dashboard cannot sign with it
    assert "src/a.py:3" in page
    assert '<a class="ref" href="/events?stream=question%2Fq">question/q</a>' in page


def test_handoff_has_the_decisions_about_its_files(viewer: Viewer) -> None:
    viewer.ledger.hand_over("h", notes=ReceiverNotes(touches=["src/a.py: callers"]))
    viewer.ledger.emit("bob", "decision/one", DecisionMade(text="One <b>route</b>", paths=["src/**"]))
    viewer.ledger.emit("bob", "decision/other", DecisionMade(text="Tabs", paths=["docs"]))
    assert [row["id"] for row in viewer.data("/h/h")["decisions"]] == ["one"]
    assert "One &lt;b&gt;route&lt;/b&gt;" in viewer.page("/h/h")


def test_markup_in_a_title_stays_text(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="<script>alert(1)</script>")
    page = viewer.page("/")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert not re.search(r"\sstyle=|\son\w+=", page)


def test_what_the_board_leaves_out_is_a_link_away(viewer: Viewer) -> None:
    names = [f"h{number:02}" for number in range(cards_max + 2)]
    for name in names:
        viewer.ledger.hand_over(name)
    assert '<a href="/?status=pending">and 2 more</a>' in viewer.page("/")
    listed = viewer.data("/", status="pending")
    assert [one["id"] for one in listed["columns"][0]["handoffs"]] == names[::-1]
    newest = listed["columns"][0]["handoffs"][0]
    older = viewer.data("/", status="pending", before=newest["created_index"])
    assert [one["id"] for one in older["columns"][0]["handoffs"]] == names[-2::-1]
    assert viewer.get("/", status="' OR 1=1").status_code == 400


def imported(viewer: Viewer, title: str, status: str = "approved") -> RecordImported:
    """Return an imported handoff from kuro to bob that waits for rita."""
    return RecordImported(
        original=viewer.ledger.put_blob("alice", "# 修復 <b>\n".encode()),
        source="h.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped={"title": title, "to": "bob", "reviewer": "rita"},
        claimed_author="kuro",
        claims={"status": status},
    )


def test_what_needs_a_person_is_paged_and_claims_of_files_come_last(viewer: Viewer) -> None:
    record = imported(viewer, "old")
    viewer.ledger.emit("alice", "handoff/old", record)
    viewer.ledger.emit("alice", "handoff/over", msgspec.structs.replace(record, claims={"status": "已完成 <i>"}))
    for number in range(items_max):
        viewer.ledger.hand_over(f"h{number:02}")
    first = viewer.data("/")
    assert first["items"][0]["id"] == "h00"
    assert [one["id"] for one in viewer.data("/", after=first["next"])["items"]] == ["old"]
    assert "from imported files, to confirm" in viewer.page("/", after=first["next"])
    assert "# 修復 &lt;b&gt;" in viewer.page("/h/old")  # people can read the thing that they confirm
    assert first["history"] == 1
    assert '<a href="/?status=pending&amp;over=1">1 imported handoff</a> claims to be over' in viewer.page("/")
    (column,) = viewer.data("/", status="pending", over=1)["columns"]
    assert [card["id"] for card in column["handoffs"]] == ["over"]
    assert "已完成 &lt;i&gt;</span>; nobody here has confirmed it" in viewer.page("/", status="pending", over=1)


def test_after_a_decision_imported_items_follow_when_no_other_is_left(viewer: Viewer) -> None:
    viewer.ledger.emit("alice", "handoff/old", imported(viewer, "old"))
    viewer.ledger.emit("alice", "handoff/older", imported(viewer, "older"))
    for name in ("x", "y"):
        viewer.ledger.hand_over(name)
    following = {name: viewer.data("/", open=name)["following"] for name in ("x", "y", "old", "older")}
    assert following == {"x": "y:approve", "y": "x:approve", "old": "older:approve", "older": "x:approve"}


def test_the_queue_is_filtered_with_the_number_of_each(viewer: Viewer) -> None:
    for number in range(items_max + 2):
        viewer.ledger.hand_over(f"h{number:02}", title=f"Work {number}")
    viewer.ledger.finish("done")
    page = viewer.page("/")
    assert "approve 32</a>" in page
    assert "verify 1</a>" in page
    assert 'value="alice">alice (33)</option>' in page
    assert "next 30 of 33" in page
    shown = viewer.data("/", action="verify")
    assert [item["id"] for item in shown["items"]] == ["done"]
    assert [item["id"] for item in viewer.data("/", text="WORK 31")["items"]] == ["h31"]
    assert 'href="/?action=approve&amp;text=work+3&amp;open=h03%3Aapprove#at-h03%3Aapprove"' in viewer.page(
        "/", text="work 3", action="approve"
    )
    assert "Nothing that passes the filters" in viewer.page("/", **{"from": "bob"})
    assert viewer.get("/", action="' OR 1=1").status_code == 400


def test_imported_work_of_one_title_stands_together(viewer: Viewer) -> None:
    for name, title in (("a", "Same"), ("b", "Other"), ("c", "Same")):
        viewer.ledger.emit("alice", f"handoff/{name}", imported(viewer, title))
    assert [(item["id"], item["alike"]) for item in viewer.data("/")["items"]] == [("a", 2), ("c", 2), ("b", 1)]
    assert "2 have this title" in viewer.page("/")


def test_a_day_in_words_stays_that_day_in_every_link(viewer: Viewer) -> None:
    assert re.search(r'href="/graph\?as_of=\d{4}-\d\d-\d\dT', viewer.page("/", as_of="1 minute ago"))
