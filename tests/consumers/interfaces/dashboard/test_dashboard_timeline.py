from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from deedbook.ledger.events.session import SessionEnded, SessionStarted
from deedbook.ledger.lifecycle.clock import clock_text

if TYPE_CHECKING:
    from looking import Viewer


def test_what_is_handed_over_is_an_arrow_from_lane_to_lane(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("one", title="<b>一</b>")
    viewer.ledger.clock.advance(2 * 3600)
    viewer.ledger.approve("one", data)
    viewer.ledger.claim("one")
    drawing = viewer.data("/timeline")["drawing"]
    lanes = drawing["lanes"]
    assert {"alice", "bob", "rita"} <= lanes.keys()
    created, approved, claimed = drawing["operations"]
    assert (created["y"], created["to_y"]) == (lanes["alice"], lanes["bob"])
    assert (approved["y"], approved["to_y"]) == (lanes["rita"], None)
    assert created["x"] < approved["x"] < claimed["x"] < drawing["width"]
    assert approved["x"] - created["x"] > claimed["x"] - approved["x"]
    assert [time["x"] for time in drawing["times"]] == [created["x"], approved["x"]]
    page = viewer.page("/timeline")
    assert "&lt;b&gt;一" in page
    assert 'marker-end="url(#passed)"' in page


def test_a_session_is_a_bar_that_leads_to_its_page(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "session/s1", SessionStarted(ai_id="bob", task="look"))
    viewer.ledger.hand_over("one")
    viewer.ledger.emit("bob", "session/s1", SessionEnded())
    viewer.ledger.hand_over("two")
    shown = viewer.data("/timeline")["drawing"]
    (bar,), (first, second) = shown["bars"], shown["operations"]
    assert bar["x"] <= first["x"] <= bar["x"] + bar["w"] < second["x"]
    assert 'href="/s/s1"' in viewer.page("/timeline")


def test_of_many_acts_the_newest_are_drawn_and_older_ones_are_a_page_away(viewer: Viewer) -> None:
    for number in range(70):
        viewer.ledger.hand_over(f"h{number}")
    shown = viewer.data("/timeline")
    assert (len(shown["drawing"]["operations"]), shown["total"]) == (60, 70)
    assert all(one["x"] < other["x"] for one, other in pairwise(shown["drawing"]["operations"]))
    assert f"after={shown['next']}" in viewer.page("/timeline")
    older = viewer.data("/timeline", after=shown["next"])
    assert len(older["drawing"]["operations"]) == 10
    assert older["next"] is None


def test_the_timeline_begins_at_a_time(viewer: Viewer) -> None:
    viewer.ledger.hand_over("one")
    first = viewer.data("/timeline")["items"][0]
    viewer.ledger.clock.advance(60)
    viewer.ledger.hand_over("two")
    acts = viewer.data("/timeline", since=clock_text(first["accepted_ms"] + 1_000))["items"]
    assert [one["event_index"] for one in acts] == [first["event_index"] + 1]
    assert len(viewer.data("/timeline", since="30 years ago")["items"]) == 2
    assert viewer.data("/timeline", since="2099-01-01")["items"] == []


def test_nobody_has_done_anything(viewer: Viewer) -> None:
    assert "Nothing has happened yet" in viewer.page("/timeline")
    assert viewer.get("/timeline", since="someday").status_code == viewer.get("/timeline", since="5").status_code == 400
    assert viewer.data("/timeline", agent="' OR 1=1 --")["items"] == []


def test_of_sessions_that_overlap_in_a_lane_each_bar_ends_where_the_next_begins(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "session/s1", SessionStarted(ai_id="bob", task="one"))
    viewer.ledger.hand_over("one")
    viewer.ledger.emit("bob", "session/s2", SessionStarted(ai_id="bob", task="two"))
    viewer.ledger.hand_over("two")
    bars = {one["id"]: one for one in viewer.data("/timeline")["drawing"]["bars"]}
    assert bars["s1"]["x"] + bars["s1"]["w"] == bars["s2"]["x"]
    assert viewer.data("/s/s1")["handoffs"] == viewer.data("/s/s2")["handoffs"] == []
