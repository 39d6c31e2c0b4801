from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import DeadEndLogged, FindingLogged, SessionStarted

if TYPE_CHECKING:
    from looking import Viewer


def test_what_is_known_is_drawn_from_what_was_there_to_what_came_of_it(viewer: Viewer) -> None:
    emit = viewer.ledger.emit
    emit("bob", "session/s1", SessionStarted(ai_id="bob", task="look"))
    index = emit("bob", "session/s1", FindingLogged(finding="<i>泄漏</i>", evidence=["a.py:3"])).index
    emit("bob", "session/s1", DeadEndLogged(approach="Restart", why_failed="It comes back"))
    shown = viewer.data("/k", id=f"finding/{index}")
    places = {node["id"]: node["x"] for node in shown["drawing"]["nodes"]}
    assert places["agent/bob"] < places["session/s1"] < places[f"finding/{index}"]
    paths = {node["id"]: node["path"] for node in shown["nodes"]}
    assert paths["session/s1"] == "/s/s1"
    assert paths["agent/bob"] == "/a/bob"
    assert paths[f"finding/{index}"] == f"/e/{index}"
    assert paths["evidence/a.py:3"] is None
    page = viewer.page("/k", id=f"finding/{index}")
    assert "&lt;i&gt;泄漏" in page
    assert 'href="/k?id=session%2Fs1"' in page
    assert f'href="/k?id=finding%2F{index}&amp;direction=back"' in page
    assert "Restart" in viewer.page("/k", text="restart", agent="bob")


def test_nothing_known_says_so_and_what_there_is_not_is_not_found(viewer: Viewer) -> None:
    assert "Nothing matches" in viewer.page("/k", text="%")
    assert "Nothing is known yet" in viewer.page("/k")
    for nothing in ("finding/0", "evidence/NONSENSE"):
        assert viewer.get("/k", id=nothing).status_code == 404
    assert viewer.get("/k", direction="sideways").status_code == 400


def test_an_imported_thing_has_its_claimed_agent_and_time(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "session/s1", SessionStarted(task="look"))
    viewer.ledger.emit("bob", "session/s1", DeadEndLogged(approach="Restart", why_failed="It comes back"))
    record = RecordImported(
        original=viewer.ledger.put_blob("alice", b"old"),
        source="notes/x",
        format="empirica/finding",
        mapped_kind="finding.logged",
        mapped={"finding": "The pool leaks", "topic": "pool"},
        claimed_author="gemini",
        claimed_at="2025-06-01T10:00:00Z",
    )
    index = viewer.ledger.emit("alice", "session/old", record).index
    nodes = {node["id"]: node for node in viewer.data("/k")["nodes"]}
    assert nodes.keys() == {"dead_end/5", "session/s1", f"finding/{index}", "session/old"}
    assert {nodes[name]["happened_ms"] for name in list(nodes)[2:]} == {
        found_ms := nodes[f"finding/{index}"]["happened_ms"]
    }
    assert all(node["happened_ms"] > found_ms for node in list(nodes.values())[:2])  # newest first
    assert not [node for node in viewer.data("/k")["drawing"]["nodes"] if "blocked" in str(node)]
    found = nodes[f"finding/{index}"]
    assert (found["agent"], found["is_claimed"], nodes["session/old"]["agent"]) == ("gemini", True, "gemini")
    page = viewer.page("/k")
    assert "2025-06-01 10:00" in page
    assert re.search(r'<option value="finding">finding \(1\)</option>', page)
    for filters in ({"kind": "finding"}, {"agent": "gemini"}, {"tag": "pool"}, {"until": "2025-07-01"}):
        shown = {node["id"] for node in viewer.data("/k", **filters)["nodes"]}
        assert f"finding/{index}" in shown
        assert "dead_end/5" not in shown
    assert viewer.get("/k", id=f"finding/{index}", agent="gemini").status_code == 400
    assert viewer.get("/k", kind="finding.logged").status_code == 400
