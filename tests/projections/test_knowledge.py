"""The knowledge graph: the consequences and the sources of any node, and stale nodes."""

from __future__ import annotations

import pytest

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCancelled
from deedbook.ledger.events.reasoning import EvidenceCheck, ReasoningExtended, ReasoningStarted, Step
from deedbook.ledger.events.session import FindingRetracted


def asked(reader, **arguments):
    answer = reader.answer("knowledge.graph", arguments)
    nodes = {node["id"]: node for node in answer["nodes"]}
    return answer, nodes, {(edge["from"], edge["via"], edge["to"]): edge["is_stale"] for edge in answer["edges"]}


def entry_of(reader, kind):
    return reader.answer("catalog.find", {"kind": kind})["items"][0]["event_index"]


def test_what_was_found_in_a_session_leads_back_to_who_worked_there(ledger, reader):
    ledger.record_session("s1")
    ledger.report("s1")
    finding = f"finding/{entry_of(reader, 'finding.logged')}"
    answer, nodes, edges = asked(reader, id=finding)
    assert edges.keys() == {
        ("session/s1", "found", finding),
        ("evidence/a.py:3", "shows", finding),
        ("agent/bob", "worked in", "session/s1"),
        ("session/s1", "left open", f"unknown/{entry_of(reader, 'unknown.logged')}"),
        ("session/s1", "gave up", f"dead_end/{entry_of(reader, 'dead_end.logged')}"),
        ("session/s1", "reported", "report/s1"),
    }
    assert answer["is_complete"]
    assert (nodes[finding]["label"], nodes[finding]["hops"], nodes["agent/bob"]["hops"]) == (
        "The pool is never closed",
        0,
        2,
    )
    assert asked(reader, id=finding, direction="forward")[1].keys() == {finding}
    assert asked(reader, id="report/s1", direction="back", depth=8)[1].keys() == {
        "report/s1",
        "session/s1",
        "agent/bob",
    }
    assert finding in asked(reader, id="evidence/a.py:3")[1]


def test_what_was_taken_back_given_up_or_has_changed_since_is_stale(ledger, reader):
    ledger.record_session("s1")
    ref = ledger.reason("r1")
    ledger.hand_over("done", reasoning_refs=[ref])
    ledger.emit("alice", "handoff/done", HandoffCancelled(reason="no"))
    found = reader.answer("catalog.find", {"kind": "finding.logged"})["items"][0]
    ledger.emit("bob", "session/s1", FindingRetracted(target=found["id"], reason="wrong"))
    _, nodes, edges = asked(reader)
    assert {node["id"]: node["state"] for node in nodes.values() if node["is_stale"]} == {
        "handoff/done": "cancelled",
        f"finding/{found['event_index']}": "retracted",
    }
    assert edges[("reasoning/r1", "argues for", "handoff/done")] is False
    assert not any(name.startswith(("agent/", "evidence/")) for name in nodes)
    ledger.validate("r1", ref, passed=False)
    assert asked(reader, id="reasoning/r1")[1]["reasoning/r1"]["state"] == "doubted"


def test_a_line_from_evidence_that_has_changed_or_from_another_version_is_stale(ledger, reader):
    step = Step(step_number=1, type="observation", content="It is", evidence=["a.py:3", "b.py:4"])
    ledger.emit("bob", "reasoning/r2", ReasoningStarted(task="Is it?", ai_id="bob-1"))
    ledger.emit("bob", "reasoning/r2", ReasoningExtended(steps=[step]))
    ref = reader.answer("reasoning.list")["items"][0]["ref"]
    ledger.hand_over("h", reasoning_refs=[ref])
    checks = [EvidenceCheck(step=1, reference=one, status=what) for one, what in (("a.py:3", "gone"), ("b.py:4", "ok"))]
    ledger.validate("r2", ref, evidence=checks)
    _, _, edges = asked(reader, id="reasoning/r2")
    assert edges[("evidence/a.py:3", "supports", "reasoning/r2")]
    assert not edges[("evidence/b.py:4", "supports", "reasoning/r2")]
    assert not edges[("reasoning/r2", "argues for", "handoff/h")]
    ledger.emit(
        "bob", "reasoning/r2", ReasoningExtended(steps=[Step(step_number=2, type="observation", content="More")])
    )
    assert asked(reader, id="reasoning/r2")[2][("reasoning/r2", "argues for", "handoff/h")]


def test_things_are_asked_for_by_words_and_agent(ledger, reader):
    ledger.record_session("s1")
    ledger.hand_over("other", title="Something else")
    assert {node["type"] for node in asked(reader, text="POOL", depth=0)[1].values()} == {"finding"}
    assert {node["agent"] for node in asked(reader, agent="alice", depth=0)[1].values()} == {"alice"}
    assert asked(reader, text="' OR 1=1 --")[1] == {}
    for wrong in ("finding/99999", "nothing/x", "reasoning/' OR 1=1 --", "plain"):
        with pytest.raises(Refused) as refused:
            asked(reader, id=wrong)
        assert refused.value.code == "NOT_FOUND"


def test_of_more_than_is_asked_for_the_nearest_are_shown(ledger, reader):
    ledger.hand_over("h0")
    for number in range(1, 30):
        ledger.hand_over(f"h{number}", depends_on=["h0"])
    answer, nodes, _ = asked(reader, id="handoff/h0", limit=10)
    assert len(nodes) == 10
    assert not answer["is_complete"]
    assert next(iter(nodes)) == "handoff/h0"
    whole, nodes, edges = asked(reader, id="handoff/h0", depth=1)
    assert (len(nodes), len(edges), whole["is_complete"]) == (31, 30, True)
    # A walk does not go on from an agent that it meets, only from one at which it starts.
    assert len(asked(reader, id="handoff/h3", depth=8)[1]) == 31
    assert len(asked(reader, id="agent/alice", depth=1)[1]) == 31
