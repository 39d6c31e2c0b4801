"""The lanes of agents: the handovers between them, and the events that each signed, in each part of the log."""

from __future__ import annotations

from deedbook.ledger.events.session import SessionEnded, SessionStarted


def asked(reader, **arguments):
    return reader.answer("catalog.lanes", arguments)


def test_acts_say_to_whom_they_pass_work(ledger, reader):
    ledger.approve("one", ledger.hand_over("one", title="一"))
    ledger.claim("one")
    acts = asked(reader)["items"]
    assert [(act["type"], act["agent"], act["passed_to"]) for act in acts] == [
        ("handoff.claimed", "bob", None),
        ("handoff.approved", "rita", None),
        ("handoff.created", "alice", "bob"),
    ]
    assert {act["title"] for act in acts} == {"一"}
    ledger.finish("two")
    assert asked(reader)["items"][0]["passed_to"] == "rita"


def test_a_stretch_counts_what_each_signed_in_it_and_pages_go_back(ledger, reader):
    for name in ("one", "two", "three"):
        ledger.finish(name, verify=True)
    whole = asked(reader)
    assert whole["total"] == len(whole["items"]) == 15
    seen, after = [], None
    while True:
        page = asked(reader, limit=4, after=after)
        seen += page["items"]
        assert page["total"] == 15
        in_span = {lane["agent"]: lane["events"] for lane in page["lanes"]}
        assert all(in_span[act["agent"]] > 0 for act in page["items"])
        after = page["next"]
        if after is None:
            break
    assert seen == whole["items"]
    mine = asked(reader, agent="bob", since=seen[-1]["accepted_ms"])
    assert {act["author"] for act in mine["items"]} == {"bob"}
    assert [lane["agent"] for lane in mine["lanes"]] == ["bob"]
    assert mine["lanes"][0]["kinds"]["handoff.claimed"] == 3


def test_sessions_overlap_the_stretch(ledger, reader):
    ledger.emit("bob", "session/early", SessionStarted(ai_id="bob", task="before"))
    ledger.emit("bob", "session/early", SessionEnded())
    ledger.clock.advance(60)
    index, data = ledger.size, ledger.hand_over("one")
    ledger.emit("bob", "session/open", SessionStarted(ai_id="bob", task="now"))
    ledger.approve("one", data)
    shown = asked(reader, since=ledger.event(index).accepted_ms)["sessions"]
    assert [(one["id"], one["to_ms"]) for one in shown] == [("open", None)]
    assert [one["id"] for one in asked(reader)["sessions"]] == ["open", "early"]
    assert asked(reader, agent="alice")["sessions"] == []
