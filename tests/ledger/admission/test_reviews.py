"""Only a human answers a review, with his own key; only another than the owner validates a reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from building import Ledger, key_named
from event_examples import published

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import ReasoningExtended, ReasoningStarted, ReasoningValidated, Step
from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested

if TYPE_CHECKING:
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key

ASKED = ReviewRequested(question="May it?", rule="high_impact")
APPROVED = ReviewAnswered(verdict="approved")
REPORT = msgspec.convert(published("reasoning.validated"), ReasoningValidated)


def code_of(ledger: Ledger, author: str, stream: str, data: EventData, key: Key | None = None) -> str:
    """Return the code with which an event is refused, having left nothing behind."""
    before = ledger.head()
    with pytest.raises(Refused) as refused:
        ledger.emit(author, stream, data, key=key)
    assert ledger.head() == before
    return refused.value.code


def test_review_is_answered_by_a_human_and_by_nobody_else(ledger: Ledger) -> None:
    ledger.register("vera", "service", "reviewer", "agent")
    ledger.emit("bob", "review/v", ASKED)
    for author in ("bob", "alice", "vera", "root"):
        assert code_of(ledger, author, "review/v", APPROVED) == "NOT_AUTHORIZED"
    ledger.emit("rita", "review/v", APPROVED)
    ledger.clock.advance(1)
    assert code_of(ledger, "rita", "review/v", APPROVED) == "TRANSITION_NOT_ALLOWED"


def test_answer_of_a_review_is_never_delegated(ledger: Ledger) -> None:
    ledger.emit("bob", "review/v", ASKED)
    key = ledger.delegate("rita", key_named("rita's laptop"))
    assert code_of(ledger, "rita", "review/v", APPROVED, key) == "KEY_OUT_OF_SCOPE"


def test_reasoning_is_validated_by_service_reviewer_or_human_and_not_by_its_owner(ledger: Ledger) -> None:
    for name, role in (("vera", "service"), ("rob", "reviewer")):
        ledger.register(name, role)  # type: ignore[arg-type]  # both are roles
    ledger.register("olga", "agent", "reviewer", "human", "service")
    stream = "reasoning/r"
    assert code_of(ledger, "vera", stream, REPORT) == "NOT_FOUND"
    ledger.emit("olga", stream, ReasoningStarted(task="t"))
    assert code_of(ledger, "vera", stream, REPORT) == "TRANSITION_NOT_ALLOWED"
    step = Step(step_number=1, type="observation", content="c")
    ledger.emit("olga", stream, ReasoningExtended(steps=[step]))
    assert code_of(ledger, "olga", stream, REPORT) == "SELF_APPROVAL"
    assert code_of(ledger, "bob", stream, REPORT) == "NOT_AUTHORIZED"
    for name in ("vera", "rob", "rita"):
        ledger.emit(name, stream, REPORT)
    # A report changes nothing: the owner goes on.
    ledger.emit("olga", stream, ReasoningExtended(steps=[msgspec.structs.replace(step, step_number=2)]))
