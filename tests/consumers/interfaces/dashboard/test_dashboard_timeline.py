from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from deedbook.consumers.interfaces.dashboard.pages.timeline import lanes_shown_max, team_shown_max
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, SessionEnded, SessionStarted
from deedbook.ledger.lifecycle.clock import clock_text

if TYPE_CHECKING:
    from looking import Viewer


def imported(viewer: Viewer, kind: str, stream: str, **fields: Any) -> None:
    """Let alice import a record of gemini."""
    made = {"claimed_author": "gemini", "claimed_at": "2025-06-01T10:00:00Z"} | fields
    original = viewer.ledger.put_blob("alice", str((stream, fields)).encode())
    data = RecordImported(original=original, source="notes/x", format="empirica/note", mapped_kind=kind, **made)
    viewer.ledger.emit("alice", stream, data)


def test_what_is_handed_over_is_an_arrow_from_lane_to_lane(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("one", title="<b>一</b>")
    viewer.ledger.clock.advance(2 * 3600)
    viewer.ledger.approve("one", data)
    viewer.ledger.claim("one")
    drawing = viewer.data("/timeline")["drawing"]
    lanes = {lane["name"]: lane["x"] for lane in drawing["lanes"]}
    assert {"alice", "bob", "rita"} == lanes.keys()
    claimed, approved, created = drawing["rows"]  # the newest first
    assert (created["x"], created["to_x"]) == (lanes["alice"], lanes["bob"])
    assert (approved["x"], approved["to_x"]) == (lanes["rita"], None)
    assert (claimed["pause"], approved["pause"], created["pause"]) == (None, None, "2 h")
    assert claimed["day"] is not None
    page = viewer.page("/timeline")
    assert "&lt;b&gt;一" in page
    # It ends at the lane of the agent that has to act next.
    end = lanes["bob"] + (4 if lanes["bob"] < lanes["alice"] else -4)
    assert f'x1="{lanes["alice"]}" y1="50%" x2="{end}" y2="50%" marker-end="url(#passed)"' in page
    assert "created the handoff to bob" in page
    assert "→ bob" not in page  # the words say it already
    assert [word in page for word in ("approved", "(version")] == [True, False]
    assert "2 h without an event" in page


def test_a_session_is_a_bar_on_its_lane_while_it_lasts(viewer: Viewer) -> None:
    viewer.ledger.hand_over("before")
    viewer.ledger.clock.advance(1)
    viewer.ledger.emit("bob", "session/s1", SessionStarted(ai_id="bob", task="look"))
    viewer.ledger.hand_over("one")
    viewer.ledger.clock.advance(1)
    viewer.ledger.emit("bob", "session/s1", SessionEnded())
    viewer.ledger.clock.advance(1)
    viewer.ledger.hand_over("two")
    drawing = viewer.data("/timeline")["drawing"]
    bars = {row["stream"]: [bar["id"] for bar in row["bars"]] for row in drawing["rows"]}
    assert bars == {"handoff/two": [], "handoff/one": ["s1"], "session/s1": ["s1"], "handoff/before": []}
    assert 'href="/s/s1"' in viewer.page("/timeline")


def test_the_bar_of_a_session_goes_on_through_a_pause(viewer: Viewer) -> None:
    viewer.ledger.hand_over("before")
    viewer.ledger.clock.advance(2 * 3600)
    viewer.ledger.emit("bob", "session/s1", SessionStarted(ai_id="bob", task="look"))
    viewer.ledger.clock.advance(2 * 3600)
    viewer.ledger.hand_over("one")
    one, start, before = viewer.data("/timeline")["drawing"]["rows"]
    assert (one["above"], start["pause"], before["pause"]) == ([], "2 h", "2 h")
    assert [[bar["id"] for bar in row["above"]] for row in (start, before)] == [["s1"], []]
    pauses = re.findall(r'<li class="pause">.*', viewer.page("/timeline"))
    assert ['class="bar"' in pause for pause in pauses] == [False, True, False]  # the first is that of the day


def test_the_team_says_which_events_it_counts_and_has_services_apart(viewer: Viewer) -> None:
    for number in range(70):
        viewer.ledger.hand_over(f"h{number}")
    viewer.ledger.register("compressor", "service")
    viewer.ledger.emit("compressor", "session/s", SessionStarted(task="look"))
    shown, page = viewer.data("/timeline"), viewer.page("/timeline")
    number = sum(lane["events"] for lane in shown["lanes"])
    begin = clock_text(shown["first_ms"])
    assert shown["span"] == [begin, None]
    assert re.search(rf"all {number} events from <time [^>]*>{begin[:16].replace('T', ' ')}</time> until now", page)
    assert "compressor" not in {lane["agent"] for lane in shown["team"]}
    assert re.search(r'id="services"[^>]*>[^\n]*>compressor</a> \d', page)
    older = viewer.data("/timeline", after=shown["next"])
    assert older["span"] == [None, clock_text(older["last_ms"])]


def test_imported_history_is_on_the_lane_and_at_the_time_that_it_claims(viewer: Viewer) -> None:
    imported(viewer, "session.started", "session/old", mapped={"task": "Look at it", "ai_id": "gemini"})
    later = {"claimed_at": "2025-06-01T12:30:00Z"}
    imported(viewer, "session.started", "session/old", mapped={"task": "Look again"}, **later)
    again, start = viewer.data("/timeline")["drawing"]["rows"]
    assert (again["agent"], again["type"], again["pause"]) == ("gemini", "session.started", None)
    assert (start["pause"], start["day"], again["day"]) == ("2 h", None, "2025-06-01")
    assert [bar["is_imported"] for bar in start["bars"]] == [True]
    (lane,) = viewer.data("/timeline")["drawing"]["lanes"]
    assert (lane["name"], lane["is_claimed"]) == ("gemini", True)
    page = viewer.page("/timeline")
    assert "began a session: Look at it" in page
    assert "claimed, imported by alice" in page
    assert viewer.data("/timeline", since="2025-06-01T11:00:00Z", agent="gemini")["total"] == 1
    assert viewer.data("/timeline", agent="alice")["total"] == 0


def test_of_many_acts_the_newest_are_drawn_and_older_ones_are_a_page_away(viewer: Viewer) -> None:
    for number in range(70):
        viewer.ledger.hand_over(f"h{number}")
    shown = viewer.data("/timeline")
    assert (len(shown["drawing"]["rows"]), shown["total"]) == (60, 70)
    assert f"after={shown['next']}" in viewer.page("/timeline")
    older = viewer.data("/timeline", after=shown["next"])
    assert len(older["drawing"]["rows"]) == 10
    assert older["next"] is None


def test_the_timeline_says_how_many_events_it_leaves_out_and_leads_to_them(viewer: Viewer) -> None:
    for number in range(70):
        viewer.ledger.hand_over(f"h{number}")
    viewer.ledger.emit("bob", "session/s", SessionStarted(task="look"))
    for number in range(5):
        viewer.ledger.emit("bob", "session/s", FindingLogged(finding=f"it is {number}"))
    page, shown = viewer.page("/timeline"), viewer.data("/timeline")
    assert "60 of 71 events are drawn on this page, newest first" in page
    total = viewer.data("/events")["total"]
    assert shown["events"] == total == 71 + 4 + 5  # the ledger began with four
    assert f'finish: <a href="/events">all {total} events</a>' in page
    assert "9 other events are not drawn" in page
    assert 'href="/timeline">newest</a>' in viewer.page("/timeline", after=shown["next"])
    assert "5 other events" in viewer.page("/timeline", agent="bob")
    assert 'href="/events?agent=bob">all 6 events</a>' in viewer.page("/timeline", agent="bob")
    assert 'id="left-out"' not in viewer.page("/timeline", kind="finding.logged")


def test_a_team_of_many_agents_leads_to_all_of_them(viewer: Viewer) -> None:
    for number in range(team_shown_max + 1):
        imported(viewer, "session.started", f"session/{number}", claimed_author=f"ai-{number}", mapped={"task": "x"})
    assert f"; {team_shown_max} of {len(viewer.data('/timeline')['team'])} agents" in viewer.page("/timeline")


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
    assert viewer.get("/timeline", agent="' OR 1=1 --").status_code == 400


def test_more_agents_than_lanes_share_the_last(viewer: Viewer) -> None:
    for number in range(lanes_shown_max + 3):
        imported(viewer, "session.started", f"session/{number}", claimed_author=f"ai-{number}", mapped={"task": "x"})
    drawing = viewer.data("/timeline")["drawing"]
    assert [lane["name"] for lane in drawing["lanes"]][-1] == "others"
    assert len(drawing["lanes"]) == lanes_shown_max + 1
    assert {row["x"] for row in drawing["rows"]} == {lane["x"] for lane in drawing["lanes"]}
