"""A snapshot is taken once and agrees with itself; a review is requested once and answered once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_examples import published
from given import fact, fold, refusal

from deedbook.ledger.events.review import ReviewAnswered, ReviewRequested
from deedbook.ledger.events.session import Vectors
from deedbook.ledger.events.snapshot import SnapshotTaken
from deedbook.ledger.lifecycle import review, snapshot
from deedbook.ledger.lifecycle.machine import OwnedState

TAKEN = msgspec.convert(published("snapshot.taken"), SnapshotTaken, str_keys=True)
ASKED = ReviewRequested(question="May it?", rule="high_impact")


def test_snapshot_is_taken_once() -> None:
    state = fold(snapshot.MACHINE.decide, fact("alice", TAKEN))
    assert state == OwnedState("alice", "taken")
    assert refusal(snapshot.MACHINE.decide, state, fact("alice", TAKEN)).code == "TRANSITION_NOT_ALLOWED"


def test_snapshot_of_a_context_alone_is_taken() -> None:
    data = SnapshotTaken(vectors=Vectors(), context_source="author", context_summary="c")
    assert fold(snapshot.MACHINE.decide, fact("alice", data)).owner == "alice"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("context_source", "none"),
        ("reasoning_fidelity", 0.5),
        ("reasoning_fidelity", None),
        ("reasoning_brief", "All is well."),
        ("reasoning_tags", ["all_well"]),
        ("top_assumptions", []),
        ("top_evidence_refs", ["a.py:1"]),
        ("reasoning_ref", "sha256:" + "0" * 64),
        ("reasoning_ref", None),
        ("conclusion", "Do nothing"),
        ("level", "standard"),
        ("briefs", [TAKEN.briefs[0], TAKEN.briefs[0]]),
    ],
)
def test_snapshot_that_contradicts_itself_is_refused(field: str, value: Any) -> None:
    changed = msgspec.structs.replace(TAKEN, **{field: value})
    assert refusal(snapshot.MACHINE.decide, None, fact("alice", changed)).code == "INVALID_FIELD"


def test_review_is_requested_once_and_answered_once() -> None:
    answer = fact("rita", ReviewAnswered(verdict="approved"))
    assert refusal(review.MACHINE.decide, None, answer).code == "NOT_FOUND"
    state = fold(review.MACHINE.decide, fact("bob", ASKED))
    assert state == OwnedState("bob", "open")
    assert refusal(review.MACHINE.decide, state, fact("bob", ASKED)).code == "TRANSITION_NOT_ALLOWED"
    after = review.MACHINE.decide(state, answer)
    assert after.status == "answered"
    assert refusal(review.MACHINE.decide, after, answer).code == "TRANSITION_NOT_ALLOWED"
