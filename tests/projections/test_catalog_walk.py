"""The query ``catalog.why``: from an event back to its causes and forward to its consequences, on a real ledger."""

from __future__ import annotations

import pytest

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCompleted, HandoffSuperseded
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.projections.catalog import walk

UNKNOWN = "sha256:" + "0" * 64


def ways(steps):
    """Return the events that a walk reached, and how it reached them."""
    return [(step["event_index"], step["via"], step["of"], step["depth"]) for step in steps]


def last(reader, kind):
    """Return the index of the newest event of a kind."""
    return reader.answer("catalog.find", {"kind": kind})["items"][-1]["event_index"]


def test_a_result_rests_on_what_it_names_and_on_the_steps_of_its_handoff(ledger, reader):
    ledger.emit("bob", "session/s", SessionStarted())
    finding = ledger.emit("bob", "session/s", FindingLogged(finding="the pool leaks"))
    ref = ledger.reason("r", steps=2)
    ledger.approve("h", ledger.hand_over("h", reasoning_refs=[ref]))
    ledger.claim("h")
    done = ledger.emit("bob", "handoff/h", HandoffCompleted(reasoning_refs=[ref]), causes=[finding.id])
    concluded, claimed = reader.answer("resolve", {"id": ref})["event_index"], last(reader, "handoff.claimed")
    answer = reader.answer("catalog.why", {"id": str(done.index), "direction": "back", "depth": 3})
    first, second = ([step for step in ways(answer["causes"]) if step[3] == depth] for depth in (1, 2))
    assert first == [
        (finding.index, "causes", done.index, 1),
        (concluded, "reasoning_ref", done.index, 1),
        (claimed, "stream", done.index, 1),
    ]
    assert second == [(concluded - 1, "stream", concluded, 2), (claimed - 1, "stream", claimed, 2)]
    assert answer["effects"] == []
    effects = reader.answer("catalog.why", {"id": ref, "direction": "forward", "depth": 1})["effects"]
    created = last(reader, "handoff.created")
    assert ways(effects) == [(created, "reasoning_ref", concluded, 1), (done.index, "reasoning_ref", concluded, 1)]


def test_a_handoff_rests_on_another_as_it_was_then_and_its_claim_on_what_came_of_it(ledger, reader):
    first = ledger.hand_over("a")
    created_a = ledger.size - 1
    ledger.approve("b", ledger.hand_over("b", depends_on=["a"]))
    created_b = created_a + 1
    ledger.approve("a", first)
    ledger.claim("a")
    done = ledger.emit("bob", "handoff/a", HandoffCompleted())
    ledger.claim("b")
    claimed_b = ledger.size - 1
    by_creation = reader.answer("catalog.why", {"id": str(created_b), "depth": 1})
    assert ways(by_creation["causes"]) == [(created_a, "depends_on", created_b, 1)]
    by_claim = reader.answer("catalog.why", {"id": str(claimed_b), "depth": 1})["causes"]
    assert ways(by_claim)[0] == (done.index, "depends_on", claimed_b, 1)
    effects = reader.answer("catalog.why", {"id": str(done.index), "direction": "forward", "depth": 1})["effects"]
    assert ways(effects) == [(claimed_b, "depends_on", done.index, 1)]


def test_answers_and_successors_lead_to_the_other_handoff(ledger, reader):
    ledger.finish("old", verify=False)
    done = last(reader, "handoff.completed")
    ledger.hand_over("answer", answers="old")
    assert ways(reader.answer("catalog.why", {"id": "handoff/answer"})["causes"])[0][:2] == (done, "answers")
    ledger.hand_over("new")
    created = ledger.size - 1
    ledger.hand_over("gone")
    gone = ledger.emit("alice", "handoff/gone", HandoffSuperseded(by="new"))
    steps = ways(reader.answer("catalog.why", {"id": str(gone.index), "depth": 1})["causes"])
    assert steps == [(created, "superseded_by", gone.index, 1), (gone.index - 1, "stream", gone.index, 1)]


def test_a_review_rests_on_its_snapshot_and_the_validations_it_weighed(ledger, reader):
    validated = ledger.validate("r", ledger.reason("r"))
    ledger.snap("n")
    taken = ledger.size - 1
    ledger.ask("v", snapshot_id="n", validations=[validated.id, UNKNOWN])
    answer = reader.answer("catalog.why", {"id": "review/v", "depth": 1, "direction": "back"})
    assert ways(answer["causes"]) == [
        (validated.index, "validation", taken + 1, 1),
        (taken, "snapshot", taken + 1, 1),
    ]
    assert answer["unresolved"] == [{"ref": UNKNOWN, "via": "validation", "depth": 1, "of": taken + 1}]


