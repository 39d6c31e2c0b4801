from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from looking import Viewer


def test_the_red_lines_lead_to_what_holds_a_handoff_up(viewer: Viewer) -> None:
    ledger = viewer.ledger
    ledger.finish("done", verify=True)
    ledger.hand_over("first", title="第一步", depends_on=["done"])
    ledger.approve("release", ledger.hand_over("release", title="Release", depends_on=["first", "done"]))
    ledger.hand_over("after", depends_on=["release"])
    shown = viewer.data("/graph", id="release")
    edges = {(edge["from"], edge["to"]): edge["state"] for edge in shown["drawing"]["edges"]}
    assert edges == {
        ("first", "release"): "stop",
        ("done", "release"): "",
        ("done", "first"): "",
        ("release", "after"): "",
    }
    places = {node["id"]: node["x"] for node in shown["drawing"]["nodes"]}
    assert places["done"] < places["first"] < places["release"] < places["after"]
    assert "it waits for first, which is pending" in shown["why"]["sentence"]
    page = viewer.page("/graph", id="release")
    assert "why" in page
    assert 'lang="zh"' in page
    assert 'href="/h/release"' in page
    assert "it waits for 1 other handoff" in page
    assert 'href="/graph?id=release&amp;sel=first#opened"' in page


def test_others_are_shown_faded_on_request(viewer: Viewer) -> None:
    viewer.ledger.hand_over("mine")
    viewer.ledger.hand_over("other")
    assert [node["id"] for node in viewer.data("/graph", id="mine")["drawing"]["nodes"]] == ["mine"]
    faded = {node["id"]: node["is_faded"] for node in viewer.data("/graph", id="mine", all=1)["drawing"]["nodes"]}
    assert faded == {"mine": False, "other": True}


def test_a_graph_says_what_it_does_not_draw(viewer: Viewer) -> None:
    viewer.ledger.hand_over("one")
    for number in range(150):
        viewer.ledger.hand_over(f"many{number}", depends_on=["one"])
    shown = viewer.data("/graph", id="one")
    assert len(shown["drawing"]["nodes"]) == 90
    assert shown["totals"] == {"nodes": 151, "left_out": 61}
    assert "61 more are not" in viewer.page("/graph", id="one")


def test_a_graph_of_nothing_says_so_and_a_wrong_name_is_not_found(viewer: Viewer) -> None:
    assert "No handoff waits for another" in viewer.page("/graph")
    assert viewer.get("/graph", id="ghost").status_code == 404
    assert viewer.get("/graph", id="x' OR 1=1 --").status_code == 404
    assert viewer.get("/graph", depth=99).status_code == 400
    assert viewer.get("/graph", depth="two").status_code == 400


def test_markup_in_a_title_stays_text_in_a_drawing(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="</svg><script>alert(1)</script>\u202e" + "W" * 150)
    page = viewer.page("/graph", id="x")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert not re.search(r"\sstyle=|\son\w+=", page)


def test_each_blocker_has_a_line_with_a_button_if_it_is_mine(viewer: Viewer) -> None:
    ledger = viewer.ledger
    ledger.hand_over("mine", title="My approval")
    ledger.approve("theirs", ledger.hand_over("theirs", title="Their work"))
    ledger.claim("theirs")
    ledger.approve("middle", ledger.hand_over("middle", title="The middle", depends_on=["theirs"]))
    ledger.approve("release", ledger.hand_over("release", depends_on=["mine", "middle"]))
    shown = viewer.data("/graph", id="release")
    waits = [(item["id"], item["agent"], item["act"]) for item in shown["why"]["waits"]]
    assert waits == [("mine", "rita", "approve"), ("theirs", "bob", "complete")]
    for page in (viewer.page("/graph", id="release"), viewer.page("/h/release")):
        assert "it waits for 2 other handoffs. Of the next steps <strong>1 is yours</strong>." in page
        assert 'href="/h/middle">The middle</a> <span class="mono meta">middle</span>' in page
        assert 'href="/h/mine">' in page
        assert 'href="/h/mine#decide-mine">Approve …</a>' in page
        assert 'href="/h/theirs#' not in page
        assert "Their work" in page
    states = {node["id"]: (node["state"], node["meta"]) for node in shown["drawing"]["nodes"]}
    assert states["mine"] == ("pending", ["pending", "you: approve"])
    assert states["theirs"] == ("in_progress", ["in progress", "bob"])


def test_a_blocker_that_nobody_can_end_has_a_line_too(viewer: Viewer) -> None:
    viewer.ledger.hand_over("release", depends_on=["ghost"])
    page = viewer.page("/graph", id="release")
    assert "<strong>ghost</strong>" in page
    assert "it depends on ghost, which does not exist" in page


def test_a_box_opens_its_handoff_below_the_drawing(viewer: Viewer) -> None:
    viewer.ledger.hand_over("first", title="第一步")
    viewer.ledger.hand_over("release", depends_on=["first", "ghost"])
    shown = viewer.data("/graph", id="release", sel="first")
    assert (shown["opened"]["id"], shown["opened"]["why"]["is_ready"]) == ("first", False)
    assert [node["id"] for node in shown["drawing"]["nodes"] if node["is_selected"]] == ["first"]
    page = viewer.page("/graph", id="release", sel="first")
    assert 'id="opened"' in page
    assert 'href="/graph?id=release&amp;sel=first#opened"' in page
    assert "Nobody has created this handoff" in viewer.page("/graph", id="release", sel="ghost")
    assert 'id="opened"' not in viewer.page("/graph", id="release", sel="nothing")
