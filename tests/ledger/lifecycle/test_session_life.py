"""A session belongs to whoever started it, until it ends."""

from __future__ import annotations

import pytest
from given import fact, fold, refusal

from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.lifecycle.machine import OwnedState
from deedbook.ledger.lifecycle.session import MACHINE

START = fact("alice", kinds.SessionStarted(task="find out"))
END = fact("alice", kinds.SessionEnded())
WRITTEN: list[EventData] = [
    kinds.AssessmentRecorded(phase="CHECK", vectors=kinds.Vectors(know=0.5)),
    kinds.FindingLogged(finding="f"),
    kinds.UnknownLogged(unknown="u"),
    kinds.DeadEndLogged(approach="a", why_failed="w"),
    kinds.ToolUsed(tool="t"),
]
names = pytest.mark.parametrize("data", WRITTEN, ids=lambda data: type(data).__name__)


@names
def test_owner_writes_while_the_session_is_open(data: EventData) -> None:
    assert fold(MACHINE.decide, START, fact("alice", data)) == OwnedState("alice", "open")


@names
def test_nobody_else_writes(data: EventData) -> None:
    refused = refusal(MACHINE.decide, OwnedState("alice", "open"), fact("bob", data))
    assert (refused.code, refused.details) == ("NOT_AUTHORIZED", {"name": "bob", "allowed": ["alice"]})


@names
def test_nothing_is_written_before_the_start_or_after_the_end(data: EventData) -> None:
    assert refusal(MACHINE.decide, None, fact("alice", data)).code == "NOT_FOUND"
    assert (
        refusal(MACHINE.decide, fold(MACHINE.decide, START, END), fact("alice", data)).code == "TRANSITION_NOT_ALLOWED"
    )


def test_session_ends_once_by_its_owner() -> None:
    assert fold(MACHINE.decide, START, END) == OwnedState("alice", "ended")
    assert (
        refusal(MACHINE.decide, OwnedState("alice", "open"), fact("bob", kinds.SessionEnded())).code == "NOT_AUTHORIZED"
    )
    assert refusal(MACHINE.decide, OwnedState("alice", "ended"), END).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("state", [OwnedState("alice", "open"), OwnedState("alice", "ended")])
def test_session_is_started_once(state: OwnedState) -> None:
    assert refusal(MACHINE.decide, state, START).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize(
    "state", [OwnedState("alice", "open"), OwnedState("alice", "ended"), OwnedState("alice", "imported")]
)
def test_a_session_is_corrected_at_any_time_and_stays_as_it_is(state: OwnedState) -> None:
    retracted = fact("alice", kinds.FindingRetracted(target="blake3:" + "1" * 64, reason="no"))
    assert MACHINE.decide(state, retracted) == state
    assert refusal(MACHINE.decide, None, retracted).code == "NOT_FOUND"