def test_every_step_back_is_a_step_forward_of_the_other_and_the_other_way_round(ledger, reader):
    ledger.fill()
    pairs = {"back": set(), "forward": set()}
    for index in range(ledger.size):
        for direction, steps in (("back", "causes"), ("forward", "effects")):
            asked = {"id": str(index), "direction": direction, "depth": 1, "limit": 500}
            found = [step["event_index"] for step in reader.answer("catalog.why", asked)[steps]]
            pairs[direction] |= {(index, other) if direction == "back" else (other, index) for other in found}
    assert pairs["back"] == pairs["forward"]
    assert all(later > earlier for later, earlier in pairs["back"])
    assert len(pairs["back"]) > 30


def test_a_walk_says_what_leads_nowhere_and_where_it_stopped(ledger, reader):
    ledger.emit("bob", "session/s", SessionStarted(), causes=[UNKNOWN])
    event = ledger.event(-1)
    for number in range(3):
        ledger.emit("bob", "session/s", FindingLogged(finding=f"f{number}"), causes=[event.id])
        event = ledger.event(-1)
    whole = reader.answer("catalog.why", {"id": event.id})
    assert ([step["depth"] for step in whole["causes"]], whole["is_complete"]) == ([1, 2, 3], True)
    assert [step["ref"] for step in whole["unresolved"]] == [UNKNOWN]
    cut = reader.answer("catalog.why", {"id": event.id, "depth": 2})
    assert ([step["depth"] for step in cut["causes"]], cut["is_complete"]) == ([1, 2], False)
    assert reader.answer("catalog.why", {"id": event.id, "depth": 3})["is_complete"]


def test_what_no_event_made_can_be_asked_for_by_those_who_name_it(ledger, reader):
    named = ledger.emit("bob", "session/s", SessionStarted(), causes=[UNKNOWN])
    answer = reader.answer("catalog.why", {"id": UNKNOWN})
    assert (answer["event"], answer["ref"], answer["causes"]) == (None, UNKNOWN, [])
    assert ways(answer["effects"]) == [(named.index, "causes", None, 1)]
    with pytest.raises(Refused) as refused:
        reader.answer("catalog.why", {"id": UNKNOWN.replace("0", "1")})
    assert refused.value.code == "NOT_FOUND"


def test_pages_of_one_direction_give_every_event_once(ledger, reader):
    start = ledger.emit("bob", "session/s", SessionStarted())
    for number in range(7):
        ledger.emit("bob", "session/s", FindingLogged(finding=f"f{number}"), causes=[start.id])
    indexes, after = [], 0
    while after is not None:
        asked = {"id": start.id, "direction": "forward", "limit": 3, "after": after}
        page = reader.answer("catalog.why", asked)
        assert page["effects_total"] == 7
        indexes += [step["event_index"] for step in page["effects"]]
        after = page["next"]
    assert indexes == list(range(start.index + 1, start.index + 8))
    with pytest.raises(Refused) as refused:
        reader.answer("catalog.why", {"id": start.id, "after": 3})
    assert refused.value.code == "USAGE"


def test_where_all_name_all_each_event_is_read_once_and_the_walk_ends(ledger, reader, monkeypatch):
    ledger.emit("bob", "session/s", SessionStarted())
    first = ledger.emit("bob", "session/s", FindingLogged(finding="0"))
    layer = [first.id]
    for number in range(1, 4):
        layer = [
            ledger.emit("bob", "session/s", FindingLogged(finding=f"{number}.{one}"), causes=layer).id
            for one in range(6)
        ]
    read, linked = [], walk._linked
    monkeypatch.setattr(walk, "_linked", lambda *asked: read.extend(asked[-1]) or linked(*asked))
    asked = {"id": first.id, "direction": "forward"}
    answer = reader.answer("catalog.why", asked)
    assert (answer["effects_total"], answer["is_complete"]) == (18, True)
    assert sorted(read) == list(range(first.index, first.index + 19))
    monkeypatch.setattr(walk, "steps_walked_max", 8)
    answer = reader.answer("catalog.why", asked)
    assert (answer["effects_total"], answer["is_complete"]) == (8, False)
