"""Nobody may act on a reasoning that a thief may have signed, until somebody validated it or a human answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbook.consumers.reasoning.snapshots.act import act_on
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.reasoning import ReasoningConcluded, ReasoningExtended, ReasoningStarted, Step
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.client.local import LocalClient


def test_reasoning_of_a_stolen_key_asks_a_human(ledger: Ledger, local_client: LocalClient) -> None:
    steps = [Step(step_number=1, type="observation", content="It is so")]
    for data in (
        ReasoningStarted(task="t", domain="operations"),
        ReasoningExtended(steps=steps),
        ReasoningConcluded(conclusion="Do it"),
    ):
        ledger.emit("alice", "reasoning/r", data)
    with Reader(local_client, ledger.settings()) as reader:
        assert act_on(reader.answer, "r").action == "act"
        stolen = KeyCompromised(key=ledger.keys["alice"].public.hex(), since=ledger.head()[0] - 1, reason="stolen")
        ledger.emit("root", "agent/alice", stolen)
        decision = act_on(reader.answer, "r")
    assert decision.rule is not None
    assert (decision.action, decision.may_act, decision.rule.name) == ("human_review_required", False, "suspect_key")
