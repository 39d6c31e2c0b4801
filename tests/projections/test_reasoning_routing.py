"""A concluded reasoning has tags; lists, queues and searches can be filtered by tag and domain."""

from __future__ import annotations

import pytest

from deedbook.ledger.events import reasoning
from deedbook.projections.reasoning.graph import GraphState, apply_event, ref_of

CASES = {
    "jwt": ("security", "The JWT_SECRET appears in logs", "Rotate the secret immediately"),
    "pool": ("Operations", "The pool is never closed", "Close the pool after each request"),
    "price": ("", "Widgets cost 4 euros", "It is"),
}


@pytest.fixture
def routed(ledger):
    """Three reasonings, each cited by a handoff to alice."""
    for name, (domain, finding, conclusion) in CASES.items():
        events = [
            reasoning.ReasoningStarted(task=f"Look into the {name}", ai_id="bob-1", domain=domain),
            reasoning.ReasoningExtended(
                steps=[
                    reasoning.Step(step_number=1, type="observation", content=finding),
                    reasoning.Step(step_number=2, type="conclusion", content=conclusion),
                ],
                dependencies={2: [1]},
            ),
            reasoning.ReasoningConcluded(conclusion=conclusion),
        ]
        ledger.emit_all("bob", f"reasoning/{name}", *events)
        graph = GraphState()
        for event in events:
            graph = apply_event(graph, event, "bob")
        ledger.approve(f"h-{name}", ledger.hand_over(f"h-{name}", reasoning_refs=[ref_of(graph)]))
    ledger.approve("h-none", ledger.hand_over("h-none"))
    return ledger


def ids(page):
    return sorted(item["id"] for item in page["items"])


def test_a_concluded_reasoning_has_the_tags_of_its_findings_action_urgency_and_domain(routed, reader):
    tags = {row["id"]: row["tags"] for row in reader.answer("reasoning.list")["items"]}
    assert tags["jwt"] == ["jwt_secret_in_logs", "rotate_secret", "high_urgency", "security_domain"]
    assert tags["pool"] == ["pool_never_closed", "close_pool_after_request", "operations_domain"]
    assert tags["price"] == ["widgets_cost_4_euros"]
    step = reasoning.Step(step_number=3, type="observation", content="Nobody looked at staging")
    routed.emit("bob", "reasoning/jwt", reasoning.ReasoningExtended(steps=[step]))
    assert reader.answer("reasoning.show", {"id": "jwt"})["tags"] == []


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"tag": "high_urgency"}, ["jwt"]),
        ({"tag": "close_pool_after_request"}, ["pool"]),
        ({"tag": "close"}, []),
        ({"tag": "high%urgency"}, []),
        ({"domain": "Security"}, ["jwt"]),
        ({"domain": "operations"}, ["pool"]),
        ({"domain": "security", "tag": "close_pool_after_request"}, []),
        ({}, ["jwt", "pool", "price"]),
    ],
)
def test_lists_queues_and_searches_are_filtered_by_tag_and_domain(routed, reader, filters, names):
    assert ids(reader.answer("reasoning.list", filters)) == names
    waiting = reader.answer("handoffs.next", filters)
    expected = [f"h-{name}" for name in names] + ([] if filters else ["h-none"])
    assert (ids(waiting), waiting["total"]) == (sorted(expected), len(expected))
    hits = reader.answer("search.find", {"text": "look OR into"} | filters)["items"]
    found = {hit["stream"] for hit in hits if hit["stream"].startswith("reasoning/")}
    assert found == {f"reasoning/{name}" for name in names}


def test_a_filtered_queue_goes_on_at_its_cursor(routed, reader):
    everything = reader.answer("handoffs.next", {"limit": 2})
    rest = reader.answer("handoffs.next", {"limit": 2, "after": everything["next"]})
    assert len(ids(everything) + ids(rest)) == 4
    one = reader.answer("handoffs.next", {"domain": "security", "limit": 1})
    assert (ids(one), one["next"]) == (["h-jwt"], None)


def test_a_search_finds_the_handoff_that_cites_a_tagged_reasoning(routed, reader):
    hits = reader.answer("search.find", {"text": "h-jwt h-pool h-none", "tag": "rotate_secret"})["items"]
    assert {hit["stream"] for hit in hits} <= {"reasoning/jwt", "handoff/h-jwt"}
    assert "handoff/h-jwt" in {hit["stream"] for hit in hits}
